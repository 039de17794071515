"""What strangers hand over is bounded: small files that would fill the memory or the disk."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import time
import tomllib
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qbuild import bounds
from qbuild.binary import pe_tables
from qbuild.binary.coff import read_coff
from qbuild.binary.elf import read_elf_data
from qbuild.binary.image import Names, Section
from qbuild.binary.pe import read_pe_data
from qbuild.binary.zip_reader import open_zip
from qbuild.bundle.manifest import load_manifest
from qbuild.errors import ArchiveError, BinaryError
from qbuild.recipe import toml
from qbuild.source.quarantine import Forged, take_from_sdist
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe

MEMORY = 64 << 20
"""Bytes that reading a file of at most a megabyte may take."""


@contextmanager
def bounded(memory: int = MEMORY) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()


TOML_BOMBS = {
    "one dotted key": ".".join(["a"] * 100_000) + " = 1",
    "a dotted table": "[" + ".".join(["a"] * 100_000) + "]",
    "blanks between the parts": " . ".join(["a"] * 50_000) + " = 1",
    "quoted parts": ".".join(['"a"'] * 50_000) + " = 1",
    "lists": "a = " + "[" * 200_000,
    "tables in tables": "a = " + "{b = " * 60_000,
    "many dotted keys": "".join(f"{'a.' * 60}k{i} = 1\n" for i in range(1500)),
    "hexadecimal": "a = 0x" + "f" * 200_000,
    "digits": "a = " + "9" * 200_000,
    "too large": "#" * (bounds.TEXT + 1),
}


@pytest.mark.parametrize("name", TOML_BOMBS)
def test_toml(name: str) -> None:
    with bounded(), pytest.raises(tomllib.TOMLDecodeError):
        toml.loads(TOML_BOMBS[name])


def test_dots_and_brackets_in_texts_are_none() -> None:
    dots, marks = "." * 500, "[{" * 500
    text = f'a.b."{dots}" = "{marks}" # {marks}\nc = \'{marks}\'\nd = """{dots}"{marks}""""\n'
    text += f"e = '''{dots}'{marks}'''\nf = 1.5\n" + "g = [[1.5, 2.5], [3.5]]\n"
    data = toml.loads(text)
    assert data["a"]["b"][dots] == data["c"] == marks
    assert data["d"] == f'{dots}"{marks}"' and data["e"] == f"{dots}'{marks}"
    assert data["g"] == [[1.5, 2.5], [3.5]]


def test_a_line_number_is_looked_for_in_linear_time() -> None:
    text = "[a" + " " * 200_000 + ".b]\nc = 1\n"
    started = time.process_time()
    assert toml.locate(text, ("c",)) is None
    assert time.process_time() - started < 5  # quadratic: minutes


JSON_BOMBS = {
    "lists": "[" * 100_000,
    "closed lists": "[" * 100 + "]" * 100,
    "objects": '{"a":' * 100_000,
    "digits": "9" * 5000,
    "many digits": "[" + "9" * 4000 + "]",
    "too large": " " * (bounds.JSON + 1),
    "no JSON": "{",
}


@pytest.mark.parametrize("name", JSON_BOMBS)
def test_json(name: str) -> None:
    with bounded(), pytest.raises(ValueError):
        bounds.load_json(JSON_BOMBS[name])


def test_json_that_is_sound_comes_through() -> None:
    data = {"a": [1, 2.5, None, True, {"b": "c"}]}
    assert bounds.load_json(json.dumps(data)) == bounds.load_json(json.dumps(data).encode()) == data


def test_no_more_is_read_than_such_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"x" * 11)
    assert bounds.read_bytes(path, 11) == b"x" * 11
    with pytest.raises(OSError, match="larger than the 0 KB"):
        bounds.read_bytes(path, 10)
    with bounded(), pytest.raises(OSError, match="larger than the 1 MB"):
        bounds.read_bytes(Path("/dev/zero"), 1 << 20)


def test_a_manifest_that_is_nested(tmp_path: Path) -> None:
    from qbuild.errors import VerifyError

    with pytest.raises(VerifyError, match="nested too deeply"):
        load_manifest(b'{"schema": ' + b"[" * 99 + b"]" * 99 + b"}")


def write(path: Path, names: list[str], data: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for name in names:
            out.writestr(name, data)
    return path


ZIP_BOMBS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "folders by files": (lambda: [f"{i}/x" for i in range(10_001)], "10000 folders"),
    "folders in folders": (
        lambda: [f"{i}/" + "a/" * 31 + "x" for i in range(400)],
        "10000 folders",
    ),
    "folders by name": (lambda: [f"d{i}/" for i in range(10_001)], "10000 folders"),
    "deep": (lambda: ["a/" * 33 + "x"], "in more than 32 folders"),
    "long": (lambda: ["/".join(["a" * 200] * 6)], "longer than 1024 bytes"),
}


@pytest.mark.parametrize("name", ZIP_BOMBS)
def test_zips(name: str, tmp_path: Path) -> None:
    names, message = ZIP_BOMBS[name]
    path = write(tmp_path / "x.zip", names())
    with bounded(), pytest.raises(ArchiveError, match=message):
        open_zip(path)


@pytest.mark.parametrize("portable", [True, False])
def test_a_zip_with_very_many_members(tmp_path: Path, portable: bool) -> None:
    record = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
                         0, 0) + b"a"  # fmt: skip
    path = tmp_path / "x.zip"
    count, body = 10_000, record * 10_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(body), 0, 0)
    path.write_bytes(body + end)
    with bounded(), pytest.raises(ArchiveError):
        open_zip(path, portable=portable)


def test_a_zip_that_grows_out_of_proportion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.binary.zip_reader.BOMB", 1 << 20)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out, out.open("a", "w") as member:
        for _ in range(2):
            member.write(bytes(1 << 20))
    with pytest.raises(ArchiveError, match="times its size"):
        open_zip(path)


def test_a_member_is_read_whole_up_to_a_bound(tmp_path: Path) -> None:
    with open_zip(write(tmp_path / "x.zip", ["a"], bytes(1001))) as view:
        assert view.read("a", most=1001) == bytes(1001)
        with pytest.raises(ArchiveError, match="more than the 1000"):
            view.read("a", most=1000)


def test_a_tar_whose_header_is_a_bomb(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    path = tmp_path / "x.tar.gz"
    import gzip

    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            out.write(b"a" * (1 << 20))
    with bounded(), pytest.raises(Forged, match="a header of"):
        take_from_sdist(path, "r", tmp_path, lambda _done, _size: None)


def test_pe_tables_that_name_one_long_name_again_and_again() -> None:
    """20,000 imports that are all the same 60 KB: 1.2 GB out of 220 KB."""
    name = bytes(2) + b"n" * 60_000 + b"\0"
    thunks = struct.pack("<Q", 4096) * 20_000 + bytes(8)
    table = 4096 + len(name)
    dll = table + len(thunks)
    directory = dll + 6
    data = bytes(4096) + name + thunks + b"a.dll\0"
    data += struct.pack("<5I", table, 0, 0, dll, table) + bytes(20)
    section = Section(
        name="s", rva=4096, offset=4096, size=len(data) - 4096, virtual_size=0, executable=False
    )
    where = pe_tables.AddressMap([section], 0)
    with bounded(), pytest.raises(BinaryError, match="again and again"):
        pe_tables.read_imports(data, where, directory, True, Names(data))


def test_pe_sections_that_are_all_the_whole_file() -> None:
    data = bytearray(make_pe(sections=[f".s{i}" for i in range(60)], extra=bytes(1 << 16)))
    table = data.index(b".text\0\0\0")
    for index in range(63):
        struct.pack_into("<IIII", data, table + 40 * index + 8, len(data), 0x1000 * (index + 1),
                         len(data) & ~0x1FF, 0)  # fmt: skip
    with bounded(), pytest.raises(BinaryError, match="on top of each other"):
        read_pe_data(bytes(data))


def test_elf_symbols_that_all_have_one_long_name() -> None:
    """pyelftools would make a text of 100 KB of each of 2000 symbols."""
    data = make_elf(exports=["n" * 100_000, *[f"f{i}" for i in range(2000)]])
    first = data.index(b"n" * 100_000)
    start = data.rindex(b"\0", 0, first)
    long = first - start
    out = bytearray(data)
    names = {data.index(b"\0f%d\0" % i) + 1 - start for i in range(2000)}
    for at in range(0, len(data) - 24, 8):
        (name,) = struct.unpack_from("<I", data, at)
        if name in names and data[at + 4] in (0x12, 0x10):
            struct.pack_into("<I", out, at, long)
    with bounded(), pytest.raises(BinaryError, match="again and again"):
        read_elf_data(bytes(out))


def _elf_with_sections(count: int, offset: int, size: int) -> bytes:
    data = make_elf(("libc.so.6",))
    table = bytearray()
    for _ in range(count):
        table += struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, offset, size, 0, 0, 1, 0)
    out = bytearray(data)
    struct.pack_into("<Q", out, 0x28, len(data))  # e_shoff
    struct.pack_into("<HHH", out, 0x3A, 64, count, 0)
    return bytes(out) + bytes(table)


def test_elf_sections_that_are_all_the_whole_file() -> None:
    for count in (1000, 60_000):
        data = _elf_with_sections(count, 0, 4096)
        with bounded(), pytest.raises(BinaryError, match="sections"):
            read_elf_data(data)


def test_coff_sections_that_are_all_the_whole_file() -> None:
    count = 20_000
    body = struct.pack("<HHIIIHH", 0x8664, count, 0, 0, 0, 0, 0)
    size = 20 + 40 * count
    for _ in range(count):
        body += struct.pack("<8sIIIIIIHHI", b".drectve", 0, 0, size, 0, 0, 0, 0, 0, 0)
    with bounded(), pytest.raises(BinaryError, match="on top of each other"):
        read_coff(body, "x.obj")


def test_bounds_hold_to_the_byte() -> None:
    asked: list[int] = []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    assert bounds.read_stream(Stream(b"x" * 100), 100, "x") == b"x" * 100
    with pytest.raises(OSError, match="larger than the 0 KB") as caught:
        bounds.read_stream(Stream(b"x" * 1000), 100, "name")
    assert caught.value.filename == "name" and asked == [101, 101], "no further than needed"
    assert (bounds.megabytes(3 << 20), bounds.megabytes(1 << 20)) == ("3 MB", "1 MB")
    assert (bounds.megabytes(512 << 10), bounds.megabytes((1 << 20) - 1)) == ("512 KB", "1023 KB")


def test_json_and_toml_may_be_just_as_large_as_is_said() -> None:
    assert bounds.load_json("[1]", most=3) == [1]
    with pytest.raises(ValueError, match="larger than 0 KB"):
        bounds.load_json("[12]", most=3)
    assert bounds.load_json(b"[" + b" " * ((8 << 20) - 2) + b"]") == []
    with pytest.raises(ValueError, match="larger than 8 MB"):
        bounds.load_json(b"[" + b" " * ((8 << 20) - 1) + b"]")
    assert toml.loads("#" * (1 << 20)) == {}
    with pytest.raises(tomllib.TOMLDecodeError, match="larger than 1 MB"):
        toml.loads("#" * ((1 << 20) + 1))


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}])
def test_sixty_four_levels_and_no_more(wrap: Callable[[object], object]) -> None:
    data: object = 1
    for _ in range(64):
        data = wrap(data)
    bounds.check_data(data)
    with pytest.raises(ValueError, match="too deeply"):
        bounds.check_data(wrap(data))


def test_a_number_of_1024_bits_and_no_more() -> None:
    bounds.check_data({"a": [2**1024 - 1]})
    with pytest.raises(ValueError, match="far too long"):
        bounds.check_data({"a": [2**1024]})
