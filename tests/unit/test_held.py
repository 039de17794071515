"""Files held open by another program: tried again, then said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbuild import held, store
from qbuild.errors import StoreError


def refused(number: int = 32) -> OSError:
    error = PermissionError(13, "The process cannot access the file")
    error.winerror = number  # type: ignore[attr-defined]
    return error


def test_a_file_that_a_scanner_holds_for_a_moment_is_renamed_after_all() -> None:
    left = [refused(32), refused(5), refused(33)]
    waited: list[float] = []

    def do() -> str:
        if left:
            raise left.pop()
        return "done"

    assert held.patiently(do, sleep=waited.append) == "done"
    assert waited == list(held.WAITS_S[:3])


def test_a_file_that_stays_held_is_an_error_after_ten_seconds() -> None:
    waited: list[float] = []

    def do() -> None:
        raise refused()

    with pytest.raises(PermissionError):
        held.patiently(do, sleep=waited.append)
    assert 9 < sum(waited) < 12


@pytest.mark.parametrize("error", [refused(2), PermissionError(13, "no"), OSError(28, "full")])
def test_what_no_waiting_mends_is_not_waited_for(error: OSError) -> None:
    def do() -> None:
        raise error

    with pytest.raises(OSError, match=str(error.strerror)):
        held.patiently(do, sleep=lambda _: pytest.fail("waited"))


def test_the_store_names_the_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(source: Path, target: Path) -> None:
        raise refused()

    monkeypatch.setattr(held, "replace", never)
    with pytest.raises(StoreError) as caught:
        store.write_atomically(tmp_path / "file", b"new")
    assert "another program holds it open" in str(caught.value)
    assert "virus scanner" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_store_renames_through_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [refused(5)]
    rename = Path.rename

    def sometimes(self: Path, target: Path) -> Path:
        if left:
            raise left.pop()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", sometimes)
    monkeypatch.setattr(held.time, "sleep", lambda _: None)
    made = store.Store(tmp_path).put("kind", "0" * 64, {}, lambda folder: {})
    assert made.path.is_dir()


def test_a_scratch_folder_goes_whatever_happened(tmp_path: Path) -> None:
    """Git writes read-only files, and a scanner may hold one for a moment."""
    with pytest.raises(KeyError), held.scratch(".try-", tmp_path) as folder:
        (folder / "objects").mkdir()
        (folder / "objects" / "ab").write_bytes(b"x")
        (folder / "objects" / "ab").chmod(0o400)
        (folder / "objects").chmod(0o500)
        assert folder.parent == tmp_path
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with held.scratch("qbuild-try-") as folder:
        assert list(folder.iterdir()) == []
        folder.rmdir()  # missing is fine
    assert not folder.exists()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.skipif(os.name == "nt", reason="modes")
def test_the_folder_around_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It made /tmp root's own: by a scratch folder that somebody had removed already."""
    tmp_path.chmod(0o1777)
    held.remove_tree(tmp_path / "missing")
    assert mode(tmp_path) == 0o1777

    (tmp_path / "tree").mkdir()

    def cannot(path: Path, onerror: Callable[..., None]) -> None:
        def fails(_: str) -> None:
            raise OSError

        onerror(fails, str(path), None)

    monkeypatch.setattr(shutil, "rmtree", cannot)
    held.remove_tree(tmp_path / "tree")
    assert mode(tmp_path) == 0o1777
    assert mode(tmp_path / "tree") == 0o700


@pytest.mark.skipif(os.name == "nt", reason="modes")
def test_what_a_link_leads_to_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_text("x")
    (tmp_path / "outside").chmod(0o644)
    tree = tmp_path / "tree" / "inner"
    tree.mkdir(parents=True)
    (tree / "link").symlink_to(tmp_path / "outside")
    tree.chmod(0o555)
    tries = []
    unlink = os.unlink

    def once_refused(name: str, **options: Any) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise PermissionError(13, "read-only")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", once_refused)
    held.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert mode(tmp_path / "outside") == 0o644
