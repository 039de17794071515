"""Fetch pinned wheels and sdists through pip, and unpack wheels without trusting them.

pip is asked because it already knows the user's index, mirrors, proxy and certificates. It is
told the exact version and hash; the hash is checked again here on the file it leaves.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbuild import held, host
from qbuild.binary.zip_reader import open_zip
from qbuild.console import Reporter
from qbuild.errors import ArchiveError, OriginError, StoreError
from qbuild.hashing import sha256_file
from qbuild.held import remove_tree
from qbuild.recipe.config import load_config
from qbuild.recipe.lock import FilePin, WheelPin, normalise
from qbuild.source.causes import Cause, UnfetchedError
from qbuild.source.pipcall import (
    environment,
    index_of,
    last_error,
    pip_for,
    platform_options,
    run_pip,
    why_pip_failed,
)
from qbuild.store import disk_error

TRIES = 3  # how often a download is tried; the waits between are 1 s and 4 s


class OtherBytesError(OriginError):
    """An origin has a file of the pinned name, but other bytes: it is refused, not skipped."""


_NETWORK = re.compile(
    r"Retrying|Connection|timed out|ReadTimeout|IncompleteRead|ProtocolError|HTTP error 5\d\d"
    r"|5\d\d Server Error|Temporary failure|Name or service not known|ResponseNotReady",
    re.IGNORECASE,
)
_LOST_HASH = re.compile(r"DO NOT MATCH THE HASHES", re.IGNORECASE)
_FULL = re.compile(r"No space left on device", re.IGNORECASE)


def fetch_file(
    pin: FilePin | WheelPin,
    dest_dir: Path,
    *,
    offline: bool,
    reporter: Reporter,
    mirrors: Sequence[str] | None = None,
) -> Path:
    """Return the pinned file in ``dest_dir``, fetched when it is not there yet.

    Looked for in turn: ``dest_dir`` itself, mirror folders, pip (the user's index settings, and
    mirrors that are URLs as further ``--find-links``).

    Args:
        pin: Which file.
        dest_dir: Folder it ends up in; made when needed.
        offline: Take it from ``dest_dir`` or a mirror folder only.
        reporter: Gets a bar in bytes.
        mirrors: Folders or URLs of pages that list files; none given: the user
            configuration's ``mirrors``.

    Raises:
        OriginError: Nothing delivered it, or something delivered other bytes under its name.
        StoreError: The disk is full or ``dest_dir`` cannot be written.
    """
    if mirrors is None:
        mirrors = load_config().mirrors
    target = dest_dir / pin.filename
    with _disk(dest_dir):
        dest_dir.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _is(target, pin):
            return target
        for mirror in mirrors:
            found = host.expand_user(mirror) / pin.filename
            if "://" not in mirror and found.is_file():
                return _take(found, target, pin)
    if offline:
        raise OriginError(
            f"{pin.filename} is not here and --offline forbids fetching it",
            where=str(dest_dir),
            fix="run once without --offline, or put the file into a folder named under "
            "`mirrors` in the user configuration",
        )
    links = [mirror for mirror in mirrors if "://" in mirror]
    with _disk(dest_dir), held.scratch(".pip-", dest_dir) as scratch:
        _pip_download(pin, scratch, links, reporter)
        got = scratch / "files" / pin.filename
        if not got.is_file():
            names = sorted(path.name for path in got.parent.glob("*"))
            raise OriginError(
                f"pip delivered another file: {', '.join(names) or 'none'}",
                where=f"{pin.project} {pin.version}",
                fix=f"the lockfile wants {pin.filename}",
            )
        if not _is(got, pin):
            raise _other_bytes(pin, "pip")
        held.replace(got, target)
    return target


def resolve(pin: WheelPin) -> None:
    """Ask pip whether the user's index still offers this very wheel, without fetching all of it.

    Raises:
        OriginError: It does not.
    """
    with held.scratch("qbuild-pip-") as scratch:
        (scratch / "files").mkdir()
        command = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir",
                   "--target", str(scratch / "files"), "--only-binary=:all:",
                   *platform_options(pin)]  # fmt: skip
        code, output = pip_for(command, pin, scratch, None)
        if code:
            raise _refused(pin, output, why_pip_failed(output))


def latest(project: str, version: str | None, platform: str, scratch: Path) -> WheelPin:
    """Fetch the newest (or a given) version of a wheel and return a pin for it.

    Args:
        project: Project name.
        version: Exact version; none: pip's choice, the newest release.
        platform: Lockfile platform.
        scratch: Empty folder that the wheel is fetched into.

    Raises:
        OriginError: No such wheel.
    """
    tags = {
        "linux-x86_64": [f"manylinux_2_{minor}_x86_64" for minor in (28, 24, 17, 12, 5)]
        + ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"],
        "windows-x86_64": ["win_amd64"],
        "any": [],
    }[platform]
    options = [word for tag in tags for word in ("--platform", tag)]
    wanted = f"{project}=={version}" if version else project
    scratch.mkdir(parents=True, exist_ok=True)
    command = ["download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", *options,
               "--dest", str(scratch / "files"), wanted]  # fmt: skip
    code, output = run_pip(command, environment(scratch), None)
    wheels = sorted((scratch / "files").glob("*.whl"))
    if code or len(wheels) != 1:
        raise OriginError(
            f"pip found no wheel of {wanted} for {platform}: "
            f"{(cause := why_pip_failed(output)) or last_error(output)}",
            where=f"{project} ({platform})",
            fix=cause.mend
            if cause
            else "check the project's name and pip's index settings (`pip config list`)",
        )
    found = wheels[0]
    name, number = found.name.split("-")[:2]
    return WheelPin(
        project=project if normalise(project) == normalise(name) else name,
        version=number,
        platform=platform,
        filename=found.name,
        sha256=sha256_file(found),
        size=found.stat().st_size,
    )


def _pip_download(
    pin: FilePin | WheelPin, scratch: Path, links: Sequence[str], reporter: Reporter
) -> None:
    (scratch / "files").mkdir()
    command = ["download", "--no-deps", "--no-cache-dir", "--dest", str(scratch / "files")]
    for link in links:
        command += ["--find-links", link]
    if isinstance(pin, WheelPin):
        command += ["--only-binary=:all:", *platform_options(pin)]
    else:
        command += ["--no-binary=:all:", "--no-build-isolation"]
    output, cause = "", None
    with reporter.task(pin.filename, total=pin.size, unit="bytes") as task:
        for attempt in range(TRIES):
            if attempt:
                wait = 4 ** (attempt - 1)
                why = cause or last_error(output)
                reporter.warn(f"{pin.filename}: {why}; trying again in {wait} s")
                time.sleep(wait)
            code, output = pip_for(command, pin, scratch, task)
            if code == 0:
                task.update(done=pin.size)
                return
            if _FULL.search(output):
                raise StoreError(
                    f"the disk is full: {pin.filename} needs {pin.size / 1e6:.0f} MB",
                    where=str(scratch.parent),
                    fix="free some space and run again",
                )
            cause = why_pip_failed(output)
            passing = cause.passing if cause else bool(_NETWORK.search(output))
            if _LOST_HASH.search(output) or not passing:
                break
    raise _refused(pin, output, cause)


def _refused(pin: FilePin | WheelPin, output: str, cause: Cause | None) -> OriginError:
    if _LOST_HASH.search(output):
        return _other_bytes(pin, "the package index")
    check, place = (
        "check the network and pip's index settings (`pip config list`)",
        index_of(output),
    )
    return UnfetchedError(
        f"pip could not get {pin.filename}: {cause or last_error(output)}",
        where=f"{pin.project} {pin.version}"
        + (f", from {place}" if (place := index_of(output)) else ""),
        fix=f"{cause.mend if cause else check}; or put the file into a folder named under "
        "`mirrors` in the user configuration",
        cause=cause,
    )


def _take(found: Path, target: Path, pin: FilePin | WheelPin) -> Path:
    """Copy a mirror's file, checked before it gets its name."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(found, aside)
        if not _is(aside, pin):
            raise _other_bytes(pin, str(found))
        held.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
    return target


