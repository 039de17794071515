"""The choice of CUDA libraries: smallest that has symbols, device code and readable compression."""

from __future__ import annotations

import pytest

from qbuild.cuda.arch import parse_archs
from qbuild.cuda.runtime import Candidate, Library, choose
from qbuild.errors import BundleError

NAMES = ("cublasCreate_v2", "cublasSgemm_v2")


def candidate(
    version: str,
    size: int,
    cubins: tuple[str, ...] = ("50", "60", "61", "80", "90"),
    compression: str = "lz4",
    exports: tuple[str, ...] = NAMES,
) -> Candidate:
    return Candidate(
        version=version,
        libraries=(
            Library(
                name="cublas64_12.dll",
                size=size,
                exports=frozenset(exports),
                cubins=cubins,
                ptx=(),
                compression=compression,  # type: ignore[arg-type]
            ),
        ),
    )


OLD = candidate("12.4.5.8", 400)
NEW = candidate("12.9.1.4", 553, ("61", "80", "120"), "zstd")


def test_the_smallest_that_will_do() -> None:
    choice = choose([NEW, OLD], NAMES, parse_archs(["61-real"]), target="windows", driver="528.33")
    assert choice.candidate is OLD
    assert choice.driver == "528.33"
    assert choice.proofs == (
        "exports all 2 imported functions",
        "has machine code for 61",
        "its device code (lz4) is read by driver 528.33 and newer",
    )
    assert choice.rejected == (("12.9.1.4", "is larger: 553 bytes"),)


def test_blackwell_needs_the_newer_one() -> None:
    choice = choose([OLD, NEW], NAMES, parse_archs(["61-real", "120a-real"]), target="linux")
    assert choice.candidate is NEW
    assert choice.rejected == (("12.4.5.8", "cublas64_12.dll has no machine code for 120a"),)
    assert choice.driver == "550.54.14"


@pytest.mark.parametrize(
    ("candidates", "driver", "what"),
    [
        ([NEW], "535.0", "12.9.1.4 its device code (zstd) needs driver 551.61"),
        ([candidate("12.0.1.189", 300, exports=NAMES[:1])], None, "lacks cublasSgemm_v2"),
        ([candidate("12.4.5.8", 300, cubins=("90",))], None, "no machine code for 61"),
        ([], None, "no version of the CUDA libraries will do"),
    ],
)
def test_refusals(candidates: list[Candidate], driver: str | None, what: str) -> None:
    with pytest.raises(BundleError) as caught:
        choose(candidates, NAMES, parse_archs(["61-real"]), target="windows", driver=driver)
    assert what in caught.value.what
    assert caught.value.fix


def test_a_runtime_without_device_code_claims_none() -> None:
    cudart = Library(
        name="cudart64_12.dll",
        size=1,
        exports=frozenset({"cudaMalloc"}),
        cubins=(),
        ptx=(),
        compression="none",
    )
    candidate = Candidate(version="12.9.79", libraries=(cudart,))
    choice = choose([candidate], {"cudaMalloc"}, parse_archs(["61-real"]), target="windows")
    assert choice.driver == "528.33"
    assert choice.proofs == (
        "exports all 1 imported functions",
        "holds no device code, runs with driver 528.33 and newer",
    )
