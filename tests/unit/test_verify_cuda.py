"""What verify says of a bundle's device code, from made fat binaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qbuild.verify.verdict import Verdict
from support.tiny_fatbin import container, cubin, entry
from support.tiny_pe import make_pe
from support.verify_zips import Made, check, findings

PASCAL = container(entry(cubin(["_Z3foov"])))
AMPERE = container(entry(cubin(["_Z3foov"], 80), arch=80))
PTX = container(entry(cubin(["_Z3foov"])), entry(b".version 8\0", kind=1, arch=61))
HALF = PASCAL + container(entry(cubin(["_Z3barv"])), entry(cubin(["_Z3barv"], 80), arch=80))
ZSTD = container(entry(b"\x28\xb5\x2f\xfd" + bytes(20), flags=0x8011, full=900))


def bundle(code: bytes | None, cuda: dict[str, Any] | None = None, **more: Any) -> Made:
    """Return a bundle whose ggml-cuda.dll holds this device code."""
    imports = ["cudart64_12.dll", "KERNEL32.dll"]
    sections = {} if code is None else {".nv_fatb": code}
    files = {
        "ggml-cuda.dll": make_pe(imports, dll="ggml-cuda.dll", sections=sections),
        "cudart64_12.dll": make_pe(
            ["KERNEL32.dll"], dll="cudart64_12.dll", exports=["f", "cudaRuntimeGetVersion"]
        ),
    }
    wanted = {"architectures": ["61-real"], "driver": "528.33"} if cuda is None else cuda
    return Made(files=files, recipe="gtx1060", cuda=wanted, **more)


def verdict(tmp_path: Path, code: bytes | None, *, gpu: str = "", **more: Any) -> Verdict:
    return bundle(code, **more).verify(tmp_path, gpu=gpu)


def test_what_is_inside_is_told(tmp_path: Path) -> None:
    found = verdict(tmp_path, PASCAL, gpu="GTX 1060")
    assert check(found, "cuda").status == "passed"
    assert check(found, "cuda").details[0].startswith("ggml-cuda.dll: machine code for 61 (")
    assert check(found, "cuda.gpus").details[0].startswith("runs natively: Pascal 6.1")
    assert check(found, "cuda.driver").details == ("528.33 or newer (CUDA 12)",)
    assert check(found, "cuda.gpu").details == (
        "ggml-cuda.dll: GTX 1060 (compute capability 6.1): runs natively (machine code for 61)",
    )


@pytest.mark.parametrize(
    ("code", "cuda", "id", "says"),
    [
        (AMPERE, None, "cuda", "no machine code for 61; machine code for 80, which the recipe"),
        (PTX, None, "cuda", "PTX for 61, which the recipe does not name"),
        (PASCAL, {"architectures": ["61"]}, "cuda", "no PTX for 61"),
        (
            HALF,
            {"architectures": ["61-real", "80-real"]},
            "cuda",
            "1 of its compiled units lack the cubin for 80",
        ),
        (None, None, "cuda", "no CUDA backend is inside"),
        (ZSTD, None, "cuda.driver", "needs driver 551.61, the recipe promises 528.33"),
        (PASCAL, {"architectures": ["sm_61"]}, "cuda", "'sm_61' is not a CUDA architecture"),
        (PASCAL[:4] + b"\x02" + PASCAL[5:], None, "cuda", "ggml-cuda.dll: damaged fat binary"),
    ],
)
def test_what_is_not_as_promised(
    tmp_path: Path, code: bytes | None, cuda: dict[str, Any] | None, id: str, says: str
) -> None:
    found = verdict(tmp_path, code, cuda=cuda)
    assert check(found, id).status == "failed", found.render()
    assert says in findings(found)


@pytest.mark.parametrize(
    ("code", "gpu", "status", "says"),
    [
        (PASCAL, "RTX 3060", "failed", "will not run; take a recipe for it, or build with"),
        (PASCAL, "6.0", "failed", "will not run"),
        (PTX, "RTX 3060", "passed", "JIT at first start (PTX for 61)"),
        (PASCAL, "6.1", "passed", "runs natively"),
    ],
)
def test_a_gpu_is_judged(tmp_path: Path, code: bytes, gpu: str, status: str, says: str) -> None:
    cuda = {"architectures": ["61"]} if code is PTX else None
    found = verdict(tmp_path, code, cuda=cuda, gpu=gpu)
    assert check(found, "cuda.gpu").status == status
    assert says in check(found, "cuda.gpu").details[0]


def test_the_driver_of_a_static_runtime_is_read_from_cublas(tmp_path: Path) -> None:
    made = Made(files={
        "ggml-cuda.dll": make_pe(["cublas64_13.dll"], dll="x.dll", sections={".nv_fatb": ZSTD})
    })  # fmt: skip
    found = made.verify(tmp_path)
    assert check(found, "cuda.driver").details == ("580.65 or newer (CUDA 13)",)


def test_a_cpu_bundle_is_told_apart_and_runs_on_no_gpu(tmp_path: Path) -> None:
    made = Made(files={"llama-cli.exe": make_pe(["KERNEL32.dll"])})
    found = made.verify(tmp_path, gpu="GTX 1060")
    assert check(found, "cuda").details == ("CPU only: no file holds GPU code",)
    assert check(found, "cuda.gpu").status == "not-run"
    assert check(found, "cuda.gpu").details == ("this bundle is CPU only",)


def test_a_zip_of_somebody_else_is_only_told_about(tmp_path: Path) -> None:
    made = bundle(PTX)
    path = made.write(tmp_path, without=("manifest.json", "provenance.json", "sbom.cdx.json"))
    from qbuild.verify import verify_zip

    found = verify_zip(path, gpu="RTX 3060")
    assert check(found, "cuda").status == "passed"
    assert (
        check(found, "cuda")
        .details[0]
        .startswith("ggml-cuda.dll: machine code for 61 and PTX for 61")
    )
    assert "JIT" in check(found, "cuda.gpu").details[0]
