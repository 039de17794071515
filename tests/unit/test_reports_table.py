"""``tests/reports.toml``: each situation names a test that exists and records what is said."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
REPORTS: list[dict[str, Any]] = tomllib.loads((TESTS / "reports.toml").read_text(encoding="utf-8"))[
    "report"
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: str(report["id"]))
def test_a_reported_situation_has_a_test(report: dict[str, Any]) -> None:
    assert set(report) <= {"id", "got", "want", "test", "ends", "needs"}
    file, _, name = report["test"].partition("::")
    function = re.escape(name.partition("[")[0])
    text = (TESTS / file).read_text(encoding="utf-8")
    found = re.search(rf"^def {function}\((.*?)\) ->", text, re.MULTILINE | re.DOTALL)
    assert found, f"{file} has no {function}"
    # what a server says is in its own tests; the others record what is told
    assert "needs" in report or "told: " in found[1]


def test_the_ids_are_different() -> None:
    ids = [report["id"] for report in REPORTS]
    assert len(set(ids)) == len(ids) >= 39
