"""``qbuild verify``: exit codes, what is printed for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.verify.verdict import passed
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made


def good(tmp_path: Path) -> Path:
    exe = make_pe(["KERNEL32.dll"], extra=COMMIT[:9].encode() + b"\0")
    return Made(files={"llama-cli.exe": exe}).write(tmp_path)


def bad(tmp_path: Path) -> Path:
    made = Made(files={"llama-cli.exe": make_pe(["KERNEL32.dll"])})
    return made.write(tmp_path, without=("llama-cli.exe",))


def test_a_good_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", str(good(tmp_path)), "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert main.run(["verify", str(good(tmp_path))]) == 0
    assert "accepted: " in capsys.readouterr().out


def test_a_bad_zip_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", str(bad(tmp_path))]) == 11
    out = capsys.readouterr().out
    assert "REFUSED: " in out
    assert "llama-cli.exe: is in manifest.json, but missing from the zip" in out


def test_json_is_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", "--json", str(bad(tmp_path))]) == 11
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert {check["status"] for check in data["checks"]} >= {"passed", "failed"}


@pytest.mark.parametrize(("name", "code"), [("nothing.zip", 2), (".", 2)])
def test_no_such_zip(
    tmp_path: Path, name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["verify", str(tmp_path / name)]) == code
    assert capsys.readouterr().err.startswith("qbuild: ")


def test_no_zip_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify"]) == 2


@pytest.mark.parametrize("data", [b"", b"MZ" + bytes(100), b"PK\x03\x04" + bytes(50)])
def test_not_a_zip(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    assert main.run(["verify", str(path)]) == 11
    assert "Traceback" not in "".join(capsys.readouterr())


def test_nothing_is_run_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Path] = []

    def run_zip(path: Path, **options: object) -> tuple[object, ...]:
        ran.append(path)
        return (passed("run.native.version", "it ran"),)

    monkeypatch.setattr("qbuild.verify.run.run_zip", run_zip)
    path = good(tmp_path)
    assert main.run(["verify", str(path)]) == 0
    assert ran == []
    assert main.run(["verify", "--run", str(path)]) == 0
    assert ran == [path]
    assert "it ran" in capsys.readouterr().out


def test_a_refused_zip_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("qbuild.verify.run.run_zip", lambda *a, **k: pytest.fail("it was run"))
    assert main.run(["verify", "--run", str(bad(tmp_path))]) == 11
    assert "a zip that is refused is not run" in capsys.readouterr().err


def test_the_zip_is_only_read(tmp_path: Path) -> None:
    path = good(tmp_path)
    path.chmod(0o400)
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.iterdir()))
    main.run(["verify", "-q", str(path)])
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.iterdir())) == before


def test_what_each_file_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    assert main.run(["verify", "--sizes", str(path)]) == 0
    lines = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    row = next(line for line in lines if line.startswith("llama-cli.exe"))
    assert row.endswith("executable")
    assert lines[-1].split()[0] == "all"
    assert main.run(["verify", "--json", "--sizes", str(path)]) == 0
    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert {cost["name"] for cost in sizes} >= {"llama-cli.exe", "manifest.json"}
    assert sizes[0]["packed"] == max(cost["packed"] for cost in sizes)


def test_sizes_of_what_is_no_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"no zip")
    assert main.run(["verify", "--sizes", str(path)]) == 11
    assert "zipped" not in capsys.readouterr().out


def test_a_gpu_that_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", "--gpu", "GTX 106O", str(good(tmp_path))]) == 3
    assert "did you mean GTX 1060" in capsys.readouterr().err


def test_a_zip_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    """No check fails on it, because there is nothing to check: that is no acceptance."""
    import zipfile

    from qbuild.verify import verify_zip

    for name, files in (("empty.zip", {}), ("text.zip", {"readme.txt": "hello"})):
        with zipfile.ZipFile(tmp_path / name, "w") as out:
            for member, text in files.items():
                out.writestr(member, text)
        verdict = verify_zip(tmp_path / name)
        assert [check.id for check in verdict.failed] == ["archive"]
        assert "nothing to accept" in verdict.failed[0].details[0]
