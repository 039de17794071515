"""``qbuild toolkit``: which CUDA toolkits are here; or put one together from NVIDIA's archives."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path

from qbuild.cli.common import print_json
from qbuild.console import Reporter
from qbuild.errors import UsageError


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--from",
        dest="url",
        metavar="URL",
        help="NVIDIA's redistrib_<release>.json, or a copy of it beside the archives (file://…)",
    )
    parser.add_argument("--sha256", default="", metavar="HEX", help="what that file must hash to")
    parser.add_argument("--into", metavar="DIR", help="new folder for the toolkit")


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Show the toolkits of this machine, or make one.

    Raises:
        UsageError: Only one of ``--from`` and ``--into`` is given.
        ToolchainError, OriginError, ArchiveError: See :func:`qbuild.cuda.redist.assemble`.
    """
    if bool(args.url) != bool(args.into) or (args.sha256 and not args.url):
        raise UsageError(
            "--from and --into go together", fix="qbuild toolkit --from URL --into DIR"
        )
    if args.url:
        return _assemble(args, reporter)
    from qbuild.cuda import toolkit

    machine = toolkit.capture()
    if args.json:
        print_json(dataclasses.asdict(machine))
        return 0
    for kit in machine.toolkits:
        lacking = "" if kit.cublas else ", without cuBLAS: ggml-cuda cannot be built with it"
        print(f"CUDA {kit.version or '?'}  {kit.root} ({kit.found}){lacking}")
    for problem in machine.problems:
        print(problem)
    if not machine.toolkits:
        print("no CUDA toolkit here; the clang-cuda toolchain needs none")
    for compiler in machine.compilers:
        print(f"{compiler.kind} {compiler.version}  {compiler.cxx}")
    return 0


def _assemble(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.cuda import redist

    if args.sha256 and not re.fullmatch(r"[0-9a-f]{64}", args.sha256):
        raise UsageError("--sha256 takes 64 lower-case hex digits", fix="sha256sum prints them")
    folder = Path(args.into).absolute()
    release = redist.assemble(args.url, folder, reporter=reporter, sha256=args.sha256)
    if args.json:
        made = {"root": str(folder), "digest": redist.digest(release)}
        print_json(made | dataclasses.asdict(release))
    else:
        print(f"CUDA {release.label} is in {folder}; use it with CUDA_HOME={folder}")
    return 0
