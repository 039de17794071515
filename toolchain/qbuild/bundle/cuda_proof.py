"""Proves a bundle's CUDA side from its files, before the zip is made.

The kernels must be those of the recipe; NVIDIA's libraries must export every function that is
imported, hold device code for every architecture, and need no newer driver than is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild.binary.elf import read_elf
from qbuild.binary.fatbin import FatReport, container_digests, read_fatbin
from qbuild.binary.pe import read_pe
from qbuild.bundle.facts import CudaFacts
from qbuild.cuda import device_code, runtime
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.runtime import Candidate, Library
from qbuild.cuda.table import driver_floor, minor, parse_version
from qbuild.errors import BundleError
from qbuild.recipe.model import Recipe

BACKENDS: Final = {"windows": "ggml-cuda.dll", "linux": "libggml-cuda.so"}
"""File of the CUDA backend by target."""

_RUNTIME_WHEEL: Final = "nvidia-cuda-runtime-cu12"
_CUBLAS_WHEEL: Final = "nvidia-cublas-cu12"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What the compiled CUDA backend says of itself."""

    symbols: frozenset[str]  # functions it imports from NVIDIA's runtime libraries
    report: FatReport  # its device code
    digests: tuple[str, ...]  # the sha256 of each of its fat binaries


def prove(
    recipe: Recipe,
    stage: Path,
    provided: Mapping[str, Path],
    versions: Mapping[str, str],
    *,
    toolkit: str = "",
) -> CudaFacts:
    """Return the facts of a bundle's CUDA side, each of them proven.

    Args:
        recipe: What was built.
        stage: The staged binaries.
        provided: NVIDIA's libraries by name; empty when the user brings them.
        versions: Project of each wheel → its version.
        toolkit: Release of the toolkit where one is installed; "": the runtime's wheel says it.

    Raises:
        BundleError: There is no CUDA backend, or a library will not do.
        VerifyError: The device code is not the recipe's.
        BinaryError: A file is damaged.
    """
    target = recipe.target.os
    archs = parse_archs(recipe.cuda.architectures)
    name = BACKENDS[target]
    backend = read_backend(_backend_file(recipe, stage, name), provided)
    device_code.check_archs(backend.report, archs, where=name)
    # The bundled runtime decides which driver is needed; without one the toolkit does.
    toolkit = minor(versions[_RUNTIME_WHEEL]) if _RUNTIME_WHEEL in versions else toolkit
    promised = recipe.cuda.driver or None
    cublas = ""
    proofs: tuple[str, ...] = ()
    floor = driver_floor(toolkit, target, backend.report.compression)
    if provided:
        if recipe.bundle.cublas == "bundled":
            cublas = versions[_CUBLAS_WHEEL]
        candidate = Candidate(
            version=cublas or versions[_RUNTIME_WHEEL],
            libraries=tuple(read_library(each) for each in provided.values()),
        )
        choice = runtime.choose([candidate], backend.symbols, archs, target=target, driver=promised)
        proofs = choice.proofs
        floor = max(floor, choice.driver, key=parse_version)
    if promised is not None and parse_version(floor) > parse_version(promised):
        raise BundleError(
            f"{name} needs driver {floor}, the recipe promises {promised}",
            where="cuda.driver",
            fix=f"promise {floor}",
        )
    return CudaFacts(
        toolkit=toolkit,
        architectures=tuple(arch.cmake for arch in archs),
        cublas=cublas,
        driver=floor,
        proofs=proofs,
        gpus=running(backend.report),
        emulated=device_code.emulated(backend.digests),
    )


def _backend_file(recipe: Recipe, stage: Path, name: str) -> Path:
    for path in (stage / "bin" / name, stage / "lib" / name):
        if path.is_file():
            return path
    raise BundleError(
        f"the build made no {name}",
        where=recipe.name,
        fix="this is a fault of the recipe or of qbuild: look into the build log",
    )


def running(report: FatReport) -> tuple[tuple[str, str], ...]:
    """Return the generations that run a file's device code, and how."""
    none = device_code.WORDS["none"]
    return tuple((family, how) for family, how in device_code.families(report) if how != none)


def read_backend(path: Path, provided: Mapping[str, Path]) -> Backend:
    """Read the CUDA backend: its device code, and what it imports from the provided libraries.

    ELF does not tie a symbol to a library: there, what a provided library exports counts.
    """
    symbols: set[str] = set()
    if path.suffix == ".dll":
        names = {name.lower() for name in provided}
        for entry in read_pe(path).imports:
            if entry.dll.lower() in names:
                symbols |= set(entry.symbols)
    else:
        prefixes = tuple(
            prefix
            for library, own in _PREFIXES.items()
            for prefix in own
            if any(name.startswith(library) for name in provided)
        )
        symbols = {name for name in read_elf(path).imports if name.startswith(prefixes)}
    digests = container_digests(path.read_bytes())
    return Backend(symbols=frozenset(symbols), report=read_fatbin(path), digests=digests)


_PREFIXES: Final = {"libcudart.": ("cuda", "__cuda"), "libcublas.": ("cublas",)}
"""Library → how its functions are called."""


def read_library(path: Path) -> Library:
    """Read one of NVIDIA's libraries: what it exports, and its device code."""
    if path.suffix == ".dll":
        return runtime.read_dll(path)

    exports = read_elf(path).exports
    return runtime.library(path.name, path.stat().st_size, exports, read_fatbin(path))
