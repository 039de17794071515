"""Command lines that make clang a CUDA compiler for windows-gnu and linux-gnu.

``zig clang`` is a full clang driver without zig's knowledge of C libraries, so everything that
``zig c++`` would add for a target is said here. The definitions come from the output of
``zig c++ -target … --verbose`` of ziglang 0.17.1 (an integration test compares them); object code
must agree with the libc++ that zig builds with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qbuild.cuda.arch import CudaArch
from qbuild.errors import ToolchainError

ZIG_VERSION: Final = "0.17.1"
"""The ziglang release that :data:`LIBCXX` and the two target lists were read from."""

LIBCXX: Final = (
    "-D_LIBCPP_ABI_VERSION=1",
    "-D_LIBCPP_ABI_NAMESPACE=__1",
    "-D_LIBCPP_HAS_THREADS=1",
    "-D_LIBCPP_HAS_MONOTONIC_CLOCK",
    "-D_LIBCPP_HAS_TERMINAL",
    "-D_LIBCPP_HAS_MUSL_LIBC=0",
    "-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0",
    "-D_LIBCPP_HAS_FILESYSTEM=1",
    "-D_LIBCPP_HAS_RANDOM_DEVICE",
    "-D_LIBCPP_HAS_LOCALIZATION",
    "-D_LIBCPP_HAS_UNICODE",
    "-D_LIBCPP_HAS_WIDE_CHARACTERS",
    "-D_LIBCPP_HAS_NO_STD_MODULES",
    "-D_LIBCPP_PSTL_BACKEND_SERIAL",
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "-D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)
"""How zig configures libc++ in an optimised build."""

ALLOW_LIBCXX: Final = "-D_ALLOW_UNSUPPORTED_LIBCPP"
"""NVIDIA's own switch: their headers otherwise refuse libc++ by an #error."""

WINDOWS: Final = ("-D__MSVCRT_VERSION__=0xE00", "-D_WIN32_WINNT=0x0a00", "-D__CRT__NO_INLINE")
"""zig's MinGW: the Universal C runtime, Windows 10."""

LINUX: Final = ("-D_LIBCPP_HAS_TIME_ZONE_DATABASE",)

MATH: Final = (
    "-fgpu-approx-transcendentals",
    "-fgpu-flush-denormals-to-zero",
    "-Xarch_device",
    "-ffp-contract=fast",
    "-mllvm",
    "-nvptx-prec-divf32=0",
    "-mllvm",
    "-nvptx-prec-sqrtf32=0",
)
"""nvcc's ``-use_fast_math`` in clang's words. Never ``-ffast-math`` or ``-ffinite-math-only``:
ggml-cuda uses INFINITY and isinf. The cuda-clang series says the same to CMake."""

ALIASING: Final = ("-Xarch_device", "-fno-strict-aliasing")
"""nvcc's device code knows no strict aliasing, and ggml relies on that: ``ggml_cuda_memcpy_1``
reads an array of half2 as int. With it clang turned zeros of flash attention into undefined
values; the emulated GPU found that. The cuda-clang series says the same to CMake."""


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Where the parts are, with forward slashes."""

    zig: str  # the zig program
    zig_lib: str  # its ``lib`` folder
    tree: str  # the CUDA tree that :mod:`qbuild.cuda.tree` assembled


def target_triple(target: str, arch: str = "x86_64") -> str:
    """Return clang's name of a target.

    Raises:
        ToolchainError: clang-cuda does not build for it.
    """
    if arch != "x86_64":
        raise ToolchainError(
            f"clang-cuda does not build for {arch}: NVIDIA's wheels with import libraries are "
            "for x86_64",
            fix='set target.arch = "x86_64"',
        )
    if target == "windows":
        return "x86_64-w64-windows-gnu"
    if target == "linux":
        return "x86_64-linux-gnu"
    raise ToolchainError(f"there is no CUDA for {target}", fix="build for linux or windows")


def include_folders(paths: Paths, target: str) -> tuple[str, ...]:
    """Return the system include folders in search order.

    The overlay comes first so that its ``crt/math_functions.hpp`` is found before NVIDIA's;
    clang's ``cuda_wrappers`` must come before libc++, whose headers they wrap with
    ``#include_next``; the C library comes after clang's own headers, as in every clang.
    """
    lib, tree = paths.zig_lib, paths.tree
    libc = (
        ("any-windows-any",)
        if target == "windows"
        else ("x86-linux-gnu", "generic-glibc", "x86-linux-any", "any-linux-any")
    )
    return (
        f"{tree}/overlay",
        f"{tree}/resource/include/cuda_wrappers",
        f"{lib}/libcxx/include",
        f"{lib}/libcxxabi/include",
        f"{tree}/resource/include",
        *(f"{lib}/libc/include/{name}" for name in libc),
        f"{lib}/libunwind/include",
    )


def compiler_command(paths: Paths, target: str, *, glibc: str = "2.28") -> list[str]:
    """Return the command that stands for "the CUDA compiler": all but what CMake adds.

    Args:
        paths: Where the parts are.
        target: ``windows`` or ``linux``.
        glibc: Oldest glibc that a Linux result runs on.
    """
    command = [
        paths.zig,
        "clang",
        f"--target={target_triple(target)}",
        f"--cuda-path={paths.tree}",
        "-resource-dir",
        f"{paths.tree}/resource",
        "-nostdlibinc",
        "-nostdinc++",
    ]
    for folder in include_folders(paths, target):
        command += ["-isystem", folder]
    if target == "windows":
        command += [*WINDOWS, "-include", f"{paths.tree}/overlay/qbuild_cuda_prelude.h"]
    else:
        command += [f"-D__GLIBC_MINOR__={glibc.split('.')[1]}", *LINUX, "-fPIC"]
    return [*command, *LIBCXX, ALLOW_LIBCXX, "-Wno-unknown-cuda-version"]


def arch_flags(archs: Sequence[CudaArch]) -> list[str]:
    """Return clang's words for a list of architectures, as the cuda-clang series says them."""
    flags = [f"--cuda-gpu-arch=sm_{arch.name}" for arch in archs]
    flags.append("--no-cuda-include-ptx=all")
    flags += [f"--cuda-include-ptx=sm_{arch.name}" for arch in archs if arch.virtual]
    for arch in archs:
        if not arch.real:  # clang always makes the cubin; our fatbinary leaves it out again
            flags += ["-Xcuda-fatbinary", f"--drop-cubin={arch.name}"]
    numbers = sorted({arch.number * 10 for arch in archs})
    # nvcc defines it, clang does not; ggml chooses kernels by it
    return [*flags, f"-D__CUDA_ARCH_LIST__={','.join(str(number) for number in numbers)}"]


