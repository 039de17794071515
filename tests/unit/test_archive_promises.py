"""Archives to the byte: what each field and each bound does, with values worked out by hand."""

from __future__ import annotations

import errno
import io
import mmap
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from qbuild.binary import names, zip_reader, zip_writer
from qbuild.binary.zip_reader import open_zip
from qbuild.binary.zip_writer import ZipEntry, write_aside, write_sha256, write_zip
from qbuild.errors import ArchiveError
from qbuild.source import quarantine
from support.raw_zips import Raw, raw_zip
from support.systems import WINDOWS, kept, lists_open_files

TEXT = b"The quick brown fox jumps over the lazy dog. " * 40


@pytest.fixture
def zip_of(tmp_path: Path) -> Any:
    """Write bytes as a zip and return its path."""

    def write(data: bytes) -> Path:
        path = tmp_path / "x.zip"
        path.write_bytes(data)
        return path

    return write


@contextmanager
def refused(words: str, where: str | None = None) -> Iterator[None]:
    with pytest.raises(ArchiveError) as caught:
        yield
    assert words in caught.value.what, caught.value.what
    if where is not None:
        assert caught.value.where == where


def entry(**fields: Any) -> tuple[bytes, bytes, bytes]:
    """Return a zip in its three parts: data, directory, end."""
    whole = raw_zip(Raw(**fields))
    at = whole.index(b"PK\x01\x02")
    return whole[:at], whole[at:-22], whole[-22:]


def end(count: int, size: int, start: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, len(comment)) + (
        comment
    )


def end64(count: int, size: int, start: int, at: int, disks: int = 1) -> bytes:
    record = struct.pack(
        "<4sQ2H2L4Q", b"PK\x06\x06", 44, 3 << 8 | 45, 45, 0, 0, count, count, size, start
    )
    return record + struct.pack("<4sLQL", b"PK\x06\x07", 0, at, disks)


# -- reading: files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "system", "mode", "program"),
    [
        (0o100755 << 16, 3, 0o100755, True),
        (0o100644 << 16, 3, 0o100644, False),
        (0o100601 << 16, 3, 0o100601, True),
        (0o100610 << 16, 3, 0o100610, True),
        (0o100602 << 16, 3, 0o100602, False),
        (0o100755 << 16, 19, 0o100755, True),
        (0o100755 << 16, 0, 0, False),  # DOS knows no modes
        (0x20, 0, 0, False),
        (0, 3, 0, False),
    ],
)
def test_what_is_a_program(
    zip_of: Any, attributes: int, system: int, mode: int, program: bool
) -> None:
    with open_zip(zip_of(raw_zip(Raw(attributes=attributes, system=system)))) as view:
        member = view.member("file.txt")
        assert (member.mode, member.executable) == (mode, program)
        assert (member.made_by >> 8, member.size, member.packed) == (system, 7, 7)
        assert (member.offset, member.dos, member.extra) == (0, 0x21 << 16, 0)


def test_files_are_written_with_content_and_modes(tmp_path: Path, zip_of: Any) -> None:
    data = raw_zip(
        Raw(name=b"a/b/one", data=TEXT, method=8),
        Raw(name=b"a/b/two", attributes=0o100711 << 16),
        Raw(name=b"top", data=b""),
    )
    before = os.umask(0o077)
    try:
        with open_zip(zip_of(data)) as view:
            written = view.extract_to(tmp_path / "deep" / "out")
    finally:
        os.umask(before)
    out = tmp_path / "deep" / "out"
    assert written == (out / "a/b/one", out / "a/b/two", out / "top")
    assert [path.read_bytes() for path in written] == [TEXT, b"content", b""]
    assert [path.stat().st_mode & 0o777 for path in written] == [
        kept(mode) for mode in (0o644, 0o755, 0o644)
    ]
    (tmp_path / "empty").mkdir()
    with open_zip(zip_of(data)) as view:
        assert len(view.extract_to(tmp_path / "empty", select=lambda name: "/" in name)) == 2


