"""Checks of compilers and tools. The limits come from the CUDA tables; none is written here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from qbuild.cuda import table
from qbuild.cuda.table import minor
from qbuild.doctor.findings import Hit
from qbuild.doctor.machine_facts import Facts
from qbuild.errors import QbuildError

_MINGW: Final = re.compile(r"(?i)strawberry|mingw|msys|cygwin|tdm-gcc|w64devkit|winlibs")
_GNU_USR: Final = re.compile(r"(?i)(\\|/)(git|msys64|cygwin64)(\\|/)(usr(\\|/))?bin")
_MSVC: Final = re.compile(r"(?i)\\vs\\|\\vc\\|visual studio|\\hostx64\\")


def _fits(cuda: str, compiler: str, release: str) -> bool | None:
    """Return whether nvcc of a toolkit takes a host compiler; ``None``: the table cannot say."""
    try:
        table.find_toolkit(cuda)
        table.parse_version(release)
    except QbuildError:
        return None
    try:
        table.check_host_compiler(cuda, compiler, release)
    except QbuildError:
        return False
    return True


def cl_version(toolset: str) -> str:
    """Return the version of cl in a toolset: 14.39 holds 19.39 (Microsoft counts both in step)."""
    major, _, rest = toolset.partition(".")
    known = major.isascii() and major.isdigit() and rest
    return f"{int(major) + 5}.{rest.split('.')[0]}" if known else toolset


def msvc_for_cuda(facts: Facts) -> Iterator[Hit]:
    """MSVC against the CUDA toolkit's range of ``_MSC_VER``."""
    cuda = facts.cuda_version
    release = facts.msvc or (cl_version(facts.toolset) if facts.toolset else None)
    if release and re.fullmatch(r"[0-9]{4}", release):
        release = f"{release[:2]}.{release[2:]}"  # _MSC_VER
    if not cuda or not release or facts.toolchain in ("zig", "clang-cuda", "gcc", "clang"):
        return
    if _fits(cuda, "msvc", release) is not False:
        return
    oldest, newest = table.find_toolkit(cuda).msvc
    if table.parse_version(release)[:2] < (oldest // 100, oldest % 100):
        yield Hit(
            id="msvc-too-old",
            found=f"CUDA {cuda} does not accept MSVC {release}; it takes "
            f"{oldest // 100}.{oldest % 100} and newer",
        )
        return
    good = [each for each in facts.other_toolsets if _fits(cuda, "msvc", cl_version(each))]
    ways = []
    if good:
        best = max(good, key=table.parse_version)
        ways.append(f"use the installed {best} toolset (vcvars_ver={best})")
    else:
        ways.append(
            f"add an older toolset in the Visual Studio Installer: 14.{newest % 100} or below"
        )
    newer = [
        each.version for each in table.toolkits().values() if _fits(each.version, "msvc", release)
    ]
    ways += [f"or CUDA {newer[0]} or newer"] if newer else []
    yield Hit(
        id="msvc-too-new",
        found=f"CUDA {cuda} does not accept MSVC {release}: it takes _MSC_VER {oldest} to {newest}",
        mend=", ".join(ways) + "; never -allow-unsupported-compiler by itself",
    )


def gcc_for_cuda(facts: Facts) -> Iterator[Hit]:
    """The default gcc (or clang) against the CUDA toolkit; Linux only."""
    cuda = facts.cuda_version
    if not cuda or facts.os != "linux" or facts.toolchain in ("zig", "clang-cuda"):
        return
    # gcc is what nvcc takes by itself; clang matters only where there is no gcc
    compiler, release = ("gcc", facts.gcc) if facts.gcc else ("clang", facts.clang)
    if not release or _fits(cuda, compiler, release) is not False:
        return
    row = table.find_toolkit(cuda)
    newest = row.gcc if compiler == "gcc" else row.clang
    ways = [f"install {compiler}-{newest} and set CMAKE_CUDA_HOST_COMPILER to it"]
    newer = [
        each.version for each in table.toolkits().values() if _fits(each.version, compiler, release)
    ]
    ways += [f"or use CUDA {newer[0]} or newer"] if newer else []
    yield Hit(
        id="gcc-too-new",
        found=f"CUDA {cuda} does not accept {compiler} {release}: {newest} is its newest",
        mend=", ".join(ways),
    )


def cuda_in_visual_studio(facts: Facts) -> Iterator[Hit]:
    """The Visual Studio generator needs the toolkit's own files in that Visual Studio."""
    generator = re.fullmatch(r"Visual Studio (\d+) (\d{4})", facts.generator or "")
    if not generator or facts.vs_buildcustomizations is None or not facts.cuda_version:
        return
    wanted = f"CUDA {minor(facts.cuda_version)}.props"
    if wanted.lower() in (each.lower() for each in facts.vs_buildcustomizations):
        return
    number, year = int(generator[1]), generator[2]
    # Visual Studio 2019 is the last that installs below Program Files (x86); from 2026 on the
    # folder carries the number instead of the year
    programs = "Program Files (x86)" if number < 17 else "Program Files"
    folder = year if number < 18 else str(number)
    source = (
        "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v"
        f"{minor(facts.cuda_version)}\\extras\\visual_studio_integration\\MSBuildExtensions"
    )
    target = (
        f"C:\\{programs}\\Microsoft Visual Studio\\{folder}\\<edition>\\MSBuild\\Microsoft\\VC\\"
        f"v{number}0\\BuildCustomizations"
    )
    others = [each for each in facts.vs_buildcustomizations if each.lower().endswith(".props")]
    having = f" (it has {', '.join(others)})" if others else ""
    yield Hit(
        id="no-cuda-toolset",
        found=f"{facts.generator} has no {wanted}{having}",
        mend=f"use the Ninja generator, which needs none; or copy all files from {source} "
        f"into {target}",
    )


def first_on_path(facts: Facts, seen: frozenset[str]) -> Iterator[Hit]:
    """A MinGW gcc or a GNU link in front of MSVC on PATH.

    Both are common and mostly harmless: without a log that shows the harm (``seen``) only a
    build that takes its compiler from PATH is worth a word.
    """
    if facts.os not in (None, "windows") or not facts.path:
        return
    msvc = next((i for i, each in enumerate(facts.path) if _MSVC.search(each + "\\")), None)
    before = facts.path[:msvc] if msvc is not None else facts.path
    mingw = [each for each in before if _MINGW.search(each) and not _GNU_USR.search(each)]
    usual = facts.os == "windows" and facts.cuda_version and facts.toolchain in (None, "nvcc")
    if mingw and ("mingw-host-for-nvcc" in seen or (usual and facts.generator == "Ninja")):
        behind = "in front of MSVC" if msvc is not None else "and no MSVC"
        yield Hit(
            id="mingw-host-for-nvcc",
            found=f"PATH has {mingw[0]} {behind}",
            mend=f"name cl.exe by its full path (CMAKE_CUDA_HOST_COMPILER), or put {mingw[0]} "
            "behind MSVC on PATH",
            severity="warning",
        )
    gnu = [each for each in before if _GNU_USR.search(each)]
    if gnu and (
        "gnu-link-first" in seen or (msvc is not None and facts.toolchain in ("msvc", "nvcc"))
    ):
        yield Hit(
            id="gnu-link-first",
            found=f"PATH has {gnu[0]} in front of MSVC, and a `link` in it",
            severity="warning",
        )


def visual_studio(facts: Facts) -> Iterator[Hit]:
    """Visual Studio and the Windows SDK, where the recipe needs them."""
    if facts.os != "windows" or facts.toolchain in ("zig", "clang-cuda"):
        return
    wanted = facts.toolchain in ("msvc", "nvcc") or bool(facts.visual_studio)
    if facts.toolchain in ("msvc", "nvcc") and facts.visual_studio == () and not facts.msvc:
        yield Hit(
            id="nmake-fallback",
            found=f"recipe {facts.recipe or ''} needs Visual Studio, and none is installed".replace(
                "  ", " "
            ),
        )
    elif wanted and facts.windows_sdks == ():
        yield Hit(id="no-windows-sdk", found="Visual Studio is there, but no Windows SDK")


def missing_tools(facts: Facts) -> Iterator[Hit]:
    """Programs that qbuild takes from PATH."""
    tools = facts.tools or {}
    if "git" in tools and tools["git"] is None:
        yield Hit(id="no-git", found="there is no git on PATH")
    asked = (facts.generator or "").startswith("Ninja")
    if asked and "ninja" in tools and tools["ninja"] is None:
        yield Hit(id="no-ninja", found="CMAKE_GENERATOR asks for Ninja, and PATH has no ninja")
