"""The cuda-clang, nvcuda and own-blas series: small call sites, code in added files."""

from __future__ import annotations

import re
import tomllib

import pytest

from qbuild import resources
from qbuild.cuda import tree


@pytest.mark.parametrize("name", ["cuda-clang", "nvcuda", "own-blas"])
def test_everything_upstream_is_behind_an_option(name: str) -> None:
    folder = resources.patches_dir() / name
    table = tomllib.loads((folder / "series.toml").read_text(encoding="utf-8"))
    for entry in table["patch"]:
        text = (folder / entry["file"]).read_text(encoding="utf-8")
        diff = text[text.index("diff --git") :]
        removed = [line for line in diff.splitlines() if line.startswith("-") and line[1:2] != "-"]
        assert len(removed) <= 1, removed  # `if` that becomes `elseif`
        for path in entry["touches"]:
            assert f"+++ b/{path}\n" in text


def test_driver_functions_are_never_linked() -> None:
    (patch,) = (resources.patches_dir() / "nvcuda").glob("*.patch")
    text = patch.read_text(encoding="utf-8")
    assert 'LoadLibraryExA("nvcuda.dll", nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32)' in text
    assert 'dlopen("libcuda.so.1"' in text
    names = {
        line.split()[1]
        for line in text.splitlines()
        if line.startswith("+#define cu") and "ggml_cu" in line
    }
    assert len(names) == 11


def _own_blas() -> str:
    (patch,) = (resources.patches_dir() / "own-blas").glob("*.patch")
    return patch.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tree.CUBLAS_FUNCTIONS)
def test_every_function_of_cublas_is_declared_defined_and_looked_up(name: str) -> None:
    text = _own_blas()
    assert re.search(rf"^\+GGML_OWN_BLAS_API [a-z].*\b{name}\(", text, re.MULTILINE), "declared"
    assert re.search(rf"^\+(cublasStatus_t|const char \*) {name}\(", text, re.MULTILINE), "defined"
    assert f'take(from, "{name}",' in text, "looked up"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUBLAS_STATUS_NOT_SUPPORTED", 15), ("CUBLAS_OP_C", 2), ("CUBLAS_FILL_MODE_UPPER", 1),
        ("CUBLAS_DIAG_UNIT", 1), ("CUBLAS_SIDE_RIGHT", 1), ("CUBLAS_TF32_TENSOR_OP_MATH", 3),
        ("CUBLAS_GEMM_DEFAULT", -1), ("CUBLAS_GEMM_DEFAULT_TENSOR_OP", 99),
        ("CUBLAS_COMPUTE_16F", 64), ("CUBLAS_COMPUTE_32F", 68),
    ],
)  # fmt: skip
def test_values_are_those_of_cublas(name: str, value: int) -> None:
    """The real library is called with them (values: NVIDIA's documentation of the cuBLAS API)."""
    found = re.search(rf"^\+    {name} += (-?[0-9]+),$", _own_blas(), re.MULTILINE)
    assert found
    assert int(found[1]) == value


def test_cublas_is_only_looked_for_beside_the_backend() -> None:
    text = _own_blas()
    assert "LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32" in text
    assert text.count("dlopen(") == 1
    assert "dlopen((own_folder() + name).c_str()" in text


def _fix(name: str) -> str:
    return (resources.patches_dir() / "cuda-fixes" / name).read_text(encoding="utf-8")


def test_every_maker_of_q8_1_blocks_sums_the_quants() -> None:
    """Two kernels and a device function make them; none may sum what was not rounded yet."""
    text = _fix("0002-partial-sums-are-those-of-the-quants.patch")
    removed = [line for line in text.splitlines() if line.startswith("-  ")]
    added = [line for line in text.splitlines() if line.startswith("+  ")]
    assert sum("sum" in line and "x" in line for line in removed) >= 3
    assert len([line for line in added if re.search(r"sum += d \* ", line)]) == 3
    assert not [line for line in added if re.search(r"sum\S* \+?= .*(xi|vals)", line)]


def test_what_is_fused_is_asked_for_first() -> None:
    chain = _fix("0003-a-chain-ends-where-its-type-changes.patch")
    assert "(cgraph->nodes[i + n_fuse]->type != cgraph->nodes[i + n_fuse + 1]->type) {" in chain
    routing = _fix("0004-routing-is-not-looked-for-behind-the-graph.patch")
    added = [line for line in routing.splitlines() if line.startswith("+  ")]
    assert len(added) == 4
    assert all(re.search(r"node_idx (< n_nodes &&|>= n_nodes \|\|)", line) for line in added)
    mask = _fix("0005-attention-without-a-mask-divides-by-nothing.patch")
    assert "+    const half * maskh  = mask ? (const half *) (mask + nb33*(sequence % ne33)" in mask


def test_zeros_that_are_read_sixteen_bytes_at_a_time_are_aligned_so() -> None:
    text = _fix("0006-zeros-are-aligned-as-they-are-read.patch")
    assert "+        const __align__(16) half2 zero[4] = {{0.0f, 0.0f}," in text


def test_flash_attention_stores_quants_of_its_own_lanes_only() -> None:
    """Lanes 16 to 31 must not write where lanes 0 and 8 put the scales (head size 64)."""
    text = _fix("0001-flash-attention-writes-no-quants-over-its-scales.patch")
    assert "-    yq32[threadIdx.x] = q32;\n" in text
    added = [line[1:] for line in text.splitlines() if line.startswith("+ ")]
    assert added[0] == "    if (ni == WARP_SIZE || threadIdx.x < ni) {"


def test_no_flag_that_the_object_cache_gives_up_at() -> None:
    """ccache 4.14 compiles without a cache what has `-Xarch_host` beside another `-Xarch_…`."""
    (patch,) = (resources.patches_dir() / "cuda-clang").glob("*.patch")
    text = patch.read_text(encoding="utf-8")
    flags = re.findall(r'^\+ +(?:-\S+ )?"SHELL:(-[^"]*)"', text, re.MULTILINE)
    assert any(flag.startswith("-Xarch_device") for flag in flags)
    assert not [flag for flag in flags if "-Xarch_host" in flag]
