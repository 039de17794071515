"""What became of each patch of a run, and how that is told to people and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qbuild.errors import PatchError
from qbuild.patches.lint import Finding
from qbuild.patches.match import FileReport, Fit
from qbuild.patches.series import Patch

Status = Literal[
    "clean", "offset", "already upstream", "conflict", "file gone", "not reached: would apply",
    "not reached: would not apply",
]  # fmt: skip

ADVICE_UPSTREAM = "the source has this change already: drop the patch"


@dataclass(frozen=True, kw_only=True)
class AppliedPatch:
    """What became of one patch."""

    series: str  # its series
    file: str  # its file name
    subject: str  # first line of its message
    status: Status  # how it went
    detail: str = ""  # what a person should know beyond the status; may be empty
    files: tuple[FileReport, ...] = ()  # file by file and hunk by hunk
    commit: str = ""  # the commit it became; empty when it made none

    @property
    def applies(self) -> bool:
        """Whether the series can go on after it."""
        return self.status in ("clean", "offset", "already upstream", "not reached: would apply")

    def as_json(self) -> dict[str, object]:
        """Return the outcome for ``--json``."""
        return {
            "series": self.series,
            "file": self.file,
            "subject": self.subject,
            "status": self.status,
            "detail": self.detail,
            "commit": self.commit,
            "files": [
                {
                    "path": f.path,
                    "state": f.state,
                    "reason": f.reason,
                    "similar": f.similar,
                    "upstream": f.upstream,
                    "hunks": [
                        {
                            "number": h.number,
                            "header": h.header,
                            "state": h.state,
                            "offset": h.offset,
                            "reason": h.reason,
                            "upstream": h.upstream,
                        }
                        for h in f.hunks
                    ],
                }
                for f in self.files
            ],
        }


@dataclass(frozen=True, kw_only=True)
class PatchedTree:
    """The source after all series."""

    commit: str  # the patched commit: a pure function of the pin and the series
    tree: str  # its tree
    patches: tuple[AppliedPatch, ...]  # what became of each patch, in order
    notes: tuple[Finding, ...] = ()  # lint findings that are no errors


class SeriesError(PatchError):
    """A series does not apply; ``patches`` says what became of every patch of the run."""

    def __init__(self, what: str, *, where: str, fix: str, patches: Sequence[AppliedPatch]) -> None:
        super().__init__(what, where=where, fix=fix)
        self.patches = tuple(patches)

    def as_json(self) -> dict[str, object]:
        """Return the error with the outcome of every patch."""
        return {**super().as_json(), "patches": [p.as_json() for p in self.patches]}


def outcome(
    patch: Patch, status: Status, detail: str, how: Fit, *, commit: str = ""
) -> AppliedPatch:
    """Return an outcome."""
    return AppliedPatch(
        series=patch.series,
        file=patch.file,
        subject=patch.subject,
        status=status,
        detail=detail,
        files=how.files,
        commit=commit,
    )


def not_reached(patch: Patch, how: Fit) -> AppliedPatch:
    """Return the outcome of a patch that comes after one that failed."""
    ok = how.state in ("clean", "offset", "already upstream")
    status: Status = "not reached: would apply" if ok else "not reached: would not apply"
    return outcome(patch, status, "" if ok else first_reason(how.files), how)


def offsets(how: Fit) -> str:
    """Return which hunks moved and how far."""
    moved = [
        f"{file.path} hunk {hunk.number} by {hunk.offset:+d} lines"
        for file in how.files
        for hunk in file.hunks
        if hunk.state == "offset"
    ]
    return ", ".join(moved)


def first_reason(files: Sequence[FileReport]) -> str:
    """Return the first place that does not fit: file, hunk and why."""
    for file in files:
        if file.state == "file gone":
            hint = f"; `{file.similar}` has similar content" if file.similar else ""
            return f"{file.path}: file gone{hint}"
        for hunk in file.hunks:
            if hunk.state == "conflict":
                extra = f"; {file.note}" if file.note else ""
                return f"{file.path}, hunk {hunk.number} ({hunk.header}): {hunk.reason}{extra}"
        if file.state == "conflict":
            return f"{file.path}: {file.reason}"
    return ""


def error(outcomes: Sequence[AppliedPatch]) -> SeriesError:
    """Return the error for a run in which a patch did not apply."""
    bad = next(o for o in outcomes if not o.applies)
    table = "\n         ".join(
        f"{o.series}/{o.file}: {'applied' if o.commit else o.status}"
        + (f": {o.detail}" if o.detail and not o.commit else "")
        for o in outcomes
    )
    return SeriesError(
        f"patch {bad.series}/{bad.file} does not apply ({bad.status}): {bad.detail}",
        where=table,
        fix="nothing was applied; `qbuild patch rebase` carries the series over, "
        f"`qbuild patch explain {bad.series}/{bad.file}` says what it is for",
        patches=outcomes,
    )


def lines(patch: AppliedPatch) -> list[str]:
    """Return a patch's line, and one for each place that is not as written."""
    text = [f"{patch.series}/{patch.file}: {patch.status}"]
    if patch.status == "already upstream":
        text.append(f"  {patch.detail}")
    for file in patch.files:
        likeness = f"; `{file.similar}` has similar content" if file.similar else ""
        if file.state == "file gone":
            text.append(f"  {file.path}: file gone{likeness}{_by(file.upstream)}")
        elif not file.hunks and file.state in ("conflict", "already upstream"):
            text.append(f"  {file.path}: {file.reason or file.state}{_by(file.upstream)}")
        for hunk in file.hunks:
            if hunk.state == "clean":
                continue
            what = f"moved by {hunk.offset:+d} lines" if hunk.state == "offset" else hunk.state
            reason = f": {hunk.reason}" if hunk.reason else ""
            text.append(
                f"  {file.path}, hunk {hunk.number} {hunk.header.split('@@')[1].strip()}: "
                f"{what}{reason}{_by(hunk.upstream)}"
            )
    if (patch.status == "offset" and "three-way" in patch.detail) or (
        not patch.applies and len(text) == 1
    ):
        text.append(f"  {patch.detail}")
    return text


def _by(upstream: str) -> str:
    return f"  [{upstream}]" if upstream else ""


def explained(patch: Patch) -> list[str]:
    """Return what a person wants to know about a patch."""
    entry = patch.entry
    probe = entry.probe
    where = " ".join(w for w in (probe.os, probe.linkage) if w)
    return [
        f"\n{entry.file}: {patch.subject}",
        f"  why:       {' '.join(entry.why.split())}",
        f"  upstream:  {', '.join(entry.upstream) or 'nothing there yet'}",
        f"  drop when: {' '.join(entry.drop_when.split())}",
        f"  touches:   {', '.join(entry.touches)}",
        f"  tests:     {', '.join(entry.tests) or '(none)'}",
        f"  probe:     {probe.kind} `{probe.value}` {'not ' if probe.absent else ''}in "
        f"{probe.place}" + (f" ({where} bundles)" if where else ""),
    ]
