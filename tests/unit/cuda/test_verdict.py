"""Device code against the recipe, and against a GPU."""

from __future__ import annotations

import pytest

from qbuild import resources
from qbuild.binary.fatbin import FatEntry, FatReport, Kind
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.device_code import (
    check_archs,
    emulated,
    families,
    gpu_validated,
    gpu_verdict,
    held_archs,
    one_digest,
)
from qbuild.errors import RecipeError, VerifyError


def report(*codes: tuple[Kind, str, int]) -> FatReport:
    return FatReport(
        entries=tuple(
            FatEntry(
                kind=kind,
                arch=arch,
                compression="none",
                size=8,
                full_size=8,
                container=container,
                offset=0,
                stored=8,
            )
            for kind, arch, container in codes
        ),
        sections=(".nv_fatb",),
        size=64,
    )


PASCAL = report(("cubin", "61", 0), ("cubin", "61", 1))
MIXED = report(("cubin", "61", 0), ("ptx", "89", 0), ("cubin", "120a", 0))


def test_what_the_recipe_asked_for() -> None:
    check_archs(PASCAL, parse_archs(["61-real"]), where="ggml-cuda.dll")
    check_archs(MIXED, parse_archs(["61-real", "89-virtual", "120a-real"]), where="x")
    assert [arch.cmake for arch in held_archs(MIXED)] == ["61-real", "89-virtual", "120a-real"]


@pytest.mark.parametrize(
    ("held", "archs", "what"),
    [
        (report(), ["61-real"], "holds no device code: this is a CPU-only build"),
        (PASCAL, ["80-real"], "no machine code for 80; machine code for 61, which the recipe"),
        (PASCAL, ["61"], "no PTX for 61"),
        (MIXED, ["61-real", "120a-real"], "PTX for 89, which the recipe does not name"),
        (
            report(("cubin", "61", 0), ("cubin", "61", 1), ("cubin", "80", 1)),
            ["61-real", "80-real"],
            "1 of its compiled units lack the cubin for 80",
        ),
    ],
)
def test_differences_are_named(held: FatReport, archs: list[str], what: str) -> None:
    with pytest.raises(VerifyError) as caught:
        check_archs(held, parse_archs(archs), where="ggml-cuda.dll")
    assert what in caught.value.what
    assert caught.value.where == "ggml-cuda.dll"


@pytest.mark.parametrize(
    ("held", "gpu", "text"),
    [
        (PASCAL, "gtx 1060", "GTX 1060 (compute capability 6.1): runs natively (machine code"),
        (PASCAL, "RTX 3060", "RTX 3060 (compute capability 8.6): will not run"),
        (MIXED, "H100", "H100 (compute capability 9.0): JIT at first start (PTX for 89)"),
        (MIXED, "RTX 5090", "runs natively (machine code for 120a)"),
        (MIXED, "DGX Spark", "JIT at first start"),
    ],
)
def test_gpus(held: FatReport, gpu: str, text: str) -> None:
    assert text in str(gpu_verdict(held, gpu))


def test_refusals() -> None:
    with pytest.raises(RecipeError, match="no GPU called"):
        gpu_verdict(PASCAL, "Voodoo 2")
    with pytest.raises(VerifyError, match="not in the table: 64"):
        held_archs(report(("cubin", "64", 0)))


def test_families() -> None:
    table = dict(families(PASCAL))
    assert table["Pascal 6.1"] == "runs natively"
    assert table["Turing 7.5"] == "will not run"


def test_nothing_is_validated_without_a_run() -> None:
    (arch,) = parse_archs(["61-real"])
    assert not gpu_validated("clang-cuda", arch, "0" * 40)


def test_only_the_very_machine_code_that_ran_is_called_emulated() -> None:
    assert emulated(["0" * 64]) == ""
    # one line each: two files whose sums only join to the same text differ
    assert one_digest(["ab", "c"]) != one_digest(["a", "bc"])


def test_the_sentence_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    (row, *_) = resources.read_table("gpu-emulated.toml")["run"]
    assert row["ran"] <= row["of_the_source"] <= row["kernels"]
    mine = row | {"fat_binaries": one_digest(["ab"])}
    monkeypatch.setattr(resources, "read_table", lambda _: {"run": [mine]})
    words = f"emulated: {row['ran']:,} of {row['kernels']:,} kernels computed right on a software"
    assert emulated(["ab"]).startswith(words)
    assert emulated(["ac"]) == ""
