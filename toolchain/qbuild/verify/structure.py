"""The zip itself: packed as qbuild packs, to the last byte, and unpacked for the other checks.

The content of the files is other modules' business; here it is only unpacked and hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild.binary.zip_reader import ZipMember, ZipView
from qbuild.binary.zip_writer import DOS_DATE, UNIX, UTF8_FLAG, ZipEntry, write_zip
from qbuild.console import Task
from qbuild.errors import ArchiveError, VerifyError
from qbuild.process import check_stop

_LOCAL_HEADER: Final = 30
_ZIP64_FIELD: Final = 20
_CHUNK: Final = 1 << 20
_LIMIT32: Final = 0xFFFFFFFF
_PROGRAM, _PLAIN = 0o100755, 0o100644


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file of the zip after it was unpacked."""

    path: Path  # where it lies now
    size: int  # bytes
    sha256: str  # hex
    executable: bool  # whether the zip marks it as a program


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """All files of a zip, and what went wrong with those whose data is not sound."""

    root: Path  # folder they lie in
    files: Mapping[str, StoredFile]  # name in the zip → file; only those whose data is sound
    damaged: Mapping[str, str]  # name of each damaged member → what is wrong with it


def unpack(view: ZipView, root: Path, task: Task) -> Unpacked:
    """Unpack everything once, hashing on the way; a damaged member does not stop the others.

    Args:
        view: The open zip.
        root: Empty folder.
        task: Gets the bytes unpacked so far.

    Raises:
        VerifyError: The scratch folder cannot be written to.
    """
    files: dict[str, StoredFile] = {}
    damaged: dict[str, str] = {}
    done = 0
    for name in view.names:
        member = view.member(name)
        dest = root.joinpath(*name.split("/"))
        digest = hashlib.sha256()
        try:
            dest.parent.mkdir(parents=True, exist_ok=True)
            with dest.open("xb") as stream:
                for piece in view.chunks(name):
                    check_stop()
                    digest.update(piece)
                    stream.write(piece)
                    done += len(piece)
                    task.update(done=done, note=name)
            dest.chmod(0o755 if member.executable else 0o644)
        except ArchiveError as error:
            damaged[name] = error.what
            dest.unlink(missing_ok=True)
            continue
        except OSError as error:
            raise VerifyError(
                f"{view.archive} cannot be unpacked for checking: {error.strerror or error}",
                where=str(dest),
                fix="free some space, or point TMPDIR at a disk that has it",
            ) from error
        files[name] = StoredFile(
            path=dest, size=member.size, sha256=digest.hexdigest(), executable=member.executable
        )
    return Unpacked(root=root, files=files, damaged=damaged)


def structure_problems(view: ZipView) -> Iterator[str]:
    """Yield what a zip has that a deterministic one would not, each line naming the member."""
    members = [view.member(name) for name in view.names]
    by_name = sorted(members, key=lambda m: m.name.encode("utf-8", "surrogateescape"))
    by_place = sorted(members, key=lambda m: m.offset)
    for expected, found in zip(by_name, by_place, strict=True):
        if expected.name != found.name:
            yield f"{found.name}: is stored where {expected.name} belongs; members are not sorted"
            break
    for member in by_name:
        yield from _member_problems(member)


def _member_problems(member: ZipMember) -> Iterator[str]:
    if member.dos != DOS_DATE << 16:
        yield f"{member.name}: has a time of its own; a bundle's files are all dated 1980-01-01"
    if member.mode not in (_PROGRAM, _PLAIN):
        yield f"{member.name}: has mode {member.mode:o} instead of 100755 or 100644"
    if member.made_by >> 8 != UNIX:
        yield f"{member.name}: was stored by system {member.made_by >> 8}, not by qbuild's writer"
    if member.flags != UTF8_FLAG:
        yield f"{member.name}: has flags {member.flags:#06x} instead of {UTF8_FLAG:#06x}"
    if member.extra and max(member.size, member.packed, member.offset) < _LIMIT32:
        yield f"{member.name}: carries {member.extra} bytes of extra fields"


def repack_problems(path: Path, view: ZipView, unpacked: Unpacked, scratch: Path) -> Iterator[str]:
    """Pack the files again and yield where the zip differs from that.

    A zip by qbuild is a function of its files, so this covers every byte: headers that no reader
    looks at, stray bytes between members, comments, another compressor.

    Args:
        path: The zip.
        view: The same, open.
        unpacked: All its files.
        scratch: Folder for the second zip.

    Raises:
        ArchiveError: The second zip cannot be written.
    """
    again = scratch / "again.zip"
    try:
        write_zip(
            again,
            [
                ZipEntry(name=name, source=file.path, executable=file.executable)
                for name, file in unpacked.files.items()
            ],
        )
        at = _first_difference(path, again)
    finally:
        again.unlink(missing_ok=True)
    if at is None:
        return
    before = [m for name in view.names if (m := view.member(name)).offset <= at]
    last = max(before, key=lambda m: m.offset, default=None)
    if last is None:
        place = "before the first file"
    elif at < last.offset + _LOCAL_HEADER + len(last.name.encode("utf-8", "surrogateescape")):
        place = f"in the header of {last.name}"
    elif at < last.offset + _stored_length(last):
        place = f"in the compressed data of {last.name}"
    else:
        place = f"after {last.name} (directory or stray bytes)"
    yield f"{path.name}: byte {at:#x}, {place}, is not what qbuild writes for these files"


def _stored_length(member: ZipMember) -> int:
    """Return the bytes from a member's local header to the end of its data, as qbuild writes it."""
    zip64 = max(member.size, member.packed) >= _LIMIT32
    name = member.name.encode("utf-8", "surrogateescape")
    return _LOCAL_HEADER + len(name) + (_ZIP64_FIELD if zip64 else 0) + member.packed


def _first_difference(first: Path, second: Path) -> int | None:
    """Return the offset of the first byte that differs, or None."""
    at = 0
    with first.open("rb") as a, second.open("rb") as b:
        while True:
            one, two = a.read(_CHUNK), b.read(_CHUNK)
            if one != two:
                same = next((i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y),
                            min(len(one), len(two)))  # fmt: skip
                return at + same
            if not one:
                return None
            at += len(one)
