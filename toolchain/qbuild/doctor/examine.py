"""The two questions one asks the doctor, answered from the table and the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbuild.doctor.checks import run_checks
from qbuild.doctor.diagnosis import SEVERITIES, Diagnosis
from qbuild.doctor.findings import Hit, diagnosis
from qbuild.doctor.log import LogHit, scan

if TYPE_CHECKING:
    from qbuild.doctor.machine_facts import Facts


def explain(log_text: str) -> tuple[Diagnosis, ...]:
    """Return what is wrong in a failed log, likeliest cause first; empty: nothing is known.

    Args:
        log_text: The whole log, or what is left of it.
    """
    return tuple(_from_log(hit) for hit in scan(log_text))


def examine(facts: Facts, log_text: str = "") -> tuple[Diagnosis, ...]:
    """Return what is wrong with a machine, and in a log of a build on it.

    What the log shows comes first, made more exact by the facts; then what only the facts show,
    worst first.

    Args:
        facts: What is known about the machine.
        log_text: A failed log, if there is one.
    """
    in_log = scan(log_text) if log_text else ()
    seen = frozenset(hit.finding.id for hit in in_log)
    by_facts = {hit.id: hit for hit in reversed(run_checks(facts, seen))}
    told = [_from_log(hit, by_facts.pop(hit.finding.id, None)) for hit in in_log]
    rest = [diagnosis(hit) for hit in reversed(list(by_facts.values()))]
    rest.sort(key=lambda each: SEVERITIES.index(each.severity))
    return (*told, *rest)


def _from_log(hit: LogHit, more: Hit | None = None) -> Diagnosis:
    row = hit.finding
    detail = _detail(hit)
    found = f"{row.found}: {detail}" if detail else row.found
    if more is None:
        return diagnosis(Hit(id=row.id, found=found, recipe=_recipe(hit)), evidence=hit.evidence)
    together = Hit(
        id=row.id,
        found=f"{found}; {more.found}",
        mend=more.mend,
        recipe=more.recipe or _recipe(hit),
        severity=row.severity,
    )
    return diagnosis(together, evidence=hit.evidence)


_RUNTIMES = {
    "mt_staticrelease": "/MT",
    "mtd_staticdebug": "/MTd",
    "md_dynamicrelease": "/MD",
    "mdd_dynamicdebug": "/MDd",
}


def _detail(hit: LogHit) -> str:
    """Return what the signature's groups say about this very case."""
    library, build = (_RUNTIMES.get(hit.groups.get(each, "")) for each in ("library", "build"))
    if library and build:
        return f"the library is {library}, the build is {build}"
    return ""


def _recipe(hit: LogHit) -> str:
    library = _RUNTIMES.get(hit.groups.get("library", ""))
    if library in ("/MT", "/MD"):
        wanted = "static" if library == "/MT" else "dynamic"
        build = _RUNTIMES[hit.groups["build"]]
        return f'toolchain.runtime = "{wanted}", or a library built as {build}'
    return ""
