"""Apply series to a pin: ``git am --3way``, always from the pristine tree, all or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from qbuild import held
from qbuild.errors import PatchError
from qbuild.patches import outcome as report
from qbuild.patches.bench import Bench, Leaf, object_dir
from qbuild.patches.gitless import apply_series as without_git
from qbuild.patches.lint import lint_against_tree, lint_series, refuse
from qbuild.patches.match import FileReport, Fit, fit, most_similar
from qbuild.patches.outcome import ADVICE_UPSTREAM, AppliedPatch, PatchedTree, Status
from qbuild.patches.series import Patch, Series
from qbuild.source import gitless

_C_LIKE = frozenset({".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh", ".inc"})
_MAX_SIMILAR = 2 * 1024 * 1024


@dataclass
class _Source:
    """The files of the tree as it stands, read from git when first asked for."""

    bench: Bench
    leaves: dict[str, Leaf]
    overlay: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        if path not in self.overlay:
            leaf = self.leaves.get(path)
            self.overlay[path] = (
                self.bench.blobs([leaf.blob]).get(leaf.blob) if leaf is not None else None
            )
        return self.overlay[path]

    def preload(self, paths: Sequence[str]) -> None:
        ids = {path: self.leaves[path].blob for path in paths if path in self.leaves}
        found = self.bench.blobs(ids.values())
        for path in paths:
            self.overlay[path] = found.get(ids[path]) if path in ids else None


def apply_series(
    repo: Path,
    commit: str,
    series: Sequence[Series],
    work: Path,
    *,
    keep: Path | None = None,
    progress: Callable[[int, str], None] | None = None,
) -> PatchedTree:
    """Apply the series to ``commit`` and leave the patched files in ``work``.

    ``repo`` is only read. Nothing appears at ``work`` unless every patch went in.

    Args:
        repo: Repository of ours that holds the pin.
        commit: Full id of the pin.
        series: What to apply, in order; none: ``work`` gets the pin as it is.
        work: Folder to make; must not exist or be empty.
        keep: Also leave the repository with the patched commit here (it borrows ``repo``'s
            objects); must not exist.
        progress: Called with the number of patches done and the name of the next.

    Raises:
        PatchError: A lint refused a patch, or a patch does not apply. In the second case it is
            a :class:`SeriesError` that says what became of every patch.
    """
    if keep is None and not gitless.have_git():
        return without_git(repo, commit, series, work, progress=progress)
    notes = lint_series(series)
    refuse(notes)
    if work.exists() and (not work.is_dir() or any(work.iterdir())):
        raise PatchError("the folder for the patched source is not empty", where=str(work))
    work.parent.mkdir(parents=True, exist_ok=True)
    with scratch(repo, commit, work.parent) as bench:
        outcomes = run_series(bench, commit, series, progress=progress)
        head = bench.head()
        tree = bench.must(["rev-parse", "--verify", f"{head}^{{tree}}"])
        bench.must(["checkout-index", "--all", "--force", "--quiet"])
        _check_export(bench, head)
        if work.exists():
            work.rmdir()
        held.rename(bench.tree, work)
        if keep is not None:
            bench.must_detached(head)
            keep.parent.mkdir(parents=True, exist_ok=True)
            held.rename(bench.git_dir, keep)
    return PatchedTree(
        commit=head,
        tree=tree,
        patches=tuple(outcomes),
        notes=tuple(f for f in notes if f.severity == "note"),
    )


@contextlib.contextmanager
def scratch(
    repo: Path, commit: str, parent: Path | None = None, *, more: Sequence[Path] = ()
) -> Iterator[Bench]:
    """Give a bench with ``commit`` as its pristine state; it is gone when the context ends.

    Args:
        repo: Repository of ours that holds the commit.
        commit: Full id.
        parent: Folder to work in; the default is the system's for temporary files.
        more: Further repositories of ours whose objects git may need (three-way merges).

    Raises:
        PatchError: The repository does not have the commit.
    """
    root = Path(tempfile.mkdtemp(prefix=".qbuild-patch-", dir=parent))
    times = _times([repo, *more])
    try:
        bench = Bench(root / "repo.git", root / "tree", repo, *more)
        bench.create()
        bench.start(commit)
        yield bench
    finally:
        held.remove_tree(root)
        _restore(times)


def _times(repos: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Remember when the packs were written.

    git touches the pack of an object that it would have written again. The store takes a file
    of another time for one that may have changed, and would hash it in every later run.
    """
    packs = [pack for repo in repos for pack in object_dir(repo).glob("pack/*.pack")]
    return {pack: (pack.stat().st_atime_ns, pack.stat().st_mtime_ns) for pack in packs}


