"""The command: what it prints, its exit codes, its published files."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cli.main import run
from qbuild.doctor.diagnosis import UNTESTED
from qbuild.doctor.examine import explain
from qbuild.doctor.findings import findings, kinds
from qbuild.doctor.machine_facts import Facts, parse_facts
from qbuild.doctor.schema import facts_schema_text, reference_page
from qbuild.doctor.signatures import compact
from qbuild.errors import DoctorError, UsageError

ROOT = Path(__file__).resolve().parents[3]


def _facts(tmp_path: Path, data: object) -> str:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


def test_facts_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _facts(tmp_path, {"cuda": "13.0", "architectures": ["61-real"]})
    assert run(["doctor", "--facts", path]) == DoctorError.exit_code == 16
    out = capsys.readouterr().out
    for text in ("error [arch-not-in-toolkit]", "why:", "to do: use CUDA 12.9", "recipe:"):
        assert text in out


def test_healthy_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--facts", _facts(tmp_path, {"os": "linux"})]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_hints_alone_do_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"kernel": "6.6-microsoft", "os": "linux", "recipe_os": "windows", "cwd": "/mnt/c/a"}
    assert run(["doctor", "--facts", _facts(tmp_path, data)]) == 0
    assert "hint [wsl-mix]" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _facts(tmp_path, {"nvcc": "13.1", "cudart_lib": "12.4"})
    assert run(["doctor", "--facts", path, "--json"]) == 16
    (found,) = json.loads(capsys.readouterr().out)
    assert found["id"] == "two-toolkits"
    assert set(found) == {
        *("id", "severity", "found", "why", "mend", "recipe", "verb", "evidence", "note"),
    }
    assert run(["doctor", "--facts", _facts(tmp_path, {}), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _facts(tmp_path, {"nvcc": "13.1", "cudart_lib": "12.4"})
    assert run(["doctor", "--facts", path, "--quiet"]) == 16
    assert capsys.readouterr().out == ""


def test_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "build.log"
    log.write_bytes("一切正常\r\nfatal error C1060: 编译器的堆空间不足\r\n".encode("gb18030"))
    assert run(["doctor", "--log", str(log)]) == 16
    out = capsys.readouterr().out
    assert "error [out-of-heap]" in out
    assert "line 2:" in out
    assert UNTESTED in " ".join(out.split())


def test_a_log_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"exit code -1073741795\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(["doctor", "--log", "-"]) == 16
    assert "illegal-instruction" in capsys.readouterr().out


def test_a_log_and_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "build.log"
    log.write_text("CMake Error: No CUDA toolset found.\n", encoding="utf-8")
    data = {"generator": "Visual Studio 17 2022", "vs_buildcustomizations": [], "cuda": "12.4"}
    assert run(["doctor", "--log", str(log), "--facts", _facts(tmp_path, data)]) == 16
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("[no-cuda-toolset]") == 1
    assert "CUDA 12.4.props" in out


def test_a_log_that_is_not_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "build.log"
    log.write_text("all is well\n", encoding="utf-8")
    assert run(["doctor", "--log", str(log)]) == 0
    assert "nothing known is in this log, and no line of it looks like an error" in (
        capsys.readouterr().out
    )
    assert run(["doctor", "--log", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_of_an_unknown_log_the_error_lines_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "build.log"
    log.write_text("step 1\nwidget: error: no frobnicator\n0 errors\n", encoding="utf-8")
    assert run(["doctor", "--log", str(log)]) == 0
    out = capsys.readouterr().out
    assert "hint [unknown-error]" in out
    assert "line 2: widget: error: no frobnicator" in out
    assert "0 errors" not in out
    assert run(["doctor", "--log", str(log), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["evidence"] == ["line 2: widget: error: no frobnicator"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--log", "/nonexistent/build.log"], "cannot read build.log"),
        (["--facts", "/nonexistent/facts.json"], "cannot read facts.json"),
        (["--capture", "--log", "x"], "--capture only prints"),
    ],
)
def test_mistakes(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_recipe_and_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _facts(tmp_path, {"os": "linux", "cpu": {"level": "x86-64-v2"}})
    assert run(["doctor", "--facts", path, "--recipe", "avx2"]) == 16
    assert "cpu-below-recipe" in capsys.readouterr().out
    assert run(["doctor", "--facts", path, "--recipe", "baseline"]) == 0
    assert run(["doctor", "--facts", path, "--recipe", "nope"]) == 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("x", "must be an object"),
        ({"jobs": 1.5}, "must be a whole number"),
        ({"jobs": True}, "must be a whole number"),
        ({"jobs": -1}, "must be a whole number"),
        ({"ram_gb": float("inf")}, "must be a number"),
        ({"os": "dos"}, "must be linux or windows or darwin"),
        ({"wsl": "yes"}, "must be true or false"),
        ({"path": "C:\\x"}, "must be a list"),
        ({"path": [1]}, "must be text"),
        ({"tools": ["git"]}, "must be an object"),
        ({"tools": {"git": 2}}, "must be text"),
        ({"cudda": "12.4"}, "`cudda` is not a fact"),
        ({"schema": 7}, "format 7"),
    ],
)
def test_wrong_facts_are_refused_by_name(data: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_facts(data)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        parse_facts({"archtectures": []})
    assert caught.value.fix == "did you mean `architectures`?"


def test_deep_and_broken_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "facts.json"
    for text in ("[" * 100_000, "{", "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1")):
        path.write_text(text, encoding="utf-8")
        assert run(["doctor", "--facts", str(path)]) == 2
    path.write_bytes(b"\xff\xfe\x00")
    assert run(["doctor", "--facts", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_published_files_are_fresh() -> None:
    reference = ROOT / "docs" / "reference"
    hint = "run python ci/generate.py"
    assert (reference / "facts.schema.json").read_text(encoding="utf-8") == facts_schema_text(), (
        hint
    )
    assert (reference / "doctor.md").read_text(encoding="utf-8") == reference_page(), hint


def test_every_fact_is_documented() -> None:
    properties = json.loads(facts_schema_text())["properties"]
    assert all(each["description"] for each in properties.values())
    assert set(properties) == set(Facts.__dataclass_fields__)


BY_CODE_ALONE = {"exit-code-rounded", "unknown-error"}
"""Given by the program itself: for a code that was rounded, and for a log that nobody knows."""


def test_the_tables_are_sorted() -> None:
    for kind in kinds():
        rows = resources.read_table(f"doctor/{kind}.toml")["finding"]
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids), kind


def test_the_table_is_sound() -> None:
    for each in findings().values():
        assert each.severity in ("error", "warning", "hint"), each.id
        assert each.tier in (1, 2, 3), each.id
        assert each.patterns or each.codes or each.facts or each.id in BY_CODE_ALONE, each.id
        assert not each.mend.endswith("."), each.id
        assert each.explains <= set(findings()), each.id
        for signature in (*each.patterns, *each.also):
            assert signature.find("") is None, each.id
            assert signature.literal or signature.pattern, each.id
            text = signature.pattern.pattern if signature.pattern else signature.literal
            assert " " not in text, (each.id, text)
            written = re.sub(r"\\.|\(\?P", "", text)
            assert written == written.lower(), (each.id, text)


def test_text_is_compared_without_blanks_case_and_kinds_of_quotes() -> None:
    assert compact("  »A b\u00a0C« “d” （e）：") == "'abc''d'(e):"


def test_a_diagnosis_fits_on_a_screen_and_on_one_line() -> None:
    (found,) = explain("exit code -1073741515")
    assert all(len(line) <= 100 for line in found.render().splitlines())
    assert "\n" not in found.short()
    assert found.short().startswith("[dll-not-found]")


def test_a_system_s_toolkit_is_no_matter_of_clang_cuda(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It brings its own; `doctor --recipe gtx1060` called a CUDA 13 beside it an error."""
    facts = {"cuda": "13.0", "architectures": ["61-real"], "toolchain": "clang-cuda"}
    assert run(["doctor", "--facts", _facts(tmp_path, facts)]) == 0
    assert "arch-not-in-toolkit" not in capsys.readouterr().out
