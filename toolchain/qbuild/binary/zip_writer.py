"""Our own zip writer: the same entries give the same bytes, whatever machine packs them.

A zip made by a general tool depends on the clock, the umask, the order of a directory listing
and the compressor linked into the interpreter (zlib, zlib-ng and their versions disagree). Here
the order, time, modes and flags are fixed, and the compressor is the pinned ``deflate`` package,
so that the bytes are a function of the entries only. Record layouts and signatures are those of
PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3 (zip64).

Reading, of our zips and of others', is in :mod:`qbuild.binary.zip_reader`; its names are
repeated here.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from qbuild.binary.names import check_name, collisions
from qbuild.binary.zip_reader import ZipMember, ZipView, open_zip
from qbuild.errors import ArchiveError
from qbuild.hashing import sha256_file

__all__ = [
    "FORMAT",
    "WrittenZip",
    "ZipEntry",
    "ZipMember",
    "ZipView",
    "open_zip",
    "write_aside",
    "write_sha256",
    "write_zip",
]

FORMAT: Final = 1
"""Raised whenever the same entries would give other bytes; part of the bundle step's key."""

LEVEL: Final = 9
"""libdeflate's level: 12 saves another 6 % of an executable for nine times the time."""

DEFLATE_LIMIT: Final = 1 << 30
"""Bytes; larger files are stored, as libdeflate wants input and output in memory at once."""

DOS_DATE: Final = (1980 - 1980) << 9 | 1 << 5 | 1
"""1980-01-01, the first day the format knows (time of day: 0)."""

UTF8_FLAG: Final = 0x0800
UNIX: Final = 3
_U16: Final = 0xFFFF
_U32: Final = 0xFFFFFFFF
_CHUNK: Final = 1 << 20

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s4B4H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64: Final = struct.Struct("<4sLQL")


@dataclass(frozen=True, kw_only=True)
class ZipEntry:
    """One file of a zip to be written."""

    name: str  # path inside the zip, ``/`` between its parts
    source: Path | bytes  # the file, or its content
    executable: bool = False  # mode 0755 instead of 0644 when unpacked on a Unix system


@dataclass(frozen=True, kw_only=True)
class WrittenZip:
    """What :func:`write_zip` wrote: where, its sha256 (hex), its size in bytes."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What the central directory repeats about one written entry (sizes in bytes)."""

    name: bytes
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    mode: int


class _Output:
    """A file that is only ever appended to, hashed on the way."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._stream.write(data)
        self._hash.update(data)
        self.size += len(data)

    def sha256(self) -> str:
        return self._hash.hexdigest()


@contextlib.contextmanager
def write_aside(dest: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes ``dest``, whole and on disk, only when the block ends well.

    Raises:
        ArchiveError: The file cannot be written, e.g. because the disk is full; nothing of it
            is left, and an older ``dest`` is untouched.
    """
    part: Path | None = None
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=dest.parent, prefix=".qbuild-", suffix=".part")
        part = Path(name)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.chmod(0o644)
        part.replace(dest)
        part = None
        _sync_folder(dest.parent)
    except OSError as error:
        raise ArchiveError(
            f"{dest.name} could not be written: {error.strerror or error}",
            where=str(dest),
            fix="free some space or choose another folder, then run again",
        ) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where folders can be opened at all (not on Windows)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_zip(dest: Path, entries: Iterable[ZipEntry]) -> WrittenZip:
    """Write a zip whose bytes depend on names, contents and ``executable`` only.

    The order of ``entries`` does not matter. Files are taken one at a time, so memory use is
    that of the largest file below :data:`DEFLATE_LIMIT`, twice.

    Raises:
        ArchiveError: A name is unsafe or appears twice, a source cannot be read or changed
            while it was read, or ``dest`` cannot be written.
    """
    wanted = sorted(entries, key=lambda entry: entry.name.encode("utf-8", "surrogatepass"))
    for entry in wanted:
        check_name(entry.name, archive=dest.name)
    if clash := collisions([entry.name for entry in wanted]):
        raise ArchiveError(
            f"{clash[0]!r} and {clash[1]!r} would be one file when unpacked",
            where=f"{dest.name}: {clash[1]}",
        )
    with write_aside(dest) as stream:
        output = _Output(stream)
        records = [_write_entry(output, entry, dest.name) for entry in wanted]
        _write_directory(output, records)
    return WrittenZip(path=dest, sha256=output.sha256(), size=output.size)


def _write_entry(output: _Output, entry: ZipEntry, archive: str) -> _Record:
    if isinstance(entry.source, bytes):
        return _write_whole(output, entry, entry.source)
    try:
        stream = entry.source.open("rb")
    except OSError as error:
        raise ArchiveError(
            f"{entry.name} cannot be read: {error.strerror or error}",
            where=f"{archive}: {entry.name}",
        ) from error
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0:  # nothing to map
            return _write_whole(output, entry, stream.read())
        if size > DEFLATE_LIMIT:
            return _write_stored(output, entry, stream, archive)
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _write_whole(output, entry, memoryview(content))