@pytest.mark.parametrize(
    ("error", "words", "named"),
    [(OSError(errno.ENOSPC, "No space left", "/f"), "No space left", True),
     (OSError("odd"), "odd", False)],
)  # fmt: skip
def test_a_disk_that_fails_while_unpacking(
    tmp_path: Path, zip_of: Any, error: OSError, words: str, named: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with open_zip(zip_of(raw_zip(Raw()))) as view:
        monkeypatch.setattr(Path, "chmod", fail)
        with refused(f"x.zip cannot be unpacked: {words}", "/f" if named else str(tmp_path / "o")):
            view.extract_to(tmp_path / "o")


def test_the_file_is_closed(zip_of: Any) -> None:
    with open_zip(zip_of(raw_zip(Raw()))) as view:
        assert view.read("file.txt") == b"content"
    with pytest.raises(ValueError, match="closed"):
        view.read("file.txt")


class Broken(io.BytesIO):
    """A file on a disk that fails."""

    def seek(self, *_: Any) -> int:
        raise OSError(errno.EIO, "I/O error")


@pytest.mark.parametrize(
    ("stream", "words"), [(Broken(), "x.zip cannot be read: "), (io.BytesIO(b"no"), "not a zip")]
)
def test_a_file_that_is_refused_is_closed_as_well(
    stream: BinaryIO, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "open", lambda *_: stream)
    with refused(words):
        open_zip(Path("x.zip"))
    assert stream.closed


def test_a_file_that_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OSError(errno.EACCES, "denied"), OSError("odd")]

    def fail(*_: Any) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(Path, "open", fail)
    for words in ("denied", "odd"):
        with refused(f"x.zip cannot be opened: {words}", "x.zip"):
            open_zip(Path("x.zip"))


def test_a_zip_that_shrinks_while_it_is_read(zip_of: Any) -> None:
    path = zip_of(raw_zip(Raw(data=TEXT)))
    with open_zip(path) as view:
        os.truncate(path, 100)
        with refused("the archive is cut short"):
            view.read("file.txt")
        os.truncate(path, 10)
        with refused("no local header where it should be"):
            view.read("file.txt")


PACKER = zlib.compressobj(9, zlib.DEFLATED, -15)
PACKED = PACKER.compress(TEXT) + PACKER.flush(zlib.Z_SYNC_FLUSH)  # all bytes, and no end
ENDED = PACKED + PACKER.flush()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (ENDED, ""),
        (PACKED, "does not end where it should"),
        (ENDED + b"more", "does not end where it should"),
        (b"\xff" + ENDED, "its compressed data is broken"),
    ],
)
def test_where_deflate_ends(zip_of: Any, body: bytes, words: str) -> None:
    raw = Raw(data=body, size=len(TEXT), crc=zlib.crc32(TEXT))
    data, directory, tail = entry(**vars(raw))
    for part in (data, directory):
        at = part.index(struct.pack("<H", raw.flags)) + 2
        part = part[:at] + b"\x08\0" + part[at + 2 :]
        data, directory = (part, directory) if part.startswith(b"PK\x03") else (data, part)
    with open_zip(zip_of(data + directory + tail)) as view:
        if not words:
            assert view.read("file.txt") == TEXT
            return
        with refused(words, "x.zip: file.txt"):
            view.read("file.txt")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"crc": 1}, "its CRC does not match"),
        ({"local": {"crc": 1}}, "local header disagrees"),
        ({"local": {"name": b"fil3.txt"}}, "local header disagrees"),
        ({"local": {"method": 8}}, "local header disagrees"),
        ({"local": {"crc": 0xFFFFFFFF}}, ""),
        ({"flags": 0x808, "local": {"crc": 0}}, ""),  # sizes follow the data
        ({"data": b"conten", "size": 7, "packed": 7}, ""),
    ],
)
def test_what_a_local_header_says(zip_of: Any, fields: dict[str, Any], words: str) -> None:
    if fields.get("size"):  # the directory promises a byte more than there is
        with refused("outside the archive"):
            open_zip(zip_of(raw_zip(Raw(**fields))))
        return
    with open_zip(zip_of(raw_zip(Raw(**fields)))) as view:
        if words:
            with refused(words, "x.zip: file.txt"):
                view.read("file.txt")
        else:
            assert view.read("file.txt") == b"content"
            view.test()


def test_a_file_may_have_as_many_bytes_as_are_read(zip_of: Any) -> None:
    with open_zip(zip_of(raw_zip(Raw()))) as view:
        assert view.read("file.txt", most=7) == b"content"
        with refused("file.txt in x.zip has 7 bytes, more than the 6", "x.zip: file.txt"):
            view.read("file.txt", most=6)


