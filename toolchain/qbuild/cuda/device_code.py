"""What device code in a bundle means: is it what the recipe asked for, and which GPUs run it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qbuild import resources
from qbuild.binary.fatbin import FatReport
from qbuild.cuda.arch import Coverage, CudaArch, Gpu, architectures, coverage, find_gpu, parse_arch
from qbuild.errors import RecipeError, VerifyError

WORDS: Final[dict[Coverage, str]] = {
    "native": "runs natively",
    "jit": "JIT at first start",
    "none": "will not run",
}


@dataclass(frozen=True, kw_only=True)
class GpuVerdict:
    """How one GPU runs a bundle."""

    gpu: Gpu  # the GPU
    coverage: Coverage  # ``native``, ``jit`` or ``none``
    arch: CudaArch | None  # the architecture that it runs by

    def __str__(self) -> str:
        words = WORDS[self.coverage]
        by = ""
        if self.arch is not None:
            kind = "machine code" if self.coverage == "native" else "PTX"
            by = f" ({kind} for {self.arch.name})"
        return f"{self.gpu.name} (compute capability {self.gpu.capability}): {words}{by}"


def held_archs(report: FatReport) -> tuple[CudaArch, ...]:
    """Return the architectures in a file, spelled as a recipe would.

    Raises:
        VerifyError: The file holds one that is not in the table.
    """
    found = []
    for name in sorted({*report.cubins, *report.ptx}):
        try:
            plain = parse_arch(name)
        except RecipeError as error:
            raise VerifyError(
                f"device code for an architecture that is not in the table: {name}",
                fix="add it to toolchain/data/cuda.toml",
            ) from error
        found.append(
            CudaArch(
                number=plain.number,
                suffix=plain.suffix,
                real=name in report.cubins,
                virtual=name in report.ptx,
            )
        )
    return tuple(sorted(found))


def check_archs(report: FatReport, archs: Sequence[CudaArch], *, where: str) -> None:
    """Check that a file holds exactly the cubins and PTX that the recipe names.

    Raises:
        VerifyError: Something is missing, superfluous, or not in every compiled unit.
    """
    if not report.entries:
        raise VerifyError(
            "holds no device code: this is a CPU-only build",
            where=where,
            fix="build it again, from a clean store",
        )
    for kind, held, wanted in (
        ("machine code", report.cubins, {arch.name for arch in archs if arch.real}),
        ("PTX", report.ptx, {arch.name for arch in archs if arch.virtual}),
    ):
        problems = []
        if missing := sorted(wanted - set(held)):
            problems.append(f"no {kind} for {', '.join(missing)}")
        if extra := sorted(set(held) - wanted):
            problems.append(f"{kind} for {', '.join(extra)}, which the recipe does not name")
        if problems:
            raise VerifyError(
                "device code differs from the recipe: " + "; ".join(problems),
                where=where,
                fix="build it again, from a clean store",
            )
    for (kind, arch), lacking in report.incomplete.items():
        raise VerifyError(
            f"{lacking} of its compiled units lack the {kind} for {arch}",
            where=where,
            fix="build it again, from a clean store",
        )


def gpu_verdict(report: FatReport, name: str) -> GpuVerdict:
    """Return how a GPU runs the device code of a file.

    Args:
        report: What was read from the file.
        name: Its name ("GTX 1060") or compute capability ("6.1").

    Raises:
        RecipeError: There is no such GPU in the table.
    """
    gpu = find_gpu(name)
    kind, arch = coverage(held_archs(report), gpu.capability)
    return GpuVerdict(gpu=gpu, coverage=kind, arch=arch)


def families(report: FatReport) -> tuple[tuple[str, str], ...]:
    """Return (generation and capability, verdict) for every known architecture."""
    held = held_archs(report)
    return tuple(
        (
            f"{row.family} {number // 10}.{number % 10}",
            WORDS[coverage(held, CudaArch(number=number).capability)[0]],
        )
        for number, row in architectures().items()
    )


def gpu_validated(compiler: str, arch: CudaArch, commit: str) -> bool:
    """Return whether this compiler's kernels for an architecture have run on a real GPU.

    Args:
        compiler: ``clang-cuda``, or ``nvcc`` with its version.
        arch: The architecture.
        commit: Of llama.cpp, whole.
    """
    return any(
        (row["compiler"], row["arch"], row["commit"]) == (compiler, arch.name, commit)
        for row in resources.read_table("gpu-validated.toml").get("run", [])
    )


def one_digest(digests: Sequence[str]) -> str:
    """Return what ``gpu-emulated.toml`` calls a file's device code: one sha256 over those of all.

    Args:
        digests: The sha256 (hex) of each of its fat binaries, in file order.
    """
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def emulated(digests: Sequence[str]) -> str:
    """Return what of a file's device code has computed on a GPU of software; "" for nothing.

    Args:
        digests: The sha256 of each of its fat binaries, in file order. A row speaks of these very
            bytes: other machine code of the same source has none.
    """
    for row in resources.read_table("gpu-emulated.toml").get("run", []):
        if row["fat_binaries"] == one_digest(digests):
            return (
                f"emulated: {row['ran']:,} of {row['kernels']:,} kernels computed right on a "
                f"software {row['gpu']} in this bundle's own programs ({row['date']}); "
                f"{row['of_the_source']:,} of the same source, compiled for Linux"
            )
    return ""
