"""Architectures: spelling, what runs where, GPU names. Every refusal says how to write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbuild.cuda.arch import (
    ComputeCapability,
    CudaArch,
    architectures,
    coverage,
    find_gpu,
    parse_arch,
    parse_archs,
)
from qbuild.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "number", "suffix", "real", "virtual"),
    [
        ("61-real", 61, "", True, False),
        ("80-virtual", 80, "", False, True),
        ("89", 89, "", True, True),
        ("120a", 120, "a", True, True),
        ("120a-real", 120, "a", True, False),
        ("120f-virtual", 120, "f", False, True),
        ("90a-real", 90, "a", True, False),
    ],
)
def test_reads_cmakes_spelling(
    text: str, number: int, suffix: str, real: bool, virtual: bool
) -> None:
    arch = parse_arch(text)
    assert arch == CudaArch(number=number, suffix=suffix, real=real, virtual=virtual)
    assert arch.cmake == text


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("sm_61", "'sm_61' is not a CUDA architecture", "write 61-real"),
        ("SM61", "'SM61' is not a CUDA architecture", "write 61-real"),
        ("compute_80", "'compute_80' is not a CUDA architecture", "write 80-virtual"),
        ("6.1", "'6.1' is not a CUDA architecture", "write 61-real"),
        ("61-cubin", "'61-cubin' is not a CUDA architecture", "write 61-real"),
        ("80-ptx", "'80-ptx' is not a CUDA architecture", "write 80-virtual"),
        ("61_real", "'61_real' is not a CUDA architecture", "write 61-real"),
        ("native", "'native' is not a CUDA architecture", "must not depend on the GPU"),
        ("all-major", "'all-major' is not a CUDA architecture", "name the architectures"),
        ("GTX 1060", "'GTX 1060' is not a CUDA architecture", "write 61-real"),
        ("A100", "'A100' is not a CUDA architecture", "write 80-real"),
        ("", "'' is not a CUDA architecture", "write it as 61-real"),
        ("61-real ", "'61-real ' is not a CUDA architecture", "write 61-real"),
        ("62b", "'62b' is not a CUDA architecture", "write 62-real"),
        ("65", "there is no CUDA architecture 65", "the nearest is 62"),
        ("125", "there is no CUDA architecture 125", "the nearest is 121"),
        ("61a", "architecture 61 has no variant 61a", "write 61;"),
        ("90f-real", "architecture 90 has no variant 90f", "write 90-real; 'f' exists for 100f"),
    ],
)
def test_refuses_with_the_right_spelling(text: str, what: str, fix: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_arch(text, where="cuda.archs[0]")
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")
    assert caught.value.where == "cuda.archs[0]"


def test_a_number_wants_quotes() -> None:
    with pytest.raises(RecipeError, match="is text, not int 61") as caught:
        parse_archs([61], where="cuda.archs")  # type: ignore[list-item]
    assert caught.value.fix == 'write "61-real", in quotes'
    assert caught.value.where == "cuda.archs[0]"


@pytest.mark.parametrize(
    ("texts", "what", "fix"),
    [
        ([], "no CUDA architecture is named", '["61-real"]'),
        (["61-real", "61-real"], "architecture 61 is there twice", "drop one of them"),
        (["61-real", "61-virtual"], "architecture 61 is there twice", "write 61 once"),
    ],
)
def test_refuses_lists(texts: list[str], what: str, fix: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_archs(texts)
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


def test_lists_are_sorted() -> None:
    archs = parse_archs(["120a-real", "61-real", "89-virtual"])
    assert [arch.cmake for arch in archs] == ["61-real", "89-virtual", "120a-real"]


@pytest.mark.parametrize(
    ("archs", "gpu", "expected"),
    [
        (["61-real"], "6.1", ("native", "61-real")),
        (["60-real"], "6.1", ("native", "60-real")),  # later minor version of the same major
        (["61-real"], "6.0", ("none", None)),
        (["61-real"], "7.5", ("none", None)),
        (["61-virtual"], "7.5", ("jit", "61-virtual")),
        (["61-real", "80-virtual"], "8.6", ("jit", "80-virtual")),
        (["80-real"], "8.9", ("native", "80-real")),
        (["80", "86-real"], "8.9", ("native", "86-real")),
        (["120a"], "12.1", ("none", None)),
        (["120f-real"], "12.1", ("native", "120f-real")),
        (["90a-virtual"], "10.0", ("none", None)),
        (["89-virtual", "120a-real"], "12.1", ("jit", "89-virtual")),
    ],
)
def test_coverage(archs: list[str], gpu: str, expected: tuple[str, str | None]) -> None:
    kind, arch = coverage(parse_archs(archs), find_gpu(gpu).capability)
    assert (kind, arch.cmake if arch else None) == expected


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("GTX 1060", "6.1"),
        ("NVIDIA GeForce GTX 1060 6GB", "6.1"),
        ("gtx1070 8gb", "6.1"),
        ("NVIDIA A100-SXM4", "8.0"),
        ("NVIDIA A101", None),
        ("sm_61", "6.1"),
        ("compute capability 12.0", "12.0"),
        ("A100 80GB", "8.0"),
        ("Tesla P40", "6.1"),
        ("RTX 3060 Laptop GPU", "8.6"),
        ("rtx 4070 ti super", "8.9"),
        ("6.1", "6.1"),
        ("12.0", "12.0"),
    ],
)
def test_gpu_names(name: str, cc: str | None) -> None:
    if cc is None:
        with pytest.raises(RecipeError, match="no GPU called"):
            find_gpu(name)
    else:
        assert str(find_gpu(name).capability) == cc


def test_an_unknown_gpu_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError) as caught:
        find_gpu("GTX 1061")
    assert "GTX 1060" in (caught.value.fix or "")
    assert '--gpu "6.1"' in (caught.value.fix or "")


def test_every_gpu_has_a_known_architecture() -> None:
    from qbuild.cuda.arch import _gpus

    for gpu in _gpus().values():
        assert int(gpu.cmake) in architectures(), gpu


@given(st.text(max_size=20))
def test_only_recipe_errors(text: str) -> None:
    try:
        arch = parse_arch(text)
    except RecipeError as error:
        assert error.fix
    else:
        assert arch.cmake == text


@given(st.integers(1, 15), st.integers(0, 9))
def test_a_plain_cubin_implies_its_own_gpu(major: int, minor: int) -> None:
    gpu = ComputeCapability(major=major, minor=minor)
    for number in architectures():
        arch = CudaArch(number=number)
        if arch.cubin_runs_on(gpu):
            assert arch.ptx_runs_on(gpu)
