"""The store: atomic results, damage found, keys that cover what they must."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qbuild import store as store_module
from qbuild.console import Silent
from qbuild.errors import StoreError
from qbuild.store import Store, step_key, write_atomically

INPUTS = {"a": 1, "b": ["x"]}
KEY = step_key("thing", INPUTS)


def make(folder: Path) -> Mapping[str, Any]:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("hello")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / "link").symlink_to("tool")
    return {"fact": 42}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_result_is_found_again_with_its_facts(store: Store) -> None:
    store.put("thing", KEY, INPUTS, make)
    entry = store.get("thing", KEY, Silent())
    assert entry is not None
    assert entry.facts == {"fact": 42}
    assert set(entry.files) == {"sub/file", "tool", "link"}
    assert entry.files["tool"]["executable"] is True


def test_a_key_ignores_order_and_sees_every_value() -> None:
    assert step_key("k", {"a": 1, "b": 2}) == step_key("k", {"b": 2, "a": 1})
    assert step_key("k", {"a": 1}) != step_key("k", {"a": 2})
    assert step_key("k", {"a": 1}) != step_key("other", {"a": 1})
    assert step_key("k", {"a": "1"}) != step_key("k", {"a": 1})


def test_a_failed_step_leaves_nothing(store: Store) -> None:
    def fail(folder: Path) -> Mapping[str, Any]:
        (folder / "half").write_text("x")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        store.put("thing", KEY, INPUTS, fail)
    assert store.find("thing", KEY) is None
    assert list((store.root / "tmp").iterdir()) == []


def _flip(entry: Path) -> None:
    path = entry / "sub" / "file"
    path.write_text("hellO")


def _truncate(entry: Path) -> None:
    (entry / "sub" / "file").write_text("he")


def _remove(entry: Path) -> None:
    (entry / "tool").unlink()


def _add(entry: Path) -> None:
    (entry / "stranger").write_text("x")


def _relink(entry: Path) -> None:
    (entry / "link").unlink()
    (entry / "link").symlink_to("/etc/passwd")


def _unlist(entry: Path) -> None:
    (entry / "entry.json").write_text("{}")


def _garble(entry: Path) -> None:
    (entry / "entry.json").write_bytes(b"\0\xff{")


def _swap(entry: Path) -> None:
    path = entry / "entry.json"
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_flip, "sub/file has other bytes"),
        (_truncate, "sub/file has other bytes"),
        (_remove, "tool is missing"),
        (_add, "stranger was added"),
        (_relink, "link points elsewhere"),
        (_unlist, "entry.json cannot be read"),
        (_garble, "entry.json cannot be read"),
        (_swap, "does not belong to this key"),
    ],
)
def test_damage_is_named_and_set_aside(store: Store, harm: Any, says: str) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    harm(entry.path)
    found = store.find("thing", KEY)
    assert found is not None
    problem = store.damage(found)
    assert problem is not None and says in problem
    assert store.get("thing", KEY, Silent()) is None
    assert not entry.path.exists()
    assert len(list((store.root / "damaged").iterdir())) == 1
    store.put("thing", KEY, INPUTS, make)
    assert store.get("thing", KEY, Silent()) is not None


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EACCES, "cannot be written"),
        (errno.EROFS, "cannot be written"),
        (errno.EIO, "the store failed"),
    ],
)
def test_disk_errors_become_store_errors(store: Store, number: int, says: str) -> None:
    def fail(folder: Path) -> Mapping[str, Any]:
        raise OSError(number, "some reason")

    with pytest.raises(StoreError) as caught:
        store.put("thing", KEY, INPUTS, fail)
    assert caught.value.exit_code == 13
    assert says in caught.value.what
    assert store.find("thing", KEY) is None


def test_a_change_that_keeps_size_and_time_is_found_by_the_thorough_check(store: Store) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    path = entry.path / "sub" / "file"
    before = path.stat()
    _flip(entry.path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.damage(entry) is None
    assert store.damage(entry, thorough=True) == "sub/file has other bytes"


def test_a_copied_store_is_hashed_once_and_accepted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("thing", KEY, INPUTS, make)
    shutil.copytree(store.root, tmp_path / "copy", symlinks=True, copy_function=shutil.copy)
    copy = Store(tmp_path / "copy")
    assert copy.get("thing", KEY, Silent()) is not None
    # The second time nothing has to be hashed.
    monkeypatch.setattr(store_module, "sha256_file", lambda path: "not asked")
    assert copy.get("thing", KEY, Silent()) is not None


def test_write_atomically_replaces_and_leaves_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "x" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_old_rubbish_is_removed_and_young_work_is_left(store: Store) -> None:
    young = store.root / "tmp" / "young"
    young.mkdir(parents=True)
    store.clean_tmp()
    assert young.exists()
    store.clean_tmp(older_than_s=-1)
    assert not young.exists()
