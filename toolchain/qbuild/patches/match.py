"""Where a patch's hunks fit in a file: pure text, no git.

git decides whether a patch applies; this says *where* and *why not*, hunk by hunk, in words git
does not have. The rules are git apply's: exact lines, no fuzz, a hunk without trailing context
only fits at the end of the file, one for line 1 only at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from qbuild.patches.diff import ANEW, FileChange, Hunk
from qbuild.patches.mail import Mail

HunkState = Literal["clean", "offset", "already upstream", "conflict"]
State = Literal["clean", "offset", "already upstream", "conflict", "file gone"]
Read = Callable[[str], bytes | None]

_RANK: dict[str, int] = {
    "already upstream": 0, "clean": 1, "offset": 2, "conflict": 3, "file gone": 4,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HunkReport:
    """How one hunk fits."""

    number: int
    header: str
    state: HunkState
    offset: int = 0
    reason: str = ""
    missing: str = ""  # first line the hunk expects that the file does not have
    upstream: str = ""  # the upstream commit that touched it, for the drift canary


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """How one file's change fits."""

    path: str
    state: State
    reason: str = ""
    hunks: tuple[HunkReport, ...] = ()
    similar: str | None = None
    note: str = ""
    upstream: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a whole patch fits, and what the files hold afterwards where it does."""

    state: State
    files: tuple[FileReport, ...]
    after: dict[str, bytes | None] = field(default_factory=dict)


def split(data: bytes) -> list[str]:
    """Return the lines of a file, each with its line end; any bytes survive."""
    text = data.decode("utf-8", "surrogateescape")
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def join(lines: Iterable[str]) -> bytes:
    """Return the bytes of the lines."""
    return "".join(lines).encode("utf-8", "surrogateescape")


def fit(mail: Mail, read: Read) -> Fit:
    """Return how the patch fits the files that ``read`` returns.

    Args:
        mail: The patch.
        read: Path → content, ``None`` where there is no such file.
    """
    reports: list[FileReport] = []
    after: dict[str, bytes | None] = {}
    for change in mail.files:
        report, outcome = _fit_file(change, read)
        reports.append(report)
        after.update(outcome)
    return Fit(
        state=_overall(report.state for report in reports), files=tuple(reports), after=after
    )


def _overall(states: Iterable[State]) -> State:
    """Return the worst; a patch is upstream only when all of it is."""
    found = list(states)
    worst = max(found, key=lambda state: _RANK[state])
    if worst in ("clean", "offset") and "already upstream" in found:
        return "conflict"
    return worst


def _fit_file(change: FileChange, read: Read) -> tuple[FileReport, dict[str, bytes | None]]:
    before = read(change.old_path) if change.kind != "add" else None
    existing = read(change.new_path)
    if change.kind == "add":
        wanted = join(line for hunk in change.hunks for line in hunk.new)
        if existing is None:
            return _report(change, "clean"), {change.new_path: wanted}
        if existing == wanted:
            return _report(change, "already upstream"), {}
        return _report(change, "conflict", "the file already exists with other content"), {}
    if before is None:
        gone = change.kind == "delete" or (change.kind == "rename" and existing is not None)
        if change.kind == "rename" and existing is not None:
            gone = all(_find(split(existing), h.new, h, h.old_start - 1, 0) is not None
                       for h in change.hunks)  # fmt: skip
        if gone:
            return _report(change, "already upstream"), {}
        return _report(change, "file gone", "the tree has no such file"), {}
    reports, lines = fit_hunks(change.hunks, split(before))
    if change.kind == "rename" and existing is not None:
        return _report(change, "conflict", "the new name is taken", reports), {}
    state: State = _overall(r.state for r in reports) if reports else "clean"
    if state == "conflict" and reports:
        reason = next((r.reason for r in reports if r.state == "conflict"), "partly upstream")
        note = "the file in the tree has CRLF line ends" if b"\r\n" in before else ""
        return _report(change, state, reason, reports, note), {}
    if change.kind == "delete" and lines and state != "already upstream":
        return _report(change, "conflict", "the file has grown", reports), {}
    if state == "already upstream":
        return _report(change, state, "", reports), {}
    outcome: dict[str, bytes | None] = {change.old_path: None}
    if change.kind != "delete":
        outcome[change.new_path] = join(lines)
    return _report(change, state, "", reports), outcome


def _report(
    change: FileChange,
    state: State,
    reason: str = "",
    hunks: Sequence[HunkReport] = (),
    note: str = "",
) -> FileReport:
    return FileReport(path=change.path, state=state, reason=reason, hunks=tuple(hunks), note=note)


def fit_hunks(hunks: Sequence[Hunk], lines: list[str]) -> tuple[list[HunkReport], list[str]]:
    """Return a report per hunk, and the lines with every hunk that fits applied."""
    work = list(lines)
    drift = 0  # how far earlier hunks moved what follows
    floor = 0
    reports: list[HunkReport] = []
    for hunk in hunks:
        expected = max(hunk.old_start - 1, 0) + drift
        at = _find(work, hunk.old, hunk, expected, floor)
        if at is not None:
            state: HunkState = "clean" if at == expected else "offset"
            work[at : at + len(hunk.old)] = hunk.new
            reports.append(
                HunkReport(
                    number=hunk.number, header=hunk.header, state=state, offset=at - expected
                )
            )
            drift += len(hunk.new) - len(hunk.old) + (at - expected)
            floor = at + len(hunk.new)
            continue
        back = _find(work, hunk.new, hunk, expected, floor)
        if back is not None:
            reports.append(
                HunkReport(number=hunk.number, header=hunk.header, state="already upstream")
            )
            drift += len(hunk.new) - len(hunk.old) + (back - expected)
            floor = back + len(hunk.new)
            continue
        reason, missing = _why_not(hunk, work, expected)
        reports.append(
            HunkReport(
                number=hunk.number,
                header=hunk.header,
                state="conflict",
                reason=reason,
                missing=missing,
            )
        )
    return reports, work


def _find(
    lines: Sequence[str], wanted: Sequence[str], hunk: Hunk, expected: int, floor: int
) -> int | None:
    """Return where ``wanted`` stands, nearest to ``expected`` and not before ``floor``."""
    last = len(lines) - len(wanted)
    if last < floor:
        return None
    at_start = hunk.old_start <= 1 and hunk.leading < 3
    at_end = hunk.trailing == 0
    candidates: Iterable[int]
    if at_start:
        candidates = (0,) if floor == 0 else ()
    elif at_end:
        candidates = (last,)
    else:
        candidates = sorted(range(floor, last + 1), key=lambda at: abs(at - expected))
    target = list(wanted)
    for at in candidates:
        if lines[at : at + len(target)] == target and (not at_end or at == last):
            return at
    return None


def _why_not(hunk: Hunk, lines: Sequence[str], expected: int) -> tuple[str, str]:
    """Say which expected line is not there, in words a person can act on."""
    have = set(lines)
    bare = {line.rstrip(): line for line in lines}
    loose = {"".join(line.split()): line for line in lines}
    for line in hunk.old:
        if not line.strip() or line in have:
            continue
        shown = line.strip()[:100]
        if (there := bare.get(line.rstrip())) is not None:
            return f"does not apply: {_only_at_the_end(shown, line, there)}", line.rstrip("\n")
        if "".join(line.split()) in loose:
            return (
                f"does not apply: `{shown}` differs in white space only (tabs and blanks): an "
                f"editor changed the patch; {ANEW}",
                line.rstrip("\n"),
            )
        return f"does not apply: the file has no line `{shown}`", line.rstrip("\n")
    if not hunk.old:
        return "does not apply: the file is not empty", ""
    here = [line.strip() for line in lines[expected : expected + len(hunk.old)]]
    for index, line in enumerate(hunk.old):
        if index >= len(here):
            return f"does not apply: the file ends before line {expected + index + 1}", ""
        if here[index] != line.strip():
            return (
                f"does not apply: line {expected + index + 1} is `{here[index][:80]}`, "
                f"expected `{line.strip()[:80]}`; the lines exist but not together",
                line.rstrip("\n"),
            )
    return "does not apply: the lines differ in blanks or line ends", ""


def _only_at_the_end(shown: str, line: str, there: str) -> str:
    """Say how two lines differ that are equal up to what stands behind their text."""
    if there.rstrip("\n").endswith("\r") and not line.rstrip("\n").endswith("\r"):
        return (
            f"the file's lines end in CRLF, `{shown}` of the patch does not: such a file cannot be "
            "patched by a series, and `qbuild patch refresh` cannot help"
        )
    lost = "the patch lost them" if len(there) > len(line) else "the patch has more of them"
    return (
        f"`{shown}` differs in white space only: blanks at the end of the line, {lost} (an editor "
        f"or mail program strips them); {ANEW}"
    )


def most_similar(
    path: str, lines: Iterable[str], candidates: Iterable[tuple[str, bytes]]
) -> str | None:
    """Return the file that holds most of ``lines``, if it holds at least half of them.

    Args:
        path: The path that is gone: the same base name wins a tie.
        lines: What the gone file is known to have held.
        candidates: Path and content of files of the same kind.
    """
    wanted = {line.strip() for line in lines if len(line.strip()) > 3}
    if not wanted:
        return None
    name = PurePosixPath(path).name
    stem = PurePosixPath(path).stem
    best: tuple[float, bool, bool, str] | None = None
    for other, data in candidates:
        text = data.decode("utf-8", "replace")
        share = len(wanted & {line.strip() for line in text.split("\n")}) / len(wanted)
        there = PurePosixPath(other)
        rank = (share, there.name == name, there.stem == stem, other)
        if share >= 0.5 and (best is None or rank[:3] > best[:3]):
            best = rank
    return best[3] if best else None
