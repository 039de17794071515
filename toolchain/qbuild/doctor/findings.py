"""The table of diagnoses (``toolchain/data/doctor-signatures.toml``), read and compiled once.

The format is described at the head of that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from qbuild import resources
from qbuild.doctor.diagnosis import UNTESTED, Diagnosis, Severity

GAP: Final = ".{0,240}?"
"""What "…" in a signature stands for: three full lines of a terminal, so that noise of another
job may stand between two halves of a message."""

_SAME: Final = str.maketrans(
    dict.fromkeys('"`´‘’‚‛“”„‟«»‹›「」『』', "'") | dict(zip("（）：，。？", "():,.?", strict=True))
)


def compact(text: str) -> str:
    """Return text as signatures are compared: no blanks, lower case, one kind of quotes."""
    return "".join(text.lower().translate(_SAME).split())


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One row of the table.

    Args:
        id: Name of the diagnosis.
        severity: How bad it is.
        found, why, mend, recipe: The words; a check may have more exact ones.
        tier: 1 is told before 2, 2 before 3.
        patterns: Signatures in a log, on compact text.
        facts: Whether a check of facts can give it.
        windows: Whether only a Windows machine can have it.
        ref: Public reports of it.
    """

    id: str
    severity: Severity
    found: str
    why: str
    mend: str
    recipe: str = ""
    tier: int = 2
    patterns: tuple[re.Pattern[str], ...] = ()
    facts: bool = False
    windows: bool = False
    ref: str = ""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What a check of facts found; empty fields are filled from the table.

    Args:
        id: Row of the table.
        found, mend, recipe: More exact words than the table's.
        severity: If it differs from the table's.
    """

    id: str
    found: str
    mend: str = ""
    recipe: str = ""
    severity: Severity | None = None


def _pattern(text: str) -> re.Pattern[str]:
    if text.startswith("re:"):
        return re.compile(text[3:])
    parts = (re.escape(compact(part)) for part in text.split("…"))
    return re.compile(GAP.join(parts))


@cache
def findings() -> dict[str, Finding]:
    """Return the table by id."""
    rows = resources.read_table("doctor-signatures.toml")["finding"]
    return {
        row["id"]: Finding(
            id=row["id"],
            severity=row["severity"],
            found=row["found"],
            why=row["why"],
            mend=row["mend"],
            recipe=row.get("recipe", ""),
            tier=row["tier"],
            patterns=tuple(_pattern(each) for each in row.get("log", ())),
            facts=row.get("facts", False),
            windows=row.get("windows", False),
            ref=row.get("ref", ""),
        )
        for row in rows
    }


def diagnosis(hit: Hit, evidence: tuple[str, ...] = ()) -> Diagnosis:
    """Return the diagnosis of a hit, with the table's words where the hit has none."""
    row = findings()[hit.id]
    return Diagnosis(
        id=hit.id,
        severity=hit.severity or row.severity,
        found=hit.found or row.found,
        why=row.why,
        mend=hit.mend or row.mend,
        recipe=hit.recipe or row.recipe,
        evidence=evidence,
        note=UNTESTED if row.windows else "",
    )
