"""Bundles that were shipped broken somewhere once: each must be refused, and say why."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qbuild.verify import verify_zip
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check, findings

MARK = COMMIT[:9].encode() + b"\0"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One broken bundle.

    Args:
        files: File → the DLLs it imports (`dll!symbol` for one symbol).
        says: Each must be in the findings.
        ids: The checks that must fail.
        exports: File → names it exports.
        bend: More arguments for make_pe, by file.
        made: More arguments for the bundle.
    """

    files: dict[str, list[str]]
    says: list[str]
    ids: set[str]
    exports: dict[str, list[str]] = field(default_factory=dict)
    bend: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    def binaries(self) -> dict[str, bytes]:
        exports = {name: list(symbols) for name, symbols in self.exports.items()}
        for wanted in self.files.values():  # what is imported is exported, unless told otherwise
            for item in wanted:
                if "!" not in item and item in self.files and item not in self.exports:
                    exports[item] = ["f"]
        return {
            name: make_pe(
                {item.partition("!")[0]: [item.partition("!")[2] or "f"] for item in wanted},
                exports=exports.get(name, ()),
                dll=name if name.endswith(".dll") else "",
                extra=MARK,
                **self.bend.get(name, {}),
            )
            for name, wanted in self.files.items()
        }


CUDA = {"sections": [".nv_fatb"]}

SCENARIOS = {
    "a loader without its libraries": Scenario(
        files={
            "llama-server.exe": ["llama-server-impl.dll", "KERNEL32.dll"],
            "llama-server-impl.dll": ["llama.dll", "llama-common.dll", "ggml.dll"],
        },
        says=["llama.dll", "llama-common.dll", "ggml.dll", "llama-server-impl.dll"],
        ids={"closure"},
    ),
    "another CUDA major": Scenario(
        files={"ggml-cuda.dll": ["cublas64_13.dll"], "cublas64_13.dll": []},
        bend={"ggml-cuda.dll": CUDA},
        made={"features": {"cuda": "12.9"}},
        says=["ggml-cuda.dll needs cublas64_13.dll: built against CUDA 13, the recipe is 12.9"],
        ids={"cuda"},
    ),
    "cublasLt forgotten": Scenario(
        files={
            "ggml-cuda.dll": ["cublas64_12.dll", "cudart64_12.dll"],
            "cublas64_12.dll": ["cublasLt64_12.dll"],
            "cudart64_12.dll": ["KERNEL32.dll"],
        },
        says=["cublasLt64_12.dll", "cublas64_12.dll"],
        ids={"closure"},
    ),
    "OpenMP missing": Scenario(
        files={"ggml-base.dll": ["libomp140.x86_64.dll"]},
        says=["libomp140.x86_64.dll", "ggml-base.dll"],
        ids={"closure"},
    ),
    "OpenMP too old": Scenario(
        files={
            "ggml-base.dll": ["libomp140.x86_64.dll!__kmpc_dispatch_deinit"],
            "libomp140.x86_64.dll": [],
        },
        exports={"libomp140.x86_64.dll": ["__kmpc_fork_call"]},
        says=["__kmpc_dispatch_deinit", "libomp140.x86_64.dll", "ggml-base.dll"],
        ids={"closure"},
    ),
    "debug runtime": Scenario(
        files={"llama.dll": ["MSVCP140D.dll", "ucrtbased.dll"]},
        says=["MSVCP140D.dll", "ucrtbased.dll", "debug"],
        ids={"closure"},
    ),
    "the driver is shipped": Scenario(
        files={"ggml-cuda.dll": ["nvcuda.dll"], "nvcuda.dll": []},
        says=["nvcuda.dll", "driver"],
        ids={"closure"},
    ),
    "another machine": Scenario(
        files={"llama-cli.exe": ["KERNEL32.dll"]},
        bend={"llama-cli.exe": {"machine": "aarch64"}},
        says=["llama-cli.exe: is for aarch64, the bundle for x86_64"],
        ids={"machine"},
    ),
    "a backend that no import table reaches": Scenario(
        files={
            "llama-cli.exe": ["ggml.dll"],
            "ggml.dll": [],
            "ggml-cpu-haswell.dll": ["libgomp-1.dll"],
        },
        exports={"ggml-cpu-haswell.dll": ["ggml_backend_init", "ggml_backend_score"]},
        says=["libgomp-1.dll", "ggml-cpu-haswell.dll"],
        ids={"closure"},
    ),
    "a CPU build under a CUDA name": Scenario(
        files={"llama-server.exe": ["ggml.dll"], "ggml.dll": [], "ggml-cpu.dll": []},
        made={"recipe": "gtx1060"},
        says=["no CUDA backend is inside"],
        ids={"cuda"},
    ),
    "an empty file under the backend's name": Scenario(
        files={"llama-server.exe": ["ggml-cuda.dll"], "ggml-cuda.dll": []},
        made={"recipe": "gtx1060"},
        says=["no CUDA backend is inside"],
        ids={"cuda"},
    ),
    "a Linux program for Windows": Scenario(
        files={"llama-cli.exe": ["KERNEL32.dll"]},
        made={"os": "linux"},
        says=["llama-cli.exe: is a Windows program in a bundle for Linux"],
        ids={"machine"},
    ),
    "a clock in the header": Scenario(
        files={"llama-cli.exe": ["KERNEL32.dll"]},
        bend={"llama-cli.exe": {"timestamp": 0x68A00000}},
        says=["llama-cli.exe: its PE header holds a time (0x68a00000)"],
        ids={"traces"},
    ),
    "a folder of symbols": Scenario(
        files={"llama-cli.exe": ["KERNEL32.dll"]},
        bend={"llama-cli.exe": {"repro": True, "pdb": "D:\\build\\llama-cli.pdb"}},
        says=["llama-cli.exe: its debug directory names the folder of D:\\build\\llama-cli.pdb"],
        ids={"traces"},
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_is_refused_and_named(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    verdict = Made(files=scenario.binaries(), **scenario.made).verify(tmp_path)
    assert scenario.ids <= {item.id for item in verdict.failed}, verdict.render()
    for text in scenario.says:
        assert text in findings(verdict)


def test_a_cuda_build_under_a_cuda_name_is_fine(tmp_path: Path) -> None:
    scenario = Scenario(
        files={"ggml-cuda.dll": ["KERNEL32.dll"]}, says=[], ids=set(), bend={"ggml-cuda.dll": CUDA}
    )
    verdict = Made(files=scenario.binaries(), recipe="gtx1060").verify(tmp_path)
    assert check(verdict, "cuda").status == "passed"


def test_the_name_of_a_foreign_zip_is_held_against_it(tmp_path: Path) -> None:
    path = tmp_path / "llama-b7000-bin-win-cuda-12.4-x64.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ggml-cpu.dll", make_pe(["KERNEL32.dll"], dll="ggml-cpu.dll"))
    assert "no CUDA backend is inside" in findings(verify_zip(path))


def test_a_damaged_binary_is_named(tmp_path: Path) -> None:
    verdict = Made(files={"llama-cli.exe": make_pe(["KERNEL32.dll"])[:700]}).verify(tmp_path)
    assert "llama-cli.exe" in "\n".join(check(verdict, "archive").details)


def test_two_files_that_answer_to_one_name(tmp_path: Path) -> None:
    dll = make_pe(["KERNEL32.dll"], dll="a.dll", extra=MARK)
    verdict = Made(files={"one/a.dll": dll, "two/a.dll": dll + bytes(512)}).verify(tmp_path)
    assert "one/a.dll and two/a.dll: two files answer to one name" in findings(verdict)
