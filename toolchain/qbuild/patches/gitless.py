"""Apply series on a machine without git: the same tree and the same commits as ``git am`` makes.

A hunk goes in where its lines stand, exactly, as :mod:`qbuild.patches.match` finds them; git's
three-way merge is not done. What needs one is refused and says that git is needed.
"""

from __future__ import annotations

import email.header
import email.utils
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from qbuild import held
from qbuild.errors import PatchError
from qbuild.patches import outcome
from qbuild.patches.bench import IDENTITY_DATE, IDENTITY_EMAIL, IDENTITY_NAME, Leaf, object_dir
from qbuild.patches.lint import lint_against_tree, lint_series, refuse
from qbuild.patches.mail import Mail, name_and_address
from qbuild.patches.match import fit
from qbuild.patches.outcome import ADVICE_UPSTREAM, AppliedPatch, PatchedTree, Status
from qbuild.patches.series import Patch, Series
from qbuild.source import gitless
from qbuild.source.gitless import File, Objects, object_id
from qbuild.source.quarantine import Forged, Unusable


class _Tree:
    """The files of the source as they stand: ids of all, contents of what was read or changed."""

    def __init__(self, objects: Objects, commit: str) -> None:
        self.objects, self.commit = objects, commit
        self.files = objects.files(objects.tree_of(commit))
        self.contents: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file's content; nothing when there is no such file."""
        if path not in self.files:
            return None
        if path not in self.contents:
            self.contents[path] = self.objects.read(self.files[path].blob, b"blob")
        return self.contents[path]

    def change(self, patch: Patch, after: dict[str, bytes | None]) -> None:
        """Take over what a patch made of its files."""
        modes = {
            change.new_path: change.new_mode or "100644"
            if change.kind == "add"
            else self.files[change.old_path].mode
            for change in patch.mail.files
            if change.kind != "delete"
        }
        for path, data in after.items():
            if data is None:
                self.files.pop(path, None)
                self.contents.pop(path, None)
        for path, data in after.items():
            if data is not None:
                self.files[path] = File(mode=modes[path], blob=object_id(b"blob", data))
                self.contents[path] = data

    def write(self, folder: Path) -> None:
        """Write every file; a link becomes a file that names its target, if need be."""
        for path, file in self.files.items():
            target = folder / path
            if file.mode == "160000":
                target.mkdir(parents=True, exist_ok=True)
                continue
            data = self.read(path)
            assert data is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.mode == "120000":
                try:
                    target.symlink_to(os.fsdecode(data))
                    continue
                except (OSError, NotImplementedError):
                    pass
            target.write_bytes(data)
            if file.mode == "100755":
                target.chmod(0o755)


def apply_series(
    repo: Path,
    commit: str,
    series: Sequence[Series],
    work: Path,
    *,
    progress: Callable[[int, str], None] | None = None,
) -> PatchedTree:
    """Apply the series to ``commit`` and leave the patched files in ``work``.

    Arguments, result and ids are those of :func:`qbuild.patches.apply.apply_series`.

    Raises:
        PatchError: A lint refused a patch, a patch does not apply, or only git could apply it.
    """
    notes = lint_series(series)
    refuse(notes)
    if work.exists() and (not work.is_dir() or any(work.iterdir())):
        raise PatchError("the folder for the patched source is not empty", where=str(work))
    work.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".qbuild-patch-", dir=work.parent))
    objects = Objects(object_dir(repo))
    try:
        tree = _Tree(objects, commit)
        refuse(lint_against_tree(series, {p: Leaf(mode=f.mode, blob=f.blob)
                                          for p, f in tree.files.items()}))  # fmt: skip
        outcomes = _run(tree, series, progress)
        tree.write(aside)
        if work.exists():
            work.rmdir()
        held.rename(aside, work)
    except (Forged, Unusable) as error:
        raise PatchError(f"the repository is damaged: {error}", where=str(repo)) from error
    finally:
        objects.close()
        shutil.rmtree(aside, ignore_errors=True)
    return PatchedTree(
        commit=tree.commit,
        tree=gitless.write_tree(tree.files)[0],
        patches=tuple(outcomes),
        notes=tuple(f for f in notes if f.severity == "note"),
    )


def _run(
    tree: _Tree, series: Sequence[Series], progress: Callable[[int, str], None] | None
) -> list[AppliedPatch]:
    outcomes: list[AppliedPatch] = []
    failed = False
    patches = [patch for one in series for patch in one.patches]
    for index, patch in enumerate(patches):
        if progress:
            progress(index, patch.label)
        how = fit(patch.mail, tree.read)
        if failed:
            outcomes.append(outcome.not_reached(patch, how))
        elif how.state == "already upstream":
            outcomes.append(outcome.outcome(patch, how.state, ADVICE_UPSTREAM, how))
        elif how.state in ("clean", "offset"):
            tree.change(patch, how.after)
            tree.commit = _commit(tree, patch.mail)
            status: Status = "clean" if how.state == "clean" else "offset"
            detail = "" if status == "clean" else outcome.offsets(how)
            outcomes.append(outcome.outcome(patch, status, detail, how, commit=tree.commit))
        else:
            failed = True
            why = outcome.first_reason(how.files) or "does not apply"
            detail = f"{why} (git could try a three-way merge: {gitless.GET_GIT})"
            outcomes.append(outcome.outcome(patch, how.state, detail, how))
    if progress:
        progress(len(patches), "")
    if failed:
        raise outcome.error(outcomes)
    return outcomes


def _commit(tree: _Tree, mail: Mail) -> str:
    """Return the id of the commit that git am would make of a mail on this tree."""
    root, _ = gitless.write_tree(tree.files)
    name, address = name_and_address(" ".join(_decoded(mail.author).split()))
    when = email.utils.parsedate_to_datetime(mail.date)
    subject = " ".join(mail.subject.split())  # as `git mailinfo` does it
    lines = [line.rstrip() for line in f"{subject}\n\n{mail.message}".split("\n")]
    kept: list[str] = []
    for line in lines:  # as `git stripspace` does it
        if line or (kept and kept[-1]):
            kept.append(line)
    committer = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}> {_seconds(IDENTITY_DATE)} +0000"
    text = (
        f"tree {root}\nparent {tree.commit}\n"
        f"author {name} <{address}> {int(when.timestamp())} {when:%z}\n"
        f"committer {committer}\n\n" + "\n".join(kept).rstrip("\n") + "\n"
    )
    return object_id(b"commit", text.encode())


def _seconds(date: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(date).timestamp())


def _decoded(header: str) -> str:
    return str(email.header.make_header(email.header.decode_header(header)))
