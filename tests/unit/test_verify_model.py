"""Verdicts: JSON there and back, what a person sees, what a caller gets raised."""

import json
from pathlib import Path

import pytest

from qbuild.errors import VerifyError
from qbuild.verify.verdict import Check, Verdict, from_json, judge, not_run, passed, to_json


def verdict(*checks: Check) -> Verdict:
    return Verdict(zip_name="llama-x.zip", sha256="ab" * 32, checks=checks)


GOOD = passed("a", "first promise", "seen it", seconds=1.25)
BAD = judge("b", "second promise", ["x.dll: needs y.dll", "z.dll: needs y.dll"])
SKIPPED = not_run("run.wine", "runs in Wine", "Wine is not installed")


def test_not_run_is_neither_passed_nor_failed() -> None:
    result = verdict(GOOD, SKIPPED)
    assert result.ok
    assert result.failed == ()
    assert result.not_run == (SKIPPED,)
    assert result.summary() == "accepted: 1 passed, 0 failed, 1 not run"


def test_one_failure_refuses_the_zip() -> None:
    result = verdict(GOOD, BAD, SKIPPED)
    assert not result.ok
    assert result.summary() == "REFUSED: 1 passed, 1 failed, 1 not run"


def test_judge() -> None:
    assert judge("a", "t", (), "fine").status == "passed"
    assert judge("a", "t", iter(["no"])).details == ("no",)


def test_json_there_and_back() -> None:
    before = verdict(GOOD, BAD, SKIPPED)
    text = to_json(before)
    assert from_json(text) == before
    data = json.loads(text)
    assert data["ok"] is False
    assert "seconds" not in data["checks"][1]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"format": 2}', '{"format": 1, "zip": "x", "sha256": "y"}',
     '{"format": 1, "zip": "x", "sha256": "y", "checks": [{}]}',
     '{"format": 1, "zip": "x", "sha256": "y", "checks": '
     '[{"id": "a", "title": "t", "status": "skipped"}]}'],
)  # fmt: skip
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="this is not a verdict"):
        from_json(text, where="x.verdict.json")


def test_rendering_names_every_finding() -> None:
    text = verdict(GOOD, BAD, SKIPPED).render()
    assert text.splitlines() == [
        f"llama-x.zip  sha256 {'ab' * 32}",
        "       ok  first promise   1.2 s  seen it",
        "     FAIL  second promise",
        "           - x.dll: needs y.dll",
        "           - z.dll: needs y.dll",
        "  not run  runs in Wine",
        "           - Wine is not installed",
        "REFUSED: 1 passed, 1 failed, 1 not run",
    ]


def test_long_findings_are_cut_for_people_not_for_machines() -> None:
    check = judge("a", "t", [f"line {n}" for n in range(50)])
    assert "… and 38 more (--json)" in verdict(check).render()
    assert len(verdict(check).as_json()["checks"][0]["details"]) == 50


def test_raising_says_what_and_where() -> None:
    verdict(GOOD, SKIPPED).raise_if_failed()
    with pytest.raises(VerifyError) as caught:
        verdict(GOOD, BAD).raise_if_failed()
    assert "second promise: x.dll: needs y.dll" in caught.value.what
    assert caught.value.where == "b"
    assert caught.value.exit_code == 11


def test_more_checks_can_be_added() -> None:
    assert verdict(GOOD).with_checks([BAD]).checks == (GOOD, BAD)


def test_a_refused_zip_is_named_with_its_folder() -> None:
    """It lies in the store only: its bare name leads nowhere."""
    with pytest.raises(VerifyError) as caught:
        verdict(GOOD, BAD).raise_if_failed(Path("/store/bundle/1/x.zip"))
    assert (
        caught.value.fix == f"`qbuild verify {Path('/store/bundle/1/x.zip')}` shows every finding"
    )
