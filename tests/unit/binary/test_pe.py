"""PE files: what is read, and that damage is told as such."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbuild.binary.pe import classify_crt, read_pe
from qbuild.errors import BinaryError
from support.tiny_pe import make_pe

GOOD = make_pe(
    {"KERNEL32.dll": ["Sleep", "ExitProcess"], "api-ms-win-crt-heap-l1-1-0.dll": ["malloc"]},
    exports=["ggml_init", "ggml_free"],
    dll="ggml.dll",
    repro=True,
    pdb="ggml.pdb",
    timestamp=0x12345678,
)


def test_what_it_says() -> None:
    image = read_pe(GOOD)
    assert (image.machine, image.is_dll, image.subsystem) == ("x86_64", True, "console")
    assert {i.dll: i.symbols for i in image.imports} == {
        "KERNEL32.dll": ("Sleep", "ExitProcess"),
        "api-ms-win-crt-heap-l1-1-0.dll": ("malloc",),
    }
    assert image.exports == ("ggml_free", "ggml_init")
    assert image.timestamp == 0x12345678
    assert [(d.type, d.pdb) for d in image.debug_entries] == [
        ("codeview", "ggml.pdb"), ("repro", None),
    ]  # fmt: skip
    assert image.functions == ((0x1000, 0x1001),)
    assert image.crt == "ucrt"
    assert [s.name for s in image.sections if s.executable] == [".text"]


def test_a_path_reads_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "Ünïcode name.dll"
    path.write_bytes(GOOD)
    assert read_pe(path) == read_pe(GOOD)


@pytest.mark.parametrize(
    ("dlls", "crt"),
    [
        (["KERNEL32.dll"], "none"),
        (["api-ms-win-crt-math-l1-1-0.dll"], "ucrt"),
        (["UCRTBASE.DLL"], "ucrt"),
        (["msvcrt.dll"], "msvcrt"),
        (["msvcrt.dll", "ucrtbase.dll"], "mixed"),
        (["VCRUNTIME140.dll", "ucrtbase.dll"], "vcruntime-md"),
        (["VCRUNTIME140_1.dll"], "vcruntime-md"),
        (["MSVCP140.dll"], "vcruntime-md"),
        (["msvcr120.dll"], "msvcr"),
        (["MSVCP140D.dll"], "debug"),
        (["ucrtbased.dll"], "debug"),
        (["VCRUNTIME140_1D.dll"], "debug"),
        (["libomp140d.x86_64.dll"], "debug"),
        (["d3d12.dll", "bcrypt.dll"], "none"),
    ],
)
def test_c_runtimes(dlls: list[str], crt: str) -> None:
    assert classify_crt(dlls) == crt


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x7fELF" + bytes(100), "not a PE file"),
        (b"MZ", "damaged"),
        (b"MZ" + bytes(200), "damaged"),
        (GOOD[:0x150], "PE"),
    ],
)
def test_what_is_no_pe_file(data: bytes, says: str) -> None:
    with pytest.raises(BinaryError, match=says):
        read_pe(data)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.dll").write_bytes(b"")
    for path in (tmp_path / "empty.dll", tmp_path / "absent.dll", tmp_path):
        with pytest.raises(BinaryError, match="cannot read"):
            read_pe(path)


def test_an_import_is_never_lost() -> None:
    """A table that leads nowhere is damage, not a shorter list."""
    broken = bytearray(GOOD)
    struct.pack_into("<I", broken, _import_table(GOOD), 0x7FFFFFF0)
    with pytest.raises(BinaryError, match="outside every section"):
        read_pe(bytes(broken))


def _import_table(data: bytes) -> int:
    rva = struct.unpack_from("<I", data, 0x40 + 24 + 112 + 8)[0]
    section = next(s for s in read_pe(data).sections if s.rva <= rva < s.rva + s.size)
    return section.offset + rva - section.rva


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GOOD)))
def test_truncated(size: int) -> None:
    with contextlib.suppress(BinaryError):
        read_pe(GOOD[:size] or b"M")


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8))
def test_mutated(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(BinaryError):
        read_pe(bytes(data))
