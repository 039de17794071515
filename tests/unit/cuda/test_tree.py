"""The CUDA tree: what goes where, and what a missing or damaged wheel is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.cuda import tree
from qbuild.errors import BinaryError, ToolchainError

FILES = {
    tree.ZIG: ["ziglang/zig"],
    tree.NVCC: [
        "nvidia/cuda_nvcc/bin/ptxas",
        "nvidia/cuda_nvcc/include/crt/host_config.h",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
    ],
    tree.RUNTIME: [
        "nvidia/cuda_runtime/include/cuda.h",
        "nvidia/cuda_runtime/include/cuda_runtime.h",
        "nvidia/cuda_runtime/lib/libcudart.so.12",
        "nvidia/cuda_runtime/lib/x64/cudart.lib",
    ],
    tree.CCCL: ["nvidia/cuda_cccl/include/cub/cub.cuh", "nvidia/cuda_cccl/include/__init__.py"],
    tree.CUBLAS: [
        "nvidia/cublas/include/cublas_v2.h",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cublas/lib/libcublasLt.so.12",
    ],
    tree.NVFATBIN: ["nvidia/nvfatbin/lib/libnvfatbin.so.12"],
    tree.CLANG_TIDY: ["clang_tidy/data/lib/clang/22/include/__clang_cuda_runtime_wrapper.h"],
}


@pytest.fixture
def unpacked(tmp_path: Path) -> dict[str, Path]:
    for project, names in FILES.items():
        for name in names:
            path = tmp_path / "wheels" / project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    return {project: tmp_path / "wheels" / project for project in FILES}


def test_assembles_for_linux(unpacked: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "a tree with blanks"
    commands = tree.assemble(out, unpacked, host="linux", target="linux")
    for name in (
        "include/cuda.h",
        "include/cub/cub.cuh",
        "include/crt/host_config.h",
        "bin/ptxas",
        "bin/libnvfatbin.so.12",
        "nvvm/libdevice/libdevice.10.bc",
        "resource/include/__clang_cuda_runtime_wrapper.h",
        "overlay/crt/math_functions.hpp",
        "overlay/qbuild_cuda_prelude.h",
    ):
        assert (out / name).is_file(), name
    assert not (out / "include" / "__init__.py").exists()
    (command,) = commands
    assert command.makes == out / "bin" / "fatbinary"
    assert command.argv[1:4] == ("cc", "-target", "x86_64-linux-gnu.2.28")
    assert not command.makes.exists()
    assert all((out / name).is_file() for name in tree.LINKED["linux"])


@pytest.mark.parametrize("project", sorted(FILES))
def test_a_missing_wheel_is_named(unpacked: dict[str, Path], tmp_path: Path, project: str) -> None:
    del unpacked[project]
    with pytest.raises(ToolchainError, match=f"the {project} wheel is missing") as caught:
        tree.assemble(tmp_path / "tree", unpacked, host="linux", target="linux")
    assert f"qbuild lock --update {project}" in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("project", "name", "what"),
    [
        (tree.ZIG, "ziglang/zig", "the ziglang wheel lacks the zig program"),
        (tree.NVCC, "nvidia/cuda_nvcc/bin/ptxas", "wheel lacks nvidia/cuda_nvcc/bin/ptxas"),
        (tree.NVCC, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "libdevice.10.bc"),
        (tree.RUNTIME, "nvidia/cuda_runtime/include/cuda.h", "no wheel holds the header cuda.h"),
        (tree.CCCL, "nvidia/cuda_cccl/include/cub/cub.cuh", "the header cub/cub.cuh"),
        (tree.NVFATBIN, "nvidia/nvfatbin/lib/libnvfatbin.so.12", "nvidia-nvfatbin-cu12 wheel"),
        (
            tree.CLANG_TIDY,
            "clang_tidy/data/lib/clang/22/include/__clang_cuda_runtime_wrapper.h",
            "the clang-tidy wheel lacks __clang_cuda_runtime_wrapper.h",
        ),
    ],
)
def test_a_damaged_wheel_is_named(
    unpacked: dict[str, Path], tmp_path: Path, project: str, name: str, what: str
) -> None:
    (unpacked[project] / name).unlink()
    with pytest.raises(ToolchainError) as caught:
        tree.assemble(tmp_path / "tree", unpacked, host="linux", target="linux")
    assert what in caught.value.what
    assert "qbuild.lock pins" in (caught.value.fix or "")


def test_a_linux_wheel_for_a_windows_target(unpacked: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"lacks nvidia/cublas/bin/cublas64_12\.dll") as caught:
        tree.assemble(tmp_path / "tree", unpacked, host="linux", target="windows")
    assert "the wheel of the right platform" in (caught.value.fix or "")


def test_a_damaged_dll(unpacked: dict[str, Path], tmp_path: Path) -> None:
    path = unpacked[tree.CUBLAS] / "nvidia/cublas/bin/cublas64_12.dll"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"MZ")
    with pytest.raises(BinaryError):
        tree.assemble(tmp_path / "tree", unpacked, host="linux", target="windows")


def test_definition_file() -> None:
    text = tree.definition_file("cublas64_12.dll", ["cublasSgemm_v2", "cublasCreate_v2", "#12"])
    assert text == "LIBRARY cublas64_12.dll\nEXPORTS\n  cublasCreate_v2\n  cublasSgemm_v2\n"
    with pytest.raises(ToolchainError, match="exports nothing"):
        tree.definition_file("x.dll", [])


def test_commands_for_a_windows_host(tmp_path: Path) -> None:
    command = tree.fatbinary_command(Path("zig.exe"), tmp_path, host="windows")
    assert command.makes.name == "fatbinary.exe"
    assert '-DQBUILD_NVFATBIN="nvfatbin_120_0.dll"' in command.argv
    assert "-ldl" not in command.argv
    library = tree.import_library_command(Path("zig"), tmp_path / "cublasLt64_12.def")
    assert library.makes == tmp_path / "cublasLt.lib"
