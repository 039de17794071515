"""The store: content-addressed results of steps, written aside and renamed into place.

Layout below the store's root::

    <kind>/<key>/            a finished result: `entry.json` and the files it lists (on Windows,
                             whose paths are short, the first 24 letters of the key)
    work/<key>/              an unfinished build tree, kept under its step's key and resumed
    tmp/                     results being written; whatever is left here is rubbish
    locks/                   one lock file per key, so that two runs of one step take turns
    damaged/                 entries whose bytes no longer match what was written

A key is the sha256 of everything that can change the result's bytes (:func:`step_key`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qbuild import held, host
from qbuild.console import Reporter
from qbuild.errors import StoreError
from qbuild.hashing import sha256_file

LONGEST = 197
"""Letters of the longest path below the store's folder on Windows, measured: in the patched source,
whose web UI has deep folders; `patch/`, 24 letters of its key, `/tree/` and 160 of its own."""

_ENTRY = "entry.json"
_RUN = "run-"
_PRUNE = "prune.lock"
_LOCK_SAYS_AFTER = 0.3  # seconds of waiting before the person is told


def step_key(kind: str, inputs: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of a step's kind and inputs, independent of dictionary order."""
    text = json.dumps([kind, inputs], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old bytes or the new, never half.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        held.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise disk_error(error, path) from error


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A finished result in the store."""

    kind: str
    key: str
    path: Path
    inputs: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any]  # what the step found out besides files, e.g. the patched tree id

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(f.get("size", 0)) for f in self.files.values())


class Store:
    """A folder of finished and unfinished step results.

    Args:
        root: The store's folder; made when needed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sound: set[tuple[str, str]] = set()
        """Kind and key of the entries whose every byte was hashed by this process."""

    def entry_path(self, kind: str, key: str) -> Path:
        """Return where a result lies or would lie."""
        return self.root / kind / key[: host.key_letters()]

    def work_path(self, key: str) -> Path:
        """Return where the unfinished build tree of a step lies."""
        return self.root / "work" / key[:24]

    def find(self, kind: str, key: str) -> Entry | None:
        """Return the result if there is one, without checking its bytes."""
        path = self.entry_path(kind, key)
        try:
            data = json.loads((path / _ENTRY).read_bytes())
            if not all(isinstance(data[part], dict) for part in ("inputs", "files", "facts")):
                raise TypeError(_ENTRY)
            return Entry(
                kind=kind,
                key=key,
                path=path,
                inputs=data["inputs"],
                files=data["files"],
                facts=data["facts"],
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            if not path.is_dir():  # no entry is damaged: the store itself is no folder
                raise disk_error(error, path) from error
            return Entry(kind=kind, key=key, path=path, inputs={}, files={}, facts={})
        except (ValueError, KeyError, TypeError, RecursionError):
            return Entry(kind=kind, key=key, path=path, inputs={}, files={}, facts={})

    def damage(self, entry: Entry, *, thorough: bool = False) -> str | None:
        """Return what is wrong with an entry, or nothing.

        Without ``thorough`` a file whose size and modification time are those recorded when it
        was written counts as unchanged, as in git's index. Any other file is hashed.
        """
        if not entry.files and not entry.inputs:
            return f"{_ENTRY} cannot be read"
        if step_key(entry.kind, entry.inputs) != entry.key:
            return f"{_ENTRY} does not belong to this key"
        found = dict(_scan(entry.path))
        found.pop(_ENTRY, None)
        if extra := found.keys() - entry.files.keys():
            return f"{min(extra)} was added"
        times: dict[str, int] = {}
        try:
            for name, wanted in sorted(entry.files.items()):
                here = found.get(name)
                if problem := _other_than(wanted, here, thorough=thorough):
                    return f"{name} {problem}"
                if here is not None and "link" not in wanted:
                    time_ns = here.stat(follow_symlinks=False).st_mtime_ns
                    if time_ns != wanted.get("mtime_ns"):
                        times[name] = time_ns
        except (KeyError, TypeError, AttributeError):
            return f"{_ENTRY} cannot be read"
        if times:
            self._keep_times(entry, times)
        return None

    def _keep_times(self, entry: Entry, times: Mapping[str, int]) -> None:
        """Record the times of files whose bytes were found right, so they need no hashing again.

        A store that was copied, unpacked or restored by a CI cache has new times everywhere.
        """
        files = {
            name: {**facts, "mtime_ns": times[name]} if name in times else facts
            for name, facts in entry.files.items()
        }
        # Written outside the entry: another run that checks it now must not find a stranger in it.
        aside = self.root / "tmp" / f"entry-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError, StoreError):  # a read-only store stays as it is
            aside.mkdir(parents=True)
            _write_entry(aside, entry.kind, entry.inputs, files, entry.facts)
            held.replace(aside / _ENTRY, entry.path / _ENTRY)
            aside.rmdir()

    def sound(self, kind: str, key: str) -> Entry | None:
        """Return a result whose every byte was hashed, or nothing: it is missing or damaged.

        Whoever asks for a result is about to make another one out of it, or to deliver it: a byte
        that rotted on the disk would go on into a zip that is then verified and looks right. One
        process hashes an entry once; afterwards it looks at sizes and times.
        """
        entry = self.find(kind, key)
        if entry is None or self.damage(entry, thorough=(kind, key) not in self._sound):
            return None
        self._sound.add((kind, key))
        return entry

    def get(self, kind: str, key: str, reporter: Reporter) -> Entry | None:
        """Return a result as :meth:`sound` does; a damaged one is moved aside.

        Only for who holds the step's lock: another run may have made the entry again meanwhile.

        Raises:
            StoreError: A damaged entry cannot be moved.
        """
        if (entry := self.sound(kind, key)) is not None:
            return entry
        if (problem := self.remove_damaged(kind, key)) is not None:
            reporter.warn(f"store entry {kind}/{key[:12]} is damaged ({problem}); making it again")
        return None

    def remove_damaged(self, kind: str, key: str) -> str | None:
        """Move an entry aside if it is damaged, and return what is wrong with it.

        Only for who holds the step's lock.

        Raises:
            StoreError: It cannot be moved.
        """
        entry = self.find(kind, key)
        problem = self.damage(entry, thorough=True) if entry is not None else None
        if entry is not None and problem is not None:
            self.set_aside(entry.path)
            self._sound.discard((kind, key))
        return problem

    def discard(self, path: Path) -> None:
        """Take a folder out of its place at once and delete it while other work goes on.

        The process waits for the deletion when it ends; what a killed run leaves of it lies in
        ``tmp/`` and goes with :meth:`clean_tmp`.
        """
        aside = self.root / "tmp" / f"discarded-{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.rename(path, aside)
        except FileNotFoundError:
            return
        threading.Thread(target=held.remove_tree, args=(aside,)).start()

    def set_aside(self, path: Path) -> None:
        """Move a damaged entry out of the way."""
        grave = (
            self.root / "damaged" / f"{path.parent.name}-{path.name[:12]}-{uuid.uuid4().hex[:6]}"
        )
        try:
            grave.parent.mkdir(parents=True, exist_ok=True)
            held.rename(path, grave)
        except OSError as error:
            raise disk_error(error, path) from error

    def put(
        self,
        kind: str,
        key: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Mapping[str, Any]],
    ) -> Entry:
        """Make a result aside, then rename it into place.

        Args:
            kind: Step kind.
            key: Its key.
            inputs: What the key was made from.
            make: Fills the given empty folder; returns facts (JSON-able).

        Raises:
            StoreError: The disk is full or the store is not writable.
        """
        aside = self.root / "tmp" / f"{kind}-{key[:12]}-{uuid.uuid4().hex[:8]}"
        target = self.entry_path(kind, key)
        try:
            aside.mkdir(parents=True)
            facts = make(aside)
            files = {name: _describe(Path(e.path)) for name, e in sorted(_scan(aside))}
            _write_entry(aside, kind, inputs, files, facts)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                self.set_aside(target)
            held.rename(aside, target)
        except OSError as error:
            held.remove_tree(aside)
            raise disk_error(error, target) from error
        except BaseException:
            held.remove_tree(aside)
            raise
        self._sound.add((kind, key))
        return Entry(kind=kind, key=key, path=target, inputs=inputs, files=files, facts=facts)

    @contextlib.contextmanager
    def lock(self, kind: str, key: str, reporter: Reporter) -> Iterator[None]:
        """Hold a step for this process; others wait and say so.

        Raises:
            StoreError: The lock file cannot be made.
        """
        from filelock import FileLock, Timeout

        path = self.root / "locks" / f"{kind}-{key[:24]}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path)
            try:
                lock.acquire(timeout=_LOCK_SAYS_AFTER)
            except Timeout:
                reporter.say(f"{kind}: another qbuild is on this very step; waiting for its result")
                lock.acquire()
        except OSError as error:
            raise disk_error(error, path) from error
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Say for as long as a run lasts that it uses the store, so that nothing is pruned.

        A run reads results, and fills folders under ``tmp``, whose steps' locks it does not hold.

        Raises:
            StoreError: The store cannot be written.
        """
        from filelock import FileLock

        path = self.root / "locks" / f"{_RUN}{uuid.uuid4().hex}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            mine = FileLock(path)
            with FileLock(path.with_name(_PRUNE)):  # waits for a prune that is on its way
                mine.acquire()
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                yield  # a store on a read-only disk can be used, and nobody can prune it
                return
            raise disk_error(error, path) from error
        try:
            yield
        finally:
            mine.release()
            with contextlib.suppress(OSError):
                path.unlink()

    @contextlib.contextmanager
    def unused(self) -> Iterator[None]:
        """Hold the store while no run uses it; runs that start now wait.

        Raises:
            StoreError: A run uses the store, or the store cannot be written.
        """
        from filelock import FileLock, Timeout

        folder = self.root / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / _PRUNE):
                for path in sorted(folder.glob(f"{_RUN}*.lock")):
                    try:
                        with FileLock(path, timeout=0):
                            pass
                    except Timeout:
                        raise StoreError(
                            "a build is using the store",
                            where=str(self.root),
                            fix="run this again when the build has ended",
                        ) from None
                    with contextlib.suppress(OSError):
                        path.unlink()  # a killed run's
                yield
        except OSError as error:
            raise disk_error(error, folder) from error

    def clean_tmp(self, *, older_than_s: float = 6 * 3600) -> None:
        """Remove what killed runs left half-written.

        Args:
            older_than_s: Age in seconds that no living run's folder reaches untouched.
        """
        folder = self.root / "tmp"
        if not folder.is_dir():
            return
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > older_than_s:
                    held.remove_tree(path)

    def entries(self) -> Iterator[Entry]:
        """Yield every finished result."""
        if not self.root.is_dir():
            return
        skip = {"work", "tmp", "locks", "damaged", "cache"}
        for kind in sorted(p for p in self.root.iterdir() if p.is_dir() and p.name not in skip):
            for path in sorted(kind.iterdir()):
                entry = self.find(kind.name, path.name)
                if entry is None:
                    continue
                whole = step_key(entry.kind, entry.inputs)
                yield replace(entry, key=whole) if whole.startswith(entry.key) else entry


def _write_entry(
    folder: Path,
    kind: str,
    inputs: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> None:
    data = {"kind": kind, "inputs": inputs, "files": files, "facts": facts}
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    write_atomically(folder / _ENTRY, text.encode())


def same_files(entry: Entry, source: Path, folder: Path) -> bool:
    """Return whether a folder still holds an entry's files, by their hashes; it may hold more.

    Args:
        entry: The entry.
        source: Folder of the entry that the other was filled from.
        folder: The folder.
    """
    start = f"{source.relative_to(entry.path).as_posix()}/"
    wanted = {
        name.removeprefix(start): facts
        for name, facts in entry.files.items()
        if name.startswith(start)
    }
    found = dict(_scan(folder)) if folder.is_dir() else {}
    return not any(
        _other_than(facts, found.get(name), thorough=True) for name, facts in wanted.items()
    )


def link_tree(source: Path, dest: Path) -> None:
    """Make ``dest`` a tree of the same files: hard links where the disk can, else copies.

    For inputs that nothing writes to; symbolic links stay what they are.
    """

    def link_or_copy(file: str, new: str) -> None:
        try:
            os.link(file, new, follow_symlinks=False)
        except (OSError, NotImplementedError):  # the latter where links cannot be told from files
            shutil.copy2(file, new, follow_symlinks=False)

    shutil.copytree(source, dest, symlinks=True, copy_function=link_or_copy)


def _scan(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (posix name, directory entry) of every file and link below a folder, in any order.

    ``os.scandir`` because an unpacked compiler has 20,000 files and is checked in every build.
    """
    folders = [("", str(root))]
    while folders:
        prefix, folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{prefix}{entry.name}/", entry.path))
                else:
                    yield prefix + entry.name, entry


def _other_than(
    wanted: Mapping[str, Any], here: os.DirEntry[str] | None, *, thorough: bool
) -> str | None:
    """Return in what a file differs from its record, or nothing."""
    if here is None:
        return "is missing"
    if "link" in wanted:
        same = here.is_symlink() and os.readlink(here.path) == wanted["link"]
        return None if same else "points elsewhere"
    info = here.stat(follow_symlinks=False)
    if not stat.S_ISREG(info.st_mode) or info.st_size != wanted["size"]:
        return "has other bytes"
    recent = info.st_mtime_ns != wanted.get("mtime_ns")
    if (recent or thorough) and sha256_file(Path(here.path)) != wanted["sha256"]:
        return "has other bytes"
    return None


def _describe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {"link": os.readlink(path)}
    info = path.stat()
    return {
        "size": info.st_size,
        "sha256": sha256_file(path),
        "mtime_ns": info.st_mtime_ns,
        "executable": bool(info.st_mode & stat.S_IXUSR),
    }


def disk_error(error: OSError, path: Path) -> StoreError:
    """Return a failing disk as the store's error: what is wrong, where, and what to do."""
    if error.errno == errno.ENOSPC:
        return StoreError(
            "the disk is full",
            where=str(error.filename or path),
            fix="free some space (`qbuild cache prune` frees the store's) and run again: "
            "finished steps are kept",
        )
    if held.is_held(error):
        return StoreError(
            f"a file cannot be moved or replaced: {held.why(error)}",
            where=str(path),
            fix="close that program, or keep it out of this folder, and run again",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreError(
            f"the store cannot be written: {error.strerror}",
            where=str(error.filename or path),
            fix="choose another folder with --store or QBUILD_STORE",
        )
    return StoreError(
        f"the store failed: {error.strerror or error}",
        where=str(error.filename or path),
        fix="choose another folder with --store or QBUILD_STORE",
    )
