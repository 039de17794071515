"""A series as commits in a work tree, and the commits back as a series.

``edit`` makes a repository of its own, so that any git tool can be used in it. ``refresh`` reads
nothing but its commits: it exports them with qbuild's git settings, checks that the new mails
give the same tree again, and only then replaces the series' folder in one step.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbuild import held
from qbuild.errors import PatchError, UsageError
from qbuild.patches.apply import run_series, scratch
from qbuild.patches.bench import Bench, object_dir
from qbuild.patches.lint import lint_patch, lint_series, refuse
from qbuild.patches.mail import Mail, parse
from qbuild.patches.series import Patch, PatchEntry, Series, Table, load_series, read_table
from qbuild.source.gitenv import run_git

MARK = "qbuild-edit.json"
_DATE = "Thu, 1 Jan 2026 00:00:00 +0000"

# Run in a scratch repository: no setting of the user's or of the work tree's is in reach.
_EXPORT = (
    "format-patch", "-1", "--stdout", "--full-index", "--zero-commit", "--no-signature",
    "--no-numbered", "--unified=3", "--find-renames=50%", "--no-ext-diff", "--no-textconv",
    "--binary", "--no-thread", "--no-base", "--no-notes", "--no-color", "--diff-algorithm=myers",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What ``edit`` remembers about a work tree."""

    series: str  # name of the series whose commits it holds
    base: str  # the commit below the first of them


def edit_series(
    repo: Path, commit: str, series: Series, below: Sequence[Series], folder: Path
) -> Edit:
    """Make a work tree that has each patch of ``series`` as a commit.

    Args:
        repo: Repository of ours with the pin.
        commit: The pin.
        series: The series to edit.
        below: Series that it requires, applied first; they are not part of the export.
        folder: Where to make the work tree; must not exist or be empty.

    Raises:
        PatchError: The folder is taken, or a patch does not apply: then use ``rebase``.
    """
    folder = folder.absolute()
    check_free(folder)
    with scratch(repo, commit) as bench:
        refuse(lint_series([*below, series]))
        run_series(bench, commit, below)
        base = bench.head()
        run_series(bench, base, [series])
        head = bench.head()
        edit = Edit(series=series.name, base=base)
        materialise(bench, head, folder, edit)
    return edit


def check_free(folder: Path) -> None:
    """Raise when the folder cannot become a work tree.

    Raises:
        PatchError: It exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PatchError(
            "the folder for the work tree is not empty",
            where=str(folder),
            fix="name another one with --dir, or remove it",
        )


def materialise(bench: Bench, head: str, folder: Path, edit: Edit) -> None:
    """Turn the bench's commits into a repository of its own at ``folder``, on branch ``edit``.

    Raises:
        PatchError: git failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = run_git(["init", "--quiet", "--template=", "--initial-branch=edit"], folder)
    if done.rc:
        raise PatchError(f"git init failed: {done.last_error}", where=str(folder))
    git_dir = folder / ".git"
    for objects in (*(object_dir(source) for source in bench.sources), bench.git_dir / "objects"):
        _copy_objects(objects, git_dir / "objects")
    if (bench.git_dir / "shallow").is_file():
        shutil.copyfile(bench.git_dir / "shallow", git_dir / "shallow")
    (git_dir / "info").mkdir(exist_ok=True)
    shutil.copyfile(bench.git_dir / "info" / "attributes", git_dir / "info" / "attributes")
    for args in (
        ["config", "core.autocrlf", "false"],
        ["update-ref", "refs/qbuild/base", edit.base],
        ["reset", "--quiet", "--hard", head],
    ):
        done = run_git(args, folder)
        if done.rc:
            raise PatchError(f"git {args[0]} failed: {done.last_error}", where=str(folder))
    mark = {"series": edit.series, "base": edit.base}
    (git_dir / MARK).write_text(json.dumps(mark) + "\n", encoding="utf-8", newline="\n")


def _copy_objects(source: Path, dest: Path) -> None:
    for file in source.rglob("*"):
        relative = file.relative_to(source)
        if file.is_file() and relative.parts[0] != "info" and file.suffix not in (".lock", ".keep"):
            target = dest / relative
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


