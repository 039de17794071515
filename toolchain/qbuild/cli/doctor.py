"""``qbuild doctor``: what is wrong with this machine, or why a log failed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbuild import bounds
from qbuild.cli.common import print_json, store
from qbuild.console import Reporter
from qbuild.doctor.machine_facts import Facts
from qbuild.errors import DoctorError, UsageError

if TYPE_CHECKING:
    from qbuild.doctor.diagnosis import Diagnosis


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--recipe", metavar="RECIPE", help="also check what this recipe needs")
    parser.add_argument("--os", metavar="OS", help="linux or windows, instead of the recipe's")
    parser.add_argument(
        "--facts",
        metavar="FILE",
        help="check the facts in this file instead of this machine (facts.schema.json)",
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="print this machine's facts as JSON, with nothing personal in them, and check nothing",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="explain this failed log (`-`: standard input)"
    )
    parser.epilog = (
        f"Exit code: 0 if there is nothing but hints, {DoctorError.exit_code} otherwise; a log "
        "that is not understood is not a finding."
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print what was found; the exit code says whether it is serious."""
    from qbuild.doctor.diagnosis import serious
    from qbuild.doctor.examine import examine

    if args.capture and (args.facts or args.log or args.recipe):
        raise UsageError("--capture only prints this machine's facts", fix="give it alone")
    if args.capture:
        print_json(this_machine(args).as_json())
        return 0
    log_text = _log(args.log) if args.log else ""
    facts = _facts(args)
    if args.recipe:
        from qbuild.doctor.capture import with_recipe
        from qbuild.recipe.load import load_recipe

        facts = with_recipe(facts, load_recipe(args.recipe, os=args.os))
    found = examine(facts, log_text)
    if args.json:
        print_json([each.as_json() for each in found or _unknown(log_text)])
    elif not args.quiet:
        print(_render(found, log_text) if args.log or found else "nothing is wrong that is known")
    return DoctorError.exit_code if serious(found) else 0


def _render(found: Sequence[Diagnosis], log_text: str) -> str:
    if not found:
        found = _unknown(log_text)
        if not found:
            return "nothing known is in this log, and no line of it looks like an error"
    return "\n\n".join(each.render() for each in found)


def _unknown(log_text: str) -> tuple[Diagnosis, ...]:
    """Return the lines that look like errors, where nothing more is known about a log."""
    from qbuild.doctor.errorlines import error_lines
    from qbuild.doctor.findings import Hit, diagnosis

    lines = error_lines(log_text)
    if not lines:
        return ()
    evidence = tuple(f"line {each.number}: {each.text}" for each in lines)
    return (diagnosis(Hit(id="unknown-error", found=""), evidence),)


def _facts(args: argparse.Namespace) -> Facts:
    if args.facts:
        from qbuild.doctor.machine_facts import load_facts

        return load_facts(Path(args.facts))
    # a log may come from another machine: this one's facts would only confuse
    return Facts() if args.log else this_machine(args)


def this_machine(args: argparse.Namespace) -> Facts:
    """Return the facts of the machine qbuild runs on, for the store that is in use."""
    from qbuild import host
    from qbuild.doctor.capture import capture, personal_names

    root = store_root(args)
    return capture(
        store=root, jobs=host.default_jobs(), cwd=str(Path.cwd()), personal=personal_names()
    )


def store_root(args: argparse.Namespace) -> str:
    """Return the store's folder without making it; without a home, where temporary files go."""
    try:
        return str(store(args).root)
    except UsageError:
        if args.store:
            raise
        return tempfile.gettempdir()


def _log(name: str) -> str:
    from qbuild.doctor.encodings import decode, read_log

    if name == "-":
        return decode(bounds.read_stream(sys.stdin.buffer, 256 << 20, "standard input"))
    return read_log(Path(name))
