"""The tool-call cases exist twice, in the series and in the test data: they must stay the same."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAME = "tests/tool-call-cases.json"


def test_the_series_and_the_server_tests_have_the_same_cases() -> None:
    patch = (ROOT / "patches" / "qwen3-mtp" / "0005-build-and-tests.patch").read_text("utf-8")
    _, _, rest = patch.partition(f"diff --git a/{NAME} b/{NAME}\n")
    body = rest.partition("\ndiff --git ")[0].partition("\n@@ ")[2].partition("\n")[2]
    added = json.loads("\n".join(line[1:] for line in body.splitlines() if line.startswith("+")))
    data = json.loads(
        (ROOT / "tests" / "data" / "toolcalls" / "cases.json").read_text(encoding="utf-8")
    )
    assert added["tools"] == data["tools"]
    assert added["cases"] == data["cases"]


def test_every_case_has_its_own_name_and_there_are_enough() -> None:
    data = json.loads(
        (ROOT / "tests" / "data" / "toolcalls" / "cases.json").read_text(encoding="utf-8")
    )
    names = [case["id"] for case in data["cases"]]
    assert len(set(names)) == len(names) >= 60
