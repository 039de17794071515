"""The two questions one asks the doctor, answered from the tables and the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbuild.doctor import checks_log
from qbuild.doctor.diagnosis import SEVERITIES, Diagnosis, serious
from qbuild.doctor.findings import Hit, diagnosis, findings
from qbuild.doctor.log import LogHit, LogText, scan

if TYPE_CHECKING:
    from qbuild.doctor.machine_facts import Facts


def explain(log_text: str) -> tuple[Diagnosis, ...]:
    """Return what is wrong in a failed log, likeliest cause first; empty: nothing is known."""
    log = LogText(log_text)
    return _together(log, scan(log), {})


def examine(facts: Facts, log_text: str = "") -> tuple[Diagnosis, ...]:
    """Return what is wrong with a machine, and in a log of a build or a program on it.

    What the log shows comes first, made more exact by the facts; then what only the facts show,
    worst first.
    """
    from qbuild.doctor.checks import run_checks

    log = LogText(log_text)
    in_log = scan(log)
    seen = frozenset(hit.finding.id for hit in in_log)
    return _together(log, in_log, {hit.id: hit for hit in reversed(run_checks(facts, seen))})


def _together(
    log: LogText, in_log: tuple[LogHit, ...], by_facts: dict[str, Hit]
) -> tuple[Diagnosis, ...]:
    ids = {hit.finding.id for hit in in_log}
    told = []
    for hit, evidence in checks_log.in_log(log):
        if hit.id in ids:
            by_facts.setdefault(hit.id, hit)
        else:
            told.append(diagnosis(hit, evidence))
            by_facts.pop(hit.id, None)
    told = [_from_log(hit, by_facts.pop(hit.finding.id, None)) for hit in in_log] + told
    tiers = findings()
    told.sort(key=lambda each: tiers[each.id].tier)  # stable: within a tier as the log has it
    rest = [diagnosis(hit) for hit in reversed(list(by_facts.values()))]
    rest.sort(key=lambda each: SEVERITIES.index(each.severity))
    explained = {other for each in (*told, *rest) for other in tiers[each.id].explains}
    found = [each for each in (*told, *rest) if each.id not in explained]
    if serious(found):  # beside a cause a mere remark only distracts
        found = [each for each in found if each.severity != "hint" or tiers[each.id].tier < 3]
    return tuple(found)


def _from_log(hit: LogHit, more: Hit | None = None) -> Diagnosis:
    row = hit.finding
    detail = checks_log.detail(hit)
    found = f"{row.found}: {detail}" if detail else row.found
    own = Hit(
        id=row.id, found=found, mend=checks_log.remedy(hit), recipe=checks_log.runtime_recipe(hit)
    )
    if more is None:
        return diagnosis(own, evidence=hit.evidence)
    together = Hit(
        id=row.id,
        found=f"{found}; {more.found}",
        mend=more.mend or own.mend,
        recipe=more.recipe or own.recipe,
        severity=row.severity,
    )
    return diagnosis(together, evidence=hit.evidence)
