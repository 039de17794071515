"""Registers and stack of a kernel, as ptxas -v printed them for the same cubin."""

from __future__ import annotations

import struct

import pytest

from qbuild.binary.cubin import Usage, usage
from qbuild.errors import BinaryError


def cubin(info: bytes, *, shared: int = 0) -> bytes:
    """Write a cubin with one function, ``k``, as far as the reader looks."""
    names = [b"", b".shstrtab", b".strtab", b".symtab", b".nv.info", b".nv.shared.k"]
    table, offsets = b"", []
    for name in names:
        offsets.append(len(table))
        table += name + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 4, 0, 64)
    parts = [b"", table, b"\0k\0", symbols, info, b""]
    sizes = [0, len(table), 3, len(symbols), len(info), shared]
    kinds = [0, 3, 3, 2, 0x70000000, 8]
    body, rows = bytearray(64), b""
    for offset, part, size, kind in zip(offsets, parts, sizes, kinds, strict=True):
        rows += struct.pack("<IIQQQQIIQQ", offset, kind, 0, 0, len(body), size, 0, 0, 1, 0)
        body += part
    start = len(body)
    body[:4] = b"\x7fELF"
    struct.pack_into("<Q", body, 0x28, start)
    struct.pack_into("<HHH", body, 0x3A, 64, len(names), 1)
    return bytes(body) + rows


def test_registers_frame_and_shared_memory() -> None:
    # The records of a kernel for which ptxas printed 30 registers and a stack frame of 256 bytes,
    # between others that mean nothing here.
    info = bytes.fromhex(
        "042f0800010000001e000000 032a0000 041108000100000000010000 041208000100000000010000"
    )
    assert usage(cubin(info, shared=400)) == {"k": Usage(registers=30, frame=256, shared=400)}


def test_a_function_without_registers_is_left_out() -> None:
    assert usage(cubin(bytes.fromhex("041108000100000000010000"))) == {}


@pytest.mark.parametrize("data", [b"", b"MZ", b"\x7fELF" + bytes(60)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(BinaryError):
        usage(data)