# -- reading: the directory ------------------------------------------------------------------------


def test_who_is_refused_and_why_is_said(zip_of: Any) -> None:
    with refused("x.zip is refused: bytes follow its end", "x.zip"):
        open_zip(zip_of(raw_zip(Raw(), tail=b"!")))
    with refused("'a/': it is a folder with content", "x.zip: 'a/'"):
        open_zip(zip_of(raw_zip(Raw(name=b"a/"))))


@pytest.mark.parametrize(("name", "most"), [("MAX_MEMBERS", 2), ("MAX_DIRECTORY", 108)])
def test_bounds_of_the_directory(
    zip_of: Any, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zip_of(raw_zip(Raw(), Raw(name=b"file.two")))  # 2 * (46 + 8) bytes
    monkeypatch.setattr(zip_reader, name, most)
    with open_zip(path) as view:
        assert len(view.names) == 2
    monkeypatch.setattr(zip_reader, name, most - 1)
    word = "it claims 2 members, more than 1" if most == 2 else "has 108 bytes, more than 107"
    with refused(word):
        open_zip(path)


def test_the_longest_comment_is_read(zip_of: Any) -> None:
    data, directory, _ = entry(data=TEXT)
    path = zip_of(data + directory + end(1, len(directory), len(data), b"c" * 0xFFFF))
    with open_zip(path) as view:
        assert view.read("file.txt") == TEXT
    with refused("not a zip, or it is cut short"):
        open_zip(zip_of(b"PK\x05\x06" + bytes(17)))
    with open_zip(zip_of(b"PK\x05\x06" + bytes(18))) as view:
        assert view.names == ()


def test_zip64_ends(zip_of: Any) -> None:
    data, directory, _ = entry()
    start, size = len(data), len(directory)
    at = start + size
    old = end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    with open_zip(zip_of(data + directory + end64(1, size, start, at) + old)) as view:
        assert view.read("file.txt") == b"content"
    damaged = "its zip64 end record is damaged"
    with refused(damaged):
        open_zip(zip_of(data + directory + end64(1, size, start, at, disks=2) + old))
    with refused(damaged):
        open_zip(zip_of(data + directory + end64(1, size, start, at + 1) + old))
    with refused(damaged):  # beyond the end of the file
        open_zip(zip_of(data + directory + end64(1, size, start, 10_000) + old))
    with refused(damaged):  # the locator is all there is
        open_zip(zip_of(end64(0, 0, 0, 0)[56:] + end(0, 0, 0)))
    with refused("directory is not where it should be"):
        open_zip(zip_of(data + directory + end64(1, size, start + 1, at) + old))
    for field in (4, 6, 8):  # this disk, the directory's disk, entries on this disk
        part = bytearray(end(1, size, start))
        part[field] ^= 3
        with refused("one part of a zip in several files"):
            open_zip(zip_of(data + directory + bytes(part)))


def test_extra_fields_and_comments_are_stepped_over(zip_of: Any) -> None:
    other = struct.pack("<2H", 0xCAFE, 3) + b"abc"
    data = raw_zip(
        Raw(name=b"one", extra=other, comment=b"a comment"),
        Raw(name=b"two", comment=b"x"),
        Raw(name=b"six", extra=other + b"\0"),
    )
    with open_zip(zip_of(data)) as view:
        assert view.names == ("one", "six", "two")
        assert [view.member(name).extra for name in view.names] == [7, 8, 0]
        view.test()


def test_a_directory_that_is_cut_short(zip_of: Any) -> None:
    data, directory, _ = entry()
    short = "directory is damaged or cut short"
    for more in (b"", b"PK\x01\x02", b"PK\x01\x02" + bytes(41), b"PK\x01\x03" + bytes(42)):
        body = directory + more
        with refused(short):
            open_zip(zip_of(data + body + end(2, len(body), len(data))))
    for field in (28, 30, 32):  # lengths of name, extra field, comment
        changed = bytearray(directory)
        changed[field : field + 2] = b"\x40\0"
        with refused(short):
            open_zip(zip_of(data + bytes(changed) + end(1, len(directory), len(data))))
    with refused("its directory holds more than it says"):
        open_zip(zip_of(data + directory + b"!" + end(1, len(directory) + 1, len(data))))


@pytest.mark.parametrize("lead", [b"", struct.pack("<2H", 0xCAFE, 2) + b"ab"])
@pytest.mark.parametrize(
    ("values", "kept"),
    [((7, 7, 0), 3), ((7, 7), 2), ((7,), 1)],  # size, packed size, offset
)
def test_large_values_stand_in_the_zip64_field(
    zip_of: Any, lead: bytes, values: tuple[int, ...], kept: int
) -> None:
    field = struct.pack(f"<2H{kept}Q", 1, 8 * kept, *values)
    data, directory, _ = entry(extra=lead + field)
    changed = bytearray(directory)
    for at in (24, 20, 42)[:kept]:
        changed[at : at + 4] = b"\xff" * 4
    path = zip_of(data + bytes(changed) + end(1, len(directory), len(data)))
    with open_zip(path) as view:
        member = view.member("file.txt")
        assert (member.size, member.packed, member.offset) == (7, 7, 0)
        assert view.read("file.txt") == b"content"
    changed[46 + 8 + len(lead) + 2] -= 1  # the field says that it is a byte shorter
    with refused("'file.txt': its zip64 sizes are missing"):
        open_zip(zip_of(data + bytes(changed) + end(1, len(directory), len(data))))


def test_names_are_utf8_or_the_old_code_page(zip_of: Any) -> None:
    data = raw_zip(Raw(name="ü".encode()), Raw(name=b"\x81x", flags=0))
    with open_zip(zip_of(data)) as view:
        assert view.names == ("ü", "üx")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"flags": 0x801}, "encrypted"),
        ({"flags": 0x840}, "encrypted"),
        ({"flags": 0x2800}, "encrypted"),
        ({"flags": 0x806}, ""),
        ({"method": 14}, "method 14"),
        ({"method": 8, "data": b""}, ""),
        ({"size": 8, "packed": 7}, "its two sizes differ"),
        ({"method": 8, "data": bytes(1032 * 2), "size": 1032 * 2, "packed": 2}, ""),
        ({"method": 8, "data": bytes(3000), "size": 1032 * 2 + 1, "packed": 2},
         "2065 bytes from 2, more than deflate can"),
    ],
)  # fmt: skip
def test_members_that_cannot_be(zip_of: Any, fields: dict[str, Any], words: str) -> None:
    path = zip_of(raw_zip(Raw(**fields)))
    if not words:
        open_zip(path).close()
        return
    with refused(words, "x.zip: 'file.txt'"):
        open_zip(path)