def _restore(times: Mapping[Path, tuple[int, int]]) -> None:
    for pack, (accessed, written) in times.items():
        with contextlib.suppress(OSError):
            if pack.stat().st_mtime_ns != written:
                os.utime(pack, ns=(accessed, written))


def run_series(
    bench: Bench,
    commit: str,
    series: Sequence[Series],
    *,
    progress: Callable[[int, str], None] | None = None,
    stop: bool = True,
) -> list[AppliedPatch]:
    """Run git am for each patch on the bench and return what became of each.

    Args:
        bench: Scratch repository that is at ``commit``.
        commit: The pristine commit.
        series: What to apply.
        progress: Called with the number of patches done and the name of the next.
        stop: Raise when a patch does not apply; otherwise report it and try the others
            without it.

    Raises:
        PatchError: A patch would go through a symlink of the tree, or does not apply.
    """
    leaves = bench.leaves(commit)
    refuse(lint_against_tree(series, leaves))
    patches = [patch for one in series for patch in one.patches]
    source = _Source(bench=bench, leaves=leaves)
    touched = sorted({path for patch in patches for path in patch.mail.paths})
    source.preload(touched)
    _lay_out(bench, leaves, touched)
    outcomes: list[AppliedPatch] = []
    failed = False
    for index, patch in enumerate(patches):
        if progress:
            progress(index, patch.label)
        before = fit(patch.mail, source.read)
        if failed and stop:
            outcomes.append(report.not_reached(patch, before))
            source.overlay.update(before.after)
            continue
        outcome = _am(bench, patch, before, source)
        outcomes.append(outcome)
        failed = failed or not outcome.applies
    if progress:
        progress(len(patches), "")
    if failed and stop:
        raise report.error(outcomes)
    return outcomes


def _am(bench: Bench, patch: Patch, before: Fit, source: _Source) -> AppliedPatch:
    """Apply one patch with git am and compare what it did with what the patch says."""
    head = bench.head()
    if before.state == "file gone":
        # git would only say "does not exist in index"
        return _failed(patch, before, source, "")
    done = bench.run(
        ["am", "--3way", "--quiet", "--no-keep-cr", "--no-scissors", "--no-gpg-sign",
         "--keep-non-patch", "--patch-format=mbox"],
        stdin=_for_git(patch),
    )  # fmt: skip
    if done.rc:
        said = done.last_error
        bench.run(["am", "--quit"])
        bench.must(["read-tree", "--reset", head])
        _empty(bench.tree)
        _lay_out(bench, source.leaves, sorted(source.overlay))
        return _failed(patch, before, source, said)
    now = bench.head()
    if now == head:
        return report.outcome(patch, "already upstream", ADVICE_UPSTREAM, before)
    touched = _touched(bench, head, now)
    stray = sorted(touched - set(patch.mail.paths))
    if stray:
        raise PatchError(
            f"git changed `{stray[0]}`, which patch {patch.label} does not name",
            where=patch.label,
            fix="report this: the patch reads differently to git than to qbuild",
        )
    source.leaves = bench.leaves(now)
    source.preload(sorted(touched))
    status: Status = "clean"
    detail = ""
    if before.state == "offset":
        status, detail = "offset", report.offsets(before)
    elif before.state != "clean":
        status = "offset"
        detail = "the lines around it changed; merged three-way: check it, then refresh"
    return report.outcome(patch, status, detail, before, commit=now)


