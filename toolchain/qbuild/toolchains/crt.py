"""One C runtime per process: what prebuilt libraries ask for, and what a finished binary imports.

MSVC writes into every object which runtime it was compiled for: a default library (``/MT`` asks for
LIBCMT, ``/MD`` for MSVCRT, with a D for debug) and, from C++ code, ``/FAILIFMISMATCH`` keys that
the linker compares. An object of another runtime ends a link with LNK2038, minutes or hours after
the build began, or links two runtimes into one program. :func:`check_libraries` says so before
configuring; :func:`check_imports` looks at what was linked.

All of it is read from files; nothing is linked or run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from qbuild.binary.coff import CoffFile, CoffObject, read_coff
from qbuild.errors import BundleError, ToolchainError
from qbuild.recipe.model import Runtime

if TYPE_CHECKING:
    from qbuild.binary.pe import PeImage

Flag = Literal["/MT", "/MD", "/MTd", "/MDd"]

FLAGS: Final[Mapping[Runtime, Flag]] = {"dynamic": "/MD", "static": "/MT"}
"""What a recipe's ``toolchain.runtime`` stands for."""

_LIBRARIES: Final[Mapping[str, Flag]] = {
    "libcmt": "/MT", "libcpmt": "/MT", "libucrt": "/MT", "libvcruntime": "/MT",
    "libcmtd": "/MTd", "libcpmtd": "/MTd", "libucrtd": "/MTd", "libvcruntimed": "/MTd",
    "msvcrt": "/MD", "msvcprt": "/MD", "ucrt": "/MD", "vcruntime": "/MD",
    "msvcrtd": "/MDd", "msvcprtd": "/MDd", "ucrtd": "/MDd", "vcruntimed": "/MDd",
}  # fmt: skip
"""Default library → the runtime it belongs to (Microsoft, "C runtime (CRT) .lib files")."""

_KEY: Final = "RuntimeLibrary"
_KEYS: Final[Mapping[str, Flag]] = {
    "MT_StaticRelease": "/MT",
    "MTd_StaticDebug": "/MTd",
    "MD_DynamicRelease": "/MD",
    "MDd_DynamicDebug": "/MDd",
}
"""Value of the key ``RuntimeLibrary`` (the C++ headers' ``detect_mismatch``) → runtime."""

_OURS: Final = {"_ITERATOR_DEBUG_LEVEL": "0", "_MSC_VER": "1900"}
"""Keys that a Release build by Visual Studio 2015 or newer has in each C++ object."""

_LINKED_IN: Final = re.compile(r"(vcruntime|msvcp|concrt|vccorlib|ucrtbase|api-ms-win-crt-).*\.dll")
_REDISTRIBUTABLE: Final = re.compile(r"(vcruntime|msvcp|concrt|vccorlib)140(_\w+)?\.dll")
"""DLLs of Microsoft's redistributable, in lower case; the universal C runtime is Windows' own."""

_SHOWN: Final = 3  # members named in a message


@dataclass(frozen=True, kw_only=True)
class Redistributable:
    """What a /MD build needs of Microsoft's redistributable."""

    dlls: tuple[str, ...]  # names, as imported
    version: str  # lowest version that serves: that of the newest toolset that linked a file


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one object asks of the program it is linked into."""

    member: str  # its name
    # runtimes it asks for → the directive that says so; more than one is a fault
    runtimes: Mapping[Flag, str]
    keys: Mapping[str, str]  # ``/FAILIFMISMATCH`` keys and values
    opaque: bool = False  # whether it was made with ``/GL`` and cannot be read


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a library does not fit: one line for people, and the ways out."""

    library: str
    message: str
    ways: tuple[str, ...]


def demand_of(item: CoffObject) -> Demand:
    """Return what an object's linker directives ask for."""
    runtimes: dict[Flag, str] = {}
    keys: dict[str, str] = {}
    for word in item.directives:
        name, _, value = word[1:].partition(":")
        if word[:1] not in "/-":
            continue
        if name.lower() == "defaultlib":
            library = re.split(r"[/\\]", value.lower())[-1].removesuffix(".lib")
            if library in _LIBRARIES:
                runtimes.setdefault(_LIBRARIES[library], f"it asks for {library.upper()}")
        elif name.lower() == "failifmismatch":
            key, _, wanted = value.partition("=")
            keys[key] = wanted
            if key == _KEY and wanted in _KEYS:
                runtimes[_KEYS[wanted]] = f"{_KEY}={wanted}"
    return Demand(member=item.name, runtimes=runtimes, keys=keys, opaque=item.opaque)


def library_problems(found: CoffFile, runtime: Runtime) -> tuple[Problem, ...]:
    """Return why an object file or archive cannot be linked into a Release build.

    A library that says nothing (C code made with ``/Zl``, assembly) fits every runtime, and an
    import library brings no code: the runtime of its DLL is the DLL's own affair.
    """
    ours = FLAGS[runtime]
    demands = [demand_of(item) for item in found.objects]
    asked = sorted({flag for demand in demands for flag in demand.runtimes})
    problems = []
    others = [flag for flag in asked if flag != ours]
    for flag in others:
        members = [demand for demand in demands if flag in demand.runtimes]
        # The key of C++ code is the stronger word: it is what the linker compares.
        why = max((d.runtimes[flag] for d in members), key=lambda text: text.startswith(_KEY))
        problems.append(
            Problem(
                library=found.name,
                message=f"{found.name} was compiled with {flag} ({why}{_in(found, members)}), "
                f"the recipe links {ours}: {_end(why, flag)}",
                ways=_ways(asked, ours),
            )
        )
    for key, wanted in _OURS.items():
        odd = [d for d in demands if d.keys.get(key, wanted) != wanted]
        if odd and not (key == "_ITERATOR_DEBUG_LEVEL" and others):  # a debug runtime said it
            problems.append(
                Problem(
                    library=found.name,
                    message=f"{found.name} has {key}={odd[0].keys[key]}{_in(found, odd)}, "
                    f"the recipe's code has {wanted}: the linker stops with LNK2038",
                    ways=("take a Release build of the library by Visual Studio 2015 or newer",),
                )
            )
    if hidden := [d for d in demands if d.opaque]:
        problems.append(
            Problem(
                library=found.name,
                message=f"{found.name} was compiled with /GL{_in(found, hidden)}: only the very "
                "same compiler version can link it, and its runtime cannot be read",
                ways=("rebuild the library without /GL",),
            )
        )
    return tuple(problems)


