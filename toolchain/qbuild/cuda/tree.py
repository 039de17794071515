"""Assembles the folder that clang takes for a CUDA installation, from unpacked wheels.

What lies where (``--cuda-path`` is the folder itself)::

    include/                headers of nvcc, runtime, cccl and cublas (where it is linked), merged
    bin/ptxas               NVIDIA's assembler, from the nvcc wheel of the host
    bin/fatbinary           toolchain/cuda/fatbinary.c, compiled for the host
    bin/libnvfatbin.so.12   the library it calls
    nvvm/libdevice/         device mathematics as LLVM bitcode
    resource/include/       clang's own headers (-resource-dir)
    overlay/                toolchain/cuda/overlay
    lib/                    what is linked: import libraries, or the libraries themselves (Linux)

Files are copied by pure Python; the three commands that compile something are returned, so that
the caller runs them where and how it runs every other command.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild import resources
from qbuild.binary.pe import read_pe
from qbuild.errors import ToolchainError

FORMAT: Final = 1
MAJOR: Final = 12  # major version of CUDA of all wheels below

NVCC: Final = "nvidia-cuda-nvcc-cu12"
RUNTIME: Final = "nvidia-cuda-runtime-cu12"
CCCL: Final = "nvidia-cuda-cccl-cu12"
CUBLAS: Final = "nvidia-cublas-cu12"
NVFATBIN: Final = "nvidia-nvfatbin-cu12"
CLANG_TIDY: Final = "clang-tidy"
ZIG: Final = "ziglang"

HOST_WHEELS: Final = (ZIG, NVCC, NVFATBIN, CLANG_TIDY, CCCL)
"""Projects whose wheel for the host is needed."""

TARGET_WHEELS: Final = (RUNTIME, CUBLAS)
"""Projects whose wheel for the target is needed: headers, import libraries, what is bundled.
The second only where ggml-cuda links cuBLAS (:func:`target_wheels`)."""

_NVFATBIN_FILE: Final = {
    "linux": "nvidia/nvfatbin/lib/libnvfatbin.so.12",
    "windows": "nvidia/nvfatbin/bin/nvfatbin_120_0.dll",
}
_HOST_TRIPLE: Final = {"linux": "x86_64-linux-gnu.2.28", "windows": "x86_64-windows-gnu"}
IMPORTED: Final = ("cublas64_12", "cublasLt64_12")
"""DLLs whose wheel has no import library; ggml-cuda links the first."""

CUBLAS_FUNCTIONS: Final = (
    "cublasCreate_v2", "cublasDestroy_v2", "cublasGemmBatchedEx", "cublasGemmEx",
    "cublasGemmStridedBatchedEx", "cublasGetStatusString", "cublasSetMathMode",
    "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSgemmBatched",
    "cublasSgemmStridedBatched", "cublasSgemm_v2", "cublasStrsmBatched",
)  # fmt: skip
"""What ggml-cuda imports at the pin, read from the finished ``ggml-cuda.dll``."""

FOLDERS: Final[tuple[tuple[str, str, str], ...]] = (
    (NVCC, "nvidia/cuda_nvcc/include", "include"),
    (RUNTIME, "nvidia/cuda_runtime/include", "include"),
    (CCCL, "nvidia/cuda_cccl/include", "include"),
    (CUBLAS, "nvidia/cublas/include", "include"),
)
"""(project, folder in its wheel, folder of the tree that it is merged into)."""

RUNTIME_FILES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "windows": (
        (RUNTIME, "nvidia/cuda_runtime/bin/cudart64_12.dll"),
        (CUBLAS, "nvidia/cublas/bin/cublas64_12.dll"),
        (CUBLAS, "nvidia/cublas/bin/cublasLt64_12.dll"),
    ),
    "linux": (
        (RUNTIME, "nvidia/cuda_runtime/lib/libcudart.so.12"),
        (CUBLAS, "nvidia/cublas/lib/libcublas.so.12"),
        (CUBLAS, "nvidia/cublas/lib/libcublasLt.so.12"),
    ),
}
"""Target → (project, file in its wheel) of everything a bundle may carry of NVIDIA's."""


def target_wheels(*, cublas: bool) -> tuple[str, ...]:
    """Return the projects of :data:`TARGET_WHEELS` that a build with or without cuBLAS needs."""
    return tuple(project for project in TARGET_WHEELS if cublas or project != CUBLAS)


