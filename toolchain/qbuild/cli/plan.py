"""``qbuild plan RECIPE``."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from qbuild.cli.common import add_recipe, make_plan, print_json
from qbuild.console import Reporter
from qbuild.errors import UsageError


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe options and ``--script``."""
    add_recipe(parser)
    parser.add_argument(
        "--script",
        choices=("sh", "cmd", "ps1"),
        help="print commands that give the same build by hand",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the script there, not to the screen"
    )
    parser.add_argument(
        "--facts",
        metavar="FILE",
        help="plan for the Windows machine this file was captured on (msvc, nvcc)",
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="print what this Windows machine has (Visual Studio, SDKs, CUDA); plan nothing",
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print the steps with their keys, or a script."""
    if args.capture:
        from qbuild.doctor.probe import HostProbe
        from qbuild.toolchains.visual_studio.installed import capture

        print_json(capture(HostProbe()))
        return 0
    if args.output and not args.script:
        raise UsageError("--output is for a script", fix="add --script sh, cmd or ps1")
    plan = make_plan(args)
    if args.script:
        from qbuild.steps.script import render

        _write(render(plan, args.script), args.output)
        return 0
    if args.json:
        print_json(
            {
                "recipe": plan.recipe.name,
                "zip": plan.zip_name,
                "steps": [
                    {"kind": s.kind, "label": s.label, "key": s.key, "inputs": dict(s.inputs)}
                    for s in plan.steps
                ],
            }
        )
        return 0
    from qbuild.steps.order import BY_NAME

    print(f"{plan.zip_name}\n")
    width = max(len(step.label) for step in plan.steps) + 1
    for step in plan.steps:
        about = BY_NAME[step.kind].about(plan, step)
        print(f"{step.label:<{width}} {step.short}  {about}")
    print(f"{'verify':<{width}} {'':12}  the finished zip, from its bytes")
    return 0


def _write(text: str, output: str | None) -> None:
    """Write a script with the line ends it has, on every system and whatever the shell does."""
    if output is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(newline="")  # Windows' would make two ends of each
        print(text, end="")
        return
    try:
        Path(output).write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"cannot write the script: {error.strerror}", where=output, fix="name another file"
        ) from error