def test_members_lie_one_after_another(zip_of: Any) -> None:
    size = 30 + 8 + 7
    two = raw_zip(Raw(), Raw(name=b"file.two", offset=size - 1))
    with refused("'file.two': its data overlaps that of 'file.txt'"):
        open_zip(zip_of(two))
    open_zip(zip_of(raw_zip(Raw(), Raw(name=b"file.two", offset=size)))).close()
    with refused("'file.txt': its data is outside the archive"):
        open_zip(zip_of(raw_zip(Raw(offset=1))))


def test_how_much_an_archive_may_unpack_to(zip_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zip_of(raw_zip(Raw(), Raw(name=b"two")))
    open_zip(path, max_bytes=14).close()
    with refused("x.zip is refused: it unpacks to 14 bytes, more than 13"):
        open_zip(path, max_bytes=13)
    path = zip_of(raw_zip(Raw(data=bytes(1001), method=8)))
    assert path.stat().st_size == 125
    monkeypatch.setattr(zip_reader, "BOMB", 1000)
    monkeypatch.setattr(zip_reader, "MAX_GROWTH", 8)
    with refused("it unpacks to 1001 bytes, 8 times its size"):
        open_zip(path)
    monkeypatch.setattr(zip_reader, "MAX_GROWTH", 9)
    open_zip(path).close()
    path = zip_of(raw_zip(Raw(data=bytes(1000), method=8)))
    monkeypatch.setattr(zip_reader, "MAX_GROWTH", 1)
    open_zip(path).close()
    monkeypatch.setattr(zip_reader, "BOMB", 999)
    monkeypatch.setattr(zip_reader, "MAX_GROWTH", 8)  # eight times 125 bytes are allowed
    open_zip(path).close()


def test_the_bounds_that_are_documented() -> None:
    """Numbers that a stranger's file is measured with; whoever changes one changes this."""
    assert (zip_reader.MAX_BYTES, zip_reader.MAX_RATIO) == (17_179_869_184, 1032)
    assert (zip_reader.MAX_MEMBERS, zip_reader.MAX_DIRECTORY) == (100_000, 33_554_432)
    assert (zip_reader.MAX_MEMBER, zip_reader.BOMB) == (67_108_864, 1_073_741_824)
    assert (zip_reader.MAX_GROWTH, zip_writer.DEFLATE_LIMIT) == (200, 1_073_741_824)
    assert (names.MAX_PART, names.MAX_NAME, names.MAX_DEPTH) == (255, 1024, 32)
    assert names.MAX_FOLDERS == 10_000
    assert (quarantine.MAX_TAKEN, quarantine.MAX_STREAM) == (8_589_934_592, 34_359_738_368)
    assert quarantine.MAX_HEADER == 4_194_304
    assert (zip_writer.LEVEL, zip_writer.DOS_DATE) == (9, 0x21)
    assert (zip_writer.UTF8_FLAG, zip_writer.UNIX) == (0x800, 3)
    assert (zip_writer._U16, zip_writer._U32) == (0xFFFF, 0xFFFFFFFF)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["x" * 255, "ü" * 127 + "x", "/".join(["y" * 204] * 5), "/".join("a" * 33), "a b/c.d"]
)
def test_names_at_the_bound(name: str) -> None:
    names.check_name(name, archive="x.zip")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 256, "a component is longer than 255 bytes"),
        ("ü" * 128, "a component is longer than 255 bytes"),
        ("/".join(["y" * 204] * 4) + "/" + "y" * 205, "it is longer than 1024 bytes"),
        ("/".join("a" * 34), "it lies in more than 32 folders"),
        ("a\x1fb", "it holds a control character"),
        ("a\x7fb", "it holds a control character"),
        ("a\0b", "it holds a NUL"),
        (":", "it holds a colon"),
        ("a:", "it starts with a drive letter"),
        ("ab:c", "it holds a colon"),
        ("a ", "ends in a dot or blank"),
        ("com¹.txt", "'com¹.txt' is a device"),
        ("CONIN$", "is a device"),
        ("aux .x", "is a device"),
        ('a"b<', "it holds '\"', which Windows forbids"),
        ("..", "it climbs out"),
        ("a/", "an empty or '.' component"),
    ],
)
def test_names_that_are_refused(name: str, words: str) -> None:
    with refused(words):
        names.check_name(name, archive="x.zip")