def _record(
    entry: ZipEntry, offset: int, *, method: int, crc: int, sizes: tuple[int, int]
) -> _Record:
    return _Record(
        name=entry.name.encode(),
        method=method,
        crc=crc,
        packed=sizes[0],
        size=sizes[1],
        offset=offset,
        mode=0o100755 if entry.executable else 0o100644,
    )


def _write_whole(output: _Output, entry: ZipEntry, content: bytes | memoryview) -> _Record:
    import deflate

    try:
        packed = deflate.deflate_compress(content, LEVEL)
        worth_it = len(packed) < len(content)
        data = packed if worth_it else content
        record = _record(
            entry,
            output.size,
            method=8 if worth_it else 0,
            crc=zlib.crc32(content),
            sizes=(len(data), len(content)),
        )
        output.write(_local_header(record))
        output.write(data)
    finally:
        if isinstance(content, memoryview):
            content.release()  # a mapped file cannot be closed while it is looked at
    return record


def _write_stored(output: _Output, entry: ZipEntry, stream: BinaryIO, archive: str) -> _Record:
    crc = size = 0
    while piece := stream.read(_CHUNK):
        crc, size = zlib.crc32(piece, crc), size + len(piece)
    record = _record(entry, output.size, method=0, crc=crc, sizes=(size, size))
    output.write(_local_header(record))
    stream.seek(0)
    again = written = 0
    while piece := stream.read(_CHUNK):
        again, written = zlib.crc32(piece, again), written + len(piece)
        output.write(piece)
    if (again, written) != (crc, size):
        raise ArchiveError(
            f"{entry.name} changed while it was packed", where=f"{archive}: {entry.name}"
        )
    return record


def _version_needed(*, zip64: bool) -> int:
    """Return the format version a reader needs: 2.0 for deflate, 4.5 for zip64."""
    return 45 if zip64 else 20


def _zip64_extra(values: list[int]) -> bytes:
    """Return the zip64 extra field (id 1) for the values that do not fit 32 bits."""
    if not values:
        return b""
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


def _local_header(record: _Record) -> bytes:
    # The format wants both sizes in a local zip64 field, even when only one needs it.
    zip64 = max(record.size, record.packed) >= _U32
    extra = _zip64_extra([record.size, record.packed] if zip64 else [])
    return (
        _LOCAL.pack(
            b"PK\x03\x04", _version_needed(zip64=zip64), UTF8_FLAG, record.method, 0, DOS_DATE,
            record.crc, _U32 if zip64 else record.packed, _U32 if zip64 else record.size,
            len(record.name), len(extra),
        )
        + record.name
        + extra
    )  # fmt: skip


def _central_header(record: _Record) -> bytes:
    large = [value for value in (record.size, record.packed, record.offset) if value >= _U32]
    extra = _zip64_extra(large)
    version = _version_needed(zip64=bool(large))
    return (
        _CENTRAL.pack(
            b"PK\x01\x02", version, UNIX, version, 0, UTF8_FLAG, record.method, 0, DOS_DATE,
            record.crc, min(record.packed, _U32), min(record.size, _U32),
            len(record.name), len(extra), 0, 0, 0, record.mode << 16, min(record.offset, _U32),
        )
        + record.name
        + extra
    )  # fmt: skip


def _write_directory(output: _Output, records: list[_Record]) -> None:
    start = output.size
    for record in records:
        output.write(_central_header(record))
    size, count = output.size - start, len(records)
    if count >= _U16 or size >= _U32 or start >= _U32:
        end64 = output.size
        output.write(
            _END64.pack(b"PK\x06\x06", _END64.size - 12, UNIX << 8 | 45, 45, 0, 0,
                        count, count, size, start)
        )  # fmt: skip
        output.write(_LOCATOR64.pack(b"PK\x06\x07", 0, end64, 1))
    short = min(count, _U16)
    output.write(_END.pack(b"PK\x05\x06", 0, 0, short, short, min(size, _U32), min(start, _U32), 0))


def write_sha256(path: Path, sha256: str | None = None) -> Path:
    """Write ``<path>.sha256`` in the format of ``sha256sum`` and return its path.

    Args:
        path: The file the sum is of; only its name is written, so the pair can be moved.
        sha256: Its sum in hex when already known, else it is read.

    Raises:
        ArchiveError: The file cannot be read, or the sum cannot be written.
    """
    try:
        digest = sha256 or sha256_file(path)
    except OSError as error:
        raise ArchiveError(
            f"{path.name} cannot be read: {error.strerror or error}", where=str(path)
        ) from error
    dest = path.with_name(f"{path.name}.sha256")
    with write_aside(dest) as stream:
        stream.write(f"{digest}  {path.name}\n".encode())
    return dest
