"""Reads COFF object files and ``.lib`` archives: their orders to the linker, the DLLs they name.

Layout by Microsoft's "PE Format" (COFF objects, archive files, import library format). Nothing is
linked or run. Objects made with ``/GL`` hold the compiler's private format; they are told apart
(``opaque``) and not read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from qbuild.binary.image import Buffer, Source, only_binary_errors, opened, piece
from qbuild.binary.pe import MACHINES
from qbuild.errors import BinaryError

__all__ = ["CoffFile", "CoffObject", "read_coff", "split_directives"]

_ARCHIVE, _THIN = b"!<arch>\n", b"!<thin>\n"
_MEMBER = 60
_SYMBOLS = frozenset({"/", "//", "/SYM64/", "/<ECSYMBOLS>/", "/<XFGHASHMAP>/"})
_BIG_OBJECT = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")  # the class id of /bigobj
_DLL = re.compile(rb"([\x21-\x7e]+\.(?:dll|exe|drv|pyd))\0", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CoffObject:
    """One object: a file, or a member of an archive."""

    name: str  # name of the member, or of the file
    machine: str  # as in :class:`qbuild.binary.pe.PeImage`; "" where the format hides it
    directives: tuple[str, ...] = ()  # linker options of its ``.drectve`` sections, quotes removed
    opaque: bool = False  # whether it holds the compiler's private format (``/GL``)


@dataclass(frozen=True, kw_only=True)
class CoffFile:
    """An object file or archive."""

    name: str  # its file name
    # code and data it brings into a link; import stubs are not among them
    objects: tuple[CoffObject, ...]
    dlls: tuple[str, ...] = ()  # DLLs that its import stubs name, sorted


def read_coff(source: Source, name: str = "") -> CoffFile:
    """Read an object file or a ``.lib``.

    Args:
        source: Path, or the bytes.
        name: Name for messages; the default is the path's.

    Raises:
        BinaryError: It cannot be read, is neither, or is damaged.
    """
    with opened(source) as (data, where), only_binary_errors("object file", name or where):
        label = name or re.split(r"[/\\]", where)[-1]
        if data[:8] == _THIN:
            raise BinaryError("a thin archive holds names of other files, not the objects")
        members = _members(data) if data[:8] == _ARCHIVE else iter([(label, data[:])])
        objects: list[CoffObject] = []
        dlls: set[str] = set()
        for member, content in members:
            found = _object(member, content, dlls)
            if found is not None:
                objects.append(found)
        return CoffFile(name=label, objects=tuple(objects), dlls=tuple(sorted(dlls)))


def split_directives(text: str) -> tuple[str, ...]:
    """Return the options of a ``.drectve`` text; quotes keep blanks together and are removed."""
    words = re.findall(r'(?:"[^"]*"?|[^\s"])+', text)
    return tuple(word.replace('"', "") for word in words)


def _members(data: Buffer) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each member of an archive that is not its own index."""
    at, long_names = len(_ARCHIVE), b""
    while at < len(data):
        header = piece(data, at, _MEMBER, "a member's header")
        if header[58:60] != b"`\n":
            raise BinaryError(f"no member starts at offset {at:#x} of the archive")
        size = int(header[48:58].decode("ascii").strip())
        content = piece(data, at + _MEMBER, size, "a member")
        name = header[:16].decode("latin-1").rstrip(" ")
        if name == "//":
            long_names = content
        elif name not in _SYMBOLS:
            yield _member_name(name, long_names), content
        at += _MEMBER + size + size % 2


def _member_name(name: str, long_names: bytes) -> str:
    if re.fullmatch(r"/\d+", name):
        start = int(name[1:])
        if start >= len(long_names):
            raise BinaryError(f"a member's name lies outside the table of names ({name})")
        # Microsoft ends a long name with NUL, GNU's tools with a slash and a line feed.
        name = re.split(rb"\0|/?\n", long_names[start:], maxsplit=1)[0].decode("utf-8", "replace")
    return re.split(r"[/\\]", name.rstrip("/"))[-1]


def _object(name: str, data: bytes, dlls: set[str]) -> CoffObject | None:
    """Return what an object is; nothing for an import stub, whose DLL goes into ``dlls``."""
    machine, count = struct.unpack_from("<HH", data)
    if (machine, count) == (0, 0xFFFF):  # an import stub, /bigobj or /GL
        version, number = struct.unpack_from("<HH", data, 4)
        if version == 0:
            _symbol, dll, *_ = piece(data, 20, len(data) - 20, "an import stub").split(b"\0")
            dlls.add(dll.decode("latin-1"))
            return None
        if data[12:28] != _BIG_OBJECT:
            return CoffObject(name=name, machine=MACHINES.get(number, ""), opaque=True)
        count, start, machine = struct.unpack_from("<I", data, 44)[0], 56, number
    else:
        start = 20 + struct.unpack_from("<H", data, 16)[0]
    if machine not in MACHINES:
        raise BinaryError(f"{name} is no object file (machine {machine:#06x})")
    directives: list[str] = []
    stub = False
    left = 2 * len(data)  # sections that lie on top of each other are read that often
    for index in range(count):
        entry = piece(data, start + 40 * index, 40, "a section's header")
        section = entry[:8].rstrip(b"\0")
        size, offset = struct.unpack_from("<II", entry, 16)
        if section == b".drectve" or section.startswith(b".idata$"):
            left -= size
        if left < 0:
            raise BinaryError(f"the sections of {name} lie on top of each other")
        if section == b".drectve":
            text = piece(data, offset, size, "the linker's directives").rstrip(b"\0")
            directives += split_directives(text.decode("utf-8-sig", "replace"))
        elif section.startswith(b".idata$"):
            stub = True
            named = _DLL.fullmatch(
                piece(data, offset, size, "an import table").rstrip(b"\0") + b"\0"
            )
            if named:
                dlls.add(named[1].decode("ascii"))
    if stub and not directives:
        return None
    return CoffObject(name=name, machine=MACHINES[machine], directives=tuple(directives))
