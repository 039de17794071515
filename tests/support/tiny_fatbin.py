"""Makes small fat binaries: what tests need of compiled device code, byte by byte."""

from __future__ import annotations

import struct

from qbuild.binary import fatbin


def cubin(names: list[str], sm: int = 61) -> bytes:
    """Return a minimal cubin: ELF header, symbol table, string table."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols = bytes(24)
    at = 1
    for name in names:
        symbols += struct.pack("<IBBHQQ", at, 0x12, 0x10, 1, 0, 64)
        at += len(name) + 1
    symbols += struct.pack("<IBBHQQ", 0, 0x02, 0x00, 1, 0, 64)  # a device function, no kernel
    start = 64 + 3 * 64
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7),
        2, 190, 1, 0, 0, 64, sm << 16 | sm, 64, 56, 0, 64, 3, 0,
    )  # fmt: skip
    rows = bytes(64)
    rows += struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, start, len(symbols), 2, 0, 8, 24)
    rows += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, start + len(symbols), len(strings), 0, 0, 1, 0)
    return header + rows + symbols + strings


def entry(
    code: bytes, *, kind: int = 2, arch: int = 61, flags: int = 0x11, full: int = 0, pad: int = 8
) -> bytes:
    packed = len(code) if full else 0
    code += bytes(-len(code) % pad)
    return (
        struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(code), packed, 0, 7, 1, arch, 0, 0,
                    flags, 0, full)
        + code
    )  # fmt: skip


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(body)) + body