def _is(path: Path, pin: FilePin | WheelPin) -> bool:
    return path.stat().st_size == pin.size and sha256_file(path) == pin.sha256


def _other_bytes(pin: FilePin | WheelPin, origin: str) -> OtherBytesError:
    return OtherBytesError(
        f"{origin} gave other bytes than the lockfile pins for {pin.filename}",
        where=origin,
        fix=f"do not use that origin until it is explained; the pin's sha256 is {pin.sha256[:16]}…",
    )


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Turn a failing disk into the store's error."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, folder) from error


def check_room(pins: Sequence[FilePin | WheelPin], folder: Path, *, unpacked: int = 0) -> int:
    """Return how many bytes fetching these pins takes on disk, after checking there is room.

    Args:
        pins: Files that will be fetched.
        folder: Existing folder on the disk they go to.
        unpacked: Further bytes that will be written.

    Raises:
        StoreError: The disk has less room than that.
    """
    need = sum(pin.size for pin in pins) + unpacked
    free = host.free_disk(str(folder))
    if free < need:
        raise StoreError(
            f"{need / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free",
            where=str(folder),
            fix="free some space, or choose another disk with --store",
        )
    return need


def unpack_wheel(path: Path, dest: Path) -> None:
    """Unpack a wheel into an empty or new folder, checking names, types, CRCs and ``RECORD``.

    Programs keep their executable bit; every other mode bit, owner and time is dropped.

    Raises:
        ArchiveError: The wheel is unsafe or damaged, or a file is missing from ``RECORD``,
            listed but absent, or of another hash. Nothing is left in ``dest`` then.
    """
    if dest.exists() and any(dest.iterdir()):
        raise ArchiveError(
            f"{path.name} is only unpacked into an empty folder",
            where=str(dest),
            fix="choose a new folder",
        )
    try:
        # Wheels for Linux may hold names that differ in case only (zig's kernel headers do).
        with open_zip(path, portable=host.system() != "linux") as view:
            records = [n for n in view.names if re.fullmatch(r"[^/]+\.dist-info/RECORD", n)]
            if len(records) != 1:
                raise ArchiveError(
                    f"{path.name} is no wheel: it has {len(records)} RECORD files", where=str(path)
                )
            listed = _parse_record(view.read(records[0]), path.name)
            _check_listed(set(view.names), set(listed), records[0], path.name)
            view.extract_to(dest)
        for name, wanted in listed.items():
            if wanted is not None and _digest(dest / name) != wanted:
                raise ArchiveError(
                    f"{name} has another hash than the wheel's RECORD says",
                    where=f"{path.name}: {name}",
                    fix="get the wheel again",
                )
    except BaseException as error:
        remove_tree(dest)
        cause = error.__cause__ if isinstance(error, ArchiveError) else None
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS):
            raise disk_error(cause, dest) from error
        raise


def _parse_record(data: bytes, wheel: str) -> dict[str, str | None]:
    """Return name → sha256 (urlsafe base64 without padding) of a RECORD; none where it is empty."""
    try:
        rows = [row for row in csv.reader(data.decode().splitlines()) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArchiveError("RECORD cannot be read", where=f"{wheel}: RECORD") from error
    listed: dict[str, str | None] = {}
    for row in rows:
        kind, _, value = row[1].partition("=") if len(row) == 3 else ("bad", "", "")
        if kind not in ("", "sha256"):
            raise ArchiveError(
                f"RECORD has a line qbuild does not read: {','.join(row)[:80]}", where=wheel
            )
        listed[row[0]] = value or None
    return listed


def _check_listed(names: set[str], listed: set[str], record: str, wheel: str) -> None:
    signatures = {f"{record}.jws", f"{record}.p7s"}  # the only files RECORD may leave out
    for problem, found in (
        ("is in the wheel but not in its RECORD", names - listed - signatures - {record}),
        ("is in the wheel's RECORD but missing", listed - names),
    ):
        if found:
            name = min(found)
            raise ArchiveError(f"{name} {problem}", where=f"{wheel}: {name}", fix="get it again")


def _digest(path: Path) -> str:
    raw = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
