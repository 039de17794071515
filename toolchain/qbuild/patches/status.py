"""How a series fits a commit, and which upstream commits make it drift."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild.patches.apply import run_series, scratch
from qbuild.patches.bench import Bench
from qbuild.patches.lint import Finding, lint_series, refuse
from qbuild.patches.match import FileReport, HunkReport
from qbuild.patches.outcome import AppliedPatch
from qbuild.patches.series import Series

UNKNOWN = "upstream commit unknown"


@dataclass(frozen=True, kw_only=True)
class SeriesStatus:
    """How series fit one commit."""

    commit: str  # the commit they were tried on
    patches: tuple[AppliedPatch, ...]  # what became of each patch, in order; none was skipped
    notes: tuple[Finding, ...] = ()  # what the lints have to say that is no error

    @property
    def applies(self) -> bool:
        """Whether a build from this commit would get past the patch step."""
        return all(patch.applies for patch in self.patches)

    @property
    def fresh(self) -> bool:
        """Whether every patch fits exactly as written: nothing to refresh, nothing to drop."""
        return all(patch.status == "clean" for patch in self.patches)

    def as_json(self) -> dict[str, object]:
        """Return the status for ``--json``."""
        return {
            "commit": self.commit,
            "applies": self.applies,
            "fresh": self.fresh,
            "patches": [patch.as_json() for patch in self.patches],
            "notes": [note.as_json() for note in self.notes],
        }


def series_status(repo: Path, commit: str, series: Sequence[Series]) -> SeriesStatus:
    """Try the series on a commit; every patch is tried, also after one that failed.

    Raises:
        PatchError: A lint refused a patch, or the commit is not there.
    """
    notes = lint_series(series)
    refuse(notes)
    with scratch(repo, commit) as bench:
        outcomes = run_series(bench, commit, series, stop=False)
    return SeriesStatus(commit=commit, patches=tuple(outcomes), notes=tuple(notes))


def drift(repo: Path, pin: str, other: Path, commit: str, series: Sequence[Series]) -> SeriesStatus:
    """Try the series on another upstream commit and name the commits that get in its way.

    Args:
        repo: Repository of ours with the pin the series was written for.
        pin: That pin's commit.
        other: Repository of ours with the commit to try; may be the same.
        commit: The commit to try.
        series: What to try, in order.

    Raises:
        PatchError: A lint refused a patch, or a commit is not there.
    """
    notes = lint_series(series)
    refuse(notes)
    with scratch(other, commit, more=[repo]) as bench:
        outcomes = run_series(bench, commit, series, stop=False)
        span = _span(bench, pin, commit)
        named = tuple(
            dataclasses.replace(
                outcome, files=tuple(_name_commits(bench, span, file) for file in outcome.files)
            )
            for outcome in outcomes
        )
    return SeriesStatus(commit=commit, patches=named, notes=tuple(notes))


def _span(bench: Bench, pin: str, commit: str) -> str | None:
    """Return the history between the two as git writes a range, if this repository has it.

    A shallow repository ends in a commit that seems to add every file: it would be blamed for
    all drift. Without a path from one commit to the other there is no answer.
    """
    for old, new in ((pin, commit), (commit, pin)):
        if bench.run(["merge-base", "--is-ancestor", old, new]).rc == 0:
            return f"{old}..{new}"
    return None


def _name_commits(bench: Bench, span: str | None, file: FileReport) -> FileReport:
    """Add to each place that moved or broke the upstream commit that touched it."""
    hunks = tuple(
        hunk
        if hunk.state == "clean"
        else dataclasses.replace(hunk, upstream=_commit_of(bench, span, file.path, hunk))
        for hunk in file.hunks
    )
    upstream = ""
    if file.state in ("file gone", "conflict", "already upstream") and not hunks:
        upstream = _last(bench, span, ["--", file.path])
    return dataclasses.replace(file, hunks=hunks, upstream=upstream)


def _commit_of(bench: Bench, span: str | None, path: str, hunk: HunkReport) -> str:
    if span and hunk.missing.strip():
        # pickaxe: the newest commit after which the line is there more or fewer times
        found = _last(bench, span, [f"-S{hunk.missing.strip()}", "--", path])
        if found != UNKNOWN:
            return found
    return _last(bench, span, ["--", path])


def _last(bench: Bench, span: str | None, args: Sequence[str]) -> str:
    if span is None:
        return UNKNOWN
    done = bench.run(["log", "-1", "--no-merges", "--format=%h %s", "--abbrev=9", span, *args])
    return done.text.strip() or UNKNOWN if done.rc == 0 else UNKNOWN
