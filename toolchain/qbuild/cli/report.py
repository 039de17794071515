"""``qbuild report ZIP``: one HTML page about a finished zip, to look at and to pass on."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbuild import held
from qbuild.cli.common import existing_zip, print_json, store
from qbuild.console import Reporter
from qbuild.errors import UsageError


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("zip", metavar="ZIP", help="the zip; it is only read")
    parser.add_argument(
        "--against", metavar="OTHER.zip", help="also say in what it differs from this zip"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the page goes (ZIP.report.html)"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Write the page; with ``--json`` print what it says, too."""
    from qbuild.extras.report import collect, render

    path = existing_zip(args.zip)
    other = existing_zip(args.against) if args.against else None
    page = Path(args.output) if args.output else path.with_name(f"{path.name}.report.html")
    if page.is_dir():
        raise UsageError(f"{page} is a folder", fix="name a file with --output")
    report = collect(path, other=other, store=store(args), reporter=reporter)
    data = render(report).encode()
    _write(page, data)
    if args.json:
        print_json({**report.as_json(), "page": str(page)})
    elif not args.quiet:
        print(f"{page}  ({len(data) / 1e3:.0f} KB, {report.checked.state})")
    return 0


def _write(page: Path, data: bytes) -> None:
    """Write the page whole or not at all.

    Raises:
        UsageError: The folder cannot be written to.
    """
    import contextlib
    import os

    aside = page.with_name(f".{page.name}.part-{os.getpid()}")
    try:
        aside.write_bytes(data)
        held.replace(aside, page)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise UsageError(
            f"the page cannot be written: {error.strerror or error}",
            where=str(page),
            fix="name another place with --output",
        ) from error