def read_mark(folder: Path) -> Edit:
    """Return what a work tree holds.

    Raises:
        UsageError: ``qbuild patch edit`` or ``rebase`` did not make it.
    """
    try:
        data = json.loads((folder / ".git" / MARK).read_text(encoding="utf-8"))
        return Edit(series=str(data["series"]), base=str(data["base"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            "this is not a work tree of `qbuild patch edit` or `rebase`",
            fix=f"name one with --dir (looked for {folder / '.git' / MARK})",
        ) from None


def refresh(folder: Path, root: Path) -> list[str]:
    """Write the work tree's commits back as the series' mails.

    Args:
        folder: Work tree that ``edit`` or ``rebase`` made.
        root: The patches folder.

    Returns:
        Names of the files that changed; none: the series was up to date and nothing was written.

    Raises:
        PatchError: Uncommitted changes, a merge or rebase in progress, a commit without a
            [[patch]] table or a table without a commit, or a mail that the lints refuse. The
            patches folder is untouched.
    """
    folder, root = folder.absolute(), root.absolute()
    edit = read_mark(folder)
    recover(root, edit.series)
    table = read_table(root / edit.series / "series.toml", edit.series)
    _check_settled(folder)
    with scratch(folder, edit.base) as bench:
        head = _head_of(folder)
        mails = [_export(bench, commit) for commit in _commits(bench, edit.base, head, folder)]
        pairs = _pair(table, mails, root / edit.series)
        new = _with_touches((root / edit.series / "series.toml").read_bytes(), pairs)
        _check_round_trip(bench, edit, table, pairs, head)
    files = {"series.toml": new, **{entry.file: data for entry, data, _ in pairs}}
    return replace_series(root, edit.series, files)


def _head_of(folder: Path) -> str:
    return run_git(["rev-parse", "--verify", "HEAD^{commit}"], folder).text


def _check_settled(folder: Path) -> None:
    git_dir = folder / ".git"
    for name, verb in (("rebase-apply", "am"), ("rebase-merge", "rebase"), ("MERGE_HEAD", "merge")):
        if (git_dir / name).exists():
            raise PatchError(
                f"a git {verb} is not finished in the work tree",
                where=str(folder),
                fix=f"resolve it, `git add`, `git {verb} --continue`; then refresh again",
            )
    status = run_git(["status", "--porcelain", "--untracked-files=normal"], folder)
    if status.rc or status.text:
        raise PatchError(
            "the work tree has changes that are not committed",
            where=f"{folder}: {(status.text or status.last_error).splitlines()[0]}",
            fix="commit them (`git commit --amend` or `git commit --fixup` and rebase)",
        )


def _commits(bench: Bench, base: str, head: str, folder: Path) -> list[str]:
    done = bench.run(["rev-list", "--reverse", "--parents", f"{base}..{head}"])
    if done.rc or bench.run(["merge-base", "--is-ancestor", base, head]).rc:
        raise PatchError("the work tree's branch does not start at its base", where=str(folder))
    commits = []
    for line in done.text.splitlines():
        commit, *parents = line.split()
        if len(parents) != 1:
            raise PatchError(f"{commit[:9]} is a merge; a series is a line", where=str(folder))
        commits.append(commit)
    return commits


def _export(bench: Bench, commit: str) -> bytes:
    """Return the commit as a mail; the same change gives the same bytes whenever it was made."""
    done = bench.run([*_EXPORT, commit])
    if done.rc or not done.out:
        raise PatchError(f"git could not export {commit[:9]}: {done.last_error or 'it is empty'}")
    head, blank, rest = done.out.replace(b"\r\n", b"\n").partition(b"\n\n")
    head = re.sub(rb"(?m)^Date: .*$", b"Date: " + _DATE.encode(), head, count=1)
    return head + blank + rest.rstrip(b"\n") + b"\n"


_Pair = tuple[PatchEntry, bytes, Mail]


def _pair(table: Table, mails: Sequence[bytes], folder: Path) -> list[_Pair]:
    """Match commits with [[patch]] tables: by subject where it is unchanged, else by order."""
    parsed = [parse(data, f"commit {number}") for number, data in enumerate(mails, 1)]
    subjects = {}
    for entry in table.patch:
        file = folder / entry.file
        if file.is_file():
            subjects[entry.file] = parse(file.read_bytes(), entry.file).subject
    known = [mail for mail in parsed if mail.subject in subjects.values()]
    fresh = [mail for mail in parsed if mail not in known]
    present = {mail.subject for mail in known}
    unused = [e for e in table.patch if subjects.get(e.file) not in present]
    if len(fresh) != len(unused):
        raise _mismatch(fresh, unused)
    by_subject = {subjects[e.file]: e for e in table.patch if e not in unused}
    spare = iter(unused)
    pairs = [
        (by_subject[mail.subject] if mail in known else next(spare), data, mail)
        for mail, data in zip(parsed, mails, strict=True)
    ]
    order = [entry.file for entry, _, _ in pairs]
    if order != [entry.file for entry in table.patch]:
        raise PatchError(
            "the commits are in another order than the [[patch]] tables",
            where=f"{folder / 'series.toml'}: wanted {', '.join(order)}",
            fix="put the tables in that order, then refresh again",
        )
    return pairs


def _mismatch(fresh: Sequence[Mail], unused: Sequence[PatchEntry]) -> PatchError:
    if len(fresh) > len(unused):
        mail = fresh[-1]
        slug = re.sub(r"[^a-z0-9]+", "-", mail.subject.lower()).strip("-")[:48] or "patch"
        touches = ", ".join(f'"{path}"' for path in mail.paths)
        return PatchError(
            f"commit `{mail.subject}` has no [[patch]] table",
            where="series.toml",
            fix="add this, filled in, then refresh again:\n\n"
            f'[[patch]]\nfile = "{slug}.patch"\nwhy = ""\nupstream = []\ndrop_when = ""\n'
            f"touches = [{touches}]\ntests = []\n\n[patch.probe]\n"
            'kind = "string"\nvalue = ""\nin = "llama-server"\n',
        )
    return PatchError(
        f"patch `{unused[-1].file}` has no commit any more",
        where="series.toml",
        fix="remove its [[patch]] table and its file, then refresh again",
    )


def _with_touches(text: bytes, pairs: Sequence[_Pair]) -> bytes:
    """Return series.toml with ``touches`` as the diffs have it; all else stays as written."""
    import tomlkit

    document: Any = tomlkit.parse(text.decode("utf-8-sig").replace("\r\n", "\n"))
    for written, (_, _, mail) in zip(document["patch"], pairs, strict=True):
        if sorted(written["touches"]) != list(mail.paths):
            # Laid out as these files are by hand: tomlkit's own way would indent every line anew.
            paths = [tomlkit.string(path).as_string() for path in mail.paths]
            array = "[\n" + "".join(f"  {path},\n" for path in paths) + "]"
            if len(paths) <= 2:
                array = f"[{', '.join(paths)}]"
            written["touches"] = tomlkit.parse(f"x = {array}")["x"]
    return tomlkit.dumps(document).encode()


def _check_round_trip(
    bench: Bench, edit: Edit, table: Table, pairs: Sequence[_Pair], head: str
) -> None:
    """Apply what was exported and compare: what is written must be what was meant."""
    import dataclasses

    patches = tuple(
        Patch(
            series=edit.series,
            entry=dataclasses.replace(entry, touches=mail.paths),
            subject=mail.subject,
            body=mail.body,
        )
        for entry, _, mail in pairs
    )
    refuse([finding for patch in patches for finding in lint_patch(patch)])
    trial = Series(name=edit.series, summary=table.summary, patches=patches, digest="")
    run_series(bench, edit.base, [trial])
    made = bench.must(["rev-parse", "HEAD^{tree}"])
    wanted = bench.must(["rev-parse", f"{head}^{{tree}}"])
    if made != wanted:
        raise PatchError(
            "the exported patches do not give the work tree's content again",
            where=edit.series,
            fix="look for changes that a patch cannot carry (modes, empty commits)",
        )


def recover(root: Path, name: str) -> None:
    """Undo a replacement that was killed between its two renames."""
    old, live = root / f".{name}.old", root / name
    if old.is_dir() and not live.exists():
        held.rename(old, live)
    for rest in (old, root / f".{name}.new"):
        if rest.is_dir():
            held.remove_tree(rest)


def replace_series(root: Path, name: str, files: dict[str, bytes]) -> list[str]:
    """Put the files into the series' folder, all or none; return which changed.

    Mails that are not among ``files`` go; other files (a README) stay.

    Raises:
        PatchError: The new folder does not load as a series; the old one is untouched.
    """
    recover(root, name)
    live, aside, old = root / name, root / f".{name}.new", root / f".{name}.old"
    gone = [p.name for p in live.glob("*.patch") if p.name not in files]
    changed = sorted(
        [n for n, d in files.items() if not (live / n).is_file() or (live / n).read_bytes() != d]
        + gone
    )
    if not changed:
        return []
    try:
        # the loader wants the folder to have the series' name
        shutil.copytree(live, aside / name)
        for file in gone:
            (aside / name / file).unlink()
        for file, data in files.items():
            (aside / name / file).write_bytes(data)
        load_series(aside, name)
        held.rename(live, old)
        held.rename(aside / name, live)
    except BaseException:
        if old.is_dir() and not live.exists():
            held.rename(old, live)
        raise
    finally:
        for rest in (old, aside):
            if rest.is_dir() and live.exists():
                held.remove_tree(rest)
    return changed


def requirements(root: Path, series: Series) -> list[Series]:
    """Return the series that must be applied before this one, in order.

    Raises:
        PatchError: One is missing, or they require each other in a circle.
    """
    found: list[Series] = []

    def add(one: Series, trail: tuple[str, ...]) -> None:
        for name in one.requires:
            if name in trail:
                raise PatchError("`requires` goes in a circle", where=" → ".join((*trail, name)))
            if name not in [other.name for other in found]:
                other = load_series(root, name)
                add(other, (*trail, name))
                found.append(other)

    add(series, (series.name,))
    return found
