"""Makes small COFF objects and ``.lib`` archives, byte by byte (Microsoft, "PE Format")."""

from __future__ import annotations

import struct
from collections.abc import Mapping

AMD64 = 0x8664
_BIG = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_GL = bytes.fromhex("38feb30ca5d9ab4dac9bd6b6222653c2")


def make_object(directives: str = "", *, big: bool = False, bom: bool = False) -> bytes:
    """Return an object whose ``.drectve`` section holds this text."""
    text = (b"\xef\xbb\xbf" if bom else b"") + directives.encode()
    head = 56 if big else 20
    entry = b".drectve" + struct.pack("<IIIIIIHHI", 0, 0, len(text), head + 40, 0, 0, 0, 0, 0xA00)
    if big:
        start = struct.pack("<HHHHI16sIIIIIII", 0, 0xFFFF, 2, AMD64, 0, _BIG, 0, 0, 0, 0, 1, 0, 0)
    else:
        start = struct.pack("<HHIIIHH", AMD64, 1, 0, 0, 0, 0, 0)
    return start + entry + text


def make_private_object() -> bytes:
    """Return the head of an object made with /GL."""
    return struct.pack("<HHHHI16s", 0, 0xFFFF, 1, AMD64, 0, _GL) + bytes(32)


def make_import(symbol: str, dll: str) -> bytes:
    """Return a short import stub."""
    names = f"{symbol}\0{dll}\0".encode()
    return struct.pack("<HHHHIIHH", 0, 0xFFFF, 0, AMD64, 0, len(names), 0, 4) + names


def make_library(members: Mapping[str, bytes], *, gnu: bool = False) -> bytes:
    """Return an archive as Microsoft's lib (or GNU ar) writes it, long names included."""
    end = "/\n" if gnu else "\0"
    table, body = "", b""
    for name, data in members.items():
        if len(name) > 15:
            label, table = f"/{len(table)}", table + name + end
        else:
            label = f"{name}/"
        body += _member(label, data)
    index = _member("/", struct.pack(">I", 0))
    return b"!<arch>\n" + index + (_member("//", table.encode()) if table else b"") + body


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{'0':<12}{'':<6}{'':<6}{'0':<8}{len(data):<10}`\n"
    return head.encode() + data + b"\n" * (len(data) % 2)
