"""benchmarks/kernels.py: one kernel has one name, whichever compiler and system spelled it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "kernels.py"


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("clang", "nvcc"),
    [
        (
            "void cpy<int, 128ll, 2ull>(char const*, unsigned long long, long long)",
            "void cpy<int, 128l, 2ul>(char const*, unsigned long, long)",
        ),
        (
            "_ZL13k_get_rows_kqI6__halfTnPFvPKvxPT_iEXadL_ZL15dequantize_q6_KIS0_EvS2_xS4_iEEEvS2_x",
            "void k_get_rows_kq<__half, &(void _INTERNAL_5c_9_rows_cu_60_1::dequantize_q6_K<__half>"
            "(void const*, long, __half*, int))>(void const*, long)",
        ),
        (
            "_ZL16k_set_rows_quantIi10block_q5_1Li32ETnPFvPKfPT0_EXadL_ZL19quantize_q5_1_blockS2_PS0",
            "void k_set_rows_quant<int, block_q5_1, 32, &(quantize_q5_1_block(float const*, "
            "block_q5_1*))>(float const*)",
        ),
        (
            "void k_bin_bcast<&(op_add(float, float)), float, float>(float const*)",
            "void k_bin_bcast<&_INTERNAL_5cb9_14_elementwise_cu_600e_1::op_add, float, float>"
            "(float const*)",
        ),
    ],
)
def test_both_spellings_meet(kernels: ModuleType, clang: str, nvcc: str) -> None:
    assert kernels.one_spelling(clang) == kernels.one_spelling(nvcc)


def test_different_kernels_stay_different(kernels: ModuleType) -> None:
    names = [
        "void k_get_rows<32, 1, &(dequantize_q4_0(void const*, long)), float>(void const*)",
        "void k_get_rows<32, 1, &(dequantize_q4_0(void const*, long)), __half>(void const*)",
        "void k_get_rows<32, 1, &(dequantize_q4_1(void const*, long)), float>(void const*)",
        "void cpy_scalar<&(void cpy_1<float, float>(char const*, char*))>(char const*)",
        "void cpy_scalar<&(void cpy_1<float, __half>(char const*, char*))>(char const*)",
    ]
    assert len({kernels.one_spelling(name) for name in names}) == len(names)


def test_a_difference_needs_a_reason(kernels: ModuleType) -> None:
    table = [{"only": "nvcc", "kernel": "^a", "why": "left out"}]
    rows, wrong = kernels.explained(["a1", "a2", "b"], table, "nvcc")
    assert rows == ["| only nvcc: left out | 2 |"]
    assert wrong == ["only nvcc, unexplained: b"]
    assert kernels.explained(["a1"], table, "clang") == ([], ["only clang, unexplained: a1"])
