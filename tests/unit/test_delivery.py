"""What reaches the output folder: the very bytes that were accepted, whole, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from qbuild.cli import build
from qbuild.console import Silent
from qbuild.errors import StoreError, VerifyError
from qbuild.steps.options import Record
from qbuild.store import Store
from qbuild.verify.verdict import Verdict, judge, passed

if TYPE_CHECKING:
    from qbuild.steps.plan import Plan

BYTES = b"a zip" * 1000
KEY = "b" * 64


def verdict(*problems: str, data: bytes = BYTES) -> Verdict:
    check = judge("cpu", "runs on its CPU", problems) if problems else passed("cpu", "runs")
    return Verdict(zip_name="x.zip", sha256=hashlib.sha256(data).hexdigest(), checks=(check,))


class FakePlan(dict[str, Any]):
    """A plan with the bundle step's key and what else the record says of it."""

    zip_name, host, wheels = "x.zip", "linux-x86_64", ()


def plan(key: str = KEY) -> Plan:
    return cast("Plan", FakePlan(bundle=SimpleNamespace(key=key)))


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The zip in the store."""
    path = tmp_path / "store.zip"
    path.write_bytes(BYTES)
    return path


def deliver(finished: Path, dist: Path, found: Verdict, key: str = KEY) -> dict[str, Any]:
    return build.deliver(plan(key), finished, dist, found, Record())


def names(dist: Path) -> list[str]:
    return sorted(path.name for path in dist.iterdir()) if dist.exists() else []


def test_a_zip_comes_with_its_hash_verdict_and_record(finished: Path, tmp_path: Path) -> None:
    dist = tmp_path / "new" / "dist"
    record = deliver(finished, dist, verdict())
    assert (dist / "x.zip").read_bytes() == BYTES
    digest = hashlib.sha256(BYTES).hexdigest()
    assert (dist / "x.zip.sha256").read_text() == f"{digest}  x.zip\n"
    assert record["zip"]["sha256"] == digest == json.loads(
        (dist / "x.zip.verdict.json").read_text()
    )["sha256"]  # fmt: skip
    assert names(dist) == ["x.zip", "x.zip.build.json", "x.zip.sha256", "x.zip.verdict.json"]


def test_a_refused_zip_is_never_delivered(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="is refused"):
        deliver(finished, tmp_path / "dist", verdict("needs AVX"))
    assert names(tmp_path / "dist") == []


@pytest.mark.parametrize("run", [False, True])
def test_the_check_of_a_build_raises_for_what_is_refused(
    finished: Path, tmp_path: Path, run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading may accept it and running may refuse it: each must end the build."""
    bad = judge("run.native.version", "prints its version", ["ended with status 1"])
    monkeypatch.setattr(
        "qbuild.verify.verify_zip", lambda *_, **__: verdict() if run else verdict("needs AVX")
    )
    monkeypatch.setattr("qbuild.verify.run.run_zip", lambda *_, **__: (bad,))
    with pytest.raises(VerifyError, match="is refused"):
        build.check(finished, Store(tmp_path / "store"), Silent(), run=run)


def test_other_bytes_than_those_that_were_checked_are_not_delivered(
    finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="not the zip that was checked"):
        deliver(finished, tmp_path / "dist", verdict(data=BYTES + b"!"))
    assert names(tmp_path / "dist") == []


def test_a_zip_appears_whole_or_not_at_all(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    deliver(finished, dist, verdict())
    reader = (dist / "x.zip").open("rb")
    newer = tmp_path / "newer.zip"
    newer.write_bytes(BYTES[::-1])

    def half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(shutil, "copyfile", half)
        with pytest.raises(StoreError, match="cannot write the zip"):
            deliver(newer, dist, verdict(data=BYTES[::-1]))
    assert (dist / "x.zip").read_bytes() == BYTES
    assert not list(dist.glob(".*"))
    if sys.platform == "win32":  # a file that is open stays what it is there
        with pytest.raises(StoreError, match="another program holds it open"):
            deliver(newer, dist, verdict(data=BYTES[::-1]))
        reader.close()
        return
    deliver(newer, dist, verdict(data=BYTES[::-1]))
    assert (dist / "x.zip").read_bytes() == BYTES[::-1]
    with reader:  # who was copying the old one gets the old one
        assert reader.read() == BYTES


def test_what_a_killed_run_left_is_removed_and_a_living_ones_is_not(
    finished: Path, tmp_path: Path
) -> None:
    import os

    dist = tmp_path / "dist"
    dist.mkdir()
    old, young = dist / ".x.zip.part-1", dist / ".x.zip.part-2"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    deliver(finished, dist, verdict())
    assert not old.exists() and young.exists()


def test_only_the_zip_of_this_very_plan_is_up_to_date(finished: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    deliver(finished, dist, verdict())
    assert build.up_to_date(plan(), dist) is not None
    assert build.up_to_date(plan("c" * 64), dist) is None, "it was made from something else"


@pytest.mark.parametrize(
    "harm",
    [
        lambda dist: (dist / "x.zip").write_bytes(BYTES),  # another time
        lambda dist: (dist / "x.zip").write_bytes(BYTES[:-1]),
        lambda dist: (dist / "x.zip").unlink(),
        lambda dist: (dist / "x.zip.verdict.json").unlink(),
        lambda dist: (dist / "x.zip.build.json").unlink(),
        lambda dist: (dist / "x.zip.build.json").write_text("["),
        lambda dist: (dist / "x.zip.build.json").write_text("[" * 100_000),
        lambda dist: (dist / "x.zip.build.json").write_text('{"bundle": 1}'),
        lambda dist: shutil.copy2(dist / "x.zip", dist / "y") and (dist / "y").replace(
            dist / "x.zip"),
    ],
)  # fmt: skip
def test_what_changed_since_is_not_up_to_date(harm: Any, finished: Path, tmp_path: Path) -> None:
    import os

    dist = tmp_path / "dist"
    deliver(finished, dist, verdict())
    os.utime(dist / "x.zip", ns=(1000, 1000))  # Windows counts in steps of 100 ns
    record = json.loads((dist / "x.zip.build.json").read_text())
    record["zip"]["mtime_ns"] = 1000
    (dist / "x.zip.build.json").write_text(json.dumps(record))
    assert build.up_to_date(plan(), dist) is not None
    harm(dist)
    assert build.up_to_date(plan(), dist) is None