def _lay_out(bench: Bench, leaves: Mapping[str, Leaf], paths: Sequence[str]) -> None:
    """Write the files that patches touch; git am needs no others, and writing all takes long."""
    there = [path for path in paths if path in leaves]
    if there:
        names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in there)
        bench.must(["checkout-index", "--force", "--quiet", "-z", "--stdin"], stdin=names + b"\0")


def _for_git(patch: Patch) -> bytes:
    """Return the mail as git am gets it: one mail, whatever its first line was."""
    body = patch.body
    if body.startswith(b"From "):
        body = body.partition(b"\n")[2]
    return b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n" + body


def _touched(bench: Bench, old: str, new: str) -> set[str]:
    done = bench.run(["diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new])
    return {p.decode("utf-8", "surrogateescape") for p in done.out.split(b"\0") if p}


def _failed(patch: Patch, how: Fit, source: _Source, said: str) -> AppliedPatch:
    """Describe a patch that git refused; a gone file gets its nearest likeness named."""
    files = tuple(
        _with_similar(file, patch, source) if file.state == "file gone" else file
        for file in how.files
    )
    status: Status = "file gone" if how.state == "file gone" else "conflict"
    detail = report.first_reason(files)
    if not detail:
        # every hunk has a place of its own, yet git could not put them in
        detail = f"does not apply: {said or 'git am refused it'}"
    return report.outcome(patch, status, detail, dataclasses.replace(how, files=files))


def _kind(path: str) -> str:
    """Return what sort of file it is: a .c that became a .cpp is still the same code."""
    suffix = PurePosixPath(path).suffix
    return ".c" if suffix in _C_LIKE else suffix


def _with_similar(gone: FileReport, patch: Patch, source: _Source) -> FileReport:
    change = next(c for c in patch.mail.files if c.path == gone.path)
    kind = _kind(gone.path)
    leaves = {p: leaf for p, leaf in source.leaves.items() if _kind(p) == kind}
    old = source.bench.blobs([change.old_blob]) if change.old_blob else {}
    if old:
        lines = next(iter(old.values())).decode("utf-8", "replace").split("\n")
    else:
        lines = [line for hunk in change.hunks for line in hunk.old]
    found = source.bench.blobs(leaf.blob for leaf in leaves.values())
    similar = most_similar(
        gone.path,
        lines,
        (
            (path, found[leaf.blob])
            for path, leaf in sorted(leaves.items())
            if len(found.get(leaf.blob, b"")) in range(1, _MAX_SIMILAR)
        ),
    )
    return dataclasses.replace(gone, similar=similar)


def _empty(folder: Path) -> None:
    for child in list(folder.iterdir()):
        if child.is_dir() and not child.is_symlink():
            held.remove_tree(child)
        else:
            child.unlink()


def _check_export(bench: Bench, head: str) -> None:
    """Compare what lies on disk with the patched tree, byte for byte.

    git can report success and leave files alone (inside another repository, with odd
    configuration): what will be compiled is checked, not what git said.
    """
    for path, leaf in bench.leaves(head).items():
        if leaf.mode == "160000":
            continue
        file = bench.tree / path
        data: bytes | None
        if leaf.mode == "120000" and file.is_symlink():
            data = str(file.readlink()).encode("utf-8", "surrogateescape")
        else:
            data = file.read_bytes() if file.is_file() else None
        if data is None or _blob_id(data, len(leaf.blob)) != leaf.blob:
            raise PatchError(
                f"git did not write `{path}` as the patched commit has it",
                where=str(bench.tree),
                fix="check the disk and the git version, then run again",
            )


def _blob_id(data: bytes, digits: int) -> str:
    name = "sha1" if digits == 40 else "sha256"
    digest = hashlib.new(name, usedforsecurity=False)
    digest.update(b"blob %d\0" % len(data))
    digest.update(data)
    return digest.hexdigest()