def test_long_names_are_shortened_in_messages() -> None:
    for length, shown in ((80, "a" * 80), (81, "a" * 77 + "...")):
        name = "a" * length
        with pytest.raises(ArchiveError) as caught:
            raise names._refuse("x.zip", name, "why")
        assert caught.value.what == f"unsafe member name '{shown}': why"
        assert caught.value.where == f"x.zip: '{shown}'"


def test_what_this_host_alone_must_hold() -> None:
    for name in ("ab:c/d", "nul", "what?", "a.", "b "):
        names.check_name(name, archive="x.whl", portable=False)
        with refused("unsafe member name"):
            names.check_name(name, archive="x.whl")


def test_folders_are_counted_once() -> None:
    folders = names.Folders("x.zip", most=3)
    for name in ("a/b/one", "a/b/two", "a/three", "top", "a/c/x"):
        folders.add(name)
    with refused("x.zip makes more than 3 folders", "x.zip"):
        folders.add("d/x")


@pytest.mark.parametrize(
    ("given", "strict", "loose"),
    [
        (["a", "b"], None, None),
        (["a", "a"], ("a", "a"), ("a", "a")),
        (["a", "A"], ("a", "A"), None),
        (["é", "e\u0301"], ("é", "e\u0301"), None),
        (["a", "a/b/c"], ("a", "a/b/c"), ("a", "a/b/c")),
        (["a/b/c", "a"], ("a/b/c", "a"), ("a/b/c", "a")),
        (["a/b", "A/c"], None, None),
        (["A/b", "a"], ("A/b", "a"), None),
        (["x/a/b", "y", "x/a"], ("x/a/b", "x/a"), ("x/a/b", "x/a")),
    ],
)
def test_names_that_are_one_file(given: list[str], strict: Any, loose: Any) -> None:
    assert names.collisions(given) == strict
    assert names.collisions(given, portable=False) == loose


