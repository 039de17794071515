"""Checks of folders, memory, disks, the network and the processor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from qbuild.doctor.detect.levels import level_of, missing_for
from qbuild.doctor.findings import Hit
from qbuild.doctor.machine_facts import Facts
from qbuild.recipe.levels import NAMES

MSBUILD_LIMIT: Final = 250
"""Longest path that MSBuild's tracker and cl handle whatever LongPathsEnabled says; CMake warns at
the same length (CMAKE_OBJECT_PATH_MAX)."""

MAX_PATH: Final = 259
"""Longest path of a Windows program that does not declare long paths: MAX_PATH less its zero."""

OBJECT_SUFFIX: Final = 150
"""Assumed length below the build root: work/<24 digits>/build/ of the store (36) and the longest
object of ggml-cuda (template-instances/fattn-mma-f16-…, 112)."""

GB_PER_CUDA_JOB: Final = 2.5
GB_PER_CXX_JOB: Final = 1.5
"""Peak memory of one compiler. C++: llama.cpp's largest files take up to 1.2 GiB with clang at
-O3; CUDA: the figure of public reports (llama.cpp 17844)."""

GB_CUDA_BUILD: Final = 20.0
GB_CPU_BUILD: Final = 3.0  # room that one build takes in the store, rounded up

_OWN_COMPILER: Final = ("zig", "clang-cuda")
_CUDA: Final = ("nvcc", "clang-cuda")


def _windows(facts: Facts) -> bool:
    """Whether paths follow Windows' rules: by the system, or by what the folder looks like."""
    folder = facts.build_root or ""
    return facts.os == "windows" or (
        facts.os is None and bool(re.match(r"[A-Za-z]:\\|\\\\", folder))
    )


def build_folder(facts: Facts) -> Iterator[Hit]:
    """Blanks (for nvcc) and letters outside ASCII (on Windows) in the build folder."""
    root = facts.build_root
    if not root:
        return
    calls_nvcc = facts.cuda_version or facts.toolchain == "nvcc"
    if " " in root and calls_nvcc and facts.toolchain in (None, "nvcc"):
        short = "C:\\qb" if _windows(facts) else "/srv/qb"
        yield Hit(
            id="space-in-build-root",
            found=f"the build folder {root} has a blank in its name, and nvcc splits there",
            mend=f"build below a short folder without blanks: --store {short}",
        )
    if _windows(facts) and not root.isascii() and facts.code_page != 65001:
        page = f"; the code page is {facts.code_page}" if facts.code_page else ""
        yield Hit(
            id="non-ascii-build-root",
            found=f"the build folder {root} has letters outside ASCII{page}",
        )


def path_length(facts: Facts) -> Iterator[Hit]:
    """The longest path of the build against the limits of Windows' tools."""
    root = facts.build_root
    if not root or not _windows(facts):
        return
    suffix = facts.longest_object_suffix
    longest = len(root) + 1 + (OBJECT_SUFFIX if suffix is None else suffix)
    if facts.toolchain in _OWN_COMPILER:
        # no MSBuild and no cl: only Windows' own limit counts, and only while it is on
        if facts.long_paths_enabled or longest <= MAX_PATH:
            return
        limit, mend = (
            MAX_PATH,
            "set LongPathsEnabled, or build below a short folder: --store C:\\qb",
        )
    else:
        if longest <= MSBUILD_LIMIT:
            return
        limit, mend = MSBUILD_LIMIT, "build below a short folder: --store C:\\qb"
    switch = {
        True: "; LongPathsEnabled is on and does not help: MSBuild's tracker and cl ignore it"
    }
    yield Hit(
        id="path-too-long",
        found=f"paths below the build folder reach {longest} characters, past {limit}"
        + switch.get(bool(facts.long_paths_enabled), ""),
        mend=mend,
    )


