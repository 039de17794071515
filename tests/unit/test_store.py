"""The store: atomic results, damage found, keys that cover what they must."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qbuild import hashing, host
from qbuild import store as store_module
from qbuild.console import Silent
from qbuild.errors import StoreError
from qbuild.store import Store, same_files, step_key, write_atomically
from support.links import need_links

INPUTS = {"a": 1, "b": ["x"]}
KEY = step_key("thing", INPUTS)


def make(folder: Path) -> Mapping[str, Any]:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("hello")
    (folder / "tool").write_bytes(b"#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / "link").symlink_to("tool")
    return {"fact": 42}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_result_is_found_again_with_its_facts(store: Store) -> None:
    need_links(store.root.parent)
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
    need_links(entry.parent)
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


def _rot(entry: Path, name: str = "sub/file") -> None:
    """Change a byte as a disk does: size and time stay."""
    path = entry / name
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _again(store: Store) -> Store:
    """Return the store as another process sees it."""
    return Store(store.root)


def test_a_byte_that_rotted_is_found_when_the_result_is_used(store: Store) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    _rot(entry.path)
    assert _again(store).sound("thing", KEY) is None
    assert entry.path.exists(), "whoever does not hold the lock moves nothing"
    assert _again(store).get("thing", KEY, Silent()) is None
    assert not entry.path.exists()
    assert [p.name.split("-")[0] for p in (store.root / "damaged").iterdir()] == ["thing"]


def test_a_process_hashes_a_result_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("thing", KEY, INPUTS, make)
    other = _again(store)
    hashed: list[str] = []

    def sha256(path: Path) -> str:
        hashed.append(path.name)
        return hashing.sha256_file(path)

    monkeypatch.setattr(store_module, "sha256_file", sha256)
    assert other.sound("thing", KEY) is not None
    assert other.sound("thing", KEY) is not None
    assert sorted(hashed) == ["file", "tool"]


def test_a_result_that_another_run_mended_is_not_set_aside(store: Store) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    assert _again(store).remove_damaged("thing", KEY) is None
    assert entry.path.exists()
    assert store.remove_damaged("thing", "0" * 64) is None


def test_cache_verify_sets_damage_aside(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    from qbuild.cli import main

    entry = store.put("stage", step_key("stage", INPUTS), INPUTS, make)
    kept = store.put("patch", step_key("patch", INPUTS), INPUTS, make)
    _rot(entry.path)
    assert main.run(["cache", "verify", "--store", str(store.root)]) == 13
    out = capsys.readouterr()
    assert "set aside: stage/" in out.out and "sub/file has other bytes" in out.out
    assert "1 damaged entry set aside" in out.err
    assert not entry.path.exists() and kept.path.exists()
    assert main.run(["cache", "verify", "--store", str(store.root)]) == 0


def test_a_new_result_takes_the_place_of_an_old_one(store: Store) -> None:
    """Two runs may both have made it; and a damaged one may not have been moved."""
    old = store.put("thing", KEY, INPUTS, make)
    _rot(old.path)
    store.put("thing", KEY, INPUTS, make)
    assert _again(store).sound("thing", KEY) is not None
    assert len(list((store.root / "damaged").iterdir())) == 1


def test_a_folder_that_was_filled_from_a_result_is_known_again(
    store: Store, tmp_path: Path
) -> None:
    def fill(folder: Path) -> Mapping[str, Any]:
        (folder / "tree").mkdir()
        return make(folder / "tree")

    entry = store.put("thing", KEY, INPUTS, fill)
    shutil.copytree(entry.path / "tree", tmp_path / "src", symlinks=True)
    (tmp_path / "src" / "built.o").write_text("x")
    assert same_files(entry, entry.path / "tree", tmp_path / "src")
    _rot(tmp_path / "src")
    assert not same_files(entry, entry.path / "tree", tmp_path / "src")
    assert not same_files(entry, entry.path / "tree", tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    ['{"inputs": [], "files": {}, "facts": {}}', '{"inputs": {"a": 1, "b": ["x"]}, "files": '
     '{"tool": 3, "link": 3, "sub/file": 3}, "facts": {}}', '{"inputs": {"a": 1, "b": ["x"]}, '
     '"files": {"tool": {}, "link": {}, "sub/file": {}}, "facts": {}}', "[]", "3"],
)  # fmt: skip
def test_a_record_of_any_other_form_is_damage(store: Store, text: str) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    (entry.path / "entry.json").write_text(text)
    assert _again(store).sound("thing", KEY) is None
    assert _again(store).get("thing", KEY, Silent()) is None


def test_write_atomically_never_touches_the_old_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with path.open("rb") as reader:
        try:
            write_atomically(path, b"new")
        except StoreError as error:  # Windows lets nobody replace a file that is open
            assert host.system() == "windows" and "holds it open" in error.what
        assert reader.read() == b"old", "the file that a reader has open was written over"
    write_atomically(path, b"new")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="the disk is full"):
        write_atomically(path, b"half")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "part"),
    [("x" * 90, "leaves room for"), ("a&b", "with & in its name"), ("50%", "with % in its name"),
     ("(x86)", "with ( ) in its name")],
)  # fmt: skip
def test_a_folder_that_windows_cannot_work_in_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    import argparse

    from qbuild.cli.common import store

    monkeypatch.setattr(host, "system", lambda: "windows")
    monkeypatch.setattr(host, "path_limit", lambda: 259)
    with pytest.raises(StoreError) as caught:
        store(argparse.Namespace(store=f"/{name}"))
    assert part in str(caught.value)
    assert "--store" in str(caught.value)
    assert store(argparse.Namespace(store="/Jürgen Groß/中文")).root.name == "中文"


def test_windows_folders_have_short_names_and_whole_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "system", lambda: "windows")
    monkeypatch.setattr(host, "path_limit", lambda: None)
    store = Store(tmp_path)
    key = step_key("kind", {"a": 1})
    made = store.put("kind", key, {"a": 1}, lambda folder: {})
    assert made.path.name == key[:24]
    assert store.get("kind", key, Silent()) is not None
    assert [each.key for each in store.entries()] == [key]
    assert [store.damage(each, thorough=True) for each in store.entries()] == [None]


def test_an_altered_copy_of_a_pinned_program_is_said_and_recorded(tmp_path: Path) -> None:
    from qbuild.steps.base import new_step
    from qbuild.steps.ensure import ALTERED, ensure
    from qbuild.steps.options import Record

    class Ears(Silent):
        heard: tuple[str, ...] = ()

        def warn(self, text: str) -> None:
            self.heard += (text,)

    step, ears, record = new_step("wheel", INPUTS, "wheel zig"), Ears(), Record()
    store = Store(tmp_path)
    store.put(step.kind, step.key, step.inputs, lambda folder: {ALTERED: "for tests"})
    for _ in range(2):
        ensure(step, lambda folder: {}, store, ears, record)
    assert record.altered == ["wheel zig is not the pinned one: for tests"]
    assert ears.heard == ("wheel zig is not the pinned one: for tests",)


def test_a_file_is_written_below_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "c", b"x")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_a_result_may_be_facts_alone(store: Store) -> None:
    store.put("thing", KEY, INPUTS, lambda dest: {"fact": dest.name and 1})
    found = _again(store).sound("thing", KEY)
    assert found is not None and found.facts == {"fact": 1} and found.files == {}


def test_a_kind_has_many_results(store: Store) -> None:
    other = {"a": 2}
    store.put("thing", KEY, INPUTS, make)
    store.put("thing", step_key("thing", other), other, make)
    assert {entry.key for entry in store.entries()} == {KEY, step_key("thing", other)}
    assert {entry.size for entry in store.entries()} == {len("hello") + len("#!/bin/sh\n")}


def test_a_step_can_be_held_in_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    from filelock import FileLock, Timeout

    store = Store(tmp_path / "a" / "b")
    for _ in range(2):
        with store.lock("thing", KEY, Silent()):
            (held,) = (store.root / "locks").iterdir()
            with pytest.raises(Timeout):
                FileLock(held, timeout=0).acquire()
    FileLock(held, timeout=0).acquire()
