"""What every toolchain promises, so that plan and steps need not know which one they use."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import host
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.toolchains.batch import write_batch

if TYPE_CHECKING:
    from qbuild.cuda.toolkit import Machine
    from qbuild.recipe.lock import Lock, WheelPin
    from qbuild.toolchains.visual_studio.installed import MsvcFacts

CUDA_WRAPPER: Final = "clang-cuda"  # name of the wrapper that compiles device code

CUDA_TREE: Final = "cuda-tree"
"""What plans and toolchains call the folder that clang takes for a CUDA installation."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A toolchain ready to be used by CMake in one build tree."""

    toolchain_file: str  # text of the CMake toolchain file
    cache: Mapping[str, bool | int | str]  # CMake cache entries beyond the recipe's
    env: Mapping[str, str] = field(default_factory=dict)  # environment of configure and compile
    generator: tuple[str, ...] = ("-G", "Ninja")  # CMake's arguments that choose the build system


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a toolchain puts into a work folder; pure, so that a script can show it."""

    wrappers: Mapping[str, Sequence[str]]  # name below ``tools/`` → command that it runs
    toolchain_file: str
    env: Mapping[str, str] = field(default_factory=dict)
    cache: Mapping[str, bool | int | str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    """A batch file with its arguments that must run before CMake; Windows only."""
    generator: tuple[str, ...] = ("-G", "Ninja")

    def on(self, *, windows: bool) -> Layout:
        """Return the same with the names that the wrappers' files have on a system.

        A layout is pure: whoever writes it down, a build here or a script for another system,
        knows where it will be used.
        """
        if not windows:
            return self
        endings = {f"/tools/{name}": f"/tools/{name}.cmd" for name in self.wrappers}
        text = self.toolchain_file
        for name, full in endings.items():
            text = text.replace(f'{name}"', f'{full}"')
        cache = {
            key: f"{value}.cmd" if str(value).endswith(tuple(endings)) else value
            for key, value in self.cache.items()
        }
        return replace(self, toolchain_file=text, cache=cache)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiler as it was found on the machine: size and time change when it is upgraded."""

    path: str  # where it lies, links followed
    size: int  # bytes
    time: int  # time of its last change in ns


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What a plan has to know of the machine that builds, captured once before it."""

    visual_studio: MsvcFacts | None = None  # what Windows has; ``None``: not looked at
    cuda: Machine | None = None  # CUDA toolkits and their host compilers; ``None``: not looked at
    # name of a compiler → what was found on PATH; without the ones that are missing
    programs: Mapping[str, Program] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a toolchain is asked about."""

    recipe: Recipe  # what is built
    lock: Lock  # all pins
    host: str  # the build machine as the lockfile names it, e.g. ``linux-x86_64``
    installed: Installed = field(default_factory=Installed)  # what was found on that machine
    # Compile CUDA kernels. Without them the result runs on the emulated GPU only.
    device_code: bool = True

    @property
    def where(self) -> str:
        """The recipe and its toolchain, for messages."""
        return f"recipe {self.recipe.name}: toolchain.name = {self.recipe.toolchain.name}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The folders that a layout names, as its files shall spell them."""

    # name of each program it runs (``zig``) → path, as the wrapper writes it
    programs: Mapping[str, str]
    work: str  # folder of the build, with forward slashes
    cache_dir: str  # folder for the toolchain's own cache


@dataclass(frozen=True, kw_only=True)
class WorkTree:
    """The folders of a build that is made."""

    unpacked: Mapping[str, Path]  # project name of each wheel → folder of its files
    work: Path  # folder of the build; ``src`` and ``build`` lie in it
    cache_dir: Path  # folder for the toolchain's own cache (kept between builds)

    def place(self, **programs: str) -> Place:
        """Return the same folders as a layout spells them."""
        return Place(programs=programs, work=self.work.as_posix(), cache_dir=str(self.cache_dir))


TUNE = "QBUILD_TUNE"  # cache entry: what clang may take for fast where ggml's code may use AVX-512
UNITE, APART, COLD = "QBUILD_UNITE", "QBUILD_APART", "QBUILD_COLD"
"""Cache entries: targets whose files are compiled in groups, files that stay alone, files that run
once; see :data:`qbuild.steps.cmake.PLAIN_FOLDERS`."""


