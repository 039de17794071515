"""The lockfile: every pin a build can use, by content and never by where it was found.

``qbuild.lock`` is TOML that people may read and comment; :func:`load_lock` is strict about it.
:mod:`qbuild.recipe.lockedit` changes it.
A recipe names pins by source name and by (project, platform).
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild.errors import LockError
from qbuild.recipe.convert import KeyProblem, suggest
from qbuild.recipe.written import Form, dotted

PLATFORMS = ("linux-x86_64", "windows-x86_64", "any")
"""What ``platform`` of a wheel may say: the host a wheel runs on; ``any`` runs everywhere."""

GIT_DIR = ".git/modules/vendor/llama.cpp"
"""Where the sdist of llama-cpp-python keeps the repository of its llama.cpp submodule."""

_HEX40 = re.compile(r"[0-9a-f]{40}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]*")
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_URL = re.compile(r"https://[^\s@/]+/\S+")
_SHORT = 9  # digits of a commit id that upstream's own `--version` shows


@dataclass(frozen=True, kw_only=True)
class FilePin:
    """One exact file of a Python project, the same on every platform (an sdist)."""

    project: str  # project name on a Python package index
    version: str  # its version
    filename: str  # the file's own name
    sha256: str  # of its bytes, lower-case hex
    size: int  # bytes


@dataclass(frozen=True, kw_only=True)
class WheelPin:
    """One exact wheel for one host platform."""

    project: str  # project name on a Python package index
    version: str  # its version
    platform: str  # host it runs on, one of :data:`PLATFORMS`
    filename: str  # the wheel's own name
    sha256: str  # of its bytes, lower-case hex
    size: int  # bytes


@dataclass(frozen=True, kw_only=True)
class SourcePin:
    """One exact commit of llama.cpp."""

    name: str  # what recipes call it (``source.pin``)
    url: str  # llama.cpp's repository
    commit: str  # full commit id; names the content and its history
    tree: str  # full tree id of that commit; names the content alone
    date: str  # day of the commit in UTC, ``YYYY-MM-DD``
    version: str  # what the source calls itself
    # upstream's build number, where it is known; nothing is printed without one
    build_number: int | None = None
    git_dir: str = GIT_DIR  # where in the sdist the repository lies
    # an sdist that carries the same commit, for machines that cannot reach ``url``
    sdist: FilePin | None = None

    @property
    def short(self) -> str:
        """The commit id as upstream's own ``--version`` shortens it."""
        return self.commit[:_SHORT]


@dataclass(frozen=True, kw_only=True)
class Lock:
    """All pins of one lockfile."""

    sources: tuple[SourcePin, ...]  # in file order
    wheels: tuple[WheelPin, ...]  # in file order
    path: str = "qbuild.lock"  # the file they came from, for messages

    def source(self, name: str) -> SourcePin:
        """Return the source pin of this name.

        Raises:
            LockError: There is none.
        """
        names = [pin.name for pin in self.sources]
        for pin in self.sources:
            if pin.name == name:
                return pin
        raise LockError(
            f"the lockfile pins no source `{name}`",
            where=self.path,
            fix=suggest(name, names) or f"pinned are: {', '.join(names) or 'none'}",
        )

    def versions(self, project: str, platform: str) -> tuple[WheelPin, ...]:
        """Return every pinned version of a project for a platform, in file order.

        Args:
            project: Project name; spelling variants (``_`` for ``-``, case) are the same.
            platform: Machine it is for, e.g. ``linux-x86_64``; a wheel for ``any`` fits each.

        Raises:
            LockError: There is none.
        """
        wanted = normalise(project)
        same = [pin for pin in self.wheels if normalise(pin.project) == wanted]
        if found := tuple(pin for pin in same if pin.platform in (platform, "any")):
            return found
        if same:
            raise LockError(
                f"the lockfile pins `{project}`, but not for {platform}",
                where=self.path,
                fix=f"pinned for: {', '.join(pin.platform for pin in same)}",
            )
        names = sorted({pin.project for pin in self.wheels})
        raise LockError(
            f"the lockfile pins no wheel of `{project}`",
            where=self.path,
            fix=suggest(project, names) or f"pinned are: {', '.join(names) or 'none'}",
        )

    def wheel(self, project: str, platform: str, version: str | None = None) -> WheelPin:
        """Return the wheel of a project for a machine.

        Args:
            project: Project name.
            platform: Machine, as for :meth:`versions`.
            version: Which of several pinned versions; none: there is only one.

        Raises:
            LockError: There is none, or several and no version says which.
        """
        found = self.versions(project, platform)
        if version is not None:
            for pin in found:
                if pin.version == version:
                    return pin
        elif len(found) == 1:
            return found[0]
        have = ", ".join(pin.version for pin in found)
        raise LockError(
            f"the lockfile pins `{project}` for {platform} as {have}, "
            + (f"not as {version}" if version else "and nothing says which is meant"),
            where=self.path,
            fix="take the lockfile that came with this qbuild",
        )


_NO_SDIST = FilePin(project="", version="", filename="", sha256="", size=0)


