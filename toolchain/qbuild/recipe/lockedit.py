"""Change the lockfile's values and nothing else of it: comments, order and blank lines survive."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qbuild.errors import LockError, StoreError
from qbuild.recipe.lock import GIT_DIR, FilePin, Lock, SourcePin, WheelPin, normalise, parse_lock
from qbuild.store import write_atomically


def with_source(text: str, pin: SourcePin) -> str:
    """Return the lockfile's text with this source pin in place of the one of the same name.

    Only the values change; comments, order and blank lines stay. A new name is added at the end
    of the sources.
    """
    import tomlkit
    from tomlkit.items import AoT

    document = tomlkit.parse(text)
    if "source" not in document:
        document.append("source", tomlkit.aot())
    tables = document["source"]
    assert isinstance(tables, AoT)
    values = _plain(pin)
    if values["git_dir"] == GIT_DIR:
        del values["git_dir"]
    for table in tables:
        if table.get("name") == pin.name:
            _update(table, values)
            break
    else:
        table = tomlkit.table()
        _update(table, values)
        tables.append(table)
    return tomlkit.dumps(document)


def with_wheels(text: str, pins: Sequence[WheelPin]) -> str:
    """Return the lockfile's text with these wheels, each in place of (or after) the others.

    A wheel replaces the one of its project and platform; of several versions, its own.
    """
    import tomlkit
    from tomlkit.items import AoT

    document = tomlkit.parse(text)
    if "wheel" not in document:
        document.append("wheel", tomlkit.aot())
    tables = document["wheel"]
    assert isinstance(tables, AoT)
    for pin in pins:
        values = _plain(pin)
        same = [
            table
            for table in tables
            if normalise(str(table.get("project"))) == normalise(pin.project)
            and table.get("platform") == pin.platform
        ]
        if len(same) > 1:
            same = [table for table in same if table.get("version") == pin.version]
        if same:
            _update(same[0], values)
        else:
            table = tomlkit.table()
            _update(table, values)
            tables.append(table)
    return tomlkit.dumps(document)


def write(path: Path, text: str) -> Lock:
    """Check new lockfile text and put it in place in one step; return it as loaded.

    Raises:
        LockError: The text is no sound lockfile, or the file cannot be written; the old file
            is untouched.
    """
    found = parse_lock(text, str(path))
    try:
        write_atomically(path, text.encode())
    except StoreError as error:
        raise LockError(
            f"the lockfile cannot be written: {error.what}",
            where=str(path),
            fix="copy it to a folder of yours and name it with --lockfile",
        ) from error
    return found


def _plain(pin: SourcePin | WheelPin | FilePin) -> dict[str, Any]:
    data = dataclasses.asdict(pin)
    return {key: value for key, value in data.items() if value is not None}


def _comments_behind(item: Any) -> list[Any]:
    """Return the blank lines and comments at a table's end: they belong to what follows it."""
    from tomlkit.items import Table

    if not isinstance(item, Table):
        return []
    named = [at for at, (key, _) in enumerate(item.value.body) if key is not None]
    return [each for _, each in item.value.body[named[-1] + 1 if named else 0 :]]


def _update(table: Any, values: Mapping[str, Any]) -> None:
    """Make a tomlkit table hold exactly these values, touching only what differs."""
    import tomlkit

    behind = []
    for key in [key for key in table if key not in values]:
        behind += _comments_behind(table[key])
        del table[key]
    for key, value in values.items():
        if isinstance(value, Mapping):
            if key not in table:
                table.add(key, tomlkit.table())
            _update(table[key], value)
        elif key not in table:
            table.add(key, value)
        elif table[key] != value:
            table[key] = value
    for each in behind:
        table.add(each)
