"""What every toolchain promises, so that plan and steps need not know which one they use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from qbuild import host
from qbuild.recipe.model import Recipe
from qbuild.toolchains.batch import write_batch

if TYPE_CHECKING:
    from qbuild.recipe.lock import Lock, WheelPin

CUDA_WRAPPER: Final = "clang-cuda"
"""Name of the wrapper that compiles device code."""

CUDA_TREE: Final = "cuda-tree"
"""What plans and toolchains call the folder that clang takes for a CUDA installation."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A toolchain ready to be used by CMake in one build tree."""

    toolchain_file: str
    """Text of the CMake toolchain file."""
    cache: Mapping[str, bool | int | str]
    """CMake cache entries beyond the recipe's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of configure and compile."""
    generator: tuple[str, ...] = ("-G", "Ninja")
    """CMake's arguments that choose the build system."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a toolchain puts into a work folder; pure, so that a script can show it."""

    wrappers: Mapping[str, Sequence[str]]
    """Name below ``tools/`` → command that it runs."""
    toolchain_file: str
    env: Mapping[str, str] = field(default_factory=dict)
    cache: Mapping[str, bool | int | str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    """A batch file with its arguments that must run before CMake; Windows only."""
    generator: tuple[str, ...] = ("-G", "Ninja")


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

    def tree_inputs(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any] | None:
        """Return what the CUDA tree is made from, or nothing when the toolchain needs none."""

    def provides(self, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """Return the libraries that a bundle may take from the toolchain's wheels.

        Name in the bundle → (project, file in its wheel); one ships when something asks for it.
        """

    def layout(
        self, recipe: Recipe, *, programs: Mapping[str, str], work: str, cache_dir: str
    ) -> Layout:
        """Return wrappers and toolchain file for a work folder; touches nothing.

        Args:
            recipe: What is built.
            programs: Name of each program it runs (``zig``) → path, as the wrapper writes it.
            work: Folder of the build, with forward slashes.
            cache_dir: Folder for the toolchain's own cache.
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


def hide_paths(work: str) -> list[str]:
    """Return compiler flags that keep the build folder's name out of the binaries.

    Both spellings of the source folder are mapped: the absolute one that CMake writes, and the
    relative one that a compiler cache makes of it. They go into the wrapper, not into CMake's
    flags, so that a compiler cache sees equal command lines in different folders.
    """
    return [
        f"-ffile-prefix-map={work}/src=.",
        "-ffile-prefix-map=../src=.",
        f"-ffile-prefix-map={work}/build=build",
    ]


def wrapper_text(command: Sequence[str], *, windows: bool) -> str:
    """Return the text of a small program that runs ``command`` plus its own arguments."""
    if windows:
        return "@" + " ".join(f'"{part}"' for part in command) + " %*\r\n"
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'


def wrapper_name(name: str) -> str:
    """Return the file name of a wrapper on this host."""
    return f"{name}.cmd" if host.system() == "windows" else name


def write_wrapper(path: Path, command: Sequence[str]) -> Path:
    """Write a wrapper program and return its path.

    ccache and CMake want a compiler that is one program without fixed arguments.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(wrapper_name(path.name))
    if host.system() == "windows":
        write_batch(path, command)
        return path
    path.write_bytes(wrapper_text(command, windows=False).encode())
    path.chmod(0o755)
    return path


def write_layout(layout: Layout, work: Path) -> Prepared:
    """Write a layout's wrappers and return it prepared."""
    for name, command in layout.wrappers.items():
        write_wrapper(work / "tools" / name, command)
    return Prepared(toolchain_file=layout.toolchain_file, cache=layout.cache, env=layout.env)


def tool_lines(variables: Mapping[str, str]) -> list[str]:
    """Return toolchain-file lines that point CMake at wrappers beside the file."""
    return [
        f'set({variable} "${{CMAKE_CURRENT_LIST_DIR}}/tools/{wrapper_name(tool)}"'
        ' CACHE FILEPATH "")'
        for variable, tool in variables.items()
    ]


def linker_lines(flags: str, *, shared: str | None = None) -> list[str]:
    """Return toolchain-file lines that give every link these flags first.

    Args:
        flags: Flags of executables, and of libraries unless ``shared`` is given.
        shared: Flags of libraries.
    """
    libraries = flags if shared is None else shared
    return [
        f'set(CMAKE_{kind}_LINKER_FLAGS_INIT "{text}")'
        for kind, text in (("EXE", flags), ("SHARED", libraries), ("MODULE", libraries))
    ]