class Toolchain(ABC):
    """One way to compile one recipe.

    All but :meth:`prepare` is pure: the plan calls it, on any machine. A new toolchain is a
    subclass, and a row in :data:`qbuild.recipe.toolchains.TOOLCHAINS`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.recipe = context.recipe

    @property
    def name(self) -> str:
        """The name by which recipes ask for it."""
        return self.recipe.toolchain.name

    @classmethod
    def capture(cls) -> Installed:
        """Look at this machine for what it needs to know of it; nothing for what is pinned."""
        return Installed()

    def wheels(self) -> tuple[WheelPin, ...]:
        """Return the pinned wheels it is made of; none for what is installed.

        Raises:
            LockError: The lockfile lacks one.
        """
        return ()

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return everything about it that can change a build's bytes (JSON-able).

        Raises:
            ToolchainError: It cannot build this recipe, or is not on this machine.
        """

    def tree_inputs(self) -> dict[str, Any] | None:
        """Return what its CUDA tree is made from; nothing when it needs none."""
        return None

    def provides(self) -> Mapping[str, tuple[str, str]]:
        """Return the libraries that a bundle may take from the toolchain's wheels.

        Name in the bundle → (project, file in its wheel); one ships when something asks for it.
        """
        return {}

    def cache_entries(self) -> Mapping[str, CmakeValue]:
        """Return CMake cache entries that are the same wherever it builds."""
        return {}

    @abstractmethod
    def layout(self, place: Place) -> Layout:
        """Return wrappers and toolchain file for a work folder; touches nothing."""

    @abstractmethod
    def prepare(self, tree: WorkTree) -> Prepared:
        """Write wrappers into the work folder and return how CMake uses it.

        Raises:
            ToolchainError: A part is missing.
        """

    def script(self, shell: str, here: str) -> ScriptWords:
        """Return what a script of this build has to know of the toolchain.

        Args:
            shell: ``sh``, ``cmd`` or ``ps1``.
            here: How that shell spells the current folder.

        Raises:
            UsageError: It does not build where that shell runs.
        """
        return ScriptWords(
            programs=script_programs(shell, here), variables=UNIX_VARIABLES if shell == "sh" else ()
        )


@dataclass(frozen=True, kw_only=True)
class ScriptWords:
    """What a script that builds by hand has to know of a toolchain."""

    programs: Mapping[str, str]  # name of each program of the layout → path as the script writes it
    notes: tuple[str, ...] = ()  # remarks for the script's head
    # of the environment: they change what its compilers do, and must go
    variables: tuple[str, ...] = ()
    # files that the programs load and that the script copies beside them
    libraries: tuple[str, ...] = ()
    last: tuple[str, ...] = ()  # remarks about other libraries


UNIX_VARIABLES: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""What gcc and clang read."""


def script_programs(shell: str, here: str) -> dict[str, str]:
    """Return the programs of pinned wheels, where a script puts them."""
    zig = f"{here}/tools/ziglang/ziglang"
    return {
        "zig": f"{zig}/zig{'' if shell == 'sh' else '.exe'}",
        "zig-lib": f"{zig}/lib",
        CUDA_TREE: f"{here}/cuda",
    }


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


def write_wrapper(path: Path, command: Sequence[str]) -> Path:
    """Write a wrapper program and return its path.

    ccache and CMake want a compiler that is one program without fixed arguments.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if host.system() == "windows":
        path = path.with_name(f"{path.name}.cmd")
        write_batch(path, command)
        return path
    path.write_bytes(wrapper_text(command, windows=False).encode())
    path.chmod(0o755)
    return path


def write_layout(layout: Layout, work: Path) -> Prepared:
    """Write a layout's wrappers and return it prepared."""
    for name, command in layout.wrappers.items():
        write_wrapper(work / "tools" / name, command)
    layout = layout.on(windows=host.system() == "windows")
    return Prepared(toolchain_file=layout.toolchain_file, cache=layout.cache, env=layout.env)


def tool_lines(variables: Mapping[str, str]) -> list[str]:
    """Return toolchain-file lines that point CMake at wrappers beside the file."""
    return [
        f'set({variable} "${{CMAKE_CURRENT_LIST_DIR}}/tools/{tool}" CACHE FILEPATH "")'
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
