"""Print what is said to the reported situations that no log shows: was, wanted, is (Markdown).

Runs the tests that ``tests/reports.toml`` names, and prints what they recorded (the fixture
``told``): ``python ci/reports_table.py > table.md``. Those that need a llama-server are *not run*
without ``QBUILD_TEST_SERVER`` and ``QBUILD_TEST_TEMPLATES``. What a log or facts show is
in ``python ci/doctor_table.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 400


@dataclass(kw_only=True)
class Seen:
    """What came out of the tests of one situation."""

    passed: int = 0
    failed: int = 0
    told: list[str] = field(default_factory=list)


def reports() -> list[dict[str, Any]]:
    """Return the situations."""
    table = tomllib.loads((ROOT / "tests" / "reports.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = table["report"]
    return found


def has_server() -> bool:
    """Return whether tests that need a server can run."""
    return all(os.environ.get(f"QBUILD_TEST_{name}") for name in ("SERVER", "TEMPLATES"))


def pytest(*words: str) -> str:
    """Run pytest here, with progress on standard error; return what it printed."""
    all_words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*all_words, "-m", "server or not server", *words],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def run(chosen: list[dict[str, Any]]) -> dict[str, Seen]:
    """Run the tests of some situations; return what came out, by the situation's id."""
    files = sorted({f"tests/{each['test'].partition('::')[0]}" for each in chosen})
    known = pytest("--collect-only", *files).splitlines()
    found = {each["id"]: Seen() for each in chosen}
    wanted = [name for name in known if any(_shows(name, each) for each in chosen)]
    if not wanted:
        return found
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        # The older family of this format is the one in which a test has properties and a file.
        said = pytest(*wanted, f"--junit-xml={report}", "-o", "junit_family=xunit1")
        print(said, file=sys.stderr)
        cases = [*ElementTree.parse(report).getroot().iter("testcase")] if report.is_file() else []
    for case in cases:
        name = f"{case.get('file')}::{case.get('name')}"
        for each in chosen:
            if _shows(name, each):
                _note(found[each["id"]], case)
    return found


def _shows(name: str, report: dict[str, Any]) -> bool:
    return name.startswith(f"tests/{report['test']}") and name.endswith(report.get("ends", ""))


def _note(seen: Seen, case: ElementTree.Element) -> None:
    wrong = any(case.find(tag) is not None for tag in ("failure", "error"))
    seen.failed += wrong
    seen.passed += not wrong and case.find("skipped") is None
    for found in case.iter("property"):
        if found.get("name") == "told" and not seen.told:
            seen.told.append(found.get("value") or "")


def _row(*cells: str) -> str:
    plain = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(plain) + " |"


def main() -> int:
    """Print the table; fail where a test failed, was skipped or is not there."""
    every = reports()
    chosen = [each for each in every if "needs" not in each or has_server()]
    found = run(chosen)
    print(_row("report", "said before", "wanted", "says now", "right"))
    print(_row(*["---"] * 5))
    wrong = 0
    for each in every:
        seen = found.get(each["id"])
        if seen is None:
            says, right = "-", "not run: no server"
        else:
            right = "yes" if seen.passed and not seen.failed else "NO"
            wrong += right == "NO"
            count = f"{seen.passed} of {seen.passed + seen.failed} tests passed"
            says = " ".join([*seen.told, f"({count})"])
            says = says if len(says) <= LONGEST else f"{says[:LONGEST]}… ({count})"
        print(_row(each["id"], each["got"], each["want"], says, right))
    print(f"\n{len(chosen)} of {len(every)} run, {wrong} not right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