def folders(*, cublas: bool) -> tuple[tuple[str, str, str], ...]:
    """Return :data:`FOLDERS` for a build with or without cuBLAS."""
    return tuple(each for each in FOLDERS if cublas or each[0] != CUBLAS)


def linked(target: str, *, cublas: bool) -> tuple[str, ...]:
    """Return :data:`LINKED` of a target for a build with or without cuBLAS."""
    return tuple(name for name in LINKED[target] if cublas or "cublas" not in name)


def files(*, host: str, target: str, cublas: bool = True) -> tuple[tuple[str, str, str], ...]:
    """Return (project, file in its wheel, folder of the tree) of every single file."""
    exe = ".exe" if host == "windows" else ""
    libraries = (
        ((RUNTIME, "nvidia/cuda_runtime/lib/x64/cudart.lib"),)
        if target == "windows"
        else tuple(each for each in RUNTIME_FILES["linux"] if cublas or each[0] != CUBLAS)
    )
    return (
        (NVCC, f"nvidia/cuda_nvcc/bin/ptxas{exe}", "bin"),
        (NVFATBIN, _NVFATBIN_FILE[host], "bin"),
        (NVCC, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "nvvm/libdevice"),
        *((project, name, "lib") for project, name in libraries),
    )


def provided(target: str, *, runtime: bool, cublas: bool) -> Mapping[str, tuple[str, str]]:
    """Return the libraries that a bundle may take from wheels: name → (project, file)."""
    inside = {RUNTIME: runtime, CUBLAS: cublas}
    files = RUNTIME_FILES[target]
    return {Path(file).name: (project, file) for project, file in files if inside[project]}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that completes the tree."""

    argv: tuple[str, ...]  # program and arguments
    makes: Path  # the file it writes


def assemble(
    tree: Path, unpacked: Mapping[str, Path], *, host: str, target: str, cublas: bool = True
) -> tuple[Command, ...]:
    """Fill an empty folder with the CUDA tree.

    Args:
        tree: The folder; created.
        unpacked: Project name of each wheel → folder of its files; the wheels of
            :data:`HOST_WHEELS` for the host, of :data:`TARGET_WHEELS` for the target.
        host: ``linux`` or ``windows``: where clang and ptxas run.
        target: ``linux`` or ``windows``: what is built for.
        cublas: Whether ggml-cuda links cuBLAS.

    Returns:
        The commands still to be run, in any order: they make ``bin/fatbinary`` and, for a Windows
        target, the import libraries.

    Raises:
        ToolchainError: A wheel is missing, or lacks a file that it should hold.
    """
    _check_wheels(unpacked, cublas=cublas)
    (tree / "bin").mkdir(parents=True)
    (tree / "lib").mkdir()
    for project, source, dest in folders(cublas=cublas):
        shutil.copytree(
            part(unpacked, project, source),
            tree / dest,
            ignore=shutil.ignore_patterns("__init__.py", "__pycache__"),
            dirs_exist_ok=True,
        )
    needed = ["cuda.h", "cuda_runtime.h", "crt/host_config.h", "cub/cub.cuh"]
    for name in [*needed, "cublas_v2.h"] if cublas else needed:
        if not (tree / "include" / name).is_file():
            raise ToolchainError(
                f"no wheel holds the header {name}",
                where="clang-cuda toolchain",
                fix="use the versions that qbuild.lock pins",
            )
    shutil.copytree(_clang_headers(unpacked), tree / "resource" / "include")
    shutil.copytree(_own("overlay"), tree / "overlay")
    for project, source, dest in files(host=host, target=target, cublas=cublas):
        copy = tree / dest / Path(source).name
        copy.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(part(unpacked, project, source), copy)
        if dest == "bin":
            copy.chmod(0o755)

    zig = zig_program(unpacked)
    commands = [fatbinary_command(zig, tree, host=host)]
    if target == "windows" and cublas:
        for name in IMPORTED:
            dll = part(unpacked, CUBLAS, f"nvidia/cublas/bin/{name}.dll")
            definition = tree / "lib" / f"{name}.def"
            text = definition_file(dll.name, read_pe(dll).exports)
            definition.write_bytes(text.encode("ascii"))
            commands.append(import_library_command(zig, definition))
    return tuple(commands)


def _check_wheels(unpacked: Mapping[str, Path], *, cublas: bool) -> None:
    for project in (*HOST_WHEELS, *target_wheels(cublas=cublas)):
        if project not in unpacked:
            raise ToolchainError(
                f"the {project} wheel is missing",
                where="clang-cuda toolchain",
                fix=f"pin it in qbuild.lock: qbuild lock --update {project}",
            )


def _link_or_copy(source: Path, dest: Path) -> None:
    """Give a file of hundreds of megabytes a second name where the disk can."""
    try:
        os.link(source, dest)
    except OSError:
        shutil.copyfile(source, dest)


def part(unpacked: Mapping[str, Path], project: str, name: str) -> Path:
    """Return a file or folder of an unpacked wheel.

    Raises:
        ToolchainError: It is not there.
    """
    path = unpacked[project] / name
    if not path.exists():
        raise ToolchainError(
            f"the {project} wheel lacks {name}",
            where=str(unpacked[project]),
            fix="use the version that qbuild.lock pins, and the wheel of the right platform",
        )
    return path


def zig_program(unpacked: Mapping[str, Path]) -> Path:
    """Return the zig program of the ziglang wheel.

    Raises:
        ToolchainError: The wheel holds none.
    """
    folder = unpacked[ZIG] / "ziglang"
    for name in ("zig", "zig.exe"):
        if (folder / name).is_file():
            return folder / name
    raise ToolchainError(
        "the ziglang wheel lacks the zig program",
        where=str(folder),
        fix="use the version that qbuild.lock pins",
    )


def _clang_headers(unpacked: Mapping[str, Path]) -> Path:
    folders = part(unpacked, CLANG_TIDY, "clang_tidy/data/lib/clang")
    for version in sorted(folders.iterdir()):
        if (version / "include" / "__clang_cuda_runtime_wrapper.h").is_file():
            return version / "include"
    raise ToolchainError(
        "the clang-tidy wheel lacks __clang_cuda_runtime_wrapper.h",
        where=str(folders),
        fix="use the version that qbuild.lock pins",
    )


def _own(name: str) -> Path:
    return resources.data_root() / "toolchain" / "cuda" / name


def own_digest() -> str:
    """Return one sha256 over qbuild's own files in the tree: overlay and fatbinary program."""
    root = _own("")
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def fatbinary_command(zig: Path, tree: Path, *, host: str) -> Command:
    """Return the command that compiles our fatbinary program for the host."""
    out = tree / "bin" / ("fatbinary.exe" if host == "windows" else "fatbinary")
    library = Path(_NVFATBIN_FILE[host]).name
    argv = [
        str(zig),
        "cc",
        "-target",
        _HOST_TRIPLE[host],
        "-O2",
        "-s",
        f'-DQBUILD_NVFATBIN="{library}"',
        str(_own("fatbinary.c")),
        "-o",
        str(out),
    ]
    if host == "linux":
        argv.append("-ldl")
    return Command(argv=tuple(argv), makes=out)


def definition_file(dll: str, exports: Iterable[str]) -> str:
    """Return the text of a module definition file for a DLL's exported names."""
    names = sorted(name for name in exports if not name.startswith("#"))
    if not names:
        raise ToolchainError(
            f"{dll} exports nothing: no import library can be made from it",
            fix="use the wheel that qbuild.lock pins",
        )
    return f"LIBRARY {dll}\nEXPORTS\n" + "".join(f"  {name}\n" for name in names)


def import_library_command(zig: Path, definition: Path) -> Command:
    """Return the command that makes an import library: ``cublas64_12.def`` → ``cublas.lib``."""
    out = definition.with_name(definition.stem.removesuffix("64_12") + ".lib")
    argv = (str(zig), "dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(out))
    return Command(argv=argv, makes=out)


LINKED: Final[Mapping[str, tuple[str, ...]]] = {
    "windows": ("lib/cudart.lib", "lib/cublas.lib"),
    "linux": ("lib/libcudart.so.12", "lib/libcublas.so.12"),
}
"""Target → files of the tree that ggml-cuda links. The driver is not among them: the ``nvcuda``
series looks its functions up at run time."""