# -- writing ---------------------------------------------------------------------------------------


def test_a_written_zip_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest = tmp_path / "a" / "b" / "x.zip"
    seen: list[tuple[bool, int]] = []

    def sync(number: int) -> None:
        info = os.fstat(number)
        seen.append((dest.exists(), info.st_size if info.st_mode & 0o100000 else -1))

    monkeypatch.setattr(os, "fsync", sync)
    with write_aside(dest) as stream:
        stream.write(b"12345")
        assert [path.name[:8] for path in dest.parent.iterdir()] == [".qbuild-"]
        assert next(dest.parent.iterdir()).suffix == ".part"
    folder = [] if WINDOWS else [(True, -1)]  # there folders cannot be opened
    assert seen == [(False, 5), *folder], "the file, and after its renaming the folder"
    assert dest.read_bytes() == b"12345" and dest.stat().st_mode & 0o777 == kept(0o644)
    assert list(dest.parent.iterdir()) == [dest]
    with write_aside(dest) as stream:
        stream.write(b"6")
    assert dest.read_bytes() == b"6"


@lists_open_files
def test_folders_are_closed_after_they_were_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    real = os.close

    def close(number: int) -> None:
        closed.append(number)
        real(number)

    monkeypatch.setattr(os, "close", close)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        zip_writer._sync_folder(tmp_path)
    assert len(closed) == 5 and len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    zip_writer._sync_folder(tmp_path / "gone")


@pytest.mark.parametrize(
    ("error", "words"), [(OSError(errno.EDQUOT, "Quota"), "Quota"), (OSError("odd"), "odd")]
)
def test_a_disk_that_fails_while_writing(
    tmp_path: Path, error: OSError, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", fail)
        with refused(f"x.zip could not be written: {words}", str(tmp_path / "x.zip")):
            write_zip(tmp_path / "x.zip", [])
    with pytest.raises(KeyboardInterrupt), write_aside(tmp_path / "x.zip") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fail)
        with refused(f"a cannot be read: {words}", "x.zip: a"):
            write_zip(tmp_path / "x.zip", [ZipEntry(name="a", source=tmp_path / "f")])
        with refused(f"x.zip cannot be read: {words}", str(tmp_path / "x.zip")):
            write_sha256(tmp_path / "x.zip")


def test_a_known_sum_is_not_worked_out_again(tmp_path: Path) -> None:
    path = write_sha256(tmp_path / "x.zip", "ab" * 32)
    assert path.name == "x.zip.sha256" and path.read_text() == "ab" * 32 + "  x.zip\n"


def test_two_names_of_one_file_are_named(tmp_path: Path) -> None:
    entries = [ZipEntry(name=name, source=b"") for name in ("b", "A", "a")]
    with refused("'A' and 'a' would be one file when unpacked", "x.zip: a"):
        write_zip(tmp_path / "x.zip", entries)


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_files_up_to_the_limit_are_compressed(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_writer, "DEFLATE_LIMIT", 1000)
    file = tmp_path / "file"
    file.write_bytes(b"x" * size)
    done = write_zip(tmp_path / "x.zip", [ZipEntry(name="f", source=file)])
    with open_zip(done.path) as view:
        assert view.member("f").method == (8 if size <= 1000 else 0)
        assert view.read("f") == b"x" * size
    assert done.size == done.path.stat().st_size


@pytest.mark.parametrize("second", [b"12346", b"123455", b"1234", b""])
def test_a_file_that_changes_while_it_is_packed(second: bytes) -> None:
    class Changing(io.BytesIO):
        def seek(self, *_: Any) -> int:
            self.__init__(second)  # type: ignore[misc]
            return 0

    output = zip_writer._Output(io.BytesIO())
    item = ZipEntry(name="f", source=b"")
    with refused("f changed while it was packed", "x.zip: f"):
        zip_writer._write_stored(output, item, Changing(b"12345"), "x.zip")