def wsl(facts: Facts) -> Iterator[Hit]:
    """A Windows drive used from WSL, and WSL's files used from Windows."""
    mounted = re.compile(r"/mnt/[a-z](/|$)")
    if facts.is_wsl and facts.os != "windows":
        cross = " (a Windows bundle is cross built here, which is fine)"
        note = cross if facts.recipe_os == "windows" else ""
        for name in ("store", "build_root"):
            folder = getattr(facts, name)
            if folder and mounted.match(folder):
                yield Hit(
                    id="wsl-mix",
                    found=f"the store lies on a Windows drive, {folder}{note}",
                    severity="warning",
                )
                return
        if facts.cwd and mounted.match(facts.cwd) and not facts.store and not facts.build_root:
            yield Hit(
                id="wsl-mix",
                found=f"the checkout lies on a Windows drive, {facts.cwd}{note}",
                mend=f"keep the store off {facts.cwd[:6]}: it is slow there; the default, in the "
                "Linux file system, is right",
            )
    if facts.os != "linux":
        inside = re.compile(r"(?i)[\\/]{2}wsl(\$|\.localhost)[\\/]")
        for folder in (facts.build_root, facts.store, facts.cwd):
            if folder and inside.match(folder):
                yield Hit(
                    id="wsl-tree-from-windows",
                    found=f"Windows tools would work in {folder}, which lies inside WSL",
                )
                return


def memory(facts: Facts, seen: frozenset[str]) -> Iterator[Hit]:
    """Memory against the number of compilers at once."""
    available = facts.memory_gb
    if available is None or not facts.jobs:
        return
    killed = "out-of-memory" in seen
    cuda = facts.toolchain in _CUDA or (
        facts.toolchain is None and (facts.cuda_version or facts.architectures)
    )
    each = GB_PER_CUDA_JOB if cuda or killed else GB_PER_CXX_JOB
    fitting = max(1, int(available / each))
    if facts.jobs <= fitting:
        return
    yield Hit(
        id="out-of-memory",
        found=f"{facts.jobs} compilers at once need up to {facts.jobs * each:g} GB, and there "
        f"are {available:g} GB",
        mend=f"--jobs {fitting} (memory / {each:g} GB), more swap, or a higher limit",
        severity="warning",
    )


def free_disk(facts: Facts) -> Iterator[Hit]:
    """Room for one build."""
    if facts.free_disk_gb is None:
        return
    need = GB_CUDA_BUILD if facts.toolchain in _CUDA or facts.architectures else GB_CPU_BUILD
    if facts.free_disk_gb < need:
        yield Hit(
            id="disk-full",
            found=f"{facts.free_disk_gb:.1f} GB are free, and a build takes up to {need:g} GB",
            severity="warning" if facts.free_disk_gb > need / 3 else "error",
        )


def network(facts: Facts) -> Iterator[Hit]:
    """Settings of proxy and certificates that contradict themselves."""
    if facts.proxy_differs:
        yield Hit(
            id="proxy-variables",
            found="upper and lower case disagree: " + ", ".join(facts.proxy_differs),
        )
    if facts.missing_ca_files:
        yield Hit(
            id="ca-file-missing",
            found="these name files that do not exist: " + ", ".join(facts.missing_ca_files),
        )


def processor(facts: Facts) -> Iterator[Hit]:
    """The processor's level against the recipe's."""
    if facts.cpu is None or facts.recipe_cpu is None:
        return
    level = level_of(facts.cpu)
    if level is None or NAMES.index(level) >= NAMES.index(facts.recipe_cpu):
        return
    lacking = missing_for(facts.cpu, facts.recipe_cpu)
    yield Hit(
        id="cpu-below-recipe",
        found=f"recipe {facts.recipe or ''} is for {facts.recipe_cpu}, this CPU is {level}".replace(
            "  ", " "
        )
        + (f" (it lacks {', '.join(lacking)})" if lacking else ""),
    )


def antivirus(facts: Facts) -> Iterator[Hit]:
    """Microsoft Defender without an exclusion, where both facts could be read."""
    if facts.defender_realtime and facts.defender_excluded is False:
        yield Hit(
            id="antivirus",
            found="Defender scans the store while it is built in",
            mend="exclude the store's folder (Windows Security, Virus & threat protection, "
            "Exclusions); undo it later if the machine is not yours",
            severity="hint",
        )
