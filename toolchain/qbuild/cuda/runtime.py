"""Chooses the CUDA libraries that a bundle carries, and proves the choice.

Within one CUDA major version NVIDIA's libraries are interchangeable for what ggml uses, and they
differ in size by hundreds of megabytes. The smallest one is chosen that has every imported symbol,
machine code (or PTX) for every architecture of the recipe, and a compression that the promised
driver reads. All three are read from the files themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild import resources
from qbuild.binary.fatbin import Compression, FatReport, read_fatbin
from qbuild.binary.pe import read_pe
from qbuild.cuda.arch import CudaArch, coverage, parse_arch
from qbuild.cuda.table import driver_floor, parse_version
from qbuild.errors import BundleError, ToolchainError


def planned(
    sizes: Mapping[str, int], archs: Sequence[CudaArch], *, target: str, driver: str | None = None
) -> str:
    """Return the cuBLAS version that a plan fetches, by what the committed table says of each.

    The table (``[[cublas]]`` in ``toolchain/data/cuda.toml``) was read from the libraries; the
    finished bundle's own libraries are read again, and :func:`choose` proves or refuses them.

    Args:
        sizes: Pinned version → bytes of its wheel.
        archs: The recipe's architectures.
        target: ``linux`` or ``windows``.
        driver: Lowest driver that the recipe promises.

    Raises:
        ToolchainError: None will do.
    """
    rows = {row["version"]: row for row in resources.read_table("cuda.toml")["cublas"]}
    reasons = []
    for version in sorted(sizes, key=lambda each: (sizes[each], each)):
        row = rows.get(version)
        if row is None:
            reasons.append(f"{version} is not in the table")
            continue
        held = [parse_arch(f"{name}-real") for name in row["archs"]]
        lacking = [a.name for a in archs if coverage(held, a.capability)[0] == "none"]
        floor = driver_floor(version, target, row["compression"])
        if lacking:
            reasons.append(f"{version} has no device code for {', '.join(lacking)}")
        elif driver is not None and parse_version(floor) > parse_version(driver):
            reasons.append(f"{version} needs driver {floor}")
        else:
            return version
    raise ToolchainError(
        "no pinned cuBLAS will do: " + "; ".join(reasons),
        where="cuda.architectures, cuda.driver",
        fix="promise a newer driver, or leave out an architecture",
    )


def check_driver(version: str, *, target: str, driver: str | None) -> None:
    """Check a promised driver against CUDA itself, where no cuBLAS is chosen by it.

    Raises:
        ToolchainError: It is too old for this CUDA.
    """
    floor = driver_floor(version, target, "lz4")
    if driver is not None and parse_version(floor) > parse_version(driver):
        raise ToolchainError(
            f"CUDA {version} needs driver {floor}, the recipe promises {driver}",
            where="cuda.driver",
            fix=f"promise {floor}",
        )


@dataclass(frozen=True, kw_only=True)
class Library:
    """One library of one version, as its file says."""

    name: str  # file name: ``cublas64_12.dll``
    size: int  # bytes
    exports: frozenset[str]  # names it exports
    # architectures it has machine code for; empty when it holds no device code
    cubins: tuple[str, ...]
    ptx: tuple[str, ...]  # architectures it has PTX for
    compression: Compression  # how its device code is stored


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The libraries of one version."""

    version: str
    libraries: tuple[Library, ...]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(library.size for library in self.libraries)

    @property
    def compression(self) -> Compression:
        """The strongest compression among them."""
        used = {library.compression for library in self.libraries}
        return "zstd" if "zstd" in used else "lz4" if "lz4" in used else "none"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen version and why each other one was not."""

    candidate: Candidate  # the chosen libraries
    driver: str  # lowest driver that they need
    proofs: tuple[str, ...]  # one sentence for each of: symbols, architectures, compression
    rejected: tuple[tuple[str, str], ...]  # (version, reason) of the others


def read_dll(path: Path) -> Library:
    """Read what :class:`Library` holds from a DLL.

    Raises:
        BinaryError: It is damaged.
    """
    return library(path.name, path.stat().st_size, read_pe(path).exports, read_fatbin(path))


def library(name: str, size: int, exports: Iterable[str], report: FatReport) -> Library:
    """Return a :class:`Library` from what the readers found (an ELF file's exports: its caller)."""
    return Library(
        name=name,
        size=size,
        exports=frozenset(exports),
        cubins=report.cubins,
        ptx=report.ptx,
        compression=report.compression,
    )


def lacks(
    candidate: Candidate,
    symbols: Iterable[str],
    archs: Sequence[CudaArch],
    driver: str,
    target: str,
) -> str | None:
    """Return the first reason why a candidate will not do, or ``None``."""
    have = frozenset().union(*(each.exports for each in candidate.libraries))
    absent = sorted(set(symbols) - have)
    if absent:
        return f"lacks {', '.join(absent[:3])}" + (" and more" if len(absent) > 3 else "")
    for each in candidate.libraries:
        if not each.cubins:
            continue  # a library without device code (cudart)
        held = [parse_arch(f"{name}-real") for name in each.cubins]
        for arch in archs:
            if coverage(held, arch.capability)[0] == "none":
                return f"{each.name} has no machine code for {arch.name}"
    floor = driver_floor(candidate.version, target, candidate.compression)
    if parse_version(floor) > parse_version(driver):
        return f"its device code ({candidate.compression}) needs driver {floor}"
    return None


def choose(
    candidates: Sequence[Candidate],
    symbols: Iterable[str],
    archs: Sequence[CudaArch],
    *,
    target: str,
    driver: str | None = None,
) -> Choice:
    """Return the smallest candidate that will do.

    Args:
        candidates: At least one.
        symbols: Names that the program imports from them.
        archs: The recipe's architectures.
        target: ``linux`` or ``windows``.
        driver: Lowest driver that the recipe promises; ``None`` promises none, and among equals
            in everything else the smallest wins whatever driver it needs.

    Raises:
        BundleError: None will do; the message has the reason for each.
    """
    wanted = frozenset(symbols)
    promised = driver if driver is not None else "999999"
    rejected: list[tuple[str, str]] = []
    for candidate in sorted(candidates, key=lambda each: (each.size, each.version)):
        reason = lacks(candidate, wanted, archs, promised, target)
        if reason is not None:
            rejected.append((candidate.version, reason))
            continue
        floor = driver_floor(candidate.version, target, candidate.compression)
        names = ", ".join(arch.name for arch in archs)
        device = any(library.cubins for library in candidate.libraries)
        return Choice(
            candidate=candidate,
            driver=floor,
            proofs=(
                f"exports all {len(wanted)} imported functions",
                *((f"has machine code for {names}",) if device else ()),
                f"its device code ({candidate.compression}) is read by driver {floor} and newer"
                if device
                else f"holds no device code, runs with driver {floor} and newer",
            ),
            rejected=(
                *rejected,
                *(
                    (other.version, f"is larger: {other.size} bytes")
                    for other in candidates
                    if other is not candidate
                    and other.version not in {version for version, _ in rejected}
                ),
            ),
        )
    raise BundleError(
        "no version of the CUDA libraries will do: "
        + "; ".join(f"{version} {reason}" for version, reason in rejected),
        where="bundle.cuda_runtime",
        fix="promise a newer driver, or pin a newer nvidia-cublas-cu12",
    )
