"""The fat binary reader: real layouts, every damage is one typed error, LZ4 both ways."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbuild.binary import fatbin
from qbuild.binary.lz4 import decompress_block
from qbuild.errors import BinaryError
from support.tiny_fatbin import container, cubin, entry


def literals(data: bytes) -> bytes:
    """Return an LZ4 block without matches."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    rest, more = len(data) - 15, b""
    while rest >= 255:
        more, rest = more + b"\xff", rest - 255
    return b"\xf0" + more + bytes([rest]) + data


def elf(section: bytes, name: str = ".nv_fatbin") -> bytes:
    """Return an ELF file with one section besides the string table."""
    strings = b"\0.shstrtab\0" + name.encode() + b"\0"
    at = 64
    table = at + len(section) + len(strings)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 1,
    )  # fmt: skip
    rows = bytes(64)
    rows += struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at + len(section), len(strings), 0, 0, 1, 0)
    rows += struct.pack("<IIQQQQIIQQ", 11, 1, 2, at, at, len(section), 0, 0, 8, 0)
    return header + section + strings + rows


CODE = cubin(["_Z3fooPf", "_Z3barPf"])
PTX = b".version 8.8\n.target sm_80\n.visible .entry _Z3fooPf(\n.param .u64 x\n)\n{ ret; }\n\0"


def test_reads_every_container() -> None:
    first = container(entry(CODE), entry(PTX, kind=1, arch=80))
    second = container(entry(CODE))
    report = fatbin.read_fatbin(elf(first + bytes(24) + second + bytes(512)))
    assert report.cubins == ("61",)
    assert report.ptx == ("80",)
    assert [each.container for each in report.entries] == [0, 0, 1]
    assert report.incomplete == {("ptx", "80"): 1}
    assert report.compression == "none"
    assert report.sections == (".nv_fatbin",)


def test_a_file_without_cuda_code() -> None:
    report = fatbin.read_fatbin(elf(b"nothing", ".text"))
    assert report.entries == ()
    assert report.size == 0


@pytest.mark.parametrize(
    ("flags", "arch"), [(0x11, "120"), (0x10_0011, "120a"), (0x20_0011, "120f")]
)
def test_variants_of_an_architecture(flags: int, arch: str) -> None:
    (found,) = fatbin.read_containers(container(entry(CODE, arch=120, flags=flags)))
    assert found.arch == arch


def test_kernel_names() -> None:
    data = container(
        entry(CODE),
        entry(literals(CODE), flags=0x2011, full=len(CODE)),
        entry(PTX, kind=1, arch=80),
        entry(b"BC\xc0\xde", kind=8),
    )
    names = [fatbin.kernels(data, each) for each in fatbin.read_containers(data)]
    assert names == [("_Z3barPf", "_Z3fooPf"), ("_Z3barPf", "_Z3fooPf"), ("_Z3fooPf",), None]
    assert fatbin.all_kernels(elf(data), arch="61") == (
        "_Z3barPf", "_Z3barPf", "_Z3fooPf", "_Z3fooPf",
    )  # fmt: skip


def test_zstd_is_told_from_the_header() -> None:
    data = container(entry(b"\x28\xb5\x2f\xfd....", flags=0x8011, full=4096))
    (found,) = fatbin.read_containers(data)
    assert (found.compression, found.full_size) == ("zstd", 4096)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"junk" * 8, "neither a fat binary nor padding at offset 0x0"),
        (container(entry(CODE))[:-9], "damaged fat binary at offset 0x0"),
        (container(entry(CODE))[:12], "a fat binary is cut off"),
        (container(entry(CODE)[:40]), "an entry of a fat binary is cut off"),
        (container(entry(CODE, arch=0)), "is for architecture 0"),
        (container(entry(CODE, flags=0x2011, full=1 << 40)), "claims to be"),
        (struct.pack("<IHHQ", fatbin.MAGIC, 2, 16, 0), "version 2"),
        (struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, 1 << 60), "damaged fat binary"),
        (
            container(entry(CODE).replace(struct.pack("<I", 64), struct.pack("<I", 7), 1)),
            "header 7",
        ),
    ],
)
def test_damage_is_named(data: bytes, what: str) -> None:
    with pytest.raises(BinaryError) as caught:
        fatbin.read_containers(data)
    assert what in caught.value.what


def test_other_files() -> None:
    with pytest.raises(BinaryError, match="neither a PE nor an ELF file"):
        fatbin.read_fatbin(b"#!/bin/sh\n")


def _read_all(data: bytes) -> None:
    report = fatbin.read_fatbin_data(data)
    for each in report.entries:
        fatbin.kernels(data, each)


GOOD = elf(
    container(
        entry(CODE),
        entry(literals(CODE), flags=0x2011, full=len(CODE)),
        entry(PTX, kind=1, arch=80),
    )
    + bytes(40)
)


@settings(max_examples=400)
@given(st.data())
def test_damage_never_crashes(data: st.DataObject) -> None:
    broken = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        broken = broken[: data.draw(st.integers(0, len(broken)))]
    with contextlib.suppress(BinaryError):
        _read_all(bytes(broken))


def test_damage_at_every_byte_of_the_headers() -> None:
    """Each byte of the headers of a container and its entries, each bit flipped, and extremes."""
    data = container(
        entry(PTX, kind=1, arch=80), entry(literals(CODE), flags=0x2011, full=len(CODE))
    )
    starts = [0, 16, 16 + len(entry(PTX, kind=1, arch=80))]
    headers = [at for start in starts for at in range(start, start + 72) if at < len(data)]
    file, refused = elf(data), 0
    assert file[64 : 64 + len(data)] == data
    for at in dict.fromkeys(headers):
        for value in {*(data[at] ^ (1 << bit) for bit in range(8)), 0, 0x7F, 0x80, 0xFF}:
            broken = bytearray(file)
            broken[64 + at] = value
            try:
                _read_all(bytes(broken))
            except BinaryError:
                refused += 1
    assert refused > 300, "most damage is seen, not read past"
    for length in range(len(file)):  # cut off anywhere
        with contextlib.suppress(BinaryError):
            _read_all(file[:length])


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_in_a_section(section: bytes) -> None:
    with contextlib.suppress(BinaryError):
        _read_all(elf(section))


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 4096))
def test_any_lz4_block(block: bytes, size: int) -> None:
    with contextlib.suppress(BinaryError):
        assert len(decompress_block(block, size)) == size


@given(st.binary(max_size=2000))
def test_literals_come_back(data: bytes) -> None:
    assert decompress_block(literals(data), len(data)) == data


def test_matches_may_overlap_themselves() -> None:
    # 2 literals "ab", then a match of 9 at distance 2, then 1 literal
    assert (
        decompress_block(bytes([0x25]) + b"ab" + b"\x02\x00" + b"\x10c", 12)
        == b"abababababac"[:11] + b"c"
    )
