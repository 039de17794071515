"""Patch series: load, lint, apply, watch for drift, carry over.

Belongs here: everything about patches to llama.cpp, on trees of git objects. Not: fetching what
they apply to (``source``), and when it is done (``steps/patch.py``).

Names are imported when first used: a plan only loads series, and needs neither git nor lints.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbuild.patches.apply import apply_series
    from qbuild.patches.lint import Finding, lint_series
    from qbuild.patches.outcome import AppliedPatch, PatchedTree, SeriesError
    from qbuild.patches.series import Patch, PatchEntry, Probe, Series, known_series, load_series

_MODULES = {
    "AppliedPatch": "outcome",
    "Finding": "lint",
    "Patch": "series",
    "PatchEntry": "series",
    "PatchedTree": "outcome",
    "Probe": "series",
    "Series": "series",
    "SeriesError": "outcome",
    "apply_series": "apply",
    "known_series": "series",
    "lint_series": "lint",
    "load_series": "series",
}

__all__ = [
    "AppliedPatch",
    "Finding",
    "Patch",
    "PatchEntry",
    "PatchedTree",
    "Probe",
    "Series",
    "SeriesError",
    "apply_series",
    "known_series",
    "lint_series",
    "load_series",
]


def __getattr__(name: str) -> Any:
    """Return a name of the package's interface from the module that has it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
