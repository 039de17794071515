"""The zip as verify looks at it: unpacked and hashed, its form, and where it differs from ours."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild import process
from qbuild.binary.zip_reader import ZipMember, open_zip
from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.errors import VerifyError
from qbuild.process import Stopped
from qbuild.verify import structure
from qbuild.verify.structure import repack_problems, structure_problems, unpack
from support.raw_zips import Raw, raw_zip
from support.systems import kept

TEXT = b"The quick brown fox jumps over the lazy dog. " * 40


class Steps:
    """A task that remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int | None, str | None]] = []

    def update(
        self, *, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        assert total is None
        self.seen.append((done, note))


def zip_at(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    return path


def test_everything_is_unpacked_once_and_hashed(tmp_path: Path) -> None:
    """A damaged member is named, leaves nothing, and does not stop the others."""
    data = raw_zip(
        Raw(name=b"a/b/tool", data=TEXT, method=8, attributes=0o100711 << 16),
        Raw(name=b"a/b/two"),
        Raw(name=b"bad", crc=1),
        Raw(name=b"last"),
    )
    steps, root = Steps(), tmp_path / "out"
    before = os.umask(0o077)
    try:
        with open_zip(zip_at(tmp_path, data)) as view:
            found = unpack(view, root, steps)
    finally:
        os.umask(before)
    assert found.root == root and set(found.files) == {"a/b/tool", "a/b/two", "last"}
    assert found.damaged == {"bad": "bad in x.zip is damaged: its CRC does not match its content"}
    assert not (root / "bad").exists()
    tool = found.files["a/b/tool"]
    assert (tool.path, tool.size, tool.executable) == (root / "a/b/tool", len(TEXT), True)
    assert tool.sha256 == hashlib.sha256(TEXT).hexdigest() and tool.path.read_bytes() == TEXT
    assert found.files["last"].executable is False
    modes = [each.path.stat().st_mode & 0o777 for each in found.files.values()]
    assert modes == [kept(mode) for mode in (0o755, 0o644, 0o644)]
    size = len(TEXT)
    assert steps.seen == [
        (size, "a/b/tool"), (size + 7, "a/b/two"), (size + 14, "bad"), (size + 21, "last"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "words"), [(OSError(errno.ENOSPC, "No space left"), "No space left"),
                         (OSError("odd"), "odd")]
)  # fmt: skip
def test_a_full_scratch_folder_is_no_verdict(
    tmp_path: Path, error: OSError, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with open_zip(zip_at(tmp_path, raw_zip(Raw()))) as view:
        monkeypatch.setattr(Path, "chmod", fail)
        with pytest.raises(VerifyError) as caught:
            unpack(view, tmp_path / "out", Steps())
    assert caught.value.what == f"x.zip cannot be unpacked for checking: {words}"
    assert caught.value.where == str(tmp_path / "out" / "file.txt")
    assert "TMPDIR" in str(caught.value.fix)


def test_being_stopped_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_stop_asked", True)
    with open_zip(zip_at(tmp_path, raw_zip(Raw()))) as view, pytest.raises(Stopped):
        unpack(view, tmp_path / "out", Steps())


def problems(tmp_path: Path, *members: Raw) -> list[str]:
    with open_zip(zip_at(tmp_path, raw_zip(*members))) as view:
        return list(structure_problems(view))


DATED = "has a time of its own; a bundle's files are all dated 1980-01-01"


def test_a_form_that_is_ours(tmp_path: Path) -> None:
    assert problems(tmp_path, Raw(), Raw(name=b"tool", attributes=0o100755 << 16)) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attributes": 0o100711 << 16}, ["has mode 100711 instead of 100755 or 100644"]),
        ({"system": 19}, ["was stored by system 19, not by qbuild's writer"]),
        ({"flags": 0x808}, ["has flags 0x0808 instead of 0x0800"]),
        ({"flags": 0}, ["has flags 0x0000 instead of 0x0800"]),
        ({"extra": b"\xca\xfe\0\0"}, ["carries 4 bytes of extra fields"]),
    ],
)
def test_a_form_that_is_not_ours(tmp_path: Path, fields: dict[str, Any], said: list[str]) -> None:
    assert problems(tmp_path, Raw(**fields)) == [f"file.txt: {line}" for line in said]


def test_members_that_are_not_sorted_are_told_once(tmp_path: Path) -> None:
    assert problems(tmp_path, Raw(name=b"c"), Raw(name=b"b"), Raw(name=b"a")) == [
        "c: is stored where a belongs; members are not sorted"
    ]


LIMIT = 0xFFFFFFFF


def member(**fields: Any) -> ZipMember:
    values = {
        "name": "ü", "size": 7, "packed": 5, "crc": 1, "method": 8, "flags": 0x800,
        "mode": 0o100644, "offset": 0, "made_by": 3 << 8 | 20, "dos": 0x21 << 16, "extra": 0,
    }  # fmt: skip
    return ZipMember(**{**values, **fields})


@pytest.mark.parametrize("field", ["size", "packed", "offset"])
def test_large_members_may_carry_the_zip64_field(field: str) -> None:
    assert list(structure._member_problems(member(extra=12, **{field: LIMIT}))) == []
    assert list(structure._member_problems(member(extra=12, **{field: LIMIT - 1}))) == [
        "ü: carries 12 bytes of extra fields"
    ]
    assert list(structure._member_problems(member(dos=0x21 << 16 | 1))) == [f"ü: {DATED}"]


def test_how_long_a_stored_member_is() -> None:
    assert structure._stored_length(member()) == 30 + 2 + 5
    assert structure._stored_length(member(packed=LIMIT - 1)) == 30 + 2 + LIMIT - 1
    assert structure._stored_length(member(packed=LIMIT)) == 30 + 2 + 20 + LIMIT
    assert structure._stored_length(member(size=LIMIT)) == 30 + 2 + 20 + 5


def test_where_a_zip_differs_from_ours(tmp_path: Path) -> None:
    ours = write_zip(
        tmp_path / "ours.zip",
        [ZipEntry(name="a", source=TEXT), ZipEntry(name="b", source=b"short", executable=True)],
    ).path.read_bytes()
    second = ours.index(b"PK\x03\x04", 1)
    directory = ours.index(b"PK\x01\x02")

    def said(data: bytes) -> list[str]:
        path = zip_at(tmp_path, data)
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        root = scratch / "files"
        with open_zip(path) as view:
            found = unpack(view, root, Steps())
            out = list(repack_problems(path, view, found, scratch))
        assert not (scratch / "again.zip").exists()
        for file in root.rglob("*"):
            file.unlink()
        root.rmdir()
        return out

    def changed(at: int) -> bytes:
        data = bytearray(ours)
        data[at] ^= 1
        return bytes(data)

    def line(at: int, place: str) -> list[str]:
        return [f"x.zip: byte {at:#x}, {place}, is not what qbuild writes for these files"]

    assert said(ours) == []
    assert said(changed(10)) == line(10, "in the header of a")  # its time of day
    assert said(changed(second + 10)) == line(second + 10, "in the header of b")
    assert said(changed(directory + 12)) == line(
        directory + 12, "after b (directory or stray bytes)"
    )


def test_a_difference_within_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which place it is, is worked out from offsets alone."""
    path = zip_at(tmp_path, raw_zip(Raw(name=b"a"), Raw(name=b"b", data=b"longer content")))
    view: Any = open_zip(path)
    unpacked: Any = SimpleNamespace(files={})
    ends = {0: "in the header of a", 30: "in the header of a", 31: "in the compressed data of a",
            37: "in the compressed data of a", 38: "in the header of b", 68: "in the header of b",
            69: "in the compressed data of b", 82: "in the compressed data of b",
            83: "after b (directory or stray bytes)", 500: "after b (directory or stray bytes)",
            -1: "before the first file"}  # fmt: skip
    for at, place in ends.items():
        monkeypatch.setattr(structure, "_first_difference", lambda *_, at=at: at)
        (line,) = repack_problems(path, view, unpacked, tmp_path)
        assert place in line, at
    view.close()


@pytest.mark.parametrize(
    ("one", "two", "at"),
    [
        (b"", b"", None),
        (b"same", b"same", None),
        (b"0123456789", b"0123456789", None),
        (b"same", b"samE", 3),
        (b"0123456789", b"01234567x9", 8),
        (b"01234567", b"012345678", 8),
        (b"0123", b"012", 3),
        (b"", b"x", 0),
    ],
)
def test_the_first_byte_that_differs(
    tmp_path: Path, one: bytes, two: bytes, at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "_CHUNK", 4)
    for name, data in (("one", one), ("two", two)):
        (tmp_path / name).write_bytes(data)
    assert structure._first_difference(tmp_path / "one", tmp_path / "two") == at
    assert structure._first_difference(tmp_path / "two", tmp_path / "one") == at


def test_the_second_zip_is_removed_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zip_at(tmp_path, raw_zip(Raw()))

    def fail(dest: Path, _: Any) -> None:
        dest.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(structure, "write_zip", fail)
    unpacked: Any = SimpleNamespace(files={})
    with open_zip(path) as view, pytest.raises(KeyboardInterrupt):
        list(repack_problems(path, view, unpacked, tmp_path))
    assert not (tmp_path / "again.zip").exists()
