"""Read zips without trusting them: ours, wheels, and whatever a user hands to ``verify``.

Everything the central directory claims is checked before the first byte is unpacked, and again
against the local headers and the data while unpacking: names, sizes, checksums, overlaps. The
standard library's reader is not used because what it lets pass (NUL in names, symlinks,
overlapping members, duplicate names) varies by Python version.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from qbuild.binary.names import Folders, check_name, collisions
from qbuild.errors import ArchiveError

MAX_BYTES: Final = 16 << 30
"""Bytes a zip may unpack to: ten times the largest bundle (CUDA with cuBLAS) qbuild makes."""

MAX_RATIO: Final = 1032
"""Deflate turns one byte into at most 1032 (258-byte matches in two bits, RFC 1951)."""

MAX_MEMBERS: Final = 100_000
"""Files and folders in an archive; the wheel with most of them has 19,541."""

MAX_DIRECTORY: Final = 32 << 20  # bytes of the central directory, which is read at once

MAX_MEMBER: Final = 64 << 20
"""Bytes of a member that is read into memory at once, not unpacked piece by piece."""

BOMB: Final = 1 << 30
"""Bytes from which on it counts how much larger than itself an archive unpacks."""

MAX_GROWTH: Final = 200
"""Times its size that an archive may unpack to; programs and libraries reach ten."""

_CHUNK: Final = 1 << 20
_END_SIZE: Final = 22
_UNIX_SYSTEMS: Final = (3, 19)  # Unix, and the number macOS tools write

_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR64: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")


@dataclass(frozen=True, kw_only=True)
class ZipMember:
    """One file as the central directory describes it."""

    name: str  # path inside the zip
    size: int  # bytes when unpacked
    packed: int  # bytes inside the zip
    crc: int  # CRC-32 of the content
    method: int  # 0 stored, 8 deflate
    flags: int  # general purpose flags
    mode: int  # Unix mode bits, 0 when the zip says nothing about them
    offset: int  # where its local header starts
    made_by: int  # system (upper byte) and version of the format
    dos: int  # date (upper half) and time as DOS counts them
    extra: int  # bytes of the central extra field

    @property
    def executable(self) -> bool:
        """Whether the member is marked as a program."""
        return bool(self.mode & 0o111)


class ZipView:
    """An open zip whose directory was found sound.

    Use it as a context manager, or call :meth:`close`. Not safe for use by several threads.
    """

    def __init__(self, stream: BinaryIO, name: str, members: dict[str, ZipMember]) -> None:
        self._stream = stream
        self.archive = name
        self._members = members

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, sorted; folders are not listed."""
        return tuple(sorted(self._members))

    def member(self, name: str) -> ZipMember:
        """Return what the directory says about a file.

        Raises:
            ArchiveError: There is no such file.
        """
        try:
            return self._members[name]
        except KeyError:
            raise ArchiveError(
                f"{name} is not in {self.archive}", where=f"{self.archive}: {name}"
            ) from None

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content in pieces of about a megabyte; the CRC is checked at the end.

        Raises:
            ArchiveError: There is no such file, or its data is damaged or longer than declared.
        """
        member = self.member(name)
        crc = done = 0
        for piece in self._unpack(member):
            done += len(piece)
            if done > member.size:
                raise self._damaged(
                    name, f"it unpacks to more than the {member.size} bytes declared"
                )
            crc = zlib.crc32(piece, crc)
            yield piece
        if done != member.size:
            raise self._damaged(name, f"it ends after {done} of {member.size} bytes")
        if crc != member.crc:
            raise self._damaged(name, "its CRC does not match its content")

    def read(self, name: str, *, most: int = MAX_MEMBER) -> bytes:
        """Return a file's whole content.

        Args:
            name: Which file.
            most: Most bytes it may have.

        Raises:
            ArchiveError: It has more, or as in :meth:`chunks`.
        """
        if self.member(name).size > most:
            raise ArchiveError(
                f"{name} in {self.archive} has {self.member(name).size} bytes, more than the "
                f"{most} that are read",
                where=f"{self.archive}: {name}",
            )
        return b"".join(self.chunks(name))

    def test(self) -> None:
        """Unpack everything to nowhere, to see that every CRC matches; errors as in `chunks`."""
        for name in self.names:
            for _ in self.chunks(name):
                pass

    def extract_to(
        self, folder: Path, *, select: Callable[[str], bool] = lambda _name: True
    ) -> tuple[Path, ...]:
        """Unpack into a folder that is empty or does not exist yet; return the files written.

        Modes are 0755 or 0644, whatever the umask says.

        Args:
            folder: Where to; no symlink in it can lead astray because it starts empty.
            select: Says for each name whether it is wanted.

        Raises:
            ArchiveError: The folder is not empty, a file cannot be written, or as in `chunks`.
        """
        written: list[Path] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise ArchiveError(
                    f"{self.archive} is only unpacked into an empty folder",
                    where=str(folder),
                    fix="choose a new folder",
                )
            for name in filter(select, self.names):
                dest = folder.joinpath(*name.split("/"))
                dest.parent.mkdir(parents=True, exist_ok=True)
                with dest.open("xb") as stream:
                    for piece in self.chunks(name):
                        stream.write(piece)
                dest.chmod(0o755 if self._members[name].executable else 0o644)
                written.append(dest)
        except OSError as error:
            raise ArchiveError(
                f"{self.archive} cannot be unpacked: {error.strerror or error}",
                where=str(error.filename or folder),
            ) from error
        return tuple(written)

    def _damaged(self, name: str, why: str) -> ArchiveError:
        return ArchiveError(
            f"{name} in {self.archive} is damaged: {why}",
            where=f"{self.archive}: {name}",
            fix="get the archive again and compare its sha256",
        )

    def _unpack(self, member: ZipMember) -> Iterator[bytes]:
        self._stream.seek(member.offset)
        header = self._stream.read(_LOCAL.size)
        if len(header) != _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise self._damaged(member.name, "there is no local header where it should be")
        (_, _, flags, method, _, _, crc, packed, size, name_len, extra_len) = _LOCAL.unpack(header)
        name = self._stream.read(name_len)
        self._stream.seek(extra_len, 1)
        if method != member.method or _decode(name, flags) != member.name:
            raise self._damaged(member.name, "its local header disagrees with the directory")
        # Bit 3: sizes and CRC follow the data instead; all-ones: they are in a zip64 field.
        claims = ((crc, member.crc), (packed, member.packed), (size, member.size))
        if not flags & 8 and any(a not in (b, 0xFFFFFFFF) for a, b in claims):
            raise self._damaged(member.name, "its local header disagrees with the directory")
        left = member.packed
        inflate = zlib.decompressobj(-15) if member.method == 8 else None
        while left:
            data = self._stream.read(min(left, _CHUNK))
            if not data:
                raise self._damaged(member.name, "the archive is cut short")
            left -= len(data)
            if inflate is None:
                yield data
            else:
                yield from self._inflate(inflate, data, member.name)
        if inflate is not None and (not inflate.eof or inflate.unused_data):
            raise self._damaged(member.name, "its compressed data does not end where it should")

    def _inflate(self, inflate: zlib._Decompress, data: bytes, name: str) -> Iterator[bytes]:
        while data:  # bounded output: a small member must not fill the memory
            try:
                piece = inflate.decompress(data, _CHUNK)
            except zlib.error as error:
                raise self._damaged(name, f"its compressed data is broken ({error})") from error
            yield piece
            data = inflate.unconsumed_tail


def open_zip(path: Path, *, portable: bool = True, max_bytes: int = MAX_BYTES) -> ZipView:
    """Open a zip and check its whole directory.

    Args:
        path: The zip.
        portable: Also refuse names that Windows cannot create or cannot tell apart. Turn it off
            for wheels, which are only unpacked on the host they were chosen for.
        max_bytes: Most bytes it may unpack to.

    Raises:
        ArchiveError: It cannot be read, is no zip, is damaged, encrypted or compressed in a way
            qbuild does not read, holds links or devices, has an unsafe, duplicate or colliding
            name, overlapping members, or unpacks to too much. The member is named.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise ArchiveError(
            f"{path.name} cannot be opened: {error.strerror or error}", where=str(path)
        ) from error
    try:
        members = _Directory(stream, path.name, portable=portable, max_bytes=max_bytes).read()
    except OSError as error:
        stream.close()
        raise ArchiveError(f"{path.name} cannot be read: {error}", where=str(path)) from error
    except BaseException:
        stream.close()
        raise
    return ZipView(stream, path.name, members)


