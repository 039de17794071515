"""What the doctor says: one diagnosis, and how a person and a machine read it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "hint"]
"""``error``: it fails; ``warning``: it may fail or be very slow; ``hint``: it could be better."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")

UNTESTED = "derived from reports and captured facts; never run on a real Windows"
"""The label of every diagnosis that only a Windows machine can give."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One thing that is wrong."""

    id: str  # name of the check, stable across versions; `docs/reference/doctor.md` lists all
    severity: Severity  # how bad it is
    found: str  # what was found, in one sentence
    why: str  # why it matters
    mend: str  # how to mend it
    # the change to the recipe (or the recipe to take) that mends it; empty: none does
    recipe: str = ""
    verb: str = ""  # the command of qbuild's that goes further; empty: there is none
    evidence: tuple[str, ...] = ()  # lines of the log that show it, ``line 12: …``
    note: str = ""  # how far the check itself can be trusted; empty: nothing to say

    def render(self) -> str:
        """Return the lines that a person reads."""
        lines = [_wrapped(f"{self.severity} [{self.id}] ", self.found)]
        lines += [_wrapped("    log: ", each) for each in self.evidence]
        lines.append(_wrapped("    why: ", self.why))
        lines.append(_wrapped("  to do: ", self.mend))
        if self.recipe:
            lines.append(_wrapped(" recipe: ", self.recipe))
        if self.verb:
            lines.append(_wrapped("further: ", self.verb))
        if self.note:
            lines.append(_wrapped("   note: ", self.note))
        return "\n".join(lines)

    def short(self) -> str:
        """Return one line for the end of a failed build."""
        return f"[{self.id}] {self.found}; to do: {self.mend}"

    def as_json(self) -> dict[str, object]:
        """Return it as a machine reads it under ``--json``."""
        return {**asdict(self), "evidence": list(self.evidence)}


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=98,
        initial_indent=label,
        subsequent_indent=" " * 9,
        break_long_words=False,
        break_on_hyphens=False,
    )


def serious(diagnoses: Iterable[Diagnosis]) -> bool:
    """Return whether there is more than hints among them."""
    return any(each.severity != "hint" for each in diagnoses)
