"""Whatever byte of a bundle is changed: refused, and the message names something."""

from pathlib import Path

import pytest

from qbuild.verify import verify_zip
from support.verify_zips import Made, findings

pytestmark = pytest.mark.integration


def test_every_byte_counts(tmp_path: Path) -> None:
    path = Made(files={"a.txt": b"some text, some text, some text"}).write(tmp_path)
    assert verify_zip(path).ok
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        verdict = verify_zip(path)
        assert not verdict.ok, f"byte {at:#x}"
        assert findings(verdict), f"byte {at:#x}"


@pytest.mark.parametrize("cut", [1, 2, 21, 22, 23, 100])
def test_a_cut_zip_is_refused(tmp_path: Path, cut: int) -> None:
    path = Made(files={"a.txt": b"some text"}).write(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert not verify_zip(path).ok
    path.write_bytes(data + bytes(cut))
    assert not verify_zip(path).ok
