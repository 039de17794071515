"""``qbuild wheel RECIPE``: the zip's binaries as a wheel that pip installs."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbuild import held
from qbuild.cli import build
from qbuild.cli.common import load_lock, print_json, store
from qbuild.console import Reporter
from qbuild.errors import UsageError


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the build command's options and ``--zip``."""
    build.configure_parser(parser)
    parser.add_argument(
        "--zip", metavar="FILE", help="a finished zip of qbuild's, instead of building the recipe"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Build (or check) the zip, then make the wheel."""
    from qbuild import host
    from qbuild.extras.pywheel import make_wheel
    from qbuild.hashing import sha256_file
    from qbuild.steps.pinned import BUILD_PROGRAMS, fetch_wheel
    from qbuild.verify import verify_zip

    if args.zip and (args.name or args.recipe):
        raise UsageError("--zip and a recipe are two ways to say which zip", fix="name one")
    home = store(args)
    if args.zip:
        zip_path = Path(args.zip)
        if not zip_path.is_file():
            raise UsageError("there is no such zip", where=str(zip_path))
        reporter.say(f"verify: {zip_path.name}")
        verify_zip(zip_path, reporter=reporter).raise_if_failed()
    else:
        zip_path = build.make(args, reporter).path
    lock = load_lock(args)
    programs = []
    for project in BUILD_PROGRAMS:
        wheel = lock.wheel(project, host.platform_key())
        entry = fetch_wheel(wheel, home, reporter, offline=args.offline)
        programs.append(BUILD_PROGRAMS[project](entry.path / "files").parent)
    reporter.say(f"wheel: {zip_path.name}")
    with held.scratch("qbuild-wheel-") as work:
        made = make_wheel(zip_path, Path(args.dist).absolute(), work, programs=tuple(programs))
    digest = sha256_file(made)
    if args.json:
        print_json({"path": str(made), "sha256": digest, "size": made.stat().st_size})
    elif not args.quiet:
        print(f"{made}  ({made.stat().st_size / 1e6:.1f} MB)\nsha256 {digest}")
        print(f"install it: python -m pip install {made}")
    return 0
