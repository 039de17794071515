"""ELF files: what is read, and that damage is told as such."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbuild.binary.elf import read_elf
from qbuild.errors import BinaryError
from support.tiny_elf import make_elf

GOOD = make_elf(
    ["libggml.so.0", "libc.so.6", "libm.so.6"],
    exports=["llama_init"],
    imports=["ggml_init"],
    weak=["__gmon_start__"],
    versions={"libc.so.6": ["GLIBC_2.2.5", "GLIBC_2.28"], "libm.so.6": ["GLIBC_2.9"]},
    soname="libllama.so.0",
    runpath="$ORIGIN:$ORIGIN/lib",
)


def test_what_it_says() -> None:
    image = read_elf(GOOD)
    assert (image.machine, image.kind, image.soname) == ("x86_64", "so", "libllama.so.0")
    assert image.needed == ("libggml.so.0", "libc.so.6", "libm.so.6")
    assert image.runpath == ("$ORIGIN", "$ORIGIN/lib")
    assert image.rpath == ()
    assert image.versions == {
        "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28"), "libm.so.6": ("GLIBC_2.9",),
    }  # fmt: skip
    assert image.max_glibc == (2, 28)  # by number: 2.9 is older than 2.28
    assert image.exports == ("llama_init",)
    assert set(image.imports) == {
        "ggml_init", "v_GLIBC_2.2.5", "v_GLIBC_2.28", "v_GLIBC_2.9",
    }  # fmt: skip
    assert image.unversioned == ("ggml_init",)
    assert image.functions == ((0x1000, 0x1001),)


def test_a_path_reads_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    path.write_bytes(GOOD)
    assert read_elf(path) == read_elf(GOOD)


def test_other_machines_and_kinds() -> None:
    assert read_elf(make_elf(machine="aarch64")).machine == "aarch64"
    assert read_elf(make_elf(kind=2)).kind == "exe"
    with pytest.raises(BinaryError, match="neither a program nor"):
        read_elf(make_elf(kind=1))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"MZ" + bytes(100), "not an ELF file"),
        (b"\x7fELF", "64-bit"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (GOOD[:100], "damaged|beyond"),
        (GOOD[:-1], "damaged|beyond"),
    ],
)
def test_what_is_no_elf_file(data: bytes, says: str) -> None:
    with pytest.raises(BinaryError, match=says):
        read_elf(data)


def test_a_file_whose_section_table_was_cut_off_is_refused() -> None:
    """The loader does not need sections; a reader that goes by them would see nothing wrong."""
    bare = bytearray(GOOD)
    struct.pack_into("<Q", bare, 40, 0)
    struct.pack_into("<HHH", bare, 58, 0, 0, 0)
    with pytest.raises(BinaryError, match="section"):
        read_elf(bytes(bare))


def test_a_hidden_dynamic_section_is_refused() -> None:
    """PT_DYNAMIC is what the loader reads: it must be the section that was read."""
    bent = bytearray(GOOD)
    table = struct.unpack_from("<Q", GOOD, 40)[0]
    count = struct.unpack_from("<H", GOOD, 60)[0]
    for index in range(count):
        if struct.unpack_from("<I", GOOD, table + 64 * index + 4)[0] == 6:
            struct.pack_into("<I", bent, table + 64 * index + 4, 1)
    with pytest.raises(BinaryError, match="dynamic"):
        read_elf(bytes(bent))


def test_code_outside_every_section_is_refused() -> None:
    bent = bytearray(GOOD)
    table = struct.unpack_from("<Q", GOOD, 40)[0]
    struct.pack_into("<Q", bent, table + 64 + 8, 2)  # .text: no longer marked executable
    with pytest.raises(BinaryError, match="executable"):
        read_elf(bytes(bent))


def test_a_version_table_that_never_ends_is_refused_at_once() -> None:
    bent = bytearray(GOOD)
    table = struct.unpack_from("<Q", GOOD, 40)[0]
    for index in range(struct.unpack_from("<H", GOOD, 60)[0]):
        if struct.unpack_from("<I", GOOD, table + 64 * index + 4)[0] == 0x6FFFFFFE:
            struct.pack_into("<I", bent, table + 64 * index + 44, 0xFFFFFFFF)
    with pytest.raises(BinaryError, match="versioned libraries"):
        read_elf(bytes(bent))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, len(GOOD)))
def test_truncated(size: int) -> None:
    with contextlib.suppress(BinaryError):
        read_elf(GOOD[:size])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 200), st.integers(0x1000, len(GOOD) - 1)),
            st.integers(0, 255),
        ),
        max_size=6,
    )
)
def test_mutated(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(BinaryError):
        read_elf(bytes(data))
