"""What every toolchain promises, so that plan and steps need not know which one they use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from qbuild import host
from qbuild.lock import Lock, WheelPin
from qbuild.recipe.model import Recipe


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A toolchain ready to be used by CMake in one build tree."""

    toolchain_file: str
    """Text of the CMake toolchain file."""
    cache: Mapping[str, bool | int | str]
    """CMake cache entries beyond the recipe's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of configure and compile."""
    licences: Mapping[str, Path] = field(default_factory=dict)
    """Name in the bundle's ``licenses/`` → licence text of what the toolchain links in."""


class Toolchain(Protocol):
    """One way to compile.

    ``describe`` and ``wheels`` are pure (the plan calls them); ``prepare`` touches the disk.
    """

    name: str

    def wheels(self, recipe: Recipe, lock: Lock, host: str) -> tuple[WheelPin, ...]:
        """Return the pinned wheels it is made of, for this host.

        Raises:
            LockError: The lockfile lacks one.
        """

    def describe(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any]:
        """Return everything about it that can change a build's bytes (JSON-able).

        Raises:
            ToolchainError: It cannot build this recipe, or is not on this machine.
        """

    def prepare(
        self, recipe: Recipe, *, unpacked: Mapping[str, Path], work: Path, cache_dir: Path
    ) -> Prepared:
        """Write wrappers below ``work`` and return how CMake uses it.

        Args:
            recipe: What is built.
            unpacked: Project name of each wheel → folder of its files.
            work: Folder of the build; ``src`` and ``build`` lie in it.
            cache_dir: Folder for the toolchain's own cache (kept between builds).

        Raises:
            ToolchainError: A part is missing.
        """


def wants_windows(recipe: Recipe) -> bool:
    """Return whether the bundle is for Windows."""
    return recipe.target.os == "windows"


def hide_paths(work: Path) -> list[str]:
    """Return compiler flags that keep the build folder's name out of the binaries.

    Both spellings of the source folder are mapped: the absolute one that CMake writes, and the
    relative one that a compiler cache makes of it. They go into the wrapper, not into CMake's
    flags, so that a compiler cache sees equal command lines in different folders.
    """
    root = work.as_posix()
    return [
        f"-ffile-prefix-map={root}/src=.",
        "-ffile-prefix-map=../src=.",
        f"-ffile-prefix-map={root}/build=build",
    ]


def write_wrapper(path: Path, command: Sequence[str]) -> Path:
    """Write a small program that runs ``command`` plus its own arguments; return its path.

    ccache and CMake want a compiler that is one program without fixed arguments.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if host.system() == "windows":
        path = path.with_name(path.name + ".cmd")
        text = "@" + " ".join(f'"{part}"' for part in command) + " %*\r\n"
    else:
        text = f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'
    path.write_bytes(text.encode())
    path.chmod(0o755)
    return path
