"""A patch series: ``series.toml`` says what each patch is for, the mails say what it does."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from qbuild import bounds
from qbuild.errors import PatchError
from qbuild.patches.mail import Mail, normalise, parse, subject_of
from qbuild.recipe.convert import KeyProblem, suggest
from qbuild.recipe.written import Form

ProbeKind = Literal["export", "string", "help", "behaviour"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.patch")
_DIGEST_FORMAT = b"qbuild-series-1\n"

TABLE: Final = Form(
    called="series.toml", error=PatchError, spelled={"author_note": "author-note", "place": "in"}
)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How to see in a finished bundle that a patch is in it."""

    # ``export`` (a symbol in an export table), ``string`` (bytes in the binary), ``help`` (a text
    # in the tool's ``--help``) or ``behaviour`` (a named check that runs the tool)
    kind: ProbeKind
    value: str  # the symbol, text or name of the check; ``*`` with ``absent``: any export at all
    # The binary, without suffix: ``llama``, ``llama-server``, … (``in`` in the file). In a static
    # bundle an ``export`` of a library is looked for in the executables.
    place: str
    absent: bool = False  # the value must *not* be there; a bundle without the binary passes
    os: Literal["", "linux", "windows"] = ""  # only bundles for this system are probed; empty: all
    # only bundles with this linkage are probed; empty: all
    linkage: Literal["", "shared", "static"] = ""


@dataclass(frozen=True, kw_only=True)
class PatchEntry:
    """One ``[[patch]]`` table."""

    file: str  # name of the mail beside ``series.toml``
    why: str  # what goes wrong without it
    upstream: tuple[str, ...]  # links to upstream issues and pull requests; may be empty
    drop_when: str  # when the patch can go
    touches: tuple[str, ...]  # every path the diff names; checked against it
    tests: tuple[str, ...]  # what proves that it works
    probe: Probe  # how ``verify`` sees it in a bundle


