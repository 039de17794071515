"""TOML that a person or an attacker wrote: faults as one kind of error, and where keys stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    The parser of the standard library lets two faults of a text through as errors of another
    kind: nesting deeper than the interpreter's stack, and a number with thousands of digits.

    Raises:
        tomllib.TOMLDecodeError: The text is no TOML, or no sane one.
    """
    try:
        data = tomllib.loads(text)
        _check_depth(data)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise tomllib.TOMLDecodeError("it holds a number that is far too long") from None
    return data


_DEEPEST = 64
"""Levels that whatever walks the data afterwards can follow; nothing of ours needs ten."""


def _check_depth(data: object) -> None:
    level, current = 0, [data]
    while current:
        if level > _DEEPEST:
            raise RecursionError
        inner: list[object] = []
        for value in current:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        level, current = level + 1, inner


def dumps(data: Mapping[str, Any]) -> str:
    """Return plain data as TOML text, values before tables.

    Raises:
        ValueError: It holds something that TOML cannot say, such as a null.
    """
    import tomlkit

    document = tomlkit.document()
    for key, value in sorted(data.items(), key=lambda item: isinstance(item[1], Mapping)):
        document.add(key, _table(value) if isinstance(value, Mapping) else tomlkit.item(value))
    return tomlkit.dumps(document)


def _table(data: Mapping[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.table()
    for key, value in data.items():
        table.add(key, _table(value) if isinstance(value, Mapping) else tomlkit.item(value))
    return table


_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _parts(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]


def locate(text: str, path: Sequence[str]) -> int | None:
    """Return the 1-based line of a key, or of the nearest enclosing table.

    The parser keeps no positions, so this scans headers and key lines. Tables in lists
    (``[[source]]``) are counted, so that a path may hold an index: ``("source", "1", "commit")``.
    A line that looks like a key inside a value over several lines is taken for one.

    Args:
        text: The TOML text.
        path: Key path, outermost first.
    """
    wanted = list(path)
    best: int | None = None
    best_length = 0
    counts: dict[str, int] = {}
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = _parts(header.group(2))
            if header.group(1) == "[[":
                counts[names[0]] = counts.get(names[0], -1) + 1
            table = [names[0], str(counts[names[0]]), *names[1:]] if names[0] in counts else names
            full = table
        elif key := _KEY.match(line):
            full = [*table, *_parts(key.group(1))]
        else:
            continue
        if len(full) > best_length and wanted[: len(full)] == full:
            best, best_length = number, len(full)
        elif best is None and full[: len(wanted)] == wanted:
            best = number  # a list of tables as a whole: where the first of them starts
    return best
