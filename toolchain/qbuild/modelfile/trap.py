"""Something that is wrong with a model file, or will surprise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Trap:
    """Something that is wrong, or will surprise.

    Args:
        id: Its name for machines; never changes.
        severity: ``error``: llama.cpp does not load it; ``warning``: it answers worse or less.
        what: One sentence.
        fix: What to do.
    """

    id: str
    severity: Literal["error", "warning"]
    what: str
    fix: str

    def as_json(self) -> dict[str, str]:
        """Return it as a machine reads it."""
        return {"id": self.id, "severity": self.severity, "what": self.what, "fix": self.fix}