@dataclass(frozen=True, kw_only=True)
class Table:
    """``series.toml`` as written."""

    name: str
    summary: str
    author_note: str = ""
    requires: tuple[str, ...] = ()
    patch: tuple[PatchEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One patch of a series: what is said about it, and what it does."""

    series: str  # name of its series
    entry: PatchEntry  # what ``series.toml`` says of it
    subject: str  # the mail's subject without ``[PATCH n/m]``
    body: bytes = field(repr=False)  # the mail with LF line ends

    @cached_property
    def mail(self) -> Mail:
        """What the mail does.

        Raises:
            PatchError: It is not one well-formed git mail.
        """
        return parse(self.body, self.label)

    @property
    def file(self) -> str:
        """Name of the mail's file."""
        return self.entry.file

    @property
    def label(self) -> str:
        """How messages call the patch."""
        return f"{self.series}/{self.entry.file}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A loaded series."""

    name: str  # name of its folder
    summary: str  # one line that says what it is for
    patches: tuple[Patch, ...]  # in the order in which they apply
    digest: str  # sha256 of all that can change the patched tree: order, file names, mails
    author_note: str = ""  # where the patches come from
    requires: tuple[str, ...] = ()  # series that must be applied before this one
    path: Path = field(default_factory=Path, compare=False)  # folder it was read from

    def read_mails(self) -> None:
        """Read every mail to its end.

        Raises:
            PatchError: One is not a well-formed git mail; the message names file and line.
        """
        for patch in self.patches:
            _ = patch.mail


def known_series(root: Path) -> tuple[str, ...]:
    """Return the names of the series in a patches folder."""
    return tuple(sorted(path.parent.name for path in root.glob("*/series.toml")))


def load_series(root: Path, name: str, *, mails: bool = True) -> Series:
    """Return the series ``name`` from the patches folder ``root``.

    Args:
        root: Folder of the series.
        name: Name of the series.
        mails: Read what the mails do, too; without it only their headers are, and a damaged diff
            is found by :meth:`Series.read_mails`. That takes most of the time, and a run that
            ends up to date need not pay it: its zip was made from mails with these very bytes.

    Raises:
        PatchError: There is no such series, its ``series.toml`` has a wrong key or value, or one
            of its mails cannot be read; the message names file, line and key path.
    """
    folder = root / name
    file = folder / "series.toml"
    if not _NAME.fullmatch(name) or not file.is_file():
        known = known_series(root)
        raise PatchError(
            f"there is no patch series `{name}`",
            where=str(root),
            fix=suggest(name, known) or f"one of: {', '.join(known) or '(none)'}",
        )
    table = read_table(file, name)
    patches = []
    for index, entry in enumerate(table.patch):
        label = f"{name}/{entry.file}"
        try:
            data = bounds.read_bytes(folder / entry.file, MAX_PATCH)
        except FileNotFoundError:
            raise PatchError(
                f"patch file `{entry.file}` is missing",
                where=f"{file}, patch.{index}.file",
                fix=suggest(entry.file, [p.name for p in folder.glob("*.patch")]),
            ) from None
        except OSError as error:
            raise PatchError(f"patch cannot be read: {error.strerror}", where=label) from None
        body = normalise(data, label)
        subject = subject_of(body, label)
        patches.append(Patch(series=name, entry=entry, subject=subject, body=body))
    _check_stray(folder, table, file)
    series = Series(
        name=name,
        summary=table.summary,
        patches=tuple(patches),
        digest=_digest(patches),
        author_note=table.author_note,
        requires=table.requires,
        path=folder,
    )
    if mails:
        series.read_mails()
    return series


def _digest(patches: list[Patch]) -> str:
    """Hash order, names and LF bytes: prose in series.toml does not change a build."""
    total = hashlib.sha256(_DIGEST_FORMAT)
    for patch in patches:
        body = hashlib.sha256(patch.body).hexdigest()
        total.update(f"{patch.series}/{patch.file} {body}\n".encode())
    return total.hexdigest()


MAX_PATCH: Final = 16 << 20  # bytes of one patch file; the longest of ours has 80 KB


def read_table(file: Path, name: str) -> Table:
    """Return what ``series.toml`` says, without looking at the mails.

    Raises:
        PatchError: It cannot be read, or a key or value is wrong.
    """
    text = TABLE.read(file).replace("\r\n", "\n")
    return TABLE.build(Table, text, str(file), lambda table: _check(table, name))


def _check(table: Table, name: str) -> None:
    """Check what types cannot say."""
    if table.name != name:
        raise KeyProblem(("name",), f"is `{table.name}` but the folder is `{name}`",
                         "make them equal")  # fmt: skip
    if not table.summary.strip() or "\n" in table.summary:
        raise KeyProblem(("summary",), "must be one line of text")
    if not table.patch:
        raise KeyProblem(("patch",), "must list at least one patch")
    for index, entry in enumerate(table.patch):
        where = ("patch", str(index))
        if not _FILE.fullmatch(entry.file):
            raise KeyProblem((*where, "file"), f"`{entry.file}` is not a plain name of a .patch")
        if entry.file in [other.file for other in table.patch[:index]]:
            raise KeyProblem((*where, "file"), f"`{entry.file}` is listed twice")
        for key in ("why", "drop_when"):
            if not getattr(entry, key).strip():
                raise KeyProblem((*where, key), "must say something")
        for link in entry.upstream:
            if not link.startswith("https://"):
                raise KeyProblem((*where, "upstream"), f"`{link}` is not an https link")
        if not entry.touches:
            raise KeyProblem((*where, "touches"), "must list the files the patch changes")
        if not entry.probe.value or not entry.probe.place:
            key = "place" if entry.probe.value else "value"
            raise KeyProblem((*where, "probe", key), "must not be empty")
        if entry.probe.value == "*" and not (entry.probe.absent and entry.probe.kind == "export"):
            raise KeyProblem((*where, "probe", "value"), "`*` needs kind `export` and `absent`")
    for other in table.requires:
        if other == name or not _NAME.fullmatch(other):
            raise KeyProblem(("requires",), f"`{other}` is not the name of another series")


def _check_stray(folder: Path, table: Table, file: Path) -> None:
    """A mail that nobody lists is a patch that somebody believes to be applied."""
    listed = {entry.file for entry in table.patch}
    stray = sorted(path.name for path in folder.glob("*.patch") if path.name not in listed)
    if stray:
        raise PatchError(
            f"patch `{stray[0]}` is not listed",
            where=str(file),
            fix="add a [[patch]] table for it, or delete the file",
        )
