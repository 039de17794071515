"""Papers that lie or make no sense: refused or passed over, never a crash."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbuild.verify.verdict import Verdict, from_json, to_json
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check, findings

EXE = make_pe(["KERNEL32.dll"], extra=COMMIT[:9].encode() + b"\0")
SERIES = {"name": "s", "digest": "d", "patches": [
    {"file": "0001-x.patch", "probe": {"kind": "string", "value": "x", "place": "llama-cli"}}
]}  # fmt: skip
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -1, 1 << 70, 1.5, True, "", "x", "../x", [], [1], [[]], {}, {"a": {}}]
)
PAPERS = ("manifest.json", "provenance.json", "sbom.cdx.json")


def paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every node below the root."""
    items = node.items() if isinstance(node, dict) else enumerate(
        node if isinstance(node, list) else ()
    )  # fmt: skip
    for key, value in items:
        yield (*at, key)
        yield from paths(value, (*at, key))


def replaced(node: Any, at: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(node)
    inner = result
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return result


def bundle() -> Made:
    return Made(files={"llama-cli.exe": EXE}, series=[SERIES])


def verify(made: Made) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return made.verify(Path(folder))


@pytest.mark.parametrize("paper", PAPERS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_value_anywhere_is_survived(paper: str, data: st.DataObject) -> None:
    made = bundle()
    content = json.loads(made.contents()[paper])
    at = data.draw(st.sampled_from(list(paths(content))))
    made.papers[paper] = json.dumps(replaced(content, at, data.draw(JUNK))).encode()
    verdict = verify(made)
    assert from_json(to_json(verdict)) == verdict
    # No paper has a hash of the manifest; what it says about the source is for people only.
    if paper != "manifest.json" or at[0] not in ("source", "features"):
        assert not verdict.ok or content == json.loads(made.papers[paper])


def test_a_system_that_nobody_knows_is_refused_without_a_fault() -> None:
    made = bundle()
    content = json.loads(made.contents()["manifest.json"])
    content["target"]["os"] = "x"
    made.papers["manifest.json"] = json.dumps(content).encode()
    assert not verify(made).ok


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"series": []}, "manifest.json: `series` is []"),
        ({"toolchain": {}}, "manifest.json: `toolchain` is {}"),
        ({"features": {"linkage": "static"}}, "manifest.json: `features.linkage` is 'static'"),
        (
            {"target": {"os": "windows", "arch": "x86_64", "cpu": "x86-64-v4", "isa": []}},
            "manifest.json: `target.cpu` is 'x86-64-v4', provenance.json says 'x86-64-v3'",
        ),
        (
            {"target": {"os": "windows", "arch": "x86_64", "cpu": "x86-64-v3", "isa": ["avx512"]}},
            "manifest.json: `target.isa` is ['avx512']",
        ),
    ],
)
def test_a_softened_promise_is_told_by_the_provenance(changes: dict[str, Any], says: str) -> None:
    made = bundle()
    made.changes = changes
    assert says in findings(verify(made))


def test_a_cpu_level_that_is_none() -> None:
    made = bundle()
    made.cpu = "x86-64-v9"
    assert "names a CPU level 'x86-64-v9' that is none" in findings(verify(made))


@pytest.mark.parametrize("isa", [["avx9"], ["x", "y"]])
def test_extensions_that_are_none(isa: list[str]) -> None:
    made = bundle()
    target = {"os": "windows", "arch": "x86_64", "cpu": "x86-64", "isa": isa}
    made.changes = {"target": target}
    assert f"names extensions that are none: {', '.join(isa)}" in findings(verify(made))


def test_a_file_cannot_get_a_policy_by_its_name_alone() -> None:
    """AVX-512 in a file that only calls itself cuBLAS is AVX-512 of ours."""
    zmm = bytes.fromhex("62f16c4858c1c3")
    made = Made(files={
        "llama-cli.exe": EXE, "cublas64_12.dll": make_pe(dll="cublas64_12.dll", code=zmm),
    })  # fmt: skip
    assert "cublas64_12.dll: function at 0x1000: `vaddps zmm" in findings(verify(made))
    made.files["cublas64_12.dll"] = make_pe(
        dll="cublas64_12.dll", code=zmm, exports=["cublasCreate_v2"]
    )
    verdict = verify(made)
    assert check(verdict, "cpu").status == "passed"
    assert "NVIDIA" in check(verdict, "cpu.dispatched").details[0]


@pytest.mark.parametrize(
    ("code", "needs"),
    [
        ("c3", "needs x86-64"),
        ("660f3800c1c3", "needs x86-64-v2"),
        ("c5edfec1c3", "needs x86-64-v3"),
        ("62f16c4858c1c3", "needs x86-64-v4"),
        ("62f26d4850c1c3", "needs x86-64-v4 and AVX512_VNNI"),
    ],
)
def test_a_foreign_zip_is_told_what_it_needs(tmp_path: Path, code: str, needs: str) -> None:
    import zipfile

    from qbuild.verify import verify_zip

    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.exe", make_pe(["KERNEL32.dll"], code=bytes.fromhex(code)))
    found = check(verify_zip(path), "cpu")
    assert found.status == "not-run"
    assert found.details[0].endswith(needs)
