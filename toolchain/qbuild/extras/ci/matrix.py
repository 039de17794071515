"""Which builds the recipes stand for, and on which kind of machine each can be made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qbuild.extras.ci.pipeline import NATIVE_NOTE, Entry
from qbuild.recipe.load import known_recipes, load_recipe
from qbuild.recipe.model import Recipe

LINUX_RUNNER = "ubuntu-24.04"
WINDOWS_RUNNER = "windows-2022"

_WINDOWS_ONLY = frozenset({"msvc"})
"""Toolchains that exist on Windows alone."""

_NATIVE = frozenset({"gcc", "clang", "nvcc"})
"""Toolchains that build for the system they run on; zig and clang-cuda cross from Linux."""


def entries(recipes: Iterable[Recipe]) -> tuple[Entry, ...]:
    """Return one entry per recipe and operating system it supports, sorted.

    Cross builds run on Linux. A Windows machine is asked for only where the toolchain leaves no
    choice: MSVC, and nvcc for Windows, whose host compiler is MSVC.
    """
    found = []
    for recipe in recipes:
        toolchain = recipe.toolchain.name
        for system in recipe.supports:
            if not _builds(toolchain, system):
                continue
            native = toolchain in _WINDOWS_ONLY or (toolchain in _NATIVE and system == "windows")
            found.append(
                Entry(
                    recipe=recipe.name,
                    os=system,
                    toolchain=toolchain,
                    runner=WINDOWS_RUNNER if native else LINUX_RUNNER,
                    native=native,
                    summary=recipe.summary,
                )
            )
    return tuple(sorted(found, key=lambda e: (e.native, e.recipe, e.os)))


def _builds(toolchain: str, system: str) -> bool:
    """Tell whether a toolchain builds for a system at all, wherever it runs."""
    if toolchain in _WINDOWS_ONLY:
        return system == "windows"
    return system == "linux" if toolchain in ("gcc", "clang") else True


def known_entries() -> tuple[Entry, ...]:
    """Return the entries of the recipes that come with qbuild."""
    return entries(load_recipe(name) for name in known_recipes())


def as_json(found: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the matrix as any CI system can read it."""
    return [
        {
            "recipe": each.recipe,
            "os": each.os,
            "toolchain": each.toolchain,
            "runner": each.runner,
            "native": each.native,
            "job": f"{'native' if each.native else 'build'}-{each.recipe}-{each.os}",
            "command": f"qbuild build {each.recipe} --os {each.os} --dist dist",
            "artifact": f"llama-{each.recipe}-{each.os}",
            "note": NATIVE_NOTE if each.native else "",
        }
        for each in found
    ]
