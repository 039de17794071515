"""The tables of diagnoses (``toolchain/data/doctor/*.toml``), read and compiled once.

Their format is described in the README beside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from qbuild import resources
from qbuild.doctor.codes import win32
from qbuild.doctor.diagnosis import UNTESTED, Diagnosis, Severity
from qbuild.doctor.signatures import Signature, signature

FOLDER: Final = "doctor"  # folder of the tables below ``toolchain/data``


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One row of the table.

    Args:
        id: Name of the diagnosis.
        severity: How bad it is.
        found, why, mend, recipe: The words; a check may have more exact ones.
        tier: 1 is told before 2, 2 before 3.
        patterns: Signatures in a log, on compact text.
        codes: Windows' codes that show it, as unsigned 32-bit numbers.
        also: Signatures of which one must stand in the log, too; none: nothing more is asked.
        explains: Ids of diagnoses that are only a consequence of this one.
        detail: What is added to ``found``, with the names of the signature's groups; of several
            the first whose names are all known.
        extract: Expression for those names on the lines as they are, where compact text loses them.
        verb: The command of qbuild's that goes further.
        facts: Whether a check of facts can give it.
        windows: Whether only a Windows machine can have it.
        ref: Public reports of it.
        example: A log in which it is found.
        kind: Name of the table, without suffix.
    """

    id: str
    severity: Severity
    found: str
    why: str
    mend: str
    recipe: str = ""
    tier: int = 2
    patterns: tuple[Signature, ...] = ()
    codes: tuple[int, ...] = ()
    also: tuple[Signature, ...] = ()
    explains: frozenset[str] = frozenset()
    detail: tuple[str, ...] = ()
    extract: re.Pattern[str] | None = None
    verb: str = ""
    facts: bool = False
    windows: bool = False
    ref: str = ""
    example: str = ""
    kind: str = ""


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


def _details(given: str | list[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _codes(row: Mapping[str, Any]) -> tuple[int, ...]:
    return (
        *(int(each, 16) for each in row.get("codes", ())),
        *(win32(number) for number in row.get("winerror", ())),
    )


@cache
def findings() -> dict[str, Finding]:
    """Return every row of every table by id."""
    return {
        row["id"]: Finding(
            id=row["id"],
            severity=row["severity"],
            found=row["found"],
            why=row["why"],
            mend=row["mend"],
            recipe=row.get("recipe", ""),
            tier=row["tier"],
            patterns=tuple(signature(each) for each in row.get("log", ())),
            codes=_codes(row),
            also=tuple(signature(each) for each in row.get("also", ())),
            explains=frozenset(row.get("explains", ())),
            detail=_details(row.get("detail", [])),
            extract=re.compile(row["extract"], re.IGNORECASE) if "extract" in row else None,
            verb=row.get("verb", ""),
            facts=row.get("facts", False),
            windows=row.get("windows", False),
            ref=row.get("ref", ""),
            example=row.get("example", ""),
            kind=kind,
        )
        for kind in kinds()
        for row in resources.read_table(f"{FOLDER}/{kind}.toml")["finding"]
    }


@cache
def kinds() -> tuple[str, ...]:
    """Return the names of the tables, without suffix."""
    return tuple(sorted(path.stem for path in (resources.data_dir() / FOLDER).glob("*.toml")))


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
        verb=row.verb,
        evidence=evidence,
        note=UNTESTED if row.windows else "",
    )
