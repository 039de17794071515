"""TOML that a person or an attacker wrote: faults as one kind of error, and where keys stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qbuild import bounds


def loads(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    The parser of the standard library keeps a copy of the whole path for each part of a dotted
    key, so that one key of 100 KB takes 10 GB; and it lets two faults of a text through as errors
    of another kind: nesting deeper than the interpreter's stack, and a number with thousands of
    digits. So the text is looked over before it is parsed.

    Raises:
        tomllib.TOMLDecodeError: The text is no TOML, or no sane one.
    """
    if len(text) > bounds.TEXT:
        raise tomllib.TOMLDecodeError(f"it is larger than {bounds.megabytes(bounds.TEXT)}")
    _look_over(text)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise tomllib.TOMLDecodeError("it holds a number that is far too long") from None
    try:
        bounds.check_data(data)
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
    return data


_MARK = re.compile(r"""\"{3}|'{3}|["'#\[\]{}.=,\n]""")
_ENDS = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),  # two quotes may stand before the last three
    "'''": re.compile(r"'{3,5}"),
    '"': re.compile(r'\\.|["\n]'),
    "'": re.compile(r"['\n]"),
    "#": re.compile(r"\n"),
}
"""What begins a text or a remark → where it ends, or what in it is stepped over.

Plain patterns on purpose: possessive ones (`*+`) match wrongly in Python 3.11.2 (Debian 12).
"""

_MOST_DOTS = 16 * 1024
"""Dots outside of texts in a whole file: each may be a table of its own in memory."""


def _marks(text: str) -> Iterator[tuple[str, int]]:
    """Yield each bracket, dot, `=`, comma and line end outside of texts and remarks, and where."""
    at = 0
    while match := _MARK.search(text, at):
        mark, at = match[0], match.end()
        if mark in _ENDS:
            at = _end(_ENDS[mark], text, at)
        else:
            yield mark, match.start()


def _end(ends: re.Pattern[str], text: str, at: int) -> int:
    """Return where a text ends that began before ``at``; the end of a line is not part of it."""
    for found in ends.finditer(text, at):
        if not found[0].startswith("\\"):
            return found.start() if found[0] == "\n" else found.end()
    return len(text)


def _look_over(text: str) -> None:
    """Refuse a text whose keys or brackets are nested too deeply, before anything is made of it.

    Raises:
        tomllib.TOMLDecodeError: They are.
    """
    brackets = dots = every = 0
    for mark, at in _marks(text):
        if mark == ".":
            dots, every = dots + 1, every + 1
        elif mark in "=,\n":
            dots = 0
        elif mark in "[{":
            brackets, dots = brackets + 1, 0
        else:
            brackets, dots = max(0, brackets - 1), 0
        if brackets > bounds.DEEPEST or dots > bounds.DEEPEST:
            line = text.count("\n", 0, at) + 1
            raise tomllib.TOMLDecodeError(f"it is nested too deeply (at line {line})")
        if every > _MOST_DOTS:
            raise tomllib.TOMLDecodeError("it holds far too many dotted keys")


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


_LONGEST = 4096
"""Characters of a line that is looked at for a key: blanks in a longer one take these patterns
quadratic time."""
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
        if len(line) > _LONGEST:
            table = [""] if line.lstrip().startswith("[") else table
            continue
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
