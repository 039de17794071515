"""``qbuild crt FILE…``: which C runtime prebuilt libraries ask for, and whether it fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.cli.common import print_json
from qbuild.console import Reporter
from qbuild.errors import ToolchainError, UsageError

if TYPE_CHECKING:
    from qbuild.binary.coff import CoffFile

_KINDS = (".lib", ".obj", ".a", ".o")


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE|DIR", help="object files, libraries, or folders of them"
    )
    parser.add_argument(
        "--runtime",
        choices=("dynamic", "static"),
        help="check them against /MD or /MT, as a recipe's toolchain.runtime says it",
    )
    parser.epilog = (
        "The files are read, never linked or run. Exit code with --runtime: 0 if all fit, "
        f"{ToolchainError.exit_code} if one does not."
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Print what each file asks for; with ``--runtime`` refuse those that do not fit."""
    from qbuild.binary.coff import read_coff
    from qbuild.toolchains import crt

    read = [read_coff(path) for path in _files(args.files)]
    problems = (
        [p for each in read for p in crt.library_problems(each, args.runtime)]
        if (args.runtime)
        else []
    )
    if args.json:
        print_json({
            "files": [_row(each) for each in read],
            "problems": [{"library": p.library, "what": p.message, "ways": p.ways}
                         for p in problems],
        })  # fmt: skip
    elif not args.quiet:
        for each in read:
            row = _row(each)
            asked = ", ".join(row["runtimes"]) or "no runtime"
            print(f"{each.name}: {asked} ({row['objects']} objects)")
            if each.dlls:
                print(f"  import library of {', '.join(each.dlls)}")
        for problem in problems:
            print(f"refused: {problem.message}")
            print("".join(f"  way out: {way}\n" for way in problem.ways), end="")
    if not problems:
        reporter.say("read only: nothing was linked or run")
    return ToolchainError.exit_code if problems else 0


def _row(found: CoffFile) -> dict[str, Any]:
    from qbuild.toolchains.crt import demand_of

    demands = [demand_of(item) for item in found.objects]
    return {
        "name": found.name,
        "objects": len(found.objects),
        "runtimes": sorted({flag for demand in demands for flag in demand.runtimes}),
        "keys": {key: value for demand in demands for key, value in demand.keys.items()},
        "unreadable": [demand.member for demand in demands if demand.opaque],
        "dlls": list(found.dlls),
    }


def _files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if not path.exists():
            raise UsageError("there is no such file or folder", where=name)
        if path.is_file():
            yield path
            continue
        found = sorted(each for each in path.rglob("*") if each.suffix.lower() in _KINDS)
        if not found:
            raise UsageError(
                "the folder holds no object file and no library", where=name, fix="name the files"
            )
        yield from found
