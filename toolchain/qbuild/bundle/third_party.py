"""Third-party code inside a bundle: which, which version, under which licence, with its text.

The table ``toolchain/data/third-party.toml`` holds identifiers and paths; every text is read at
build time from the pinned source tree or an unpacked wheel, so it is the one that belongs to
the code that was built.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from qbuild import resources
from qbuild.bundle.facts import BundleFacts
from qbuild.errors import BundleError

TABLE: Final = "third-party.toml"
SOURCE: Final = "source"
_OFF: Final = frozenset({"", "0", "off", "no", "false", "n"})  # what CMake takes for false


@dataclass(frozen=True, kw_only=True)
class LicenceText:
    """Where a licence text is: a whole file, or its part from ``start`` up to and with ``end``."""

    file: str
    start: str = ""
    end: str = ""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One row of the table; the keys are explained at its top."""

    name: str
    title: str
    spdx: str
    origin: str
    path: str
    licences: tuple[LicenceText, ...]
    version_file: str = ""
    version_pattern: str = ""
    targets: tuple[str, ...] = ()
    os: str = ""
    toolchains: tuple[str, ...] = ()
    unless_off: str = ""
    if_on: str = ""
    bundled: tuple[str, ...] = ()
    parts: str = ""
    own: bool = False

    def applies(self, facts: BundleFacts, files: Iterable[str]) -> bool:
        """Return whether a bundle with these facts and binaries holds the component."""
        if self.targets and not set(self.targets) & set(facts.recipe.build.targets):
            return False
        if self.os and self.os != facts.recipe.target.os:
            return False
        if self.toolchains and facts.recipe.toolchain.name not in self.toolchains:
            return False
        # An option that is not given is upstream's default; naming too much is the safe side.
        if str(facts.cmake.get(self.unless_off, "on")).lower() in _OFF:
            return False
        if self.if_on and str(facts.cmake.get(self.if_on, "off")).lower() in _OFF:
            return False
        return not self.bundled or any(
            fnmatchcase(name.lower(), pattern) for name in files for pattern in self.bundled
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """A component that is in a bundle, its version ("" when unknown) and its licence texts."""

    component: Component
    version: str
    texts: tuple[tuple[str, bytes], ...]  # (file name below ``licenses/``, content)
    parts: tuple[tuple[str, str], ...] = ()  # npm packages that it is made of: (name, version)


def load_table(path: Path | None = None) -> tuple[Component, ...]:
    """Return the rows of the table.

    Raises:
        BundleError: The table is malformed; the row and key are named.
    """
    path = path or resources.data_dir() / TABLE
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("component", [])
        components = tuple(_component(row) for row in rows)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{path.name} cannot be read: {error!r}", where=path.name) from error
    names = [component.name for component in components]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BundleError(f"{path.name} lists {sorted(twice)[0]} twice", where=path.name)
    return components


def _component(row: Mapping[str, Any]) -> Component:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    version = fields.pop("version", {})
    fields["origin"] = fields.pop("from")
    fields["licences"] = tuple(LicenceText(**text) for text in fields["licences"])
    fields["version_file"] = version.get("file", "")
    fields["version_pattern"] = version.get("pattern", "")
    return Component(**fields)


def find(
    facts: BundleFacts,
    *,
    source_tree: Path,
    inputs: Mapping[str, Path],
    files: Sequence[str],
    table: Sequence[Component] | None = None,
) -> tuple[Found, ...]:
    """Return the third-party components of a bundle with their licence texts, sorted by name.

    Args:
        facts: The bundle's facts.
        source_tree: The patched source.
        inputs: Name of a wheel's project → folder it is unpacked in.
        files: Names of the binaries in the bundle.
        table: Rows; the default is the committed table.

    Raises:
        BundleError: An input or a licence text is missing, or upstream vendors code that the
            table does not know.
    """
    rows = load_table() if table is None else table
    _check_vendored(source_tree, rows)
    found = []
    for row in sorted(rows, key=lambda row: row.name):
        if not row.applies(facts, files):
            continue
        root = source_tree if row.origin == SOURCE else inputs.get(row.origin)
        if root is None and row.licences:
            raise BundleError(
                f"the licence of {row.title} comes from `{row.origin}`, which was not given",
                where=f"{TABLE}: {row.name}",
                fix=f"pass the folder in which `{row.origin}` is unpacked",
            )
        if root is not None and row.path and not (root / row.path).exists():
            if row.origin == SOURCE:  # this pin is older or newer than the component
                continue
            raise BundleError(f"`{row.origin}` holds no {row.path}", where=f"{TABLE}: {row.name}")
        texts = tuple(
            (_text_name(row, index), _read_text(root, row, text))
            for index, text in enumerate(row.licences)
            if root is not None
        )
        parts = _parts(root, row) if root is not None and row.parts else ()
        version = _version(root, row, facts)
        found.append(Found(component=row, version=version, texts=texts, parts=parts))
    return tuple(found)


def _parts(root: Path, row: Component) -> tuple[tuple[str, str], ...]:
    rows = json.loads((root / row.parts).read_bytes())
    return tuple(sorted({(str(part["name"]), str(part["version"])) for part in rows}))


def _check_vendored(source_tree: Path, rows: Iterable[Component]) -> None:
    """Refuse a source tree that vendors something whose licence nobody looked up."""
    vendor = source_tree / "vendor"
    if not vendor.is_dir():
        return
    known = {row.path for row in rows if row.origin == SOURCE}
    for folder in sorted(path for path in vendor.iterdir() if path.is_dir()):
        parts = [folder]
        if any(path.startswith(f"vendor/{folder.name}/") for path in known):
            parts = sorted(path for path in folder.iterdir() if path.is_dir())
        for part in parts:
            name = part.relative_to(source_tree).as_posix()
            if name not in known:
                raise BundleError(
                    f"upstream vendors {name}, whose licence is not known",
                    where=f"{TABLE}",
                    fix=f"read its licence and add a component with path = {name!r}",
                )


def _file(root: Path, name: str) -> Path:
    """Return a file of the table; a ``*`` in its name stands for one that exists exactly once."""
    if "*" in name:
        found = sorted(root.glob(name))
        if len(found) == 1:
            return found[0]
    return root / name


def _text_name(row: Component, index: int) -> str:
    return f"{row.name}.txt" if index == 0 else f"{row.name}-{index + 1}.txt"


def _read_text(root: Path, row: Component, text: LicenceText) -> bytes:
    def refuse(why: str) -> BundleError:
        return BundleError(
            f"the licence of {row.title} was not found: {why}",
            where=f"{TABLE}: {row.name}: {text.file}",
            fix="look where the text is now and mend the table",
        )

    try:
        content = _file(root, text.file).read_bytes().replace(b"\r\n", b"\n")
    except OSError as error:
        raise refuse(f"{text.file} cannot be read ({error.strerror or error})") from error
    start = content.find(text.start.encode())
    if start < 0:
        raise refuse(f"{text.file} does not hold {text.start!r}")
    if not text.end:
        part = content[start:]
    else:
        end = content.find(text.end.encode(), start)
        if end < 0:
            raise refuse(f"{text.file} does not hold {text.end!r} after its start")
        part = content[start : end + len(text.end.encode())]
    if not part.strip():
        raise refuse(f"{text.file} is empty")
    return part if part.endswith(b"\n") else part + b"\n"


def _version(root: Path | None, row: Component, facts: BundleFacts) -> str:
    if row.own:
        return facts.source.version
    if root is None or not row.version_file:
        return ""
    text = _file(root, row.version_file).read_text(encoding="utf-8", errors="replace")
    match = re.search(row.version_pattern, text)
    if match is None:
        raise BundleError(
            f"{row.version_file} does not say its version as expected",
            where=f"{TABLE}: {row.name}: version",
        )
    return match[1]