@dataclass(frozen=True, kw_only=True)
class _SourceTable(SourcePin):
    """A source as it is spelled: TOML has no null, so a missing table needs a stand-in."""

    sdist: FilePin = _NO_SDIST

    def pin(self) -> SourcePin:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(SourcePin)}
        return SourcePin(**{**values, "sdist": None if self.sdist is _NO_SDIST else self.sdist})


@dataclass(frozen=True, kw_only=True)
class _File:
    """The lockfile's top level, as it is spelled."""

    schema: int
    source: tuple[_SourceTable, ...] = ()
    wheel: tuple[WheelPin, ...] = ()


def normalise(project: str) -> str:
    """Return a project name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", project).lower()


LOCKFILE: Final = Form(
    called="the lockfile",
    error=LockError,
    missing="check the path given to --lockfile",
    mend="undo the last edit, or take the file from version control",
)


def load_lock(path: Path) -> Lock:
    """Read and check a lockfile.

    Raises:
        LockError: It is missing, no TOML, or holds an unknown, missing, ill-typed, malformed or
            doubled entry; file, key path and line are named.
    """
    return parse_lock(LOCKFILE.read(path), str(path))


def parse_lock(text: str, label: str) -> Lock:
    """Check a lockfile's text; ``label`` names it in messages. Errors as in :func:`load_lock`."""
    found = LOCKFILE.build(_File, text, label, _check)
    sources = tuple(table.pin() for table in found.source)
    return Lock(sources=sources, wheels=found.wheel, path=label)


def _check(found: _File) -> None:
    if found.schema != 1:
        raise KeyProblem(
            ("schema",), f"must be 1, not {found.schema}", "use the qbuild that wrote this file"
        )
    seen: dict[tuple[str, ...], str] = {}
    for index, table in enumerate(found.source):
        pin = table.pin()
        _check_source(pin, ("source", str(index)))
        _once(seen, ("source", pin.name), ("source", str(index), "name"))
    for index, wheel in enumerate(found.wheel):
        path = ("wheel", str(index))
        _check_file(wheel, path, ".whl")
        if wheel.platform not in PLATFORMS:
            fix = suggest(wheel.platform, PLATFORMS) or f"one of: {', '.join(PLATFORMS)}"
            raise KeyProblem((*path, "platform"), f"is unknown: {wheel.platform!r}", fix)
        same = (normalise(wheel.project), wheel.version, wheel.platform)
        _once(seen, same, (*path, "project"))


def _once(seen: dict[tuple[str, ...], str], key: tuple[str, ...], path: tuple[str, ...]) -> None:
    if key in seen:
        raise KeyProblem(path, f"pins {' '.join(key)} a second time", f"first: {seen[key]}")
    seen[key] = dotted(path[:-1])


def _check_source(pin: SourcePin, path: tuple[str, ...]) -> None:
    _match(_NAME, pin.name, (*path, "name"), "a name of letters, digits, `.`, `_`, `-`")
    _match(_URL, pin.url, (*path, "url"), "an https:// URL without a user name")
    for key, value in (("commit", pin.commit), ("tree", pin.tree)):
        _match(_HEX40, value, (*path, key), "40 lower-case hex digits", length=len(value))
    _match(_VERSION, pin.version, (*path, "version"), "a version")
    try:
        if datetime.date.fromisoformat(pin.date).isoformat() != pin.date:
            raise ValueError
    except ValueError:
        raise KeyProblem((*path, "date"), f"is no day: {pin.date!r}", "e.g. 2026-10-01") from None
    if pin.build_number is not None and pin.build_number < 1:
        raise KeyProblem((*path, "build_number"), "must be at least 1", "leave it out if unknown")
    parts = pin.git_dir.split("/")
    if "\\" in pin.git_dir or any(part in ("", ".", "..") for part in parts) or ":" in parts[0]:
        raise KeyProblem((*path, "git_dir"), "must be a plain relative path", f"e.g. {GIT_DIR}")
    if pin.sdist is not None:
        _check_file(pin.sdist, (*path, "sdist"), ".tar.gz")


def _check_file(pin: FilePin | WheelPin, path: tuple[str, ...], suffix: str) -> None:
    _match(_PROJECT, pin.project, (*path, "project"), "a project name")
    _match(_VERSION, pin.version, (*path, "version"), "a version")
    _match(_FILENAME, pin.filename, (*path, "filename"), "a plain file name")
    if not pin.filename.endswith(suffix):
        raise KeyProblem((*path, "filename"), f"must end in {suffix}: {pin.filename!r}")
    start = normalise(f"{pin.project}-{pin.version}")
    if not normalise(pin.filename).startswith(start):
        raise KeyProblem(
            (*path, "filename"),
            f"is not of {pin.project} {pin.version}: {pin.filename!r}",
            "version and file name change together: `qbuild lock --update` writes both",
        )
    count = len(pin.sha256)
    _match(_HEX64, pin.sha256, (*path, "sha256"), "64 lower-case hex digits", length=count)
    if pin.size < 1:
        raise KeyProblem((*path, "size"), f"must be at least 1 byte, not {pin.size}")


def _match(
    pattern: re.Pattern[str],
    value: str,
    path: tuple[str, ...],
    wanted: str,
    *,
    length: int | None = None,
) -> None:
    if not pattern.fullmatch(value):
        count = f" ({length} characters)" if length is not None else ""
        raise KeyProblem(path, f"must be {wanted}, not {value!r}{count}")
