"""What people reported, and further cases of each kind: the right diagnosis comes first."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from qbuild.doctor.diagnosis import Diagnosis
from qbuild.doctor.encodings import decode
from qbuild.doctor.errorlines import error_lines
from qbuild.doctor.examine import examine, explain
from qbuild.doctor.findings import findings, kinds
from qbuild.doctor.machine_facts import parse_facts

from .healthy import FACTS, LOGS

HERE = Path(__file__).parent
REPORTS: list[dict[str, Any]] = tomllib.loads((HERE / "reports.toml").read_text("utf-8"))["report"]
FURTHER: list[dict[str, Any]] = tomllib.loads((HERE / "further.toml").read_text("utf-8"))["case"]


def words(found: Diagnosis) -> str:
    return " ".join((found.found, found.why, found.mend, found.recipe, found.verb))


def told(case: dict[str, Any]) -> tuple[Diagnosis, ...]:
    """Return what the doctor says of a case, read from the bytes that a program would write."""
    log = case.get("log", "").lstrip("\n")
    if "encoding" in case:
        log = decode(log.encode(case["encoding"]))
    facts = case.get("facts")
    return explain(log) if facts is None else examine(parse_facts(facts), log)


@pytest.mark.parametrize("report", REPORTS, ids=[each["id"] for each in REPORTS])
def test_a_report_gets_what_its_user_wants(report: dict[str, Any]) -> None:
    found = told(report)
    assert [each.id for each in found][:1] == [report["expect"]]
    assert [each for each in report["says"] if each not in words(found[0])] == []
    assert not {each.id for each in found} & set(report.get("not", ()))


@pytest.mark.parametrize(
    "case", FURTHER, ids=[f"{each['expect']} {each['as']}" for each in FURTHER]
)
def test_a_further_case_of_the_kind(case: dict[str, Any]) -> None:
    found = told(case)
    assert [each.id for each in found][:1] == [case["expect"]]
    assert [each for each in case.get("says", ()) if each not in words(found[0])] == []


def test_every_example_in_the_tables_is_found_as_it_is() -> None:
    for row in findings().values():
        if row.example:
            assert [each.id for each in explain(row.example)][:1] == [row.id]


def test_every_example_is_found_wrapped_coloured_stamped_and_as_utf_16() -> None:
    for row in findings().values():
        if not row.example:
            continue
        lines = row.example.split("\n")
        wrapped = "\n".join(line[i : i + 66] for line in lines for i in range(0, len(line), 66))
        variants = {
            "wrapped": wrapped,
            "coloured": "\n".join(f"\x1b[31m{line}\x1b[0m" for line in lines),
            "by journald": "\n".join(f"Nov 30 09:01:02 box llama[71]: {line}" for line in lines),
            "by compose": "\n".join(f"server-1  | {line}" for line in lines),
            "by Python's logging": "\n".join(f"2026-11-30 09:01:02,123 {line}" for line in lines),
            "quoted": "\n".join(f"> {line}" for line in lines),
            "UTF-16": decode(b"\xff\xfe" + row.example.encode("utf-16-le")),
            "UTF-16 without a mark": decode(row.example.encode("utf-16-be")),
            "UTF-16 behind ASCII": decode(b"one\n" + row.example.encode("utf-16-le")),
        }
        for name, text in variants.items():
            found = [each.id for each in explain(text)]
            if name == "UTF-16 behind ASCII" and not row.example.isascii():
                continue
            assert found[:1] == [row.id], (name, row.id)


def test_twice_as_many_further_cases_as_handed_ones_of_each_kind() -> None:
    counts = {kind: [0, 0] for kind in kinds()}
    for each in REPORTS:
        counts[findings()[each["expect"]].kind][0] += 1
    for each in FURTHER:
        counts[findings()[each["expect"]].kind][1] += 1
    assert {kind: got for kind, got in counts.items() if got[1] < 2 * got[0]} == {}


HEALTHY = sorted((HERE / "healthy_logs").glob("*.log"))
"""Real logs of this project's builds and servers, of Wine, git, pip, npm, CMake: all went well."""


@pytest.mark.parametrize("path", HEALTHY, ids=[path.stem for path in HEALTHY])
def test_no_false_alarm_in_a_real_log(path: Path) -> None:
    text = decode(path.read_bytes())
    assert explain(text) == ()
    assert error_lines(text) == ()
    assert explain("\n".join(text[i : i + 50] for i in range(0, len(text), 50))) == ()


def test_enough_healthy_machines_and_logs() -> None:
    assert len(HEALTHY) + len(FACTS) + len(LOGS) >= 60
