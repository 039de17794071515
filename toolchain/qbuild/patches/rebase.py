"""Carry a series over to another commit by git's three-way merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild.patches.apply import run_series, scratch
from qbuild.patches.bench import IDENTITY_DATE, IDENTITY_EMAIL, IDENTITY_NAME
from qbuild.patches.export import Edit, check_free, materialise
from qbuild.patches.lint import lint_series, refuse
from qbuild.patches.outcome import AppliedPatch
from qbuild.patches.series import Patch, Series
from qbuild.source.gitenv import run_git


@dataclass(frozen=True, kw_only=True)
class Rebased:
    """How far a rebase came."""

    folder: Path  # the work tree, on the new commit
    carried: tuple[AppliedPatch, ...]  # patches that are commits now
    upstream: tuple[AppliedPatch, ...]  # patches that the new commit has already: drop them
    stopped: AppliedPatch | None = None  # the patch that needs a person, if one does
    waiting: tuple[str, ...] = ()  # patches that follow when that is resolved
    conflicts: tuple[str, ...] = ()  # files with conflict markers, or that are gone

    @property
    def done(self) -> bool:
        """Whether nothing is left for a person to resolve."""
        return self.stopped is None

    def as_json(self) -> dict[str, object]:
        """Return the result for ``--json``."""
        return {
            "folder": str(self.folder),
            "done": self.done,
            "carried": [p.file for p in self.carried],
            "upstream": [p.file for p in self.upstream],
            "stopped": self.stopped.as_json() if self.stopped else None,
            "waiting": list(self.waiting),
            "conflicts": list(self.conflicts),
        }


def rebase_series(
    repo: Path, other: Path, commit: str, series: Series, *, below: Sequence[Series], folder: Path
) -> Rebased:
    """Make a work tree at ``commit`` with as much of the series as git can carry.

    The patches folder is not touched: ``refresh`` exports the work tree when it is settled.

    Args:
        repo: Repository of ours with the pin the series was written for: it has the blobs that
            a three-way merge needs.
        other: Repository of ours with ``commit``; may be the same.
        commit: Where to carry the series to.
        series: The series.
        below: Series it requires; they must apply there as they are.
        folder: Where to make the work tree; must not exist or be empty.

    Raises:
        PatchError: The folder is taken, a lint refused a patch, or a required series does not
            apply.
    """
    folder = folder.absolute()
    check_free(folder)
    refuse(lint_series([*below, series]))
    with scratch(other, commit, more=[repo]) as bench:
        run_series(bench, commit, below)
        base = bench.head()
        carried: list[AppliedPatch] = []
        upstream: list[AppliedPatch] = []
        stopped: AppliedPatch | None = None
        left: list[Patch] = list(series.patches)
        while left and stopped is None:
            outcome = run_series(bench, bench.head(), [_only(series, left[0])], stop=False)[0]
            if not outcome.applies:
                stopped = outcome
                break
            (carried if outcome.commit else upstream).append(outcome)
            left.pop(0)
        materialise(bench, bench.head(), folder, Edit(series=series.name, base=base))
        conflicts = _hand_over(folder, left) if stopped else ()
    return Rebased(
        folder=folder,
        carried=tuple(carried),
        upstream=tuple(upstream),
        stopped=stopped,
        waiting=tuple(patch.file for patch in left[1:]),
        conflicts=conflicts,
    )


def _only(series: Series, patch: Patch) -> Series:
    return Series(name=series.name, summary=series.summary, patches=(patch,), digest="")


def _hand_over(folder: Path, left: Sequence[Patch]) -> tuple[str, ...]:
    """Start git am for what is left in the work tree, so that a person can go on with git."""
    mails = folder / ".git" / "qbuild-mails"
    mails.mkdir()
    files = []
    for patch in left:
        path = mails / patch.file
        path.write_bytes(patch.body)
        files.append(str(path))
    who = {
        "GIT_COMMITTER_NAME": IDENTITY_NAME,
        "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
        "GIT_COMMITTER_DATE": IDENTITY_DATE,
    }
    run_git(
        ["-c", "merge.renames=false", "am", "--3way", "--quiet", "--no-keep-cr",
         "--keep-non-patch", *files],
        folder,
        env=who,
    )  # fmt: skip
    unmerged = run_git(["diff", "--name-only", "--diff-filter=U", "-z"], folder)
    names = [p.decode("utf-8", "replace") for p in unmerged.out.split(b"\0") if p]
    return tuple(names or left[0].mail.paths)


def instructions(result: Rebased) -> str:
    """Return what a person does next."""
    lines: list[str] = []
    for patch in result.upstream:
        lines.append(
            f"{patch.series}/{patch.file} is upstream: remove its [[patch]] table and its file"
        )
    if result.stopped is None:
        lines.append(f"then: qbuild patch refresh --dir {result.folder}")
        return "\n".join(lines)
    stopped = result.stopped
    lines += [
        f"{stopped.series}/{stopped.file} stopped: {stopped.detail}",
        f"in {result.folder}:",
        f"  1. resolve {', '.join(result.conflicts)}",
        "     (no markers in it? the patch's own text is in .git/rebase-apply/patch)",
        "  2. git add -A",
        "  3. git am --continue      (or git am --skip to drop the patch)",
        "  4. repeat while git stops; "
        + (f"waiting: {', '.join(result.waiting)}" if result.waiting else "no patch is waiting"),
        f"  5. qbuild patch refresh --dir {result.folder}",
    ]
    return "\n".join(lines)
