"""The zip container: fixed bytes when writing, no trust when reading."""

from __future__ import annotations

import hashlib
import locale
import os
import random
import stat
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbuild.binary import zip_writer
from qbuild.binary.names import _DEVICES
from qbuild.binary.zip_writer import ZipEntry, open_zip, write_aside, write_sha256, write_zip
from qbuild.errors import ArchiveError
from qbuild.hashing import sha256_file
from support.links import make_link
from support.raw_zips import Raw, raw_zip
from support.systems import kept

TEXT = b"The quick brown fox jumps over the lazy dog. " * 40

TINY = (
    ZipEntry(name="b/tool.exe", source=TEXT, executable=True),
    ZipEntry(name="a.txt", source=b"short"),
    ZipEntry(name="empty", source=b""),
    ZipEntry(name="ä/日本.txt", source=bytes(range(256)) * 8),
)

# Pins container and compressor: when it changes, every zip ever published changes.
# On purpose? Then raise archive.FORMAT, too.
TINY_SHA256 = "d8ba1aa9e022b5a3779639b35e583856bda92c4a54a6f0496af36f542b207798"


# -- writing -----------------------------------------------------------------------------------


def test_tiny_zip_has_the_golden_bytes(tmp_path: Path) -> None:
    written = write_zip(tmp_path / "tiny.zip", TINY)
    assert written.sha256 == TINY_SHA256
    assert written.sha256 == hashlib.sha256(written.path.read_bytes()).hexdigest()
    assert written.size == written.path.stat().st_size
    assert zip_writer.FORMAT == 1


@pytest.fixture
def strange_process() -> Iterator[None]:
    """Another umask, time zone and locale than the developer's."""
    mask, zone = os.umask(0o077), os.environ.get("TZ")
    previous = locale.setlocale(locale.LC_ALL)
    os.environ["TZ"] = "Pacific/Kiritimati"
    getattr(time, "tzset", lambda: None)()  # Windows has none
    for name in ("tr_TR.UTF-8", "C.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
            break
        except locale.Error:
            continue
    yield
    os.umask(mask)
    os.environ.pop("TZ")
    if zone is not None:
        os.environ["TZ"] = zone
    getattr(time, "tzset", lambda: None)()  # Windows has none
    locale.setlocale(locale.LC_ALL, previous)


def test_order_umask_zone_and_locale_do_not_matter(tmp_path: Path, strange_process: None) -> None:
    shuffled = list(TINY)
    random.Random(7).shuffle(shuffled)
    assert write_zip(tmp_path / "x.zip", shuffled).sha256 == TINY_SHA256
    assert stat.S_IMODE((tmp_path / "x.zip").stat().st_mode) == kept(0o644)


def test_a_file_gives_the_bytes_of_its_content(tmp_path: Path) -> None:
    entries = []
    for number, entry in enumerate(TINY):
        path = tmp_path / str(number)
        assert isinstance(entry.source, bytes)
        path.write_bytes(entry.source)
        path.chmod(0o777)
        os.utime(path, (number, number))
        entries.append(ZipEntry(name=entry.name, source=path, executable=entry.executable))
    assert write_zip(tmp_path / "x.zip", entries).sha256 == TINY_SHA256


def test_the_standard_library_reads_it(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "tiny.zip", TINY).path
    with zipfile.ZipFile(path) as other:
        assert other.testzip() is None
        infos = {info.filename: info for info in other.infolist()}
    assert sorted(infos) == sorted(entry.name for entry in TINY)
    assert {info.date_time for info in infos.values()} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.create_system for info in infos.values()} == {3}
    assert infos["b/tool.exe"].external_attr >> 16 == 0o100755
    assert infos["a.txt"].external_attr >> 16 == 0o100644
    assert infos["a.txt"].compress_type == zipfile.ZIP_STORED  # deflate would make it longer
    assert infos["b/tool.exe"].compress_type == zipfile.ZIP_DEFLATED


def test_an_empty_zip_is_a_zip(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "none.zip", []).path
    assert zipfile.ZipFile(path).namelist() == []
    with open_zip(path) as view:
        assert view.names == ()


