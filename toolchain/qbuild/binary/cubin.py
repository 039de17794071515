"""Reads what a kernel's machine code uses of a multiprocessor: registers, stack, shared memory.

NVIDIA does not document a cubin's ``.nv.info`` section. What is used here was found by comparing
it with what ``ptxas -v`` (12.9) prints: records of u8 format, u8 attribute, u16 bytes that follow
where the format is 4. Attribute 0x2f holds a symbol's number and its registers per thread, 0x11 its
stack frame in bytes (local arrays and spilled registers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from qbuild.binary.image import only_binary_errors
from qbuild.errors import BinaryError

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RECORD: Final = struct.Struct("<BBH")
_SIZED: Final = 4
_REGISTERS: Final = 0x2F
_FRAME: Final = 0x11
_SYMTAB: Final = 2


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one kernel uses."""

    registers: int  # per thread
    frame: int  # bytes of stack per thread: local arrays and spills
    shared: int  # bytes of static shared memory per block


def usage(code: bytes) -> dict[str, Usage]:
    """Return mangled name → usage of every function of a cubin that says its registers.

    Raises:
        BinaryError: It is no cubin, or damaged.
    """
    with only_binary_errors("cubin", "<data>"):
        if code[:4] != b"\x7fELF":
            raise BinaryError("not a cubin: no ELF header")
        sections = list(_sections(code))
        names = _symbols(code, sections)
        found: dict[int, dict[int, int]] = {}
        for name, at, size, _ in sections:
            if name == ".nv.info":
                for attribute, symbol, value in _records(code, at, size):
                    found.setdefault(symbol, {})[attribute] = value
        shared = {n.removeprefix(".nv.shared."): s for n, _, s, _ in sections if ".shared." in n}
        return {
            names[symbol]: Usage(
                registers=values[_REGISTERS],
                frame=values.get(_FRAME, 0),
                shared=shared.get(names[symbol], 0),
            )
            for symbol, values in found.items()
            if _REGISTERS in values
        }


def _sections(code: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Yield (name, offset, bytes, type)."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    count, names = struct.unpack_from("<HH", code, 0x3C)
    rows = [_SECTION.unpack_from(code, start + _SECTION.size * i) for i in range(count)]
    for row in rows:
        yield _text(code, rows[names][4] + row[0]), row[4], row[5], row[1]


def _symbols(code: bytes, sections: list[tuple[str, int, int, int]]) -> list[str]:
    strings = next(at for name, at, _, _ in sections if name == ".strtab")
    table, size = next((at, size) for _, at, size, kind in sections if kind == _SYMTAB)
    return [
        _text(code, strings + _SYMBOL.unpack_from(code, table + at)[0])
        for at in range(0, size - _SYMBOL.size + 1, _SYMBOL.size)
    ]


def _text(code: bytes, at: int) -> str:
    end = code.find(b"\0", at)
    if end < 0:
        raise BinaryError("a name in a cubin has no end")
    return code[at:end].decode("ascii")


def _records(code: bytes, at: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (attribute, symbol, value) of the records that hold a symbol and a number."""
    end = at + size
    while at + _RECORD.size <= end:
        kind, attribute, length = _RECORD.unpack_from(code, at)
        at += _RECORD.size
        if kind != _SIZED:
            continue
        if length == 8 and attribute in (_REGISTERS, _FRAME):
            symbol, value = struct.unpack_from("<II", code, at)
            yield attribute, symbol, value
        at += length
