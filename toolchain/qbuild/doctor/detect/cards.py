"""What a graphics card is: its compute capability, and whether a recipe has code for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qbuild import resources
from qbuild.cuda.arch import find_gpu
from qbuild.doctor.machine_facts import GpuFacts
from qbuild.errors import QbuildError


def capability_of(card: GpuFacts) -> str | None:
    """Return a card's compute capability: as the driver told it, else by its name."""
    if card.capability:
        return card.capability
    if not card.name:
        return None
    try:
        return str(find_gpu(card.name).capability)
    except QbuildError:
        return None


def gpu_recipes() -> dict[str, str]:
    """Return the recipes with GPU code: name → lowest compute capability it has code for."""
    rows = resources.read_table("detect.toml")["recipe"]
    return {row["name"]: row["gpu"][0] for row in rows if "gpu" in row and "exact" not in row}


def number_of(capability: str) -> tuple[int, int]:
    """Return a compute capability as numbers that can be compared."""
    major, _, minor = capability.partition(".")
    return int(major), int(minor)


def without_recipe(cards: Iterable[GpuFacts]) -> tuple[GpuFacts, str] | None:
    """Return the NVIDIA card that is older than every recipe's code, and what it is; or nothing.

    A card that some recipe has code for makes the others unimportant.
    """
    lowest = min(number_of(each) for each in gpu_recipes().values())
    known = [
        (card, capability)
        for card in cards
        if card.vendor in (None, "nvidia") and (capability := capability_of(card))
    ]
    known = [each for each in known if re.fullmatch(r"\d{1,2}\.\d", each[1])]
    if not known or any(number_of(capability) >= lowest for _, capability in known):
        return None
    return known[0]


def own_build(capability: str, system: str | None) -> str:
    """Return the command that builds for a GPU that no recipe has code for; empty: none can."""
    number = capability.replace(".", "")
    if int(number) < resources.read_table("cuda.toml")["clang-cuda"]["oldest-arch"]:
        return ""
    target = " --os windows" if system == "windows" else " --os linux" if system else ""
    return f"qbuild --recipe gtx1060 --cuda-arch {number}{target}"
