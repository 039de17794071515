"""Every scenario, in all its variants: the right diagnosis comes first. Healthy ones: nothing."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbuild.doctor.diagnosis import Diagnosis
from qbuild.doctor.encodings import decode
from qbuild.doctor.examine import examine, explain
from qbuild.doctor.findings import findings
from qbuild.doctor.machine_facts import Facts, load_facts, parse_facts

from .healthy import FACTS, LOGS, NOISE, V3
from .test_reports import REPORTS

HERE = Path(__file__).parent
SCENARIOS: list[dict[str, Any]] = tomllib.loads(
    (HERE / "scenarios.toml").read_text(encoding="utf-8")
)["scenario"]

WHOLE_MACHINE: dict[str, Any] = {
    "schema": 1,
    "cpu": {"model": "Some CPU", "flags": V3.split(), "cores": 8, "threads": 16},
    "virtual": False,
    "laptop": False,
    "ram_gb": 64,
    "jobs": 4,
    "disk": "nvme",
    "free_disk_gb": 500,
    "tools": {"git": "2.45.0", "ninja": "1.12", "cmake": "3.30"},
    "proxy": ["NO_PROXY"],
}


def _none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none(each) for key, each in value.items()}
    return None if value == "<none>" else value


def _hard_wrapped(log: str, width: int) -> str:
    """Break lines anywhere, as a terminal does."""
    return "\n".join(
        line[i : i + width] for line in log.split("\n") for i in range(0, max(1, len(line)), width)
    )


def log_variants(log: str) -> Iterator[tuple[str, str]]:
    yield "as it is", log
    for width in (31, 72, 80):
        yield f"cut at {width}", _hard_wrapped(log, width)
    soft = ["\n".join(textwrap.wrap(line, 50, initial_indent="  ")) for line in log.split("\n")]
    yield "wrapped between words and indented, as CMake does", "\n".join(soft)
    stamped = [f"2026-11-29T16:48:03.123456Z {line}" for line in log.split("\n")]
    yield "stamped by a CI system", "\n".join(stamped)
    yield (
        "wrapped, then numbered by MSBuild",
        "\r\n".join(f" 12>{line}" for line in _hard_wrapped(log, 60).split("\n")),
    )
    yield "in a docker build", "\n".join(f"#9 12.123 {line}" for line in log.split("\n"))
    coloured = "\n".join(f"\x1b[1m\x1b[31m{line}\x1b[0m\x1b[K" for line in log.split("\n"))
    yield "coloured", coloured
    yield "progress before it", f" 12 %\r 13 %\r{log}"
    for name in NOISE:
        yield f"amid {name}", f"{LOGS[name]}{log}\n{LOGS[name]}"
    yield "behind much noise", "".join(LOGS.values()) * 20 + log
    yield "by PowerShell", decode(b"\xff\xfe" + log.encode("utf-16-le"))
    western = log.isascii() or not log.encode("cp1252", errors="replace").count(b"?") > log.count(
        "?"
    )
    page = "cp1252" if western else "gb18030"
    yield "in a code page", decode(log.encode(page, errors="replace"), page)
    utf8 = LOGS["msbuild, chinese"].encode()
    yield "in a code page, amid utf-8", decode(utf8 + log.encode(page, "replace"), page)


def fact_variants(facts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "as they are", facts
    yield "in the facts of a machine", {**WHOLE_MACHINE, **facts}
    yield "with empty ones around", {"toolset": None, "proxy": [], "driver": None, **facts}


def situations() -> Iterator[Any]:
    for scenario in SCENARIOS:
        base_log, base_facts = scenario.get("log", ""), _none(scenario.get("facts", {}))
        # in another language only the log differs, or only the facts do
        for index, other in enumerate([None, *scenario["languages"]]):
            log, facts = base_log, base_facts
            if isinstance(other, str):
                log = other
            elif other is not None:
                facts = _none(other)
            says = scenario["says"] if other is None else []
            label = f"{scenario['id']}/{index}"
            yield pytest.param(log, facts, scenario["expect"], says, id=label)


def _words(diagnosis: Diagnosis) -> str:
    return " ".join(
        (diagnosis.found, diagnosis.why, diagnosis.mend, diagnosis.recipe, diagnosis.verb)
    )


@pytest.mark.parametrize(("log", "facts", "expect", "says"), list(situations()))
def test_the_right_diagnosis_comes_first(
    log: str, facts: dict[str, Any], expect: str, says: list[str]
) -> None:
    logs = dict(log_variants(log)) if log else {"none": ""}
    machines = dict(fact_variants(facts)) if facts else {"none": {}}
    given = [(name, text, facts) for name, text in logs.items()]
    given += [(name, log, each) for name, each in machines.items()]
    assert len(given) >= 4
    for name, text, machine in given:
        found = examine(parse_facts(machine), text)
        assert [each.id for each in found][:1] == [expect], name
        words = _words(found[0])
        assert [each for each in says if each not in words] == [], name
        assert bool(found[0].evidence) == bool(log), name


def test_enough_scenarios_in_enough_variants() -> None:
    assert len(SCENARIOS) >= 33
    assert all(scenario["languages"] for scenario in SCENARIOS)


def test_every_finding_has_a_scenario() -> None:
    shown = {scenario["expect"] for scenario in SCENARIOS}
    examples = {each.id for each in findings().values() if each.example}
    examples |= {each["expect"] for each in REPORTS}
    assert set(findings()) - shown - examples == {"path-near-limit", "unknown-error"}


@pytest.mark.parametrize("name", FACTS)
def test_no_false_alarm_on_healthy_machines(name: str) -> None:
    assert examine(parse_facts(FACTS[name])) == ()


@pytest.mark.parametrize("name", FACTS)
def test_no_false_alarm_beside_any_healthy_log(name: str) -> None:
    facts = parse_facts(FACTS[name])
    for log in LOGS.values():
        assert examine(facts, log) == ()


@pytest.mark.parametrize("name", LOGS)
def test_no_false_alarm_in_healthy_logs(name: str) -> None:
    assert explain(LOGS[name]) == ()
    assert explain(_hard_wrapped(LOGS[name], 40)) == ()


def test_no_false_alarm_in_all_healthy_logs_together() -> None:
    assert explain("\n".join(LOGS.values())) == ()


def test_facts_from_a_file_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    for scenario in SCENARIOS:
        facts = _none(scenario.get("facts", {}))
        path.write_text("\ufeff" + json.dumps(facts, indent=3), encoding="utf-8")
        assert load_facts(path) == parse_facts(facts)


def test_a_cause_is_told_before_its_consequences() -> None:
    log = (
        "error: patch failed: common/chat.cpp:1041\n"
        "error: sha1 information is lacking or useless (common/chat.cpp).\n"
        "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage\n"
    )
    ids = [each.id for each in explain(log)]
    assert ids == ["blobless-clone", "patch-does-not-apply", "no-compiler"]


def test_of_two_causes_the_first_in_the_log_is_told_first() -> None:
    full, killed = "No space left on device\n", "c++: Killed signal terminated program cc1plus\n"
    assert [each.id for each in explain(full + killed)] == ["disk-full", "out-of-memory"]
    assert [each.id for each in explain(killed + full)] == ["out-of-memory", "disk-full"]


def test_the_evidence_names_the_line() -> None:
    (found,) = explain("one\ntwo\nerror: No space left\n on device\n")
    assert found.evidence == ("line 3: error: No space left on device",)


def test_worst_is_told_first_among_facts() -> None:
    facts = Facts(
        os="windows",
        defender_realtime=True,
        defender_excluded=False,
        jobs=64,
        ram_gb=4.0,
        missing_ca_files=("PIP_CERT",),
    )
    assert [each.severity for each in examine(facts)] == ["error", "warning", "hint"]


def test_a_huge_log_is_read_at_its_head_and_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbuild.doctor.log.HEAD", 2_000)
    monkeypatch.setattr("qbuild.doctor.log.TAIL", 6_000)
    filler = "[1/9] Building CXX object a.o\n" * 500
    middle = f"{filler}exit code -1073741795\n{filler}"
    log = f"No space left on device\n{middle}exit code -1073741515\n"
    ids = {each.id: each.evidence for each in explain(log)}
    assert set(ids) == {"disk-full", "dll-not-found"}
    assert ids["dll-not-found"][0].startswith("line 1003:")
