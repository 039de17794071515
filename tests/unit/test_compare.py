"""Comparing two zips: the member, the section, the bytes and the likely reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.verify.compare import compare_members, compare_zips


def make(path: Path, files: dict[str, bytes]) -> Path:
    write_zip(path, [ZipEntry(name=name, source=data) for name, data in files.items()])
    return path


def test_equal_zips_are_identical(tmp_path: Path) -> None:
    files = {"a.txt": b"hello", "b.txt": b"world"}
    result = compare_zips(make(tmp_path / "1.zip", files), make(tmp_path / "2.zip", files))
    assert result.identical
    assert result.sha256[0] == result.sha256[1]
    assert result.as_json()["differences"] == []


def test_a_changed_member_is_named_with_offset_and_text(tmp_path: Path) -> None:
    one = make(tmp_path / "1.zip", {"a.txt": b"hello world", "same": b"x"})
    two = make(tmp_path / "2.zip", {"a.txt": b"hello earth", "same": b"x"})
    result = compare_zips(one, two)
    assert not result.identical
    (difference,) = result.differences
    assert (difference.member, difference.offset) == ("a.txt", 6)
    assert b"world" in difference.first and b"earth" in difference.second
    assert "a.txt" in result.headline()


def test_a_member_that_only_one_side_has_is_named(tmp_path: Path) -> None:
    one = make(tmp_path / "1.zip", {"a": b"x", "b": b"y"})
    two = make(tmp_path / "2.zip", {"a": b"x"})
    (difference,) = compare_zips(one, two).differences
    assert difference.member == "b"
    assert "only the first build" in difference.reason


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (b"built at 12:34:56 by", b"built at 12:35:01 by", "__TIME__"),
        (b"on Nov 29 2026 in", b"on Nov 30 2026 in", "__DATE__"),
        (b"x /home/me/src/f.c x", b"x /srv/you/src/f.c x", "a path of the build folder"),
        (b"aaaa", b"bbbb", ""),
    ],
)
def test_the_reason_is_guessed_from_the_bytes(left: bytes, right: bytes, reason: str) -> None:
    (difference,) = compare_members("f", left, right)
    assert reason in difference.reason


def test_a_longer_file_is_named_by_its_lengths() -> None:
    (difference,) = compare_members("f", b"abc", b"abcd")
    assert "3 and 4 bytes" in difference.reason
