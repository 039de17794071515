"""Which builds the recipes stand for, and on which kind of machine each can be made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypedDict

from qbuild.recipe.load import known_recipes, load_recipe
from qbuild.recipe.model import Recipe
from qbuild.recipe.toolchains import traits

NATIVE_NOTE: Final = "never run by qbuild's authors"
"""Said of every job that needs a real Windows, which nobody here had."""

_ONLY_FOR: Final = {"msvc": "windows", "gcc": "linux", "clang": "linux"}
"""What a toolchain builds for, where that is not everything."""


class Entry(TypedDict):
    """One build, a recipe for one operating system, as any CI system can read it.

    ``runner`` is the machine that builds it, as GitHub names its images; ``native`` says that it
    can only be built on Windows itself (MSVC, nvcc for Windows).
    """

    recipe: str
    os: str
    toolchain: str
    runner: str
    native: bool
    job: str
    command: str
    artifact: str
    note: str


def entries(recipes: Iterable[Recipe]) -> tuple[Entry, ...]:
    """Return one entry per recipe and operating system it supports, sorted.

    Cross builds run on Linux. A Windows machine is asked for only where the toolchain leaves no
    choice: MSVC, and nvcc for Windows, whose host compiler is MSVC.
    """
    found = [
        _entry(recipe, system)
        for recipe in recipes
        for system in recipe.supports
        if _ONLY_FOR.get(recipe.toolchain.name, system) == system
    ]
    return tuple(sorted(found, key=lambda each: (each["native"], each["recipe"], each["os"])))


def _entry(recipe: Recipe, system: str) -> Entry:
    name, native = recipe.name, system == "windows" and traits(recipe).visual_studio
    return {
        "recipe": name,
        "os": system,
        "toolchain": recipe.toolchain.name,
        "runner": "windows-2022" if native else "ubuntu-24.04",
        "native": native,
        "job": f"{'native' if native else 'build'}-{name}-{system}",
        "command": f"qbuild build {name} --os {system} --dist dist",
        "artifact": f"llama-{name}-{system}",
        "note": NATIVE_NOTE if native else "",
    }


def known_entries() -> tuple[Entry, ...]:
    """Return the entries of the recipes that come with qbuild."""
    return entries(load_recipe(name) for name in known_recipes())
