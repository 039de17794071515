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
        ("NVIDIA A9999", None),
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

    # before Maxwell no toolkit of the table compiles for it; Jetsons are no x86-64 machines
    older, jetson = range(50), (53, 62, 72, 110)
    for gpu in _gpus().values():
        number = int(gpu.cmake)
        assert number in architectures() or number in older or number in jetson, gpu


SPOKEN = {
    "3.7": ["Tesla K80"],
    "5.0": ["Quadro K1200", "GM107GL [Quadro K2200]", "GeForce 940MX", "Quadro M1200 Mobile"],
    "5.2": ["GeForce GTX TITAN X", "Tesla M60", "GTX 980M"],
    "6.0": ["Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB"],
    "6.1": [
        "GeForce GTX 1060 with Max-Q Design",
        "NVIDIA TITAN X (Pascal)",
        "GP106 [GeForce GTX 1060 3GB]",
        "P106-100",
        "GTX 1080 Ti 11GB",
    ],
    "7.0": ["Tesla V100-SXM2-32GB", "Tesla V100-FHHL-16GB", "NVIDIA TITAN V"],
    "7.5": [
        "Quadro RTX 6000",
        "GRID T4-8Q",
        "TU117M [GeForce GTX 1650 Mobile / Max-Q]",
        "NVIDIA T1200 Laptop GPU",
    ],
    "8.0": ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 80GB PCIe", "GRID A100D-10C"],
    "8.6": ["GA104M [GeForce RTX 3070 Mobile / Max-Q]", "NVIDIA A40-12Q", "A10G"],
    "8.9": ["NVIDIA RTX 6000 Ada Generation", "L20", "RTX 4000 SFF Ada Generation", "RTX 4090D"],
    "9.0": ["NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB", "NVIDIA H100 NVL"],
    "12.0": [
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "GB202 [not in the table]",
    ],
    "12.1": ["NVIDIA GB10"],
}


@pytest.mark.parametrize("cc", SPOKEN)
def test_a_card_is_known_however_it_is_called(cc: str) -> None:
    for name in SPOKEN[cc]:
        assert str(find_gpu(name).capability) == cc, name


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
