"""``qbuild reproduce RECIPE``: two builds from scratch that differ in everything that must not
matter, and a comparison of the two zips down to file and section.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qbuild import process
from qbuild.cli.common import add_recipe, make_plan, print_json, refuse_unfit, store
from qbuild.console import Reporter
from qbuild.errors import ReproduceError, UsageError

if TYPE_CHECKING:
    from qbuild.steps.plan import Plan
    from qbuild.store import Store


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What one of the two builds is surrounded by."""

    folder: str
    timezone: str
    locale: str
    umask: int
    jobs: int


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe options."""
    add_recipe(parser)
    parser.add_argument("--dist", metavar="DIR", default="dist", help="where the report goes")
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="compilers at once")
    parser.add_argument(
        "--keep", action="store_true", help="keep both build folders for a closer look"
    )


def conditions(jobs: int) -> tuple[Conditions, Conditions]:
    """Return the two sets of conditions: unlike in every respect.

    Where paths may not be long, the second folder is not deep, and no folder has a comma.
    """
    from qbuild import host

    deep = "another place, much deeper/ü b" if host.system() != "windows" else "ü b"
    return (
        Conditions(folder="a", timezone="UTC", locale="C", umask=0o022, jobs=jobs),
        Conditions(
            folder=deep,
            timezone="Asia/Kathmandu",  # +05:45: neither hour nor minute agrees
            locale="C.UTF-8",
            umask=0o077,
            jobs=jobs + 1,
        ),
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Build twice, compare, report.

    Raises:
        ReproduceError: The zips differ.
    """
    from qbuild.steps.shared import refuse, shared

    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs takes a number from 1 on, not {args.jobs}")
    refuse(shared(), "`qbuild reproduce`")
    plan = make_plan(args)
    home = store(args)
    with home.in_use():
        return _reproduce(args, plan, home, reporter)


def _reproduce(args: argparse.Namespace, plan: Plan, home: Store, reporter: Reporter) -> int:
    from qbuild import host
    from qbuild.steps.builder import Builder
    from qbuild.steps.options import BuildOptions
    from qbuild.store import Store, link_tree
    from qbuild.verify import compare

    ways = conditions(args.jobs or host.default_jobs())
    # What a killed run leaves in `tmp` is cleaned up; what was asked for stays.
    place = home.root if args.keep else home.root / "tmp"
    prefix = "reproduce-" if host.system() != "windows" else "r"  # room for names is short there
    for how in ways:  # before anything is fetched
        refuse_unfit(_own_store(place / f"{prefix}12345678" / how.folder), "a build's own store")
    # Inputs are pinned by hash: both builds may read the same copies.
    builder = Builder(plan, home, reporter, BuildOptions())
    inputs = builder.fetched()
    place.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    zips = []
    try:
        for label, how in zip(("first", "second"), ways, strict=True):
            reporter.say(
                f"{label} build: -j{how.jobs}, TZ={how.timezone}, umask {how.umask:03o}, "
                f"folder `{how.folder}`"
            )
            os.utime(scratch)  # it is in use: no other run may take it for a killed one's
            folder = scratch / how.folder
            for entry in inputs:
                link_tree(entry.path, Store(_own_store(folder)).entry_path(entry.kind, entry.key))
            _build(args, how, folder)
            zips.append(folder / "dist" / plan.zip_name)
        result = compare.compare_zips(*zips)
        if args.json:
            print_json(result.as_json())
        if not result.identical:
            raise ReproduceError(
                f"two builds of {plan.zip_name} differ: {result.headline()}",
                where="\n         ".join(result.lines()),
                fix="the named inputs of the build leak into it"
                if not result.reasons
                else "; ".join(result.reasons),
            )
        if not args.json:
            print(f"identical: {plan.zip_name}\nsha256 {result.sha256[0]}")
        return 0
    finally:
        if args.keep:
            reporter.say(f"both builds are kept in {scratch}")
        else:
            from qbuild.held import remove_tree

            remove_tree(scratch)


def _own_store(folder: Path) -> Path:
    from qbuild import host

    return folder / ("store" if host.system() != "windows" else "s")


def _build(args: argparse.Namespace, how: Conditions, folder: Path) -> None:
    """Run one build as its own process.

    Raises:
        ReproduceError: It failed; its own message was printed.
    """
    named = args.recipe or args.name
    command = [sys.executable, "-m", "qbuild", "build", *([named] if named else []), "--no-run"]
    command += ["--store", str(_own_store(folder)), "--dist", str(folder / "dist")]
    command += ["--no-compiler-cache", "--offline", "--jobs", str(how.jobs)]
    for name, value in (
        ("--os", args.os),
        ("--gpu", args.for_gpu),
        ("--lockfile", args.lockfile),
        ("--patches", args.patches),
    ):
        command += [name, str(value)] if value else []
    for item in args.overrides:
        command += ["--set", item]
    for item in args.cuda_arch:
        command += ["--cuda-arch", item]
    if args.json or args.quiet:
        command.append("--quiet")
    env: Mapping[str, str] = {
        **os.environ,
        "TZ": how.timezone,
        "LC_ALL": how.locale,
        "LANG": how.locale,
    }
    before = os.umask(how.umask)
    try:
        status = process.run_another(command, env=env, out=sys.stderr)
    finally:
        os.umask(before)
    if status != 0:
        raise ReproduceError(
            f"one of the two builds failed with exit code {status}",
            where=str(folder),
            fix="its message stands above",
        )