def test_large_files_are_stored_without_loading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_writer, "DEFLATE_LIMIT", 1000)
    big = tmp_path / "big"
    big.write_bytes(TEXT)
    path = write_zip(tmp_path / "x.zip", [ZipEntry(name="big", source=big)]).path
    with open_zip(path) as view:
        assert view.member("big").method == 0
        assert view.read("big") == TEXT


def test_headers_beyond_four_gigabytes_use_zip64() -> None:
    size = (1 << 32) + 5
    record = zip_writer._Record(
        name=b"big", method=0, crc=1, packed=size, size=size, offset=0, mode=0o100644
    )
    local, central = zip_writer._local_header(record), zip_writer._central_header(record)
    assert local[4:6] == struct.pack("<H", 45)
    assert struct.pack("<2H2Q", 1, 16, size, size) in local
    assert struct.pack("<2H2Q", 1, 16, size, size) in central
    late = zip_writer._Record(
        name=b"late", method=0, crc=1, packed=5, size=5, offset=size, mode=0o100644
    )
    assert zip_writer._central_header(late).endswith(b"late" + struct.pack("<2HQ", 1, 8, size))
    assert zip_writer._local_header(late).endswith(b"late")


def test_zip64_end_records_are_read_by_both_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_writer, "_U16", 3)  # four members are now "too many" for the old record
    path = tmp_path / "x.zip"
    write_zip(path, TINY)
    data = bytearray(path.read_bytes())
    data[-14:-10] = b"\xff" * 4  # what a real one says: the count is elsewhere
    path.write_bytes(data)
    assert b"PK\x06\x06" in data
    assert zipfile.ZipFile(path).testzip() is None
    with open_zip(path) as view:
        view.test()
        assert len(view.names) == 4


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["../x"], "climbs out"),
        (["a", "a"], "would be one file"),
        (["a", "A"], "would be one file"),
        (["a", "a/b"], "would be one file"),
        (["\udc80"], "not valid Unicode"),
    ],
)
def test_unsafe_names_are_not_written(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        write_zip(tmp_path / "x.zip", [ZipEntry(name=name, source=b"") for name in names])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_source_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    entries = [ZipEntry(name="lib/x.dll", source=tmp_path / "gone")]
    with pytest.raises(ArchiveError, match=r"lib/x\.dll cannot be read"):
        write_zip(tmp_path / "x.zip", entries)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    dest = tmp_path / "x.zip"
    dest.write_bytes(b"old")
    with pytest.raises(ArchiveError) as caught, write_aside(dest) as stream:
        stream.write(b"new")
        raise OSError(28, "No space left on device")
    assert caught.value.exit_code == 15
    assert "x.zip could not be written: No space left on device" in str(caught.value)
    assert dest.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [dest]


def test_the_sum_file_is_what_sha256sum_writes(tmp_path: Path) -> None:
    written = write_zip(tmp_path / "x.zip", TINY)
    path = write_sha256(written.path)
    assert path.read_bytes() == f"{TINY_SHA256}  x.zip\n".encode()
    assert sha256_file(written.path) == TINY_SHA256
    with pytest.raises(ArchiveError, match="cannot be read"):
        write_sha256(tmp_path / "gone.zip")


# -- round trips -------------------------------------------------------------------------------

PARTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters='\\/:<>"|?*.'),
    min_size=1,
    max_size=12,
).filter(lambda part: part.lower() not in _DEVICES)
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
FILES = st.dictionaries(NAMES, st.tuples(st.binary(max_size=3000), st.booleans()), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=FILES)
def test_round_trip(
    files: dict[str, tuple[bytes, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    entries = [
        ZipEntry(name=name, source=data, executable=program)
        for name, (data, program) in files.items()
    ]
    try:
        path = write_zip(folder / "x.zip", entries).path
    except ArchiveError as error:
        assert "would be one file" in error.what
        return
    assert write_zip(folder / "y.zip", reversed(entries)).path.read_bytes() == path.read_bytes()
    with open_zip(path) as view:
        assert list(view.names) == sorted(files)
        assert {name: view.read(name) for name in view.names} == {
            name: data for name, (data, _) in files.items()
        }
        view.extract_to(folder / "out")
    for name, (data, program) in files.items():
        out = folder / "out" / name
        assert out.read_bytes() == data
        if os.name == "posix":  # elsewhere the name says what can be run
            assert bool(out.stat().st_mode & 0o100) is program
    assert zipfile.ZipFile(path).testzip() is None


def test_reads_zips_of_others(tmp_path: Path) -> None:
    path = tmp_path / "wheel.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as other:
        other.writestr("pkg/", "")
        other.writestr("pkg/mod.py", TEXT)
        info = zipfile.ZipInfo("pkg/tool", (2020, 5, 6, 7, 8, 10))
        info.external_attr = 0o100755 << 16
        other.writestr(info, b"#!/bin/sh\n")
        with other.open("pkg/streamed", "w", force_zip64=True) as stream:
            stream.write(TEXT)
        other.comment = b"made elsewhere"
    with open_zip(path) as view:
        assert view.names == ("pkg/mod.py", "pkg/streamed", "pkg/tool")
        assert view.read("pkg/mod.py") == TEXT == view.read("pkg/streamed")
        assert view.extract_to(tmp_path / "out", select=lambda name: name.endswith("tool")) == (
            tmp_path / "out" / "pkg" / "tool",
        )
    assert os.access(tmp_path / "out" / "pkg" / "tool", os.X_OK)
    assert not (tmp_path / "out" / "pkg" / "mod.py").exists()


def test_extracts_only_into_an_empty_folder(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", TINY).path
    (tmp_path / "out").mkdir()
    make_link(tmp_path / "out" / "b", tmp_path)
    with open_zip(path) as view, pytest.raises(ArchiveError, match="empty folder"):
        view.extract_to(tmp_path / "out")


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    with (
        open_zip(write_zip(tmp_path / "x.zip", TINY).path) as view,
        pytest.raises(ArchiveError, match=r"nope is not in x\.zip"),
    ):
        view.read("nope")


# -- archives that must be refused -------------------------------------------------------------


def named(name: bytes) -> bytes:
    return raw_zip(Raw(name=name))


def cut(data: bytes, where: int) -> bytes:
    return data[:where]


def flip(data: bytes, needle: bytes) -> bytes:
    at = data.index(needle)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


LONG = b"x" * 256
GOOD = raw_zip(Raw())
ZEROS = b"\0" * 100_000

BAD: dict[str, tuple[bytes, str]] = {
    "traversal": (named(b"../evil"), "climbs out of its folder"),
    "traversal inside": (named(b"a/../../evil"), "climbs out of its folder"),
    "absolute": (named(b"/etc/passwd"), "absolute path"),
    "drive letter": (named(b"C:/Windows/x"), "drive letter"),
    "drive relative": (named(b"c:x"), "drive letter"),
    "backslash": (named(b"a\\b"), "backslash"),
    "backslash traversal": (named(b"..\\evil"), "backslash"),
    "network share": (named(b"//server/share"), "absolute path"),
    "NUL": (named(b"good.txt\0.exe"), "NUL"),
    "newline": (named(b"a\nb"), "control character"),
    "escape sequence": (named(b"\x1b[2J"), "control character"),
    "empty name": (named(b""), "it is empty"),
    "only a slash": (named(b"/"), "it is empty"),
    "dot component": (named(b"a/./b"), "'.' component"),
    "double slash": (named(b"a//b"), "'.' component"),
    "long component": (named(LONG), "longer than 255 bytes"),
    "long name": (named(b"/".join([b"x" * 200] * 6)), "longer than 1024 bytes"),
    "bad UTF-8": (named(b"\xff\xfe"), "not valid Unicode"),
    "Windows device": (named(b"sub/NUL.txt"), "a device on Windows"),
    "numbered device": (named(b"com1"), "a device on Windows"),
    "trailing dot": (named(b"file."), "ends in a dot"),
    "trailing blank": (named(b"dir /x"), "ends in a dot or blank"),
    "stream": (named(b"file:stream"), "colon"),
    "question mark": (named(b"what?"), "Windows forbids"),
    "symlink": (raw_zip(Raw(attributes=0o120777 << 16)), "symbolic link"),
    "symlink from DOS": (raw_zip(Raw(attributes=0o120777 << 16, system=0)), "symbolic link"),
    "pipe": (raw_zip(Raw(attributes=0o010644 << 16)), "device, pipe or socket"),
    "device file": (raw_zip(Raw(attributes=0o020644 << 16)), "device, pipe or socket"),
    "duplicate": (raw_zip(Raw(), Raw(data=b"other")), "appears twice"),
    "case collision": (raw_zip(Raw(name=b"a.dll"), Raw(name=b"A.DLL")), "collides with 'a.dll'"),
    "Unicode collision": (
        raw_zip(Raw(name="é".encode()), Raw(name="e\u0301".encode())),
        "collides with",
    ),
    "file and folder": (raw_zip(Raw(name=b"a"), Raw(name=b"a/b")), "collides with 'a'"),
    "folder and file": (raw_zip(Raw(name=b"a/b"), Raw(name=b"a")), "collides with"),
    "folder with content": (named(b"a/"), "a folder with content"),
    "encrypted": (raw_zip(Raw(flags=0x801)), "encrypted"),
    "strongly encrypted": (raw_zip(Raw(flags=0x841)), "encrypted"),
    "LZMA": (raw_zip(Raw(method=14)), "method 14 is not read"),
    "stored sizes differ": (raw_zip(Raw(size=8)), "its two sizes differ"),
    "wrong CRC": (raw_zip(Raw(crc=1)), "CRC does not match"),
    "changed byte": (flip(GOOD, b"content"), "CRC does not match"),
    "changed deflated byte": (
        flip(
            raw_zip(Raw(data=b"0123456789" * 9, method=8)),
            Raw(data=b"0123456789" * 9, method=8).body()[-6:],
        ),
        "damaged",
    ),
    "broken deflate": (
        raw_zip(Raw(data=b"\xff" * 40, method=0, local={}))
        .replace(b"PK\x03\x04\x14\0\0\x08\0\0", b"PK\x03\x04\x14\0\0\x08\x08\0")
        .replace(b"PK\x01\x02\x14\x03\x14\0\0\x08\0\0", b"PK\x01\x02\x14\x03\x14\0\0\x08\x08\0"),
        "compressed data is broken",
    ),
    "more than declared": (raw_zip(Raw(data=ZEROS, method=8, size=5000)), "more than the 5000"),
    "less than declared": (
        raw_zip(Raw(data=ZEROS, method=8, size=100_001)),
        "ends after 100000 of 100001",
    ),
    "impossible ratio": (raw_zip(Raw(data=ZEROS, method=8, size=10**9)), "more than deflate can"),
    "size bomb": (raw_zip(Raw(data=b"\0" * 3_000_000, method=8)), "it unpacks to 3000000 bytes"),
    "zip64 sizes missing": (raw_zip(Raw(size=0xFFFFFFFF)), "zip64 sizes are missing"),
    "overlap": (
        raw_zip(Raw(name=b"a", data=b"x" * 50), Raw(name=b"b", offset=10)),
        "overlaps that of",
    ),
    "same data twice": (raw_zip(Raw(name=b"a"), Raw(name=b"b", offset=0)), "overlaps that of"),
    "data outside": (raw_zip(Raw(offset=4000)), "outside the archive"),
    "data longer than archive": (raw_zip(Raw(size=4000, packed=4000)), "outside the archive"),
    "other local name": (raw_zip(Raw(local={"name": b"fine.txt"})), "local header disagrees"),
    "other local method": (raw_zip(Raw(local={"method": 8})), "local header disagrees"),
    "other local CRC": (raw_zip(Raw(local={"crc": 9})), "local header disagrees"),
    "no local header": (raw_zip(Raw(local={"magic": b"PKxx"})), "no local header"),
    "empty file": (b"", "not a zip"),
    "not a zip": (b"MZ" + bytes(500), "not a zip"),
    "cut short": (cut(GOOD, 60), "not a zip, or it is cut short"),
    "cut in its end": (cut(GOOD, -4), "not a zip, or it is cut short"),
    "start lost": (GOOD[7:], "not where it should be"),
    "bytes in front": (b"#!/bin/sh\n" + GOOD, "not where it should be"),
    "bytes behind": (GOOD + b"extra", "bytes follow its end"),
    "count too high": (raw_zip(Raw(), count=2), "damaged or cut short"),
    "count too low": (raw_zip(Raw(), Raw(name=b"b"), count=1), "holds more than it says"),
    "split": (raw_zip(Raw(), disk=1), "one part of a zip in several files"),
    "directory damaged": (GOOD.replace(b"PK\x01\x02", b"PK\x01\x00"), "damaged or cut short"),
}


def everything(path: Path) -> None:
    with open_zip(path, max_bytes=2_000_000) as view:
        view.test()


@pytest.mark.parametrize("case", BAD)
def test_bad_archives_are_refused(case: str, tmp_path: Path) -> None:
    data, message = BAD[case]
    path = tmp_path / "bad.zip"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        everything(path)
    assert caught.value.exit_code == 15
    assert message in caught.value.what
    assert "bad.zip" in (caught.value.where or "")


def test_there_are_enough_bad_archives() -> None:
    assert len(BAD) >= 20


def test_nothing_is_extracted_outside(tmp_path: Path) -> None:
    for number, (data, _) in enumerate(BAD.values()):
        folder = tmp_path / "jail" / str(number)
        folder.mkdir(parents=True)
        path = folder / "bad.zip"
        path.write_bytes(data)
        with pytest.raises(ArchiveError), open_zip(path, max_bytes=2_000_000) as view:
            view.extract_to(folder / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["jail"]
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert {path.name for folder in (tmp_path / "jail").iterdir() for path in folder.iterdir()} <= {
        "bad.zip",
        "out",
    }


def test_what_only_windows_cannot_hold_may_be_allowed(tmp_path: Path) -> None:
    """A wheel of Linux headers, say, is never unpacked on Windows."""
    path = tmp_path / "wheel.whl"
    path.write_bytes(raw_zip(Raw(name=b"xt_mark.h"), Raw(name=b"xt_MARK.h"), Raw(name=b"aux.h")))
    with open_zip(path, portable=False) as view:
        assert view.names == ("aux.h", "xt_MARK.h", "xt_mark.h")
    with pytest.raises(ArchiveError):
        open_zip(path)


@pytest.mark.parametrize(
    "case",
    [
        "traversal",
        "absolute",
        "drive letter",
        "backslash",
        "NUL",
        "duplicate",
        "file and folder",
        "symlink",
    ],
)
def test_what_is_dangerous_everywhere_is_never_allowed(case: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(BAD[case][0])
    with pytest.raises(ArchiveError):
        open_zip(path, portable=False)


def test_a_folder_or_a_missing_file_is_no_zip(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.zip"):
        with pytest.raises(ArchiveError, match="cannot be opened"):
            open_zip(path)


def mutations(data: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        yield bytes(
            changed[: chance.randint(1, len(changed))] if chance.random() < 0.2 else changed
        )


@pytest.mark.parametrize(
    "make", [lambda: GOOD, lambda: raw_zip(Raw(data=TEXT, method=8), Raw(name=b"b"))]
)
def test_random_damage_gives_content_or_an_archive_error(
    make: Callable[[], bytes], tmp_path: Path
) -> None:
    """Any other exception would reach the user as a traceback."""
    path = tmp_path / "x.zip"
    for data in mutations(make(), 11):
        path.write_bytes(data)
        try:
            everything(path)
        except ArchiveError as error:
            assert error.what