def device_flags(archs: Sequence[CudaArch]) -> list[str]:
    """Return everything between the compiler command and a file: language, devices, mathematics.

    CMake gets the same from the cuda-clang series; this is for single files, outside CMake.
    """
    return [
        "-x",
        "cuda",
        "-Xcuda-fatbinary",
        "-compress-all",
        *arch_flags(archs),
        *MATH,
        *ALIASING,
        "-fuse-cuid=none",
    ]


FA_TYPES: Final = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16")
"""Types of ``GGML_CUDA_FA_QUANTS`` at the pin (ggml/cmake/common.cmake)."""


def check_kv_types(pairs: Sequence[str]) -> None:
    """Check pairs of KV cache types that flash attention shall have kernels for.

    Raises:
        ToolchainError: A pair is misspelled.
    """
    for pair in pairs:
        names = pair.split("-")
        if len(names) != 2 or not set(names) <= set(FA_TYPES):
            raise ToolchainError(
                f"{pair!r} is not a pair of KV cache types",
                fix=f"write two of {', '.join(FA_TYPES)} with a dash, e.g. q8_0-q8_0",
            )


def cache_entries(
    archs: Sequence[CudaArch],
    *,
    kv_types: Sequence[str],
    peer_copy: bool = True,
    own_blas: bool = False,
    compiler: str = "clang-cuda",
) -> dict[str, bool | int | str]:
    """Return the CMake cache entries of a build with the nvcuda (and cuda-clang) series.

    Args:
        archs: The recipe's architectures.
        kv_types: Pairs of types (K-V) that the flash attention kernels take; f16-f16 always.
        peer_copy: Copies between GPUs without the CPU.
        own_blas: Matrix products by the kernels of the own-blas series, without cuBLAS.
        compiler: ``clang-cuda`` or ``nvcc``.

    Raises:
        ToolchainError: A pair of types is misspelled.
    """
    check_kv_types(kv_types)
    # Upstream's default for nvcc from 12.8 on is zstd, which needs driver 550; this one is LZ4.
    own: dict[str, bool | int | str] = (
        {"GGML_CUDA_CLANG": True}
        if compiler == "clang-cuda"
        else {"GGML_CUDA_COMPRESSION_MODE": "speed"}
    )
    if own_blas:
        own["GGML_CUDA_OWN_BLAS"] = True
    return {
        **own,
        "BUILD_SHARED_LIBS": True,  # ggml-base, which a loadable backend shares with its program
        "GGML_BACKEND_DL": True,
        "GGML_CUDA": True,
        "CMAKE_CUDA_ARCHITECTURES": ";".join(arch.cmake for arch in archs),
        "GGML_CUDA_DRIVER_DYNAMIC": True,
        "GGML_CUDA_FA": True,
        "GGML_CUDA_FA_QUANTS": ",".join(kv_types),
        "GGML_CUDA_GRAPHS": True,
        "GGML_CUDA_NCCL": False,  # upstream's default is ON, and finds whatever is installed
        "GGML_CUDA_NO_PEER_COPY": not peer_copy,
    }


def path_entries(*, compiler: str, libraries: Sequence[str]) -> dict[str, bool | int | str]:
    """Return the cache entries that name files of the build.

    Args:
        compiler: One program without fixed arguments (a wrapper of :func:`compiler_command`).
        libraries: Full paths of cudart and cublas (:func:`qbuild.cuda.tree.link_libraries`).

    Raises:
        ToolchainError: A path holds what CMake cannot quote.
    """
    for path in (compiler, *libraries):
        if ";" in path or '"' in path:
            raise ToolchainError(
                f"CMake cannot take the path {path}",
                fix="move qbuild's folders to a path without semicolons and quotes",
            )
    return {"GGML_CUDA_CLANG_COMPILER": compiler, "GGML_CUDA_CLANG_LIBRARIES": ";".join(libraries)}
