"""Git objects out of a stranger's sdist: every packing, within bounds, and no other error."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import random
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from qbuild.source import quarantine
from qbuild.source.quarantine import Forged, Taken, Unusable, take_from_sdist

BLOB = b"blob 4\0text"
ID = hashlib.sha1(BLOB, usedforsecurity=False).hexdigest()
LOOSE = f"p-1/r/objects/{ID[:2]}/{ID[2:]}"
OBJECT = zlib.compress(BLOB)


def tar(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def take(folder: Path, data: bytes) -> Taken:
    path = folder / "x.tar.gz"
    path.write_bytes(data)
    (folder / "repo" / "objects").mkdir(parents=True, exist_ok=True)
    return take_from_sdist(path, "r", folder / "repo", lambda _done, _size: None)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_tar_in_any_packing(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    shallow = b"a" * 40 + b"\n"
    data = tar(("p-1/other", b"x" * 5000), (LOOSE, OBJECT), ("p-1/r/shallow", shallow))
    assert take(tmp_path, pack(data)) == Taken(bytes=len(OBJECT))
    assert (tmp_path / "repo" / "objects" / ID[:2] / ID[2:]).read_bytes() == OBJECT
    assert (tmp_path / "repo" / "shallow").read_bytes() == shallow


def test_how_much_of_a_tar_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(tar(("p-1/" + "l" * 800, b""), (LOOSE, OBJECT)))
    size = 1024  # the long name and its zero byte, in blocks of 512
    monkeypatch.setattr(quarantine, "MAX_HEADER", size)
    assert take(tmp_path, data).bytes
    monkeypatch.setattr(quarantine, "MAX_HEADER", size - 1)
    with pytest.raises(Forged, match="it has a header of 1024 bytes"):
        take(tmp_path, data)


@pytest.mark.parametrize("skipped", [b"", b"x" * 6000], ids=["headers", "content"])
def test_how_much_a_tar_may_unpack_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skipped: bytes
) -> None:
    """Members that nobody wants count as well."""
    data = tar(*((f"p-1/{number}", skipped) for number in range(10)), (LOOSE, OBJECT))
    monkeypatch.setattr(quarantine, "MAX_STREAM", len(data))
    assert take(tmp_path, gzip.compress(data)).bytes
    monkeypatch.setattr(quarantine, "MAX_STREAM", 3000)
    with pytest.raises(Forged, match="it unpacks to more than 0 GiB"):
        take(tmp_path, gzip.compress(data))


def test_random_damage_gives_objects_or_a_verdict(tmp_path: Path) -> None:
    chance = random.Random(5)
    plain = tar(("p-1/" + "l" * 150, b""), (LOOSE, OBJECT), ("p-1/r/shallow", b"a" * 40 + b"\n"))
    for number in range(300):
        changed = bytearray(plain)
        for _ in range(chance.randint(1, 5)):
            changed[chance.randrange(3500)] = chance.randrange(256)
        packed = bytearray(chance.choice((gzip.compress, lzma.compress))(changed))
        if number % 3 == 0:
            packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        try:
            take(tmp_path, bytes(packed))
        except (Forged, Unusable) as error:
            assert str(error)
