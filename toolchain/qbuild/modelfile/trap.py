"""Something that is wrong with a model file, or will surprise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Trap:
    """Something that is wrong, or will surprise."""

    id: str  # its name for machines; never changes
    # ``error``: llama.cpp does not load it; ``warning``: it answers worse or less
    severity: Literal["error", "warning"]
    what: str  # one sentence
    fix: str  # what to do

    def as_json(self) -> dict[str, str]:
        """Return it as a machine reads it."""
        return {"id": self.id, "severity": self.severity, "what": self.what, "fix": self.fix}
