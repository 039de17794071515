"""Foreign ``.tar.gz`` archives are unpacked without trust."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from qbuild.binary.untar import extract_tar
from qbuild.errors import ArchiveError


def tar(*members: tuple[str, bytes | None], kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """Return a .tar.gz; a member without content is of the given kind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if name.endswith(".sh") else 0o600
            if content is None:
                info.type, info.linkname = kind, link
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def unpack(tmp_path: Path, data: bytes, under: str = "") -> tuple[Path, ...]:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(data)
    return extract_tar(path, tmp_path / "out", under=under, max_bytes=10_000)


def test_files_below_a_folder(tmp_path: Path) -> None:
    data = tar(("pkg-1/a/run.sh", b"#!"), ("pkg-1/a/b/c.txt", b"text"), ("pkg-1/other", b"x"))
    written = unpack(tmp_path, data, "pkg-1/a")
    out = tmp_path / "out"
    assert sorted(written) == [out / "b/c.txt", out / "run.sh"]
    assert (out / "b/c.txt").read_bytes() == b"text"
    if os.name == "posix":  # elsewhere the name says what can be run
        assert (out / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (out / "b/c.txt").stat().st_mode & 0o777 == 0o644


def test_what_lies_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    data = tar(
        ("../evil", b"x"), ("pkg/link", None), ("pkg/in/a", b"x"), kind=tarfile.SYMTYPE, link="/etc"
    )
    assert len(unpack(tmp_path, data, "pkg/in")) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tar(("../evil", b"x")), "climbs out"),
        (tar(("a/../../evil", b"x")), "climbs out"),
        (tar(("/etc/passwd", b"x")), "absolute path"),
        (tar(("C:/x", b"x")), "drive letter"),
        (tar(("a\\b", b"x")), "backslash"),
        (tar(("link", None), kind=tarfile.SYMTYPE, link="/etc"), "a link or a device"),
        (tar(("a", b"x"), ("link", None), kind=tarfile.LNKTYPE, link="a"), "a link or a device"),
        (tar(("fifo", None), kind=tarfile.FIFOTYPE), "a link or a device"),
        (tar(("null", None), kind=tarfile.CHRTYPE), "a link or a device"),
        (tar(("a", b"x"), ("a", b"y")), "File exists"),
        (tar(("a", b"x"), ("a/b", b"y")), "cannot be unpacked"),
        (tar(("bomb", bytes(20_000))), "more than 10000 bytes"),
        (tar(), "holds no files"),
        (b"", "damaged or no .tar.gz"),
        (b"PK\x03\x04" + bytes(100), "damaged or no .tar.gz"),
        (tar(("a", b"x" * 5000))[:60], "damaged or no .tar.gz"),
        (gzip.compress(b"not a tar" * 200), "damaged or no .tar.gz"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_bad_archives_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError) as caught:
        unpack(tmp_path, data)
    assert caught.value.exit_code == 15
    assert message in caught.value.what
    assert not (tmp_path / "evil").exists()


def test_only_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    with pytest.raises(ArchiveError, match="empty folder"):
        unpack(tmp_path, tar(("a", b"x")))


def test_a_missing_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file"):
        extract_tar(tmp_path / "gone.tar.gz", tmp_path / "out")


def test_random_damage_gives_files_or_an_archive_error(tmp_path: Path) -> None:
    chance = random.Random(5)
    plain = gzip.decompress(tar(("a/b", b"text" * 300), ("c", b"d" * 600)))
    path = tmp_path / "x.tar.gz"
    for number in range(200):
        changed = bytearray(plain)
        for _ in range(chance.randint(1, 5)):
            changed[chance.randrange(1600)] = chance.randrange(256)
        packed = bytearray(gzip.compress(changed, 1))
        if number % 3 == 0:
            packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        path.write_bytes(packed)
        try:
            extract_tar(path, tmp_path / str(number), max_bytes=1 << 20)
        except ArchiveError as error:
            assert error.what
