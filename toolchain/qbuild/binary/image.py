"""What the PE and ELF readers share: a buffer to read from, sections, symbols, strict slicing.

Nothing in :mod:`qbuild.binary` executes or writes what it reads. Whatever is wrong with the
input, the only exception that leaves these modules is :class:`qbuild.errors.BinaryError`.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qbuild.errors import BinaryError
from qbuild.process import check_stop

Buffer = bytes | mmap.mmap
"""Bytes in memory, or a read-only map of a file (a 669 MB DLL must not be copied)."""

Source = Path | bytes
"""What the readers accept: a path, or the bytes themselves (a member of a zip)."""

MAX_NAME = 65536  # mangled C++ names reach several KB; a longer "name" is a damaged table


MAX_SECTIONS = 1024  # Windows loads no program with more than 96; ELF files have about 40


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of a PE or ELF file."""

    name: str  # section name; PE names are cut to 8 characters by the format
    rva: int  # address relative to the image base (PE), or virtual address (ELF)
    offset: int  # file offset in bytes
    size: int  # bytes present in the file
    virtual_size: int  # bytes in memory
    executable: bool  # whether the section is mapped executable


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """A named address: an export, or a function from a symbol table."""

    name: str  # name as stored (mangled)
    rva: int  # address in the same terms as :attr:`Section.rva`


@contextmanager
def opened(source: Source) -> Iterator[tuple[Buffer, str]]:
    """Give read-only access to a file or to bytes.

    Args:
        source: A path, or bytes.

    Yields:
        The buffer, and a name for messages.

    Raises:
        BinaryError: The file cannot be read or is empty.
    """
    if isinstance(source, bytes):
        yield source, "<bytes>"
        return
    where = str(source)
    try:
        with source.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise BinaryError(f"cannot read this file: {error}", where=where) from error
    try:
        yield data, where
    finally:
        data.close()


@contextmanager
def only_binary_errors(what: str, where: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged input into :class:`BinaryError`.

    Parsing libraries meet mutated files with anything from ``struct.error`` to
    ``AttributeError``; callers must need one ``except`` only.

    Args:
        what: The kind of file, for the message ("PE file").
        where: The file's name.

    Raises:
        BinaryError: Instead of any other ``Exception``.
    """
    try:
        yield
        check_stop()  # pefile has a bare `except:` that a signal can be lost in
    except BinaryError as error:
        if error.where is None:
            raise BinaryError(error.what, where=where, fix=error.fix) from error
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise BinaryError(f"damaged {what} ({detail})", where=where) from error


class Names:
    """A budget of bytes for the names of one file.

    Tables may let every entry point at the same name of 64 KB: a small file would become gigabytes.
    Real names lie there once each, and few are used twice.
    """

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._left = 2 * len(data) + MAX_NAME

    def at(self, offset: int) -> str:
        """Return :func:`c_string` at a file offset.

        Raises:
            BinaryError: As there, or the file's names are longer than the file.
        """
        name = c_string(self._data, offset)
        self._left -= len(name)
        if self._left < 0:
            raise BinaryError("its tables name the same long names again and again")
        return name


class Metered:
    """A file's bytes as a stream for pyelftools, which may be read so often and no oftener.

    That library follows what a file says: every symbol of a table may have the same name of a
    megabyte, every section may be the whole file.
    """

    _TIMES, _START = 64, 16 << 20
    """How often a file may be read in all, and bytes that a small one may need beyond that."""

    def __init__(self, data: Buffer) -> None:
        self._stream = io.BytesIO(data) if isinstance(data, bytes) else data
        self._stream.seek(0)
        self._size = len(data)
        self._left = self._TIMES * len(data) + self._START

    def read(self, size: int = -1) -> bytes:
        """Read on.

        Raises:
            BinaryError: The file was read too often.
        """
        found = self._stream.read() if size < 0 else self._stream.read(size)
        self._left -= len(found) + 1
        if self._left < 0:
            raise BinaryError("its tables send the reader to the same places again and again")
        return found

    def seek(self, position: int, whence: int = 0) -> int:
        """Go to a place, as files do."""
        if whence == os.SEEK_CUR:
            position += self._stream.tell()
        elif whence == os.SEEK_END:
            position += self._size
        self._stream.seek(position)
        return position

    def tell(self) -> int:
        """Return the place."""
        return self._stream.tell()

    def close(self) -> None:
        """Nothing: whoever opened the file closes it."""


def check_sections(sections: Sequence[Section], file_size: int) -> None:
    """Check that sections are as many, and as large in all, as a linker makes them.

    What reads each section would read the same bytes thousands of times.

    Raises:
        BinaryError: They are too many, or lie on top of each other.
    """
    if len(sections) > MAX_SECTIONS:
        raise BinaryError(f"{len(sections)} sections")
    if sum(section.size for section in sections) > 2 * file_size:
        raise BinaryError("its sections lie on top of each other")


def c_string(data: Buffer, offset: int) -> str:
    """Return the NUL-terminated string at a file offset.

    Raises:
        BinaryError: The string starts outside the file or has no end.
    """
    if not 0 <= offset < len(data):
        raise BinaryError(f"a name points outside the file (offset {offset:#x})")
    end = data.find(b"\0", offset, min(len(data), offset + MAX_NAME))
    if end < 0:
        raise BinaryError(f"a name at offset {offset:#x} has no end")
    return data[offset:end].decode("utf-8", "backslashreplace")


def piece(data: Buffer, offset: int, size: int, what: str) -> bytes:
    """Return exactly ``size`` bytes at ``offset``.

    Raises:
        BinaryError: The range is not wholly inside the file; Python slices would shrink
            silently and a shortened table must not pass for a whole one.
    """
    if offset < 0 or size < 0 or offset + size > len(data):
        raise BinaryError(f"{what} reaches beyond the end of the file (offset {offset:#x})")
    return data[offset : offset + size]
