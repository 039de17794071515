"""``qbuild version``."""

from __future__ import annotations

import argparse

from qbuild import __version__
from qbuild.cli.common import load_lock, print_json
from qbuild.console import Reporter


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options of its own."""


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print qbuild's version and the commit it builds."""
    pin = load_lock(args).source("llama.cpp")
    if args.json:
        print_json({"qbuild": __version__, "llama.cpp": {"commit": pin.commit, "tree": pin.tree}})
    else:
        print(f"qbuild {__version__}, builds llama.cpp {pin.commit[:9]} ({pin.date})")
    return 0
