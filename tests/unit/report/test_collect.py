"""What a report says about a zip, its neighbours and the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qbuild.errors import ArchiveError
from qbuild.extras.report import Report, collect
from qbuild.extras.report.history import MOST_EDGES, area, timeline_of
from qbuild.store import Store
from support import report_zips
from support.tiny_pe import make_pe
from support.verify_zips import Made


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_zips.make(tmp_path_factory.mktemp("linux"))


@pytest.fixture(scope="module")
def report(linux: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    store = Store(tmp_path_factory.mktemp("store"))
    report_zips.add_records(linux, store)
    return collect(linux, store=store)


def test_every_file_is_there_with_its_reason(report: Report) -> None:
    files = {item.path: item for item in report.files}
    assert files["llama-server"].why == "the recipe asks for it"
    assert files["libmtmd.so.0"].why == "needed by llama-server"
    assert files["libllama.so.0"].why.startswith("needed by libmtmd.so.0, llama-bench, llama-cli")
    assert files["manifest.json"].kind == "paper"
    assert files["licenses/llama.cpp.txt"].kind == "licence"
    assert sum(item.size for item in report.files) == report.unpacked
    assert [item.size for item in report.files] == sorted(
        (item.size for item in report.files), reverse=True
    )


def test_the_parts_of_a_program_add_up(report: Report) -> None:
    server = next(item for item in report.files if item.path == "llama-server")
    assert dict(server.parts)["code"] == 30000
    assert sum(size for _, size in server.parts) == server.size


def test_who_needs_what(report: Report) -> None:
    needs = {each.name: each for each in report.needs}
    assert needs["libggml.so.0"].inside == ("libggml-base.so.0", "libggml-cpu.so.0")
    assert needs["libggml.so.0"].system == ("libc.so.6", "libm.so.6")
    assert needs["libggml.so.0"].users == ("libllama.so.0", "libmtmd.so.0", "llama-cli")
    assert [each.kind for each in report.needs][:3] == ["program"] * 3


def test_patches_pins_and_commands(report: Report) -> None:
    assert report.patches[0].subject.startswith("chat: keep malformed")
    assert report.patches[0].why.startswith("One malformed call")
    pins = {fact.label: fact.value for fact in report.pins}
    assert pins["llama.cpp commit"].startswith("0c1e57098")
    assert pins["ziglang 0.17.1"] == "5" * 64
    commands = [fact.value for fact in report.rebuild]
    assert any(
        each.startswith("qbuild --recipe avx2 --os linux --set build.ui=") for each in commands
    )
    assert commands[2].startswith("qbuild reproduce --recipe avx2 --os linux --set build.ui=")
    assert 'name = "avx2"' in report.recipe
    assert dict(report.switches)["avx2"] is True and dict(report.switches)["avx512"] is False


def test_the_verdict_and_the_build_record_beside_the_zip(report: Report) -> None:
    assert report.checked.state == "accepted"
    assert "0 failed" in report.checked.note
    archive = next(c for c in report.checked.checks if c.title == "the archive is sound")
    assert archive.status == "passed"
    # What only the file beside the zip says is never shown as checked.
    ran = next(c for c in report.checked.checks if "prints its version" in c.title)
    assert ran.status == "not-run" and "said by" in ran.details[0]
    assert "it ran and passed" in ran.details[0]
    assert dict(report.built.steps) == {
        "patch": 2.5, "configure": 14.0, "ninja": 62.1, "stage": 0.2, "bundle": 1.4, "verify": 5.5,
    }  # fmt: skip
    assert report.built.reused == ("source",)
    timeline = report.built.timeline
    assert timeline is not None
    assert timeline.wall == pytest.approx(61.9)
    assert timeline.areas[0] == ("server and tools", pytest.approx(45.0))


def test_a_refused_zip_says_so_first(tmp_path: Path) -> None:
    path = report_zips.make(tmp_path)
    report_zips.add_records(path, Store(tmp_path / "store"), ok=False)
    checked = collect(path).checked
    assert checked.state == "refused"
    assert "verdict.json refuses it" in checked.note


def test_a_forged_verdict_accepts_nothing(tmp_path: Path) -> None:
    """The verdict beside a zip is a file that anybody can write."""
    path = report_zips.make(tmp_path, files={
        **report_zips.linux_files(),
        "bin/llama-cli": report_zips._elf(9, ("libc.so.6",), code_above=True),
    })  # fmt: skip
    report_zips.add_records(path, Store(tmp_path / "store"), ok=True)
    checked = collect(path).checked
    assert checked.state == "refused"
    assert checked.checks[0].status == "failed" and "AVX512F" in str(checked.checks[0].details)


def test_records_of_another_file_count_for_nothing(linux: Path, tmp_path: Path) -> None:
    """A verdict that was accepted once says nothing about bytes that changed since."""
    report_zips.add_records(linux, Store(tmp_path / "store"))
    other = report_zips.make(tmp_path, files=report_zips.linux_files(2))
    for suffix in ("verdict", "build"):
        beside = linux.with_name(f"{linux.name}.{suffix}.json")
        other.with_name(f"{other.name}.{suffix}.json").write_bytes(beside.read_bytes())
    found = collect(other, store=Store(tmp_path / "store"))
    assert found.checked.state == "accepted" and "another file" in found.checked.note
    assert "another file" in found.built.note and found.built.timeline is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 9}', "[" * 100_000])
def test_damaged_records_are_no_verdict(tmp_path: Path, text: str) -> None:
    path = report_zips.make(tmp_path)
    for suffix in ("verdict", "build"):
        path.with_name(f"{path.name}.{suffix}.json").write_text(text)
    found = collect(path, store=Store(tmp_path / "store"))
    assert found.checked.state == "accepted" and "verdict.json: " in found.checked.note
    assert found.built.note and found.built.timeline is None


def test_a_record_cannot_point_outside_the_store(tmp_path: Path) -> None:
    path = report_zips.make(tmp_path)
    store = Store(tmp_path / "store")
    report_zips.add_records(path, store)
    beside = path.with_name(f"{path.name}.build.json")
    data = json.loads(beside.read_text())
    beside.write_text(json.dumps({**data, "bundle": "../../etc"}))
    assert collect(path, store=store).built.timeline_note == (
        "the build record names no step of the store"
    )


def test_windows_says_that_no_windows_ran_it(tmp_path: Path) -> None:
    found = collect(report_zips.make(tmp_path, "windows"))
    assert "not run on a real Windows" in found.labels[0]
    server = next(each for each in found.needs if each.name == "llama-server.exe")
    assert "KERNEL32.dll" in server.system and not server.missing
    assert found.checked.state == "accepted" and "were not run" in found.checked.note


def test_gpu_code_is_read_from_the_fat_binaries(tmp_path: Path) -> None:
    files = report_zips.linux_files()
    fat = report_zips.fat_elf(("libggml-base.so.0", "libcuda.so.1", "libc.so.6"), (61, 80))
    files["bin/libggml-cuda.so"] = fat
    found = collect(report_zips.make(tmp_path, files=files, cmake={"GGML_BACKEND_DL": True}))
    code = next(each for each in found.gpu if each.path == "libggml-cuda.so")
    assert [line for line, _, _ in code.archs] == ["sm_61 machine code", "sm_80 machine code"]
    assert code.ours
    verdicts = dict(found.gpus)
    assert any(family.startswith("Pascal 6.1") and words == "runs natively"
               for family, words in verdicts.items())  # fmt: skip
    assert "will not run" in verdicts.values()
    assert "Its GPU code was not run on a real GPU" in found.labels[0]
    needs = next(each for each in found.needs if each.name == "libggml-cuda.so")
    assert needs.driver == ("libcuda.so.1",) and needs.kind == "backend"


def test_a_zip_of_others_has_files_but_no_claims(tmp_path: Path) -> None:
    made = Made(files={"llama-cli.exe": make_pe(["KERNEL32.dll", "cudart64_12.dll"])})
    found = collect(made.write(tmp_path, without=("manifest.json", "provenance.json")))
    assert not found.ours and found.pins == () and found.patches == ()
    assert found.needs[0].missing == ("cudart64_12.dll",)
    assert any("cudart64_12.dll" in line for line in found.problems)
    assert len(found.rebuild) == 1


def test_what_differs_from_another_zip(linux: Path, tmp_path: Path) -> None:
    other = report_zips.make(tmp_path, files=report_zips.linux_files(2), cpu="x86-64-v2")
    found = collect(linux, other=other).against
    assert found is not None and not found.identical
    made = {change.what: (change.here, change.there) for change in found.made}
    assert made["cmake.GGML_AVX2"] == ("on", "off")
    rows = {row.path: row for row in found.files}
    assert rows["llama-server"].there - rows["llama-server"].here == 30000  # type: ignore[operator]
    assert "licenses/llama.cpp.txt" not in rows and found.same >= 5
    assert found.places
    same = collect(linux, other=linux).against
    assert same is not None and same.identical


def test_a_damaged_zip_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04" + bytes(50))
    with pytest.raises(ArchiveError):
        collect(path)


def test_links_of_one_library_are_one_step() -> None:
    rows: Any = [["bin/libx.so", 0, 9], ["bin/libx.so.0", 0, 9], ["a/b.cpp.o", 0, 9]]
    timeline = timeline_of(rows)
    assert timeline is not None
    assert [edge.output for edge in timeline.edges] == ["a/b.cpp.o", "bin/libx.so"]


def test_a_very_long_timeline_keeps_what_took_long() -> None:
    rows = [[f"src/{n}.o", n, n + 1] for n in range(2000)] + [["src/slow.o", 0, 9000]]
    timeline = timeline_of(rows)
    assert timeline is not None
    assert len(timeline.edges) == MOST_EDGES and timeline.left_out == 2001 - MOST_EDGES
    assert any(edge.output == "src/slow.o" for edge in timeline.edges)
    assert timeline.work == pytest.approx(11.0)


@pytest.mark.parametrize("rows", [[["a"]], [["a", "b", 1]], [[1, 2, 3]], [["a", -1, 1]], [[]]])
def test_a_malformed_timeline_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError):
        timeline_of(rows)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/mmq.cu.obj", "CUDA kernels"),
        ("ggml/src/CMakeFiles/ggml-base.dir/ggml.c.o", "ggml"),
        ("src/CMakeFiles/llama.dir/llama.cpp.o", "llama"),
        ("vendor/cpp-httplib/CMakeFiles/x.dir/httplib.cpp.o", "common"),
        ("tools/server/CMakeFiles/x.dir/server.cpp.o", "server and tools"),
        ("bin/llama-cli.exe", "linking"),
    ],
)
def test_parts_of_the_source(output: str, name: str) -> None:
    assert area(output) == name


@pytest.mark.parametrize(
    "output",
    [
        "/home/me/qbuild/w/c93a/build/tools/x",
        "C:/Users/me/w/build/tools/x",
        "tools/x",
        "/home/me/x",
    ],
)
def test_a_path_in_a_timeline_is_cut(output: str) -> None:
    found = timeline_of([[output, 0, 10]])
    assert found is not None
    assert [edge.output.removeprefix("tools/") for edge in found.edges] == ["x"]