def _end(why: str, flag: Flag) -> str:
    """Return how the link would end."""
    if why.startswith(_KEY):
        return "the linker stops with LNK2038 (mismatch detected for 'RuntimeLibrary')"
    debug = " and the debug runtime may not be shipped" if flag.endswith("d") else ""
    return f"two runtimes meet in one program (LNK4098, LNK2005; LNK2038 from C++ code){debug}"


def _in(found: CoffFile, members: Sequence[Demand]) -> str:
    names = [demand.member for demand in members]
    if names == [found.name] or len(names) == len(found.objects) > 1:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" in {', '.join(names[:_SHOWN])}{more}"


def _ways(asked: Sequence[Flag], ours: Flag) -> tuple[str, ...]:
    cmake = {"/MD": "MultiThreadedDLL", "/MT": "MultiThreaded"}[ours]
    rebuild = f"rebuild the library with {ours} (CMAKE_MSVC_RUNTIME_LIBRARY={cmake})"
    if len(asked) > 1:
        return (f"{rebuild}: its own members disagree, so no recipe fits it as it is",)
    (flag,) = asked
    if flag.endswith("d"):
        return (f"take the library's Release build, made with {ours}", rebuild)
    other = next(name for name, each in FLAGS.items() if each == flag)
    return (f'set toolchain.runtime = "{other}" in the recipe', rebuild)


def check_libraries(paths: Iterable[Path], runtime: Runtime, *, where: str) -> None:
    """Check prebuilt objects and libraries before anything is configured.

    Args:
        paths: ``.obj`` and ``.lib`` files that the recipe links.
        runtime: The recipe's runtime.
        where: Recipe and key, for the message.

    Raises:
        ToolchainError: One of them would not link; every reason and the ways out are named.
        BinaryError: One cannot be read.
    """
    problems = [p for path in paths for p in library_problems(read_coff(path), runtime)]
    if problems:
        ways = dict.fromkeys(way for problem in problems for way in problem.ways)
        raise ToolchainError(
            "\n  ".join(
                ["a prebuilt library does not fit the recipe's C runtime:"]
                + [problem.message for problem in problems]
            ),
            where=where,
            fix=", or ".join(ways),
        )


# -- after the build ---------------------------------------------------------------------------


def needed_redistributable(images: Mapping[str, PeImage]) -> Redistributable | None:
    """Return the redistributable's DLLs that files import; nothing when they import none.

    Microsoft asks for a redistributable at least as new as the toolset that linked the program;
    a linker writes its version into the file's header.
    """
    found: dict[str, str] = {}
    linkers = []
    for name, image in images.items():
        wanted = [
            entry.dll for entry in image.imports if _REDISTRIBUTABLE.fullmatch(entry.dll.lower())
        ]
        if wanted and not _REDISTRIBUTABLE.fullmatch(name.lower()):
            linkers.append(image.linker)
            found |= {dll.lower(): dll for dll in wanted}
    if not found:
        return None
    major, minor = max(linkers)
    return Redistributable(
        dlls=tuple(found[key] for key in sorted(found)), version=f"{major}.{minor:02d}"
    )


def import_problems(images: Mapping[str, PeImage], runtime: Runtime) -> tuple[str, ...]:
    """Return where linked files do not keep what the recipe's runtime promises.

    Args:
        images: Files that this build linked (not those it only ships).
        runtime: The recipe's runtime.
    """
    problems = []
    for name, image in sorted(images.items()):
        dlls = sorted(
            entry.dll for entry in image.imports if _LINKED_IN.fullmatch(entry.dll.lower())
        )
        if runtime == "static" and dlls:
            problems.append(f"{name}: was to be linked with /MT but imports {', '.join(dlls)}")
        if runtime == "dynamic" and not dlls:
            problems.append(f"{name}: was to be linked with /MD but imports no C runtime")
    return tuple(problems)


def check_imports(images: Mapping[str, PeImage], runtime: Runtime, *, where: str) -> None:
    """Prove the runtime again, from the finished files.

    Raises:
        BundleError: A file has another runtime than the recipe's.
    """
    if problems := import_problems(images, runtime):
        raise BundleError(
            "the build has another C runtime than its recipe:\n  " + "\n  ".join(problems),
            where=where,
            fix="a prebuilt library brought it in: `qbuild crt LIB…` shows what each asks for",
        )


def check_version(need: Redistributable, pinned: str, *, where: str) -> None:
    """Check that the runtime that ships is not older than the compiler that linked against it.

    Raises:
        BundleError: It is.
    """
    have = tuple(int(part) for part in pinned.split(".")[:2])
    if have < tuple(int(part) for part in need.version.split(".")):
        raise BundleError(
            f"the pinned runtime {pinned} is older than the toolset {need.version} that linked "
            f"{', '.join(need.dlls)}",
            where=where,
            fix="pin a newer one (`qbuild lock --update msvc-runtime`), or set toolchain.toolset "
            "to an older toolset",
        )
