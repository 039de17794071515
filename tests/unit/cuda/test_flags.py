"""The driver line: right order, right mathematics, and the same words as the patch series."""

from __future__ import annotations

import pytest

from qbuild import resources
from qbuild.cuda import flags
from qbuild.cuda.arch import parse_archs
from qbuild.errors import ToolchainError

PATHS = flags.Paths(zig="/z i g/zig", zig_lib="/z i g/lib", tree="/t r e e")


@pytest.mark.parametrize("target", ["windows", "linux"])
def test_never_promises_finite_numbers(target: str) -> None:
    line = flags.compiler_command(PATHS, target) + flags.device_flags(parse_archs(["61-real"]))
    assert "-ffast-math" not in line
    assert not any("finite-math" in part for part in line)
    assert {"-fgpu-approx-transcendentals", "-fgpu-flush-denormals-to-zero"} <= set(line)
    assert "-ffp-contract=fast" in line


@pytest.mark.parametrize("target", ["windows", "linux"])
def test_order_of_include_folders(target: str) -> None:
    folders = flags.include_folders(PATHS, target)
    assert folders[0] == "/t r e e/overlay"
    position = {folder.rsplit("/", 1)[-1]: index for index, folder in enumerate(folders)}
    libcxx = folders.index("/z i g/lib/libcxx/include")
    assert position["cuda_wrappers"] < libcxx < folders.index("/t r e e/resource/include")


def test_paths_with_spaces_stay_whole() -> None:
    line = flags.compiler_command(PATHS, "windows")
    assert line[0] == "/z i g/zig"
    assert "--cuda-path=/t r e e" in line
    assert "/t r e e/overlay/qbuild_cuda_prelude.h" in line


def test_targets() -> None:
    assert "--target=x86_64-w64-windows-gnu" in flags.compiler_command(PATHS, "windows")
    linux = flags.compiler_command(PATHS, "linux", glibc="2.31")
    assert {"--target=x86_64-linux-gnu", "-fPIC", "-D__GLIBC_MINOR__=31"} <= set(linux)
    with pytest.raises(ToolchainError, match="there is no CUDA for darwin"):
        flags.compiler_command(PATHS, "darwin")
    with pytest.raises(ToolchainError, match="does not build for aarch64"):
        flags.target_triple("linux", "aarch64")


def test_architectures() -> None:
    assert flags.arch_flags(parse_archs(["61-real", "89", "80-virtual", "120a-real"])) == [
        "--cuda-gpu-arch=sm_61",
        "--cuda-gpu-arch=sm_80",
        "--cuda-gpu-arch=sm_89",
        "--cuda-gpu-arch=sm_120a",
        "--no-cuda-include-ptx=all",
        "--cuda-include-ptx=sm_80",
        "--cuda-include-ptx=sm_89",
        "-Xcuda-fatbinary",
        "--drop-cubin=80",
        "-D__CUDA_ARCH_LIST__=610,800,890,1200",
    ]


def test_the_series_says_the_same_mathematics() -> None:
    (patch,) = (resources.patches_dir() / "cuda-clang").glob("*.patch")
    text = patch.read_text(encoding="utf-8")
    for flag in (*flags.MATH, *flags.ALIASING):
        assert flag in text, flag
    assert "-Xcuda-fatbinary -compress-all" in text
    assert "-fuse-cuid=none" in text


def test_cache_entries() -> None:
    archs = parse_archs(["61-real", "120a-real"])
    entries = flags.cache_entries(archs, kv_types=["q8_0-q8_0"]) | flags.path_entries(
        compiler="/a b/clang-cuda", libraries=["/a b/cudart.lib", "/a b/cublas.lib"]
    )
    assert entries["CMAKE_CUDA_ARCHITECTURES"] == "61-real;120a-real"
    assert entries["GGML_CUDA_CLANG_LIBRARIES"] == "/a b/cudart.lib;/a b/cublas.lib"
    assert entries["GGML_CUDA_NCCL"] is False
    assert entries["GGML_BACKEND_DL"] is True
    assert entries["GGML_CUDA_NO_PEER_COPY"] is False


@pytest.mark.parametrize(
    ("kv_types", "compiler", "what", "fix"),
    [
        (["q8_0"], "/cc", "'q8_0' is not a pair of KV cache types", "e.g. q8_0-q8_0"),
        (["q3_k-f16"], "/cc", "'q3_k-f16' is not a pair", "two of q4_0"),
        (["f16-f16"], "/a;b/cc", "CMake cannot take the path /a;b/cc", "without semicolons"),
    ],
)
def test_bad_cache_entries(kv_types: list[str], compiler: str, what: str, fix: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        flags.path_entries(compiler=compiler, libraries=[])
        flags.cache_entries(parse_archs(["61-real"]), kv_types=kv_types)
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")
