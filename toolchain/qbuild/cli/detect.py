"""``qbuild detect``: what this machine is, and which recipe fits it."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from qbuild.cli.common import print_json
from qbuild.console import Reporter
from qbuild.doctor.machine_facts import Facts, GpuFacts
from qbuild.errors import RecipeError


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--facts",
        metavar="FILE",
        help="judge the machine in this file instead of this one (`qbuild doctor --capture`)",
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print the machine and the recipe that fits it.

    Raises:
        RecipeError: No recipe's bundle would run on it.
    """
    from qbuild.doctor.detect import recommend
    from qbuild.recipe.load import known_recipes

    if args.facts:
        from qbuild.doctor.machine_facts import load_facts

        facts = load_facts(Path(args.facts))
    else:
        from qbuild.cli.doctor import this_machine

        facts = this_machine(args)
    found = recommend(facts, tuple(known_recipes()))
    if args.json:
        print_json({"recommendation": found.as_json(), "machine": _machine(facts)})
    elif not args.quiet:
        print(_render_machine(facts))
        if found.recipe:
            print(f"\nrecipe: {found.recipe} ({found.os})")
        for reason in found.reasons:
            print(f"  - {reason}")
        if found.hints:
            print("\nwhat would make it faster, and what else to know:")
            for hint in found.hints:
                print(f"  - {hint}")
        if found.recipe:
            print(f"\n{found.command}")
    if found.recipe is None and not args.json:
        raise RecipeError(
            "no recipe makes a bundle that runs on this machine",
            where="; ".join(found.reasons) or None,
            fix="for an older x86-64 processor: qbuild --recipe baseline --set target.cpu=x86-64",
        )
    return 0 if found.recipe else RecipeError.exit_code


_SHOWN = (
    "os",
    "os_version",
    "kernel",
    "cpu",
    "ram_gb",
    "memory_limit_gb",
    "gpus",
    "disk",
    "laptop",
)


def _machine(facts: Facts) -> dict[str, object]:
    from qbuild.doctor.detect.levels import level_of

    plain = facts.as_json()
    level = level_of(facts.cpu) if facts.cpu else None
    return {key: plain[key] for key in _SHOWN if key in plain} | {
        "wsl": facts.is_wsl,
        "level": level,
    }


def _render_card(card: GpuFacts) -> str:
    from qbuild.doctor.detect.cards import capability_of

    capability = capability_of(card)
    parts = [
        f"compute capability {capability}" if capability else "",
        f"{card.vram_gb:g} GB" if card.vram_gb else "",
        f"driver {card.driver}" if card.driver else "no NVIDIA driver" * (card.vendor == "nvidia"),
    ]
    return ", ".join(part for part in (card.name or "?", *parts) if part)


def _render_machine(facts: Facts) -> str:
    from qbuild.doctor.detect.levels import level_of

    system = " ".join(each for each in (facts.os, facts.os_version) if each) or "not known"
    lines = [f"system: {system}{' (WSL)' if facts.is_wsl else ''}"]
    if cpu := facts.cpu:
        cores = f", {cpu.cores} cores" if cpu.cores else ""
        threads = f", {cpu.threads} threads" if cpu.threads else ""
        lines.append(f"CPU:    {cpu.model or 'not known'}, {level_of(cpu)}{cores}{threads}")
    if facts.ram_gb is not None:
        limit = f" (limited to {facts.memory_limit_gb:g} GB)" if facts.memory_limit_gb else ""
        lines.append(f"memory: {facts.ram_gb:g} GB{limit}")
    for card, count in Counter(_render_card(card) for card in facts.cards()).items():
        lines.append(f"GPU:    {f'{count} x ' if count > 1 else ''}{card}")
    if facts.gpus == ():
        lines.append("GPU:    none")
    if facts.disk:
        lines.append(f"disk:   {facts.disk}")
    return "\n".join(lines)
