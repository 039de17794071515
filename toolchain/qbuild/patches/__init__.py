"""Patch series: load, lint, apply, watch for drift, carry over."""

from qbuild.patches.apply import apply_series
from qbuild.patches.lint import Finding, lint_series
from qbuild.patches.model import Patch, PatchEntry, Probe, Series, known_series, load_series
from qbuild.patches.report import AppliedPatch, PatchedTree, SeriesError

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