def test_a_mapped_file_is_let_go(tmp_path: Path) -> None:
    """Else Windows could not delete it, and a mapping could not be closed."""
    file = tmp_path / "file"
    file.write_bytes(TEXT)
    with file.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        view = memoryview(mapped)
        zip_writer._write_whole(
            zip_writer._Output(io.BytesIO()), ZipEntry(name="f", source=b""), view
        )
        mapped.close()  # raises while somebody looks at it


def test_content_that_does_not_shrink_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte less is worth it; the same number of bytes is not."""
    import deflate

    with monkeypatch.context() as patch:
        patch.setattr(deflate, "deflate_compress", lambda content, _: b"x" * len(content))
        output = zip_writer._Output(io.BytesIO())
        same = zip_writer._write_whole(output, ZipEntry(name="f", source=b""), b"12345")
        assert (same.method, same.packed) == (0, 5)
    entries = [ZipEntry(name=f"{n}", source=b"a" * n) for n in range(12)]
    path = write_zip(tmp_path / "x.zip", entries).path
    with open_zip(path) as view:
        for n in range(12):
            member = view.member(f"{n}")
            assert (member.method == 8) is (member.packed < n), n
            assert member.packed <= n
        view.test()
    with zipfile.ZipFile(path) as other:
        assert other.testzip() is None


U32 = 0xFFFFFFFF


def record(**fields: int) -> zip_writer._Record:
    values = {"method": 0, "crc": 1, "packed": 5, "size": 6, "offset": 7, "mode": 0o100644}
    return zip_writer._Record(name=b"n", **{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["packed", "size", "offset"])
@pytest.mark.parametrize("value", [U32 - 1, U32, U32 + 1])
def test_values_of_32_bits_and_more(field: str, value: int) -> None:
    """APPNOTE 4.5.3: all ones stand for "see the zip64 field", so that value needs one, too."""
    large = value >= U32
    rec = record(**{field: value})
    central = zip_writer._central_header(rec)
    version = 45 if large else 20
    assert central[:8] == b"PK\x01\x02" + bytes([version, 3, version, 0])
    short = [min(getattr(rec, name), U32) for name in ("packed", "size")]
    assert struct.unpack_from("<2L", central, 20) == tuple(short)
    assert struct.unpack_from("<L", central, 42) == (min(rec.offset, U32),)
    assert central[46:] == b"n" + (struct.pack("<2HQ", 1, 8, value) if large else b"")
    assert struct.unpack_from("<3H", central, 28) == (1, 12 if large else 0, 0)
    assert struct.unpack_from("<L", central, 38) == (0o100644 << 16,)
    local = zip_writer._local_header(rec)
    if field == "offset" or not large:
        assert local[4:6] == b"\x14\0" and local[30:] == b"n"
        assert struct.unpack_from("<2L", local, 18) == (rec.packed, rec.size)
        assert struct.unpack_from("<2H", local, 26) == (1, 0)
    else:
        assert local[4:6] == b"\x2d\0"
        assert struct.unpack_from("<2L", local, 18) == (U32, U32)
        assert local[30:] == b"n" + struct.pack("<2H2Q", 1, 16, rec.size, rec.packed)
        assert struct.unpack_from("<2H", local, 26) == (1, 20)


@pytest.mark.parametrize(
    ("start", "count", "large"), [(U32 - 1, 1, False), (U32, 1, True), (5, 2, False), (5, 3, True)]
)
def test_when_the_end_is_a_zip64_one(
    start: int, count: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_writer, "_U16", 3)
    stream = io.BytesIO()
    output = zip_writer._Output(stream)
    output.size = start
    zip_writer._write_directory(output, [record()] * count)
    data = stream.getvalue()
    size = 47 * count
    tail = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, min(start, U32), 0
    )  # fmt: skip
    more = end64(count, size, start, start + size) if large else b""
    assert data[size:] == more + tail


def test_a_directory_of_four_gigabytes_is_a_zip64_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, large in ((47, True), (48, False)):
        monkeypatch.setattr(zip_writer, "_U32", limit)
        stream = io.BytesIO()
        zip_writer._write_directory(zip_writer._Output(stream), [record()])
        assert (b"PK\x06\x06" in stream.getvalue()) is large
