"""``qbuild reproduce``: two builds side by side, compared, and nothing left of them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild import host
from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.cli import reproduce
from qbuild.console import Silent
from qbuild.errors import ReproduceError, StoreError
from qbuild.store import LONGEST, Store, step_key

PLAN: Any = SimpleNamespace(zip_name="x.zip")


class Builds:
    """Writes a zip instead of building it, and remembers where."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = list(contents)
        self.folders: list[Path] = []
        self.ages: list[float] = []

    def __call__(self, _: Any, how: reproduce.Conditions, folder: Path) -> None:
        self.folders.append(folder)
        top = next(path for path in folder.parents if path.name.startswith("reproduce-"))
        self.ages.append(top.stat().st_mtime)
        os.utime(top, (1, 1))  # hours go by
        entry = ZipEntry(name="file", source=self.contents.pop(0))
        write_zip(folder / "dist" / "x.zip", [entry])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run it in a store of its own, on Linux: the last tests are about Windows' folders."""
    monkeypatch.setattr("qbuild.host.system", lambda: "linux")
    monkeypatch.setattr(
        "qbuild.steps.builder.Builder", lambda *_: SimpleNamespace(fetched=lambda: [])
    )

    def go(builds: Builds, *, keep: bool = False) -> int:
        monkeypatch.setattr(reproduce, "_build", builds)
        args: Any = SimpleNamespace(jobs=1, json=False, keep=keep)
        return reproduce._reproduce(args, PLAN, Store(tmp_path / "store"), Silent())

    return go


def test_the_same_bytes_twice(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builds = Builds(b"same", b"same")
    assert run(builds) == 0
    assert capsys.readouterr().out.startswith("identical: x.zip\nsha256 ")
    tmp = tmp_path / "store" / "tmp"
    assert all(tmp in folder.parents for folder in builds.folders), "a killed run's is cleaned up"
    assert len(set(builds.folders)) == 2
    assert min(builds.ages) > 1, "a living run's never looks like a killed one's"
    assert list(tmp.iterdir()) == [] and [p.name for p in tmp.parent.iterdir()] == ["tmp"]


def test_other_bytes_are_an_error_and_leave_nothing(run: Any, tmp_path: Path) -> None:
    with pytest.raises(ReproduceError, match=r"two builds of x\.zip differ"):
        run(Builds(b"one", b"two"))
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def test_what_is_kept_is_not_taken_for_rubbish(run: Any, tmp_path: Path) -> None:
    builds = Builds(b"same", b"same")
    assert run(builds, keep=True) == 0
    (kept,) = (tmp_path / "store").iterdir()
    assert kept.name.startswith("reproduce-")
    assert all((folder / "dist" / "x.zip").exists() for folder in builds.folders)


# -- on Windows -----------------------------------------------------------------------------------


def test_inputs_are_lent_where_the_builds_look_for_them(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.host.key_letters", lambda: 24)
    home, inputs = Store(tmp_path / "store"), {"any": "thing"}
    key = step_key("wheel", inputs)

    def fill(dest: Path) -> dict[str, str]:
        (dest / "file").write_bytes(b"lent")
        return {}

    entry = home.put("wheel", key, inputs, fill)
    lent = SimpleNamespace(fetched=lambda: [entry])
    monkeypatch.setattr("qbuild.steps.builder.Builder", lambda *_: lent)
    found = []

    class Looking(Builds):
        def __call__(self, args: Any, how: reproduce.Conditions, folder: Path) -> None:
            found.append(Store(folder / "store").find("wheel", key) is not None)
            super().__call__(args, how, folder)

    assert run(Looking(b"same", b"same")) == 0
    assert found == [True, True]


def test_folders_there_are_short_and_have_no_letter_that_compilers_mind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qbuild.host.system", lambda: "windows")
    folders = [how.folder for how in reproduce.conditions(1)]
    assert len(set(folders)) == 2
    for folder in folders:
        assert host.awkward_letters(folder) == ""
        # The store of a user with a short name leaves room for them.
        store = Path("C:/Users/Anna/AppData/Local/qbuild/Cache/tmp/r12345678")
        assert len(str(reproduce._own_store(store / folder))) + 1 + LONGEST <= 259


def test_a_store_too_deep_for_two_builds_below_it_is_said_before_a_fetch(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.host.path_limit", lambda: len(str(tmp_path)) + 7 + LONGEST)
    builds = Builds(b"same", b"same")
    with pytest.raises(StoreError, match=r"a build's own store has .* letters"):
        run(builds)
    assert builds.folders == [] and not (tmp_path / "store").exists()
