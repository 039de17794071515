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


@pytest.mark.parametrize(("count", "rest"), [(2, ""), (3, ""), (4, "\n  … and 1 more"),
                                             (9, "\n  … and 6 more")])  # fmt: skip
def test_a_refusal_names_the_first_three_findings(count: int, rest: str) -> None:
    lines = [f"line {n}" for n in range(count)]
    checks = (judge("a", "A", lines[:1]), passed("b", "B"), judge("c", "C", lines[1:]))
    found = Verdict(zip_name="x.zip", sha256="ab", checks=checks)
    with pytest.raises(VerifyError) as caught:
        found.raise_if_failed(Path("dist/x.zip"))
    named = ["A: line 0", *(f"C: {line}" for line in lines[1:3])]
    assert caught.value.what == "x.zip is refused: " + "\n  ".join(named) + rest
    assert caught.value.where == "a, c"
    assert caught.value.fix == f"`qbuild verify {Path('dist/x.zip')}` shows every finding"
    with pytest.raises(VerifyError) as caught:
        found.raise_if_failed()
    assert caught.value.fix == "`qbuild verify x.zip` shows every finding"


def test_the_table_to_the_letter() -> None:
    many = [f"line {n}" for n in range(13)]
    checks = (
        passed("a", "is sound", "48 files", "more", seconds=0.05),
        passed("b", "has all", seconds=0.04),
        not_run("c", "runs", "no qemu", "apt install it"),
        judge("d", "is reproducible", many[:12], seconds=1.25),
        judge("e", "closure", many),
    )
    shown = Verdict(zip_name="x.zip", sha256="ab", checks=checks).render().splitlines()
    assert shown == [
        "x.zip  sha256 ab",
        "       ok  is sound         0.1 s  48 files",
        "       ok  has all",
        "  not run  runs",
        "           - no qemu",
        "           - apt install it",
        "     FAIL  is reproducible  1.2 s",
        *(f"           - {line}" for line in many[:12]),
        "     FAIL  closure",
        *(f"           - {line}" for line in many[:12]),
        "           - … and 1 more (--json)",
        "REFUSED: 2 passed, 2 failed, 1 not run",
    ]
    assert Verdict(zip_name="x.zip", sha256="ab", checks=()).render() == (
        "x.zip  sha256 ab\naccepted: 0 passed, 0 failed, 0 not run"
    )


def test_a_verdict_as_a_file_to_the_letter() -> None:
    checks = (passed("a", "ü", "48 files", seconds=0.5), not_run("b", "B", "no qemu"))
    found = Verdict(zip_name="x.zip", sha256="ab", checks=checks)
    text = to_json(found)
    assert text.startswith('{\n  "format": 1,\n  "zip": "x.zip",\n  "sha256": "ab",\n  "ok": true,')
    assert '"title": "ü"' in text and text.endswith("}\n")
    data = json.loads(text)
    assert data["checks"] == [
        {"id": "a", "title": "ü", "status": "passed", "details": ["48 files"], "seconds": 0.5},
        {"id": "b", "title": "B", "status": "not-run", "details": ["no qemu"]},
    ]
    assert from_json(text) == found
    del data["checks"][1]["details"]
    assert from_json(json.dumps(data)).checks[1].details == ()
    for harm in ({"format": 2}, {"checks": [{"id": "a", "title": "A", "status": "fine"}]}):
        with pytest.raises(VerifyError, match="not a verdict") as caught:
            from_json(json.dumps({**data, **harm}), where="x.json")
        assert caught.value.where == "x.json" and caught.value.fix == "delete it and verify again"


def test_checks_are_added_at_the_end() -> None:
    first = Verdict(zip_name="x.zip", sha256="ab", checks=(passed("a", "A"),))
    both = first.with_checks([judge("b", "B", [], "seen", seconds=2.0)])
    assert both.checks == (passed("a", "A"), passed("b", "B", "seen", seconds=2.0))
    assert (both.zip_name, both.sha256, both.ok, first.checks) == ("x.zip", "ab", True, (
        passed("a", "A"),))  # fmt: skip
