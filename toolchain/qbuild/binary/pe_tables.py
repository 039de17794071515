"""Strict readers for the tables of a PE file: imports, exports, unwind ranges, relocations.

pefile reads headers well, but is made for malware triage: an import table with one odd entry
is skipped, a table that is too long is cut, both silently or with a warning as text. For a
dependency check a lost import is a wrong "complete", so the tables are read here and anything
inconsistent raises :class:`~qbuild.errors.BinaryError`.

Each reader is given the file, its address translation (``where``), the directory's address
(``rva``; 0 when there is none) and what else decides: its size in bytes, or whether thunks have 64
bits (``wide``: PE32+).

Layouts: Microsoft, "PE Format" (.idata, .edata, .pdata, .reloc, delay-load and debug
directories).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from qbuild.binary.image import Buffer, Names, Section, Symbol, piece
from qbuild.errors import BinaryError

MAX_DESCRIPTORS = 4096  # a Windows program imports from tens of DLLs
MAX_SYMBOLS = 1 << 18  # PE ordinals are 16 bit; four full tables is far beyond any real file


@dataclass(frozen=True, kw_only=True)
class Import:
    """One DLL a PE file imports from."""

    dll: str  # name as written in the table (Windows compares it without regard to case)
    symbols: tuple[str, ...]  # imported names; an import by number reads ``#115``
    delay: bool = False  # whether the DLL is loaded on first use only


@dataclass(frozen=True, kw_only=True)
class Forward:
    """An export that another DLL implements."""

    name: str  # exported name (``#12`` when exported by number only)
    dll: str  # DLL that holds it, with its ``.dll`` suffix
    symbol: str  # name (or ``#number``) over there


@dataclass(frozen=True, kw_only=True)
class ExportTable:
    """What a PE file exports."""

    names: tuple[str, ...] = ()  # exported names, sorted as stored
    ordinals: tuple[int, ...] = ()  # every export number, named or not
    symbols: tuple[Symbol, ...] = ()  # names with their addresses (forwarded ones have none)
    addresses: tuple[int, ...] = ()  # addresses of all exported entries, named or not
    forwards: tuple[Forward, ...] = ()  # exports that other DLLs implement


class AddressMap:
    """Translates addresses relative to the image base into file offsets.

    Args:
        sections: The file's sections.
        header_size: Bytes of the headers, which are mapped at address 0.
    """

    def __init__(self, sections: Sequence[Section], header_size: int) -> None:
        self._sections = sorted((s for s in sections if s.size), key=lambda s: s.rva)
        self._starts = [s.rva for s in self._sections]
        self._header_size = header_size

    def offset(self, rva: int) -> int:
        """Return the file offset of an address.

        Raises:
            BinaryError: No bytes of the file are mapped there.
        """
        index = bisect_right(self._starts, rva) - 1
        if index >= 0:
            section = self._sections[index]
            if rva < section.rva + section.size:
                return section.offset + rva - section.rva
        elif 0 <= rva < self._header_size:
            return rva
        raise BinaryError(f"an address points outside every section ({rva:#x})")


def read_imports(
    data: Buffer, where: AddressMap, rva: int, wide: bool, names: Names
) -> list[Import]:
    """Read the import directory.

    Raises:
        BinaryError: The table is inconsistent.
    """
    found: list[Import] = []
    budget = [MAX_SYMBOLS]
    for index in range(MAX_DESCRIPTORS if rva else 0):
        raw = piece(data, where.offset(rva + 20 * index), 20, "the import table")
        lookup, _time, _chain, name, bound = struct.unpack("<5I", raw)
        if name == 0 or bound == 0:  # the loader stops here as well
            return found
        symbols = _thunks(data, where, lookup or bound, wide, 0, budget, names)
        found.append(Import(dll=_dll_name(names.at(where.offset(name))), symbols=symbols))
    if rva:
        raise BinaryError("the import table has no end")
    return found


def read_delay_imports(
    data: Buffer, where: AddressMap, rva: int, wide: bool, image_base: int, names: Names
) -> list[Import]:
    """Read the delay-load directory; old 32-bit linkers stored addresses with the image's base.

    Raises:
        BinaryError: The table is inconsistent.
    """
    found: list[Import] = []
    budget = [MAX_SYMBOLS]
    for index in range(MAX_DESCRIPTORS if rva else 0):
        raw = piece(data, where.offset(rva + 32 * index), 32, "the delay-load table")
        attributes, name, _module, _iat, table = struct.unpack_from("<5I", raw)
        if name == 0:
            return found
        base = 0 if attributes & 1 else image_base
        symbols = _thunks(data, where, table - base, wide, base, budget, names)
        dll = _dll_name(names.at(where.offset(name - base)))
        found.append(Import(dll=dll, symbols=symbols, delay=True))
    if rva:
        raise BinaryError("the delay-load table has no end")
    return found


def _dll_name(name: str) -> str:
    if not name or not name.isprintable() or "/" in name or "\\" in name:
        raise BinaryError(f"the import table names an impossible DLL ({name[:80]!r})")
    return name


def _thunks(
    data: Buffer,
    where: AddressMap,
    rva: int,
    wide: bool,
    base: int,
    budget: list[int],
    names: Names,
) -> tuple[str, ...]:
    size, by_number = (8, 1 << 63) if wide else (4, 1 << 31)
    symbols: list[str] = []
    offset = where.offset(rva)
    while True:
        value = int.from_bytes(piece(data, offset, size, "an import list"), "little")
        if value == 0:
            return tuple(symbols)
        budget[0] -= 1
        if budget[0] < 0:
            raise BinaryError(f"more than {MAX_SYMBOLS} imported symbols")
        if value & by_number:
            symbols.append(f"#{value & 0xFFFF}")
        else:
            symbols.append(names.at(where.offset(value - base) + 2))  # after the hint
        offset += size


def read_exports(data: Buffer, where: AddressMap, rva: int, size: int, names: Names) -> ExportTable:
    """Read the export directory; an entry that points inside it is a forward.

    Raises:
        BinaryError: The table is inconsistent.
    """
    if not rva:
        return ExportTable()
    raw = piece(data, where.offset(rva), 40, "the export table")
    base, count, named, functions, table, ordinals = struct.unpack_from("<6I", raw, 16)
    if count > 65536 or named > 65536:
        raise BinaryError(f"the export table claims {max(count, named)} entries")

    def words(address: int, number: int, width: int) -> tuple[int, ...]:
        if not number:
            return ()
        blob = piece(data, where.offset(address), number * width, "the export table")
        return struct.unpack(f"<{number}{'H' if width == 2 else 'I'}", blob)

    addresses = words(functions, count, 4)
    by_index: dict[int, list[str]] = {}
    for name_rva, index in zip(words(table, named, 4), words(ordinals, named, 2), strict=True):
        if index >= count:
            raise BinaryError(f"an exported name has number {index} of {count}")
        by_index.setdefault(index, []).append(names.at(where.offset(name_rva)))
    symbols: list[Symbol] = []
    forwards: list[Forward] = []
    for index, address in enumerate(addresses):
        if not address:
            continue
        own = by_index.get(index, [f"#{base + index}"])
        if rva <= address < rva + size:
            target = names.at(where.offset(address))
            forwards += [_forward(n, target) for n in own]
        else:
            symbols += [Symbol(name=n, rva=address) for n in own]
    return ExportTable(
        names=tuple(name for index in by_index for name in by_index[index] if addresses[index]),
        ordinals=tuple(base + i for i, address in enumerate(addresses) if address),
        symbols=tuple(s for s in symbols if not s.name.startswith("#")),
        addresses=tuple(sorted({s.rva for s in symbols})),
        forwards=tuple(forwards),
    )


def _forward(name: str, target: str) -> Forward:
    dll, dot, symbol = target.rpartition(".")
    if not dot or not dll or not symbol:
        raise BinaryError(f"export {name} is forwarded to an impossible place ({target[:80]!r})")
    full = dll if dll.lower().endswith(".dll") else f"{dll}.dll"
    return Forward(name=name, dll=full, symbol=symbol)


def read_functions(data: Buffer, where: AddressMap, rva: int, size: int) -> list[tuple[int, int]]:
    """Read the x86-64 unwind table as (start, end) address ranges, sorted.

    Raises:
        BinaryError: The table is inconsistent.
    """
    if not rva or not size:
        return []
    blob = piece(data, where.offset(rva), size - size % 12, "the unwind table")
    ranges = [(start, end) for start, end, _info in struct.iter_unpack("<3I", blob) if start]
    if any(end <= start for start, end in ranges):
        raise BinaryError("the unwind table holds a function that ends before it starts")
    return sorted(ranges)


def read_pointers(data: Buffer, where: AddressMap, rva: int, size: int) -> list[int]:
    """Read the base relocations: addresses of 64-bit absolute pointers in the image.

    Raises:
        BinaryError: The table is inconsistent.
    """
    found: list[int] = []
    if not rva or not size:
        return found
    blob = piece(data, where.offset(rva), size, "the relocation table")
    position = 0
    while position + 8 <= len(blob):
        page, block = struct.unpack_from("<II", blob, position)
        if block == 0:
            break
        if block < 8 or position + block > len(blob):
            raise BinaryError("the relocation table holds a block of impossible size")
        entries = struct.unpack_from(f"<{(block - 8) // 2}H", blob, position + 8)
        found += [page + (entry & 0xFFF) for entry in entries if entry >> 12 == 10]  # DIR64
        position += block
    return found
