"""The store's smaller promises: names, locks, what is said, and what a failing disk does to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from qbuild import held, host
from qbuild import store as store_module
from qbuild.console import Silent
from qbuild.errors import StoreError
from qbuild.store import (
    Store,
    disk_error,
    link_tree,
    same_files,
    step_key,
    write_atomically,
)
from support.links import need_links

INPUTS = {"a": 1, "b": ["x"]}
KEY = step_key("thing", INPUTS)


def make(folder: Path) -> Mapping[str, Any]:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("hello")
    (folder / "folder").symlink_to("sub")
    return {"fact": 42}


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append(f"warning: {text}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "store")


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, what: Any, name: str, number: int) -> Iterator[None]:
    """Let a function fail as on a full or closed disk."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(what, name, fail)
        yield


def rot(path: Path) -> None:
    """Change a byte as a disk does: size and time stay."""
    info = path.stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_a_key_is_the_same_on_every_machine_and_for_ever() -> None:
    """Another key for the same inputs would make every store and every shared cache useless."""
    assert step_key("thing", {"ü": 1, "b": [True, None], "a": {"y": 1, "x": "é"}}) == (
        "f186460f94898a9c1589d14d3e542f5a98113439045e2bc87785fa7807a3c53c"
    )


def test_where_things_lie(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other versions of qbuild, and people, look there, too; on Windows every letter counts."""
    assert store.work_path("ab" * 32) == store.root / "work" / ("ab" * 12)
    assert store.entry_path("thing", KEY) == store.root / "thing" / KEY[: host.key_letters()]
    seen: list[str] = []

    def look(folder: Path) -> Mapping[str, Any]:
        seen.append(folder.relative_to(store.root).as_posix())
        return make(folder)

    entry = store.put("thing", KEY, INPUTS, look)
    assert re.fullmatch(rf"tmp/thing-{KEY[:12]}-[0-9a-f]{{8}}", seen[0])
    store.set_aside(entry.path)
    (grave,) = (store.root / "damaged").iterdir()
    assert re.fullmatch(rf"thing-{KEY[:12]}-[0-9a-f]{{6}}", grave.name)
    with store.lock("thing", KEY, Silent()):
        assert [path.name for path in (store.root / "locks").iterdir()] == [
            f"thing-{KEY[:24]}.lock"
        ]
    monkeypatch.setattr(host, "path_limit", lambda: 260)  # as on Windows
    from qbuild.cli.common import store as chosen

    class Args:
        store = str(Path("/").absolute()).ljust(62, "x")  # there with a drive's letter

    assert chosen(Args()).root == Path(Args.store)  # type: ignore[arg-type]
    Args.store += "x"
    with pytest.raises(StoreError, match=r"has 63 letters.* leaves room for 62"):
        chosen(Args())  # type: ignore[arg-type]


def test_data_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves under the name must be whole."""
    seen: list[tuple[int, bool]] = []
    target = tmp_path / "a" / "file"
    monkeypatch.setattr(
        os, "fsync", lambda number: seen.append((os.fstat(number).st_size, target.exists()))
    )
    write_atomically(target, b"x" * 1000)
    assert seen == [(1000, False)] and target.read_bytes() == b"x" * 1000
    assert [path.name for path in target.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("part", ["inputs", "files", "facts"])
def test_an_entry_of_other_types_is_damaged(store: Store, part: str) -> None:
    path = store.put("thing", KEY, INPUTS, make).path / "entry.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: [1]}))
    found = Store(store.root).find("thing", KEY)
    assert found is not None and store.damage(found) == "entry.json cannot be read"


def test_an_entry_whose_list_is_a_folder_is_damaged(store: Store) -> None:
    path = store.put("thing", KEY, INPUTS, make).path / "entry.json"
    path.unlink()
    path.mkdir()
    heard = Heard()
    assert store.get("thing", KEY, heard) is None
    assert heard.said == [
        f"warning: store entry thing/{KEY[:12]} is damaged (entry.json cannot be read); "
        "making it again"
    ]


def test_nothing_is_said_of_what_is_missing_or_sound(store: Store) -> None:
    heard = Heard()
    assert store.get("thing", KEY, heard) is None
    store.put("thing", KEY, INPUTS, make)
    assert store.get("thing", KEY, heard) is not None
    assert heard.said == []


def test_links_are_listed_as_links_and_never_followed(store: Store, tmp_path: Path) -> None:
    need_links(tmp_path)
    entry = store.put("thing", KEY, INPUTS, make)
    assert entry.files["folder"] == {"link": "sub"}
    assert set(entry.files) == {"folder", "sub/file"}
    before = (entry.path / "entry.json").stat().st_mtime_ns
    assert store.damage(entry) is None
    assert (entry.path / "entry.json").stat().st_mtime_ns == before, "a link has no time of its own"
    file, copy = entry.path / "sub" / "file", tmp_path / "copy"
    shutil.copy2(file, copy)
    file.unlink()
    file.symlink_to(copy)
    assert store.damage(entry) == "sub/file has other bytes"


def test_another_size_is_damage_whatever_the_time_says(store: Store) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    file = entry.path / "sub" / "file"
    info = file.stat()
    file.write_text("hello!")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert store.damage(entry) == "sub/file has other bytes"


def test_new_times_are_written_down_and_nothing_is_left(store: Store) -> None:
    """A copied store is hashed once; a read-only one stays as it is."""
    entry = store.put("thing", KEY, INPUTS, make)
    os.utime(entry.path / "sub" / "file", ns=(500, 500))  # Windows counts in steps of 100 ns
    assert store.damage(entry) is None
    again = store.find("thing", KEY)
    assert again is not None and again.files["sub/file"]["mtime_ns"] == 500
    assert list((store.root / "tmp").iterdir()) == []


def test_what_was_hashed_once_is_not_hashed_again_in_the_same_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("thing", KEY, INPUTS, make)
    monkeypatch.setattr(store_module, "sha256_file", lambda path: pytest.fail(f"hashed {path}"))
    assert store.sound("thing", KEY) is not None


def test_what_another_run_made_anew_is_hashed(store: Store) -> None:
    """The entry that this run knew was set aside; the one in its place is another."""
    entry = store.put("thing", KEY, INPUTS, make)
    (entry.path / "sub" / "file").write_text("other")
    assert store.remove_damaged("thing", KEY) == "sub/file has other bytes"
    rot(Store(store.root).put("thing", KEY, INPUTS, make).path / "sub" / "file")
    assert store.sound("thing", KEY) is None


def test_damage_is_set_aside_each_time(store: Store) -> None:
    for _ in range(2):
        entry = store.put("thing", KEY, INPUTS, make)
        (entry.path / "sub" / "file").write_text("other")
        assert store.get("thing", KEY, Silent()) is None
    assert len(list((store.root / "damaged").iterdir())) == 2


def test_an_entry_that_cannot_be_moved_is_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    with (
        failing(monkeypatch, held, "rename", errno.EACCES),
        pytest.raises(StoreError, match="cannot be written") as caught,
    ):
        store.set_aside(entry.path)
    assert caught.value.where == str(entry.path)


def test_discarding_takes_the_folder_away_at_once_and_deletes_it(store: Store) -> None:
    for _ in range(2):
        path = store.root / "work" / "x"
        (path / "sub").mkdir(parents=True)
        store.discard(path)
        assert not path.exists()
    store.discard(path)  # missing: fine
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)
    assert list((store.root / "tmp").iterdir()) == []


def test_discarded_folders_are_recognised(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(held, "remove_tree", lambda path: seen.append(path.name))
    (store.root / "work" / "x").mkdir(parents=True)
    store.discard(store.root / "work" / "x")
    end = time.monotonic() + 10
    while not seen and time.monotonic() < end:
        time.sleep(0.01)
    assert re.fullmatch("discarded-[0-9a-f]{8}", seen[0])


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_result_that_was_not_finished_leaves_nothing(store: Store, error: BaseException) -> None:
    def fail(folder: Path) -> Mapping[str, Any]:
        make(folder)
        raise error

    with pytest.raises((StoreError, KeyboardInterrupt)):
        store.put("thing", KEY, INPUTS, fail)
    assert list((store.root / "tmp").iterdir()) == [] and store.find("thing", KEY) is None


def test_who_waits_for_a_lock_says_so_and_then_gets_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_LOCK_SAYS_AFTER", 0.01)
    heard, order = Heard(), list[str]()
    begun = threading.Event()

    def second() -> None:
        begun.set()
        with Store(store.root).lock("thing", KEY, heard):
            order.append("second")

    with store.lock("thing", KEY, Silent()):
        other = threading.Thread(target=second)
        other.start()
        begun.wait(10)
        end = time.monotonic() + 10
        while not heard.said and time.monotonic() < end:
            time.sleep(0.01)
        order.append("first")
    other.join(20)
    assert order == ["first", "second"]
    assert heard.said == ["thing: another qbuild is on this very step; waiting for its result"]


@pytest.mark.parametrize("use", ["lock", "in_use", "unused"])
def test_a_store_that_cannot_be_locked_is_an_error(
    store: Store, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = {
        "lock": lambda: store.lock("thing", KEY, Silent()),
        "in_use": store.in_use,
        "unused": store.unused,
    }[use]
    with (
        failing(monkeypatch, Path, "mkdir", errno.ENOSPC),
        pytest.raises(StoreError, match="the disk is full"),
        hold(),
    ):
        pytest.fail("it was held")
    with hold():
        pass
    with hold():
        pass


def test_a_store_on_a_read_only_disk_can_be_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = False
    with failing(monkeypatch, Path, "mkdir", errno.EROFS), store.in_use():
        used = True
    assert used


def test_a_run_leaves_no_lock_of_its_own(store: Store) -> None:
    for _ in range(2):
        with store.in_use():
            assert len(list((store.root / "locks").glob("run-*.lock"))) == 1
    assert list((store.root / "locks").glob("run-*.lock")) == []


def test_a_store_is_unused_when_no_run_lives(store: Store) -> None:
    with store.unused():
        pass
    (store.root / "locks" / "run-dead.lock").write_text("")
    with store.unused():
        assert not (store.root / "locks" / "run-dead.lock").exists(), "a killed run's"
    with store.in_use(), pytest.raises(StoreError, match="a build is using"), store.unused():
        pytest.fail("it was held")


def test_rubbish_of_six_hours_is_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.clean_tmp()  # nothing there yet
    old, young = store.root / "tmp" / "old", store.root / "tmp" / "young"
    for path, age in ((old, 21601), (young, 21600)):
        path.mkdir(parents=True)
        os.utime(path, (100_000 - age, 100_000 - age))
    monkeypatch.setattr(time, "time", lambda: 100_000.0)
    store.clean_tmp()
    assert not old.exists() and young.exists()


def test_an_entry_is_written_the_same_everywhere(store: Store) -> None:
    """ASCII, sorted: a store is copied between machines and compared."""

    def named(folder: Path) -> Mapping[str, Any]:
        (folder / "file").write_text("hello")
        return {"z": "ü", "a": 1}

    text = (store.put("thing", KEY, INPUTS, named).path / "entry.json").read_text()
    assert text.isascii()
    assert list(json.loads(text)) == ["facts", "files", "inputs", "kind"]
    assert list(json.loads(text)["facts"]) == ["a", "z"]


def test_a_linked_tree_shares_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_links(tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    make(source)
    os.utime(source / "sub" / "file", ns=(5, 5))
    link_tree(source, tmp_path / "linked")
    assert (tmp_path / "linked/sub/file").stat().st_ino == (source / "sub/file").stat().st_ino
    assert (tmp_path / "linked" / "folder").is_symlink()
    with failing(monkeypatch, os, "link", errno.EXDEV):
        link_tree(source, tmp_path / "copied")
    copy = tmp_path / "copied" / "sub" / "file"
    assert copy.stat().st_ino != (source / "sub" / "file").stat().st_ino
    assert (copy.read_text(), copy.stat().st_mtime_ns) == ("hello", 5)


def test_a_tree_is_copied_where_python_cannot_link_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows is not in ``os.supports_follow_symlinks``: ``os.link`` may refuse the argument."""

    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("follow_symlinks unavailable on this platform")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"hello")
    link_tree(tmp_path / "source", tmp_path / "copied")
    assert (tmp_path / "copied" / "file").read_bytes() == b"hello"


def test_read_only_files_are_removed_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may delete them anyway, so what a system says to others is played here."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    (folder / "file").write_text("")
    (folder / "file").chmod(0o400)
    seen: list[tuple[int, int]] = []

    def refuse(name: str) -> None:
        seen.append(tuple(p.stat().st_mode & 0o777 for p in (folder, folder / "file")))  # type: ignore[arg-type]
        if len(seen) == 1:
            raise OSError(errno.EACCES, "")

    with monkeypatch.context() as patch:
        patch.setattr(
            shutil, "rmtree", lambda path, onerror: onerror(refuse, str(path / "file"), None)
        )
        held.remove_tree(folder)
        assert [tuple(m & 0o600 for m in each) for each in seen] == [(0o600, 0o600)], (
            "once, and what fails then is left to the next run"
        )
    held.remove_tree(folder)
    assert not folder.exists()
    held.remove_tree(folder)


GIVEN = str(Path("/given"))


@pytest.mark.parametrize(
    ("error", "what", "where", "fix"),
    [
        (OSError(errno.ENOSPC, "No space", "/f"), "the disk is full", "/f", "cache prune"),
        (OSError(errno.ENOSPC, "No space"), "the disk is full", "/given", "steps are kept"),
        (OSError(errno.EROFS, "Read-only", "/f"), "cannot be written: Read-only", "/f", "--store"),
        (OSError(errno.EPERM, "No"), "cannot be written: No", "/given", "QBUILD_STORE"),
        (OSError(errno.EIO, "I/O error", "/f"), "the store failed: I/O error", "/f", "--store"),
        (OSError("odd"), "the store failed: odd", "/given", "QBUILD_STORE"),
    ],
)
def test_what_a_disk_says(error: OSError, what: str, where: str, fix: str) -> None:
    found = disk_error(error, Path(GIVEN))
    assert what in found.what and found.where == (where if where == "/f" else GIVEN)
    assert found.fix is not None and fix in found.fix


def test_a_file_that_is_held_open() -> None:
    error = OSError(errno.EACCES, "in use", "/f")
    error.winerror = 32  # type: ignore[attr-defined, unused-ignore]
    found = disk_error(error, Path(GIVEN))
    assert "moved or replaced: in use (another program holds it open" in found.what
    assert found.where == GIVEN and "close that program" in str(found.fix)


def test_same_files_sees_a_missing_folder_and_a_changed_byte(store: Store, tmp_path: Path) -> None:
    entry = store.put("thing", KEY, INPUTS, make)
    copy = tmp_path / "copy"
    assert not same_files(entry, entry.path / "sub", copy)
    shutil.copytree(entry.path / "sub", copy)
    (copy / "more").write_text("")
    assert same_files(entry, entry.path / "sub", copy)
    rot(copy / "file")
    assert not same_files(entry, entry.path / "sub", copy)
