"""Which toolkit compiles which architecture with which host compiler: checks before compiling.

The rows are data (``toolchain/data/cuda.toml``); every refusal names the way out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from qbuild import resources
from qbuild.cuda.arch import CudaArch, architectures
from qbuild.errors import ToolchainError, VerifyError

Version = tuple[int, ...]

_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){0,3}")


def parse_version(text: str, *, where: str | None = None) -> Version:
    """Return a dotted version as numbers.

    Raises:
        ToolchainError: It is not a dotted version.
    """
    if not _VERSION.fullmatch(text):
        raise ToolchainError(
            f"{text!r} is not a version", where=where, fix="write it like 12.9 or 12.9.86"
        )
    return tuple(int(part) for part in text.split("."))


def minor(text: str) -> str:
    """Return the part that names a toolkit release: ``12.9`` of ``12.9.86``."""
    return ".".join(text.split(".")[:2])


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """One row: a CUDA toolkit and the host compilers its ``host_config.h`` lets through."""

    version: str  # ``12.9``
    gcc: int  # newest GCC major version
    clang: int  # newest clang major version as nvcc's host compiler
    msvc: tuple[int, int]  # oldest and newest ``_MSC_VER``


@cache
def toolkits() -> dict[str, Toolkit]:
    """Return the toolkits of the table by version, oldest first."""
    rows = sorted(
        resources.read_table("cuda.toml")["toolkit"], key=lambda row: parse_version(row["version"])
    )
    return {
        row["version"]: Toolkit(
            version=row["version"],
            gcc=row["gcc"],
            clang=row["clang"],
            msvc=(row["msvc"][0], row["msvc"][1]),
        )
        for row in rows
    }


def find_toolkit(version: str, *, where: str | None = None) -> Toolkit:
    """Return the row for a toolkit version (``12.9`` or ``12.9.86``).

    A release between two rows gets the older row: its limits are the stricter ones.

    Raises:
        ToolchainError: It is older or newer than everything in the table.
    """
    wanted = parse_version(version, where=where)[:2]
    rows = list(toolkits().values())
    older = [row for row in rows if parse_version(row.version) <= wanted]
    if not older or wanted[0] > parse_version(rows[-1].version)[0]:
        raise ToolchainError(
            f"CUDA {version} is {'newer' if older else 'older'} than the toolkits in the table",
            where=where,
            fix=f"use one of {', '.join(toolkits())}",
        )
    return older[-1]


def check_archs(archs: Sequence[CudaArch], version: str, *, where: str | None = None) -> None:
    """Check that a toolkit compiles every architecture.

    Raises:
        ToolchainError: It is too new or too old for one; the message names one that is not.
    """
    find_toolkit(version, where=where)
    wanted = parse_version(version)[:2]
    for arch in archs:
        row = architectures()[arch.number]
        label = f"{arch.name} ({row.family})"
        first = row.variants[arch.suffix] if arch.suffix else row.first
        if row.last is not None and wanted > parse_version(row.last):
            raise ToolchainError(
                f"CUDA {version} no longer compiles for architecture {label}",
                where=where,
                fix=f"use CUDA {row.last}, the last that does, or drop {arch}",
            )
        if wanted < parse_version(first):
            raise ToolchainError(
                f"CUDA {version} does not compile for architecture {label} yet",
                where=where,
                fix=f"use CUDA {first} or newer, or drop {arch}"
                + (
                    f"; {arch.number} without {arch.suffix!r} needs {row.first}"
                    if arch.suffix and parse_version(row.first) < parse_version(first)
                    else ""
                ),
            )


def check_host_compiler(
    version: str,
    compiler: str,
    release: str,
    *,
    where: str | None = None,
    archs: Sequence[CudaArch] = (),
) -> None:
    """Check that nvcc of a toolkit accepts a host compiler.

    Args:
        version: Toolkit version.
        compiler: ``gcc``, ``clang`` or ``msvc``.
        release: Its version; for msvc ``19.44`` as ``cl`` prints it, or ``_MSC_VER``.
        where: For messages.
        archs: What is compiled for: another toolkit is advised only if it has them all.

    Raises:
        ToolchainError: It does not, or the compiler is none that nvcc works with.
    """
    row = find_toolkit(version, where=where)
    if compiler in {"gcc", "clang"}:
        newest = row.gcc if compiler == "gcc" else row.clang
        major = parse_version(release, where=where)[0]
        if major > newest:
            accepting = [
                each.version
                for each in toolkits().values()
                if major <= (each.gcc if compiler == "gcc" else each.clang)
            ]
            way = f"use {compiler} {newest} or older"
            if accepting:
                way += f", or CUDA {accepting[0]} or newer"
            raise ToolchainError(
                f"nvcc of CUDA {version} does not accept {compiler} {release}: "
                f"{newest} is its newest",
                where=where,
                fix=way,
            )
        return
    if compiler == "msvc":
        number = _msc_ver(release, where)
        oldest, newest = row.msvc
        if not oldest <= number <= newest:
            raise ToolchainError(
                f"nvcc of CUDA {version} does not accept MSVC {number // 100}.{number % 100} "
                f"(_MSC_VER {number}): it takes {oldest} to {newest}",
                where=where,
                fix="install the v143 tools of Visual Studio 2022 (Visual Studio Installer, "
                "Individual components)" + (_newer_cuda(number, archs) if number > newest else ""),
            )
        return
    raise ToolchainError(
        f"nvcc does not work with {compiler} as host compiler",
        where=where,
        fix="use gcc or clang on Linux, msvc on Windows; or the clang-cuda toolchain, "
        "which needs none of them",
    )


def _msc_ver(release: str, where: str | None) -> int:
    parts = parse_version(release, where=where)
    if len(parts) == 1:
        return parts[0]
    return parts[0] * 100 + parts[1]


def check_target(
    toolchain: str, host: str, target: str, archs: Sequence[CudaArch], *, where: str | None = None
) -> None:
    """Check that a toolchain on a host can build CUDA code for a target.

    Args:
        toolchain: ``nvcc`` or ``clang-cuda``.
        host: ``linux``, ``windows`` or ``darwin``.
        target: ``linux`` or ``windows``.
        archs: The recipe's architectures.
        where: For messages.

    Raises:
        ToolchainError: It cannot; the message names what can.
    """
    if host not in {"linux", "windows"}:
        raise ToolchainError(
            f"CUDA code cannot be compiled on {host}: NVIDIA has no ptxas for it",
            where=where,
            fix="build on Linux or Windows",
        )
    if target not in {"linux", "windows"}:
        raise ToolchainError(
            f"there is no CUDA for {target}", where=where, fix="build for linux or windows"
        )
    if toolchain == "nvcc" and host != target:
        raise ToolchainError(
            f"nvcc on {host} cannot build for {target}",
            where=where,
            fix='set toolchain.name = "clang-cuda", which can',
        )
    if toolchain == "clang-cuda":
        table = resources.read_table("cuda.toml")["clang-cuda"]
        for arch in archs:
            if arch.suffix == "f":
                raise ToolchainError(
                    f"clang {table['clang']} does not know the family architecture {arch.name}",
                    where=where,
                    fix=f"use {arch.number}a, or nvcc",
                )
            if arch.number < table["oldest-arch"]:
                raise ToolchainError(
                    f"clang {table['clang']} does not compile for architecture {arch.name}",
                    where=where,
                    fix=f"{table['oldest-arch']} is the oldest; use an older toolkit with nvcc",
                )
        check_archs(archs, table["toolkit"], where=where)
    elif toolchain != "nvcc":
        raise ToolchainError(
            f"the {toolchain} toolchain does not compile CUDA code",
            where=where,
            fix='set toolchain.name = "clang-cuda" or "nvcc"',
        )


def driver_floor(runtime: str, target: str, compression: str = "none") -> str:
    """Return the lowest driver version that runs a bundle.

    Args:
        runtime: Version of the bundled CUDA runtime.
        target: ``linux`` or ``windows``.
        compression: The strongest compression among its fat binaries: none, lz4 or zstd.

    Raises:
        ToolchainError: The runtime is not in the table.
    """
    table = resources.read_table("cuda.toml")
    major = runtime.split(".")[0]
    drivers: Mapping[str, Mapping[str, str]] = table["driver"]
    if major not in drivers:
        raise ToolchainError(
            f"the driver that CUDA {runtime} needs is not in the table",
            fix=f"known are CUDA {', '.join(drivers)}",
        )
    compressions: Mapping[str, Mapping[str, str]] = table["fatbin-compression"]
    floors = [drivers[major][target], compressions[compression][target]]
    return max(floors, key=parse_version)


def check_driver(
    driver: str, runtime: str, target: str, compression: str = "none", *, where: str | None = None
) -> None:
    """Check that a driver runs a bundle.

    Raises:
        VerifyError: It is too old.
    """
    floor = driver_floor(runtime, target, compression)
    if parse_version(driver, where=where) < parse_version(floor):
        why = f"CUDA {runtime}"
        if floor != driver_floor(runtime, target):
            why += f" with {compression}-compressed kernels"
        raise VerifyError(
            f"driver {driver} is too old for {why}: it needs {floor} on {target}",
            where=where,
            fix=f"install driver {floor} or newer",
        )


def _newer_cuda(number: int, archs: Sequence[CudaArch]) -> str:
    """Return the advice to take a newer toolkit for an ``_MSC_VER``, where one can help."""
    if any(architectures()[arch.number].last is not None for arch in archs):
        return ""  # the newer toolkits no longer compile for it
    known = list(toolkits().values())
    accepting = [row.version for row in known if row.msvc[0] <= number <= row.msvc[1]]
    return f", or CUDA {accepting[0]}" if accepting else f", or a CUDA after {known[-1].version}"