def _decode(raw: bytes, flags: int) -> str:
    """Return a member name: UTF-8 when the zip says so or when it is ASCII, else code page 437."""
    return raw.decode("utf-8", "surrogateescape") if flags & 0x0800 else raw.decode("cp437")


class _Directory:
    """Parses and checks the central directory."""

    def __init__(self, stream: BinaryIO, name: str, *, portable: bool, max_bytes: int) -> None:
        self.stream, self.archive = stream, name
        self.portable, self.max_bytes = portable, max_bytes
        self.length = stream.seek(0, 2)

    def refuse(self, why: str, member: str | None = None) -> ArchiveError:
        what = f"{self.archive} is refused: {why}" if member is None else f"{member!r}: {why}"
        where = self.archive if member is None else f"{self.archive}: {member!r}"
        return ArchiveError(what, where=where, fix="get the archive again from its publisher")

    def read(self) -> dict[str, ZipMember]:
        count, size, start = self._find_end()
        if count > MAX_MEMBERS:
            raise self.refuse(f"it claims {count} members, more than {MAX_MEMBERS}")
        if size > MAX_DIRECTORY:
            raise self.refuse(f"its directory has {size} bytes, more than {MAX_DIRECTORY}")
        self.stream.seek(start)
        data = self.stream.read(size)
        members: list[ZipMember] = []
        position = 0
        for _ in range(count):
            member, position = self._entry(data, position)
            members.append(member)
        if position != len(data):
            raise self.refuse("its directory holds more than it says")
        return self._check(members, start)

    def _find_end(self) -> tuple[int, int, int]:
        """Return count, size (bytes) and offset of the central directory."""
        tail_at = max(0, self.length - _END_SIZE - 0xFFFF)
        self.stream.seek(tail_at)
        tail = self.stream.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < _END_SIZE:
            raise self.refuse("it is not a zip, or it is cut short")
        _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, at)
        if len(tail) - at != _END_SIZE + comment:
            raise self.refuse("bytes follow its end")
        end = tail_at + at
        if at >= _LOCATOR64.size and tail[at - _LOCATOR64.size :].startswith(b"PK\x06\x07"):
            _, disk, end64, disks = _LOCATOR64.unpack_from(tail, at - _LOCATOR64.size)
            self.stream.seek(end64)
            record = self.stream.read(_END64.size)
            if disks != 1 or len(record) != _END64.size or record[:4] != b"PK\x06\x06":
                raise self.refuse("its zip64 end record is damaged")
            _, _, _, _, disk, first, here, count, size, start = _END64.unpack(record)
            end = end64
        if disk or first or here != count:
            raise self.refuse("it is one part of a zip in several files")
        if start + size != end:
            raise self.refuse("its directory is not where it should be")
        return count, size, start

    def _entry(self, data: bytes, at: int) -> tuple[ZipMember, int]:
        if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
            raise self.refuse("its directory is damaged or cut short")
        (_, made_by, _, flags, method, time, date, crc, packed, size, name_len, extra_len,
         comment_len, _, _, attributes, offset) = _CENTRAL.unpack_from(data, at)  # fmt: skip
        at += _CENTRAL.size
        raw = data[at : at + name_len]
        extra = data[at + name_len : at + name_len + extra_len]
        at += name_len + extra_len + comment_len
        if at > len(data):
            raise self.refuse("its directory is damaged or cut short")
        name = _decode(raw, flags)
        size, packed, offset = self._zip64(extra, (size, packed, offset), name)
        mode = attributes >> 16 if made_by >> 8 in _UNIX_SYSTEMS else 0
        if stat.S_ISLNK(attributes >> 16):  # whatever system it claims to come from
            raise self.refuse("it is a symbolic link", name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self.refuse("it is a device, pipe or socket", name)
        member = ZipMember(
            name=name, size=size, packed=packed, crc=crc, method=method, flags=flags, mode=mode,
            offset=offset, made_by=made_by, dos=date << 16 | time, extra=extra_len,
        )  # fmt: skip
        return member, at

    def _zip64(self, extra: bytes, values: tuple[int, int, int], name: str) -> list[int]:
        """Replace all-ones values by those of the zip64 extra field (id 1), in its order."""
        field = b""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + length]
            at += 4 + length
        result = []
        for value in values:
            if value == 0xFFFFFFFF:
                if len(field) < 8:
                    raise self.refuse("its zip64 sizes are missing", name)
                value, field = int.from_bytes(field[:8], "little"), field[8:]
            result.append(value)
        return result

    def _check(self, members: list[ZipMember], start: int) -> dict[str, ZipMember]:
        folders = Folders(self.archive)
        for member in members:
            self._check_member(member)
            folders.add(member.name)
        files = [member for member in members if not member.name.endswith("/")]
        if clash := collisions((m.name for m in files), portable=self.portable):
            same = "appears twice" if clash[0] == clash[1] else f"collides with {clash[0]!r}"
            raise self.refuse(same, clash[1])
        total = sum(member.size for member in files)
        if total > self.max_bytes:
            raise self.refuse(f"it unpacks to {total} bytes, more than {self.max_bytes}")
        if total > BOMB and total > MAX_GROWTH * self.length:
            raise self.refuse(f"it unpacks to {total} bytes, {total // self.length} times its size")
        end, previous = 0, ""
        for member in sorted(members, key=lambda m: m.offset):
            if member.offset < end:
                raise self.refuse(f"its data overlaps that of {previous!r}", member.name)
            end = member.offset + _LOCAL.size + len(member.name) + member.packed
            previous = member.name
            if end > start:
                raise self.refuse("its data is outside the archive", member.name)
        return {member.name: member for member in files}

    def _check_member(self, member: ZipMember) -> None:
        name = member.name
        check_name(name.removesuffix("/"), archive=self.archive, portable=self.portable)
        if member.flags & 0x2041:  # encrypted, strongly encrypted, or headers masked
            raise self.refuse("it is encrypted", name)
        if member.method not in (0, 8):
            raise self.refuse(f"compression method {member.method} is not read by qbuild", name)
        if name.endswith("/") and member.size:
            raise self.refuse("it is a folder with content", name)
        if member.method == 0 and member.size != member.packed:
            raise self.refuse("it is stored, yet its two sizes differ", name)
        if member.size > MAX_RATIO * member.packed:
            raise self.refuse(
                f"it claims {member.size} bytes from {member.packed}, more than deflate can", name
            )
