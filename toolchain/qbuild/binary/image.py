"""What the PE and ELF readers share: a buffer to read from, sections, symbols, strict slicing.

Nothing in :mod:`qbuild.binary` executes or writes what it reads. Whatever is wrong with the
input, the only exception that leaves these modules is :class:`qbuild.errors.BinaryError`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qbuild.errors import BinaryError

Buffer = bytes | mmap.mmap
"""Bytes in memory, or a read-only map of a file (a 669 MB DLL must not be copied)."""

Source = Path | bytes
"""What the readers accept: a path, or the bytes themselves (a member of a zip)."""

MAX_NAME = 65536  # mangled C++ names reach several KB; a longer "name" is a damaged table


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of a PE or ELF file.

    Args:
        name: Section name; PE names are cut to 8 characters by the format.
        rva: Address relative to the image base (PE), or virtual address (ELF).
        offset: File offset in bytes.
        size: Bytes present in the file.
        virtual_size: Bytes in memory.
        executable: Whether the section is mapped executable.
    """

    name: str
    rva: int
    offset: int
    size: int
    virtual_size: int
    executable: bool


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """A named address: an export, or a function from a symbol table.

    Args:
        name: Name as stored (mangled).
        rva: Address in the same terms as :attr:`Section.rva`.
    """

    name: str
    rva: int


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
    except BinaryError as error:
        if error.where is None:
            raise BinaryError(error.what, where=where, fix=error.fix) from error
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise BinaryError(f"damaged {what} ({detail})", where=where) from error


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
