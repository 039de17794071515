"""What the report takes from a record of ``qbuild bench``: only ours, only sane numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from qbuild.extras.report.speed import speed_beside

SHA = "a" * 64


def record(**changes: Any) -> dict[str, Any]:
    load = {"users": 4, "tools": True, "tokens_per_second": 20.5, "first_token_p50": 0.5,
            "first_token_p95": 1.5, "errors": 0}  # fmt: skip
    mine = {
        "sha256": SHA,
        "alone": {"prompt": {"median": 100.0}, "answer": {"median": 9.0}},
        "loaded": [{**load, **changes}],
    }
    return {
        "model": "m.gguf",
        "wish": {"prompt": 256, "answer": 48},
        "machine_busy": False,
        "zips": [{"sha256": "b" * 64}, mine],
    }


def beside(tmp_path: Path, data: object) -> Path:
    text = data if isinstance(data, str) else json.dumps(data)
    (tmp_path / "x.zip.bench.json").write_text(text, encoding="utf-8")
    return tmp_path / "x.zip"


def test_the_record_of_these_very_bytes_is_drawn(tmp_path: Path) -> None:
    speed = speed_beside(beside(tmp_path, record()), SHA)
    assert speed is not None
    assert speed.alone == (("prompt of 256 tokens", 100.0), ("answer of 48 tokens", 9.0))
    (load,) = speed.loads
    assert (load.label, load.rate, load.first_p95) == ("4 users, tools", 20.5, 1.5)
    assert (speed.highest, speed.longest, speed.busy, speed.note) == (20.5, 1.5, False, "")


def test_no_record_no_section(tmp_path: Path) -> None:
    assert speed_beside(tmp_path / "x.zip", SHA) is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "about another file"),
        ('{"zips": 5}', "about another file"),
        ('{"zips": [{"sha256": "c"}]}', "about another file"),
        (" " * (2 << 20), "too large"),
    ],
)
def test_another_record_is_named(tmp_path: Path, data: str, says: str) -> None:
    speed = speed_beside(beside(tmp_path, data), SHA)
    assert speed is not None
    assert says in speed.note
    assert not speed.loads


@pytest.mark.parametrize(
    "value", [None, "1", True, -1, 1e300, float("nan"), float("inf"), [], {}, 10**400]
)
def test_numbers_that_cannot_be_drawn_are_nothing(tmp_path: Path, value: object) -> None:
    speed = speed_beside(beside(tmp_path, record(tokens_per_second=value, users=value)), SHA)
    assert speed is not None
    assert speed.loads[0].rate == 0.0
    assert speed.highest == 1.0


def test_a_record_that_does_not_say_that_it_was_quiet_counts_as_busy(tmp_path: Path) -> None:
    data = record()
    del data["machine_busy"]
    speed = speed_beside(beside(tmp_path, data), SHA)
    assert speed is not None
    assert speed.busy
