"""A step's result: taken when it is sound, else made once; and what is picked from a build."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild import process
from qbuild.console import Silent
from qbuild.errors import BundleError
from qbuild.process import Stopped
from qbuild.steps.base import Step
from qbuild.steps.ensure import ensure
from qbuild.steps.options import Record
from qbuild.steps.stage import StageStep, stage
from qbuild.store import Store, step_key
from support.links import need_links
from support.systems import kept

INPUTS = {"a": 1}
STEP = Step(kind="thing", label="a thing", key=step_key("thing", INPUTS), inputs=INPUTS)


class Maker:
    """Counts how often it made the result."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, dest: Path) -> Mapping[str, Any]:
        self.times += 1
        (dest / "file").write_bytes(b"hello")
        return {"fact": 1}


def test_a_result_is_made_once_and_recorded(tmp_path: Path) -> None:
    store, maker, first, second = Store(tmp_path), Maker(), Record(), Record()
    entry = ensure(STEP, maker, store, Silent(), first)
    assert (entry.path / "file").read_bytes() == b"hello" and entry.facts == {"fact": 1}
    assert first.made == ["a thing"] and first.reused == []
    assert set(first.seconds) == {"a thing"} and 0 <= first.seconds["a thing"] < 60
    again = ensure(STEP, maker, Store(tmp_path), Silent(), second)
    assert again.path == entry.path and maker.times == 1
    assert second.reused == ["a thing"] and second.made == [] and second.seconds == {}


def test_a_rotten_result_is_made_again(tmp_path: Path) -> None:
    maker = Maker()
    entry = ensure(STEP, maker, Store(tmp_path), Silent(), Record())
    path = entry.path / "file"
    info = path.stat()
    path.write_bytes(b"hellO")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    record = Record()
    ensure(STEP, maker, Store(tmp_path), Silent(), record)
    assert path.read_bytes() == b"hello" and maker.times == 2 and record.made == ["a thing"]


def test_a_result_that_another_run_made_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for the step's lock looks again before it makes anything."""
    ensure(STEP, Maker(), Store(tmp_path), Silent(), Record())
    store, maker, record = Store(tmp_path), Maker(), Record()
    monkeypatch.setattr(store, "sound", _first_nothing(store.__class__.sound, store))
    ensure(STEP, maker, store, Silent(), record)
    assert maker.times == 0 and record.reused == ["a thing"]


def _first_nothing(real: Any, store: Store) -> Any:
    seen: list[str] = []

    def sound(kind: str, key: str) -> Any:
        seen.append(key)
        return None if len(seen) == 1 else real(store, kind, key)

    return sound


def test_nothing_is_begun_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_stop_asked", True)
    maker = Maker()
    with pytest.raises(Stopped):
        ensure(STEP, maker, Store(tmp_path), Silent(), Record())
    assert maker.times == 0


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A build folder for both systems."""
    folder = tmp_path / "built"
    folder.mkdir()
    for name in ("llama-cli", "llama-cli.exe", "libllama.so.0.1", "libllama.so.0", "ggml.dll",
                 "notes.txt", "other"):  # fmt: skip
        (folder / name).write_bytes(name.encode())
        (folder / name).chmod(0o600)
    need_links(tmp_path)
    (folder / "libllama.so").symlink_to("libllama.so.0")
    (folder / "libfolder.so").mkdir()
    return folder


def test_programs_and_libraries_are_picked(built: Path, tmp_path: Path) -> None:
    names = stage(built, tmp_path / "out", targets=["llama-cli"], windows=False)
    assert names == ["libllama.so", "libllama.so.0", "libllama.so.0.1", "llama-cli"]
    found = tmp_path / "out" / "bin"
    assert sorted(path.name for path in found.iterdir()) == names
    assert (found / "libllama.so").read_bytes() == b"libllama.so.0"
    assert not (found / "libllama.so").is_symlink()
    assert {path.stat().st_mode & 0o777 for path in found.iterdir()} == {kept(0o755)}


def test_windows_has_other_names(built: Path, tmp_path: Path) -> None:
    names = stage(built, tmp_path / "out", targets=["llama-cli"], windows=True)
    assert names == ["ggml.dll", "llama-cli.exe"]


@pytest.mark.parametrize("windows", [False, True])
def test_a_target_that_is_no_program_is_named(built: Path, tmp_path: Path, windows: bool) -> None:
    with pytest.raises(BundleError, match="`llama-server` built no executable") as caught:
        stage(built, tmp_path / "out", targets=["llama-cli", "llama-server"], windows=windows)
    assert caught.value.where == "build.targets"


@pytest.mark.parametrize(
    ("system", "program"), [("linux", "llama-cli"), ("windows", "llama-cli.exe")]
)
def test_the_step_picks_from_what_was_compiled(
    built: Path, tmp_path: Path, system: str, program: str
) -> None:
    built.rename(tmp_path / "bin")
    build: Any = SimpleNamespace(
        plan=SimpleNamespace(
            recipe=SimpleNamespace(
                build=SimpleNamespace(targets=("llama-cli",)), target=SimpleNamespace(os=system)
            )
        ),
        result=lambda kind: {"compile": SimpleNamespace(path=tmp_path)}[kind],
    )
    facts = StageStep().make(STEP, build, tmp_path / "out")
    assert program in facts["files"]
    assert sorted(path.name for path in (tmp_path / "out" / "bin").iterdir()) == facts["files"]
    assert StageStep().about(build.plan, STEP) == "executables and libraries"
