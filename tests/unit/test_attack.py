"""What hostile use of the whole command line turned up: each a clear error with its own code."""

from __future__ import annotations

import errno
import hashlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from qbuild import console
from qbuild.cli import main
from qbuild.errors import StoreError
from qbuild.store import Store
from qbuild.verify.verdict import Verdict
from support.systems import WINDOWS

if TYPE_CHECKING:
    from qbuild.steps.plan import Plan
    from qbuild.verify.verdict import Verdict

LONG = "a" * 300
NESTED = "a = " + "[" * 100_000
DOTTED = ".".join(["a"] * 5000) + " = 1"
DIGITS = "schema = " + "1" * 5000


@pytest.mark.parametrize("text", [NESTED, DOTTED, DIGITS, ""])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "FILE"], 3),
        (["plan", "avx2", "--lockfile", "FILE"], 4),
        (["patch", "explain", "x", "--patches", "FOLDER"], 6),
    ],
)
def test_toml_that_overwhelms_the_parser_is_an_error_of_its_file(
    words: list[str], code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = tmp_path / "x" / "series.toml"
    series.parent.mkdir()
    (tmp_path / "r.toml").write_text(text)
    series.write_text(text)
    places = {"FILE": str(tmp_path / "r.toml"), "FOLDER": str(tmp_path)}
    assert main.run([places.get(w, w) for w in words]) == code
    err = capsys.readouterr().err
    assert str(tmp_path) in err
    assert "unexpected" not in err


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000])
def test_an_override_that_overwhelms_the_parser_is_a_string(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["show", "avx2", "--set", f"schema={value}"]) == 3
    assert "must be integer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["show", f"{LONG}.toml"],
        ["verify", LONG],
        ["plan", "avx2", "--patches", LONG],
        ["cache", "size", "--store", f"/tmp/{LONG}"],
    ],
)
def test_a_path_too_long_for_the_system_is_named(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(words)
    said = capsys.readouterr()
    if WINDOWS:  # which says of such a path that nothing is there
        assert LONG in said.err + said.out
        return
    assert status == 2
    assert "too long" in said.err
    assert LONG in said.err


def test_a_store_that_is_a_file_is_no_damaged_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = Store(tmp_path / "file")
    with pytest.raises(StoreError, match="--store"):
        if WINDOWS:  # which says that nothing is there; it is found when something is put there
            store.put("bundle", "0" * 64, {}, lambda _: {})
        store.find("bundle", "0" * 64)


def test_json_is_valid_for_names_that_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["show", "b\udcff.toml", "--json"]) == 3
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out)["where"] == "b\udcff.toml"


class _Broken(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, "broken")

    def flush(self) -> None:
        raise OSError(self.number, "broken")


@pytest.mark.parametrize(("number", "code"), [(errno.EPIPE, 0), (errno.ENOSPC, 13)])
@pytest.mark.parametrize("words", [["list"], ["list", "--json"]])
def test_output_that_cannot_be_written(
    words: list[str],
    number: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout", _Broken(number))
    assert main.run(words) == code
    assert ("cannot be written" in capsys.readouterr().err) == (code != 0)


def test_a_broken_pipe_to_a_child_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(*_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "broken")

    monkeypatch.setattr("qbuild.cli.list.execute", execute)
    assert main.run(["list"]) == 1


def test_progress_that_nobody_reads_does_not_end_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", _Broken(errno.EPIPE))
    console.Plain().say("x")
    console.Plain().warn("x")
    assert main.run(["show", "nope"]) == 3


def test_progress_never_says_more_than_all_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_QUIET_S", -1)
    with console.Plain().task("verify", total=14) as task:
        for done in range(1, 19):
            task.update(done=done)
    said = capsys.readouterr().err
    assert "100 %" in said
    assert "110 %" not in said


ACCEPTED = Verdict(zip_name="x.zip", sha256=hashlib.sha256(b"zip").hexdigest(), checks=())


@pytest.mark.parametrize("place", ["file", "file/below", LONG])
def test_an_output_folder_that_cannot_be_one_is_named(place: str, tmp_path: Path) -> None:
    from qbuild.cli.build import deliver
    from qbuild.steps.options import Record

    (tmp_path / "file").write_text("x")
    source = tmp_path / "source.zip"
    source.write_bytes(b"zip")
    plan = cast("Plan", SimpleNamespace(zip_name="x.zip"))
    with pytest.raises(StoreError, match="cannot write the zip"):
        deliver(plan, source, tmp_path / place, ACCEPTED, Record())


@pytest.mark.parametrize("name", ["stdout", "stderr", "stdin"])
def test_a_closed_stream_is_as_good_as_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sys.{name}", None)
    monkeypatch.setattr("os.dup2", lambda *_: None)  # the test run keeps its own descriptors
    assert main.run(["list"]) == 0


def test_a_store_in_use_is_not_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store")
    half = store.root / "tmp" / "stage-half"
    half.mkdir(parents=True)
    words = ["cache", "prune", "--store", str(store.root)]
    with store.in_use():
        assert main.run(words) == 13
        assert half.is_dir()
    assert "a build is using the store" in capsys.readouterr().err
    assert main.run(words) == 0
    assert not half.exists()


def test_what_a_killed_run_left_does_not_keep_a_store_from_being_pruned(tmp_path: Path) -> None:
    left = tmp_path / "locks" / "run-0.lock"
    left.parent.mkdir()
    left.touch()
    assert main.run(["cache", "prune", "--store", str(tmp_path)]) == 0
    assert not left.exists()


def test_pruning_no_store_makes_none(tmp_path: Path) -> None:
    assert main.run(["cache", "prune", "--store", str(tmp_path / "none")]) == 0
    assert not (tmp_path / "none").exists()


def test_a_store_on_a_read_only_disk_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with Store(tmp_path / "store").in_use():
        assert not (tmp_path / "store").exists()
