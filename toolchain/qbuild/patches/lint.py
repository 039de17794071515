"""What a patch may do, checked before git sees it.

Allowed: changing, adding, deleting and renaming text files, with modes 100644 and 100755 for new
ones. Refused, each by name: paths that leave the tree or that Windows cannot create, symlinks and
anything below one, submodules, mode changes, copies, binary hunks, git's own control files, a
diff that names other files than ``touches`` says, and a change to a file that another series
adds, unless the series says ``requires``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from qbuild.binary.names import check_name, collisions
from qbuild.errors import ArchiveError, PatchError
from qbuild.patches.bench import Leaf
from qbuild.patches.diff import FileChange
from qbuild.patches.series import Patch, Series

Severity = Literal["error", "note"]

_FILE_MODES = frozenset({"100644", "100755"})
# Files that change how git reads the rest of the tree.
_CONTROL = frozenset({".gitattributes", ".gitmodules"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a lint has to say."""

    severity: Severity
    rule: str
    patch: str
    file: str
    message: str

    def as_json(self) -> dict[str, str]:
        """Return the finding for ``--json``."""
        return asdict(self)


def lint_path(path: str) -> str | None:
    """Return what is wrong with a path in a patch, or ``None``."""
    try:
        check_name(path, archive="patch")
    except ArchiveError as error:
        return error.what.partition(": ")[2] or error.what
    for part in path.split("/"):
        plain = part.casefold().rstrip(". ")
        if plain == ".git" or plain.startswith("git~"):
            return "it lies inside git's own folder"
        if plain in _CONTROL:
            return f"`{part}` changes how git reads the tree"
    return None


def lint_patch(patch: Patch) -> list[Finding]:
    """Return what is wrong with one patch, seen alone."""
    found: list[Finding] = []

    def say(rule: str, file: str, message: str) -> None:
        found.append(
            Finding(severity="error", rule=rule, patch=patch.label, file=file, message=message)
        )

    for change in patch.mail.files:
        for path in change.paths:
            if problem := lint_path(path):
                say("path", path, f"unsafe path: {problem}")
        for rule, message in _lint_change(change):
            say(rule, change.path, message)
    names = [path for change in patch.mail.files for path in change.paths]
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        say("twice", double, "the patch changes this file twice")
    else:
        added = [c.new_path for c in patch.mail.files if c.kind != "delete"]
        if clash := collisions(added):
            say("path", clash[1], f"cannot exist beside `{clash[0]}`")
    said, done = set(patch.entry.touches), set(patch.mail.paths)
    for path in sorted(done - said):
        say("touches", path, "the diff changes it but `touches` does not list it")
    for path in sorted(said - done):
        say("touches", path, "`touches` lists it but the diff does not change it")
    return found


def _lint_change(change: FileChange) -> Iterable[tuple[str, str]]:
    modes = {mode for mode in (change.old_mode, change.new_mode) if mode}
    if "120000" in modes:
        yield "symlink", "symbolic links are not allowed: what lies behind one is not in the tree"
    elif "160000" in modes:
        yield "submodule", "submodules are not allowed"
    elif modes - _FILE_MODES:
        yield "mode", f"file mode {min(modes - _FILE_MODES)} is not allowed (100644 or 100755)"
    if change.mode_change:
        yield "mode", f"changes the mode from {change.old_mode} to {change.new_mode}; not allowed"
    if change.binary:
        yield "binary", "binary change; patches carry text only, so that a person can read them"
    if change.kind == "copy":
        yield "copy", "is a copy; write it as a new file"
    if change.kind == "rename" and not change.hunks and change.old_path == change.new_path:
        yield "rename", "renames a file to itself"


def lint_series(series: Sequence[Series]) -> list[Finding]:
    """Return what is wrong with the series, alone and together, in the order given."""
    found = [f for one in series for patch in one.patches for f in lint_patch(patch)]
    owners: dict[str, str] = {}
    changed: dict[str, str] = {}
    before: list[str] = []
    for one in series:
        for other in one.requires:
            if other not in before:
                found.append(
                    Finding(
                        severity="error",
                        rule="requires",
                        patch=one.name,
                        file="series.toml",
                        message=f"needs series `{other}` applied before it",
                    )
                )
        before.append(one.name)
        for patch in one.patches:
            for change in patch.mail.files:
                for path in change.paths:
                    found.extend(_ownership(one, patch, path, owners, changed))
                if change.kind == "add":
                    owners.setdefault(change.new_path, one.name)
        for path in {path for patch in one.patches for path in patch.mail.paths}:
            changed.setdefault(path, one.name)
    return found


def _ownership(
    one: Series, patch: Patch, path: str, owners: Mapping[str, str], changed: Mapping[str, str]
) -> Iterable[Finding]:
    owner = owners.get(path)
    if owner and owner != one.name and owner not in one.requires:
        yield Finding(
            severity="error",
            rule="owner",
            patch=patch.label,
            file=path,
            message=f'belongs to series `{owner}`, which adds it; say `requires = ["{owner}"]`',
        )
        return
    other = owner or changed.get(path)
    if other and other != one.name:
        yield Finding(
            severity="note",
            rule="shared",
            patch=patch.label,
            file=path,
            message=f"series `{other}` changes it, too",
        )


def lint_against_tree(series: Sequence[Series], leaves: Mapping[str, Leaf]) -> list[Finding]:
    """Return changes that would go through a symbolic link or submodule of the source tree."""
    links = {path for path, leaf in leaves.items() if leaf.mode in ("120000", "160000")}
    found: list[Finding] = []
    if not links:
        return found
    for one in series:
        for patch in one.patches:
            for path in patch.mail.paths:
                parts = path.split("/")
                for length in range(1, len(parts) + 1):
                    head = "/".join(parts[:length])
                    if head in links:
                        found.append(
                            Finding(
                                severity="error",
                                rule="symlink",
                                patch=patch.label,
                                file=path,
                                message=f"goes through `{head}`, a symbolic link or submodule",
                            )
                        )
    return found


def refuse(findings: Sequence[Finding]) -> None:
    """Raise for the errors among the findings.

    Raises:
        PatchError: There is at least one; all are listed.
    """
    errors = [f for f in findings if f.severity == "error"]
    if not errors:
        return
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    raise PatchError(
        f"patch {first.patch} is refused: {first.file}: {first.message}{more}",
        where="\n         ".join(f"{f.patch}: {f.file}: {f.message}" for f in errors),
        fix="nothing was applied; see docs/how-to/own-patch.md for what a patch may do",
    )
