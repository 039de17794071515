"""Read TOML that a person or an attacker wrote: every fault of the text is one kind of error."""

from __future__ import annotations

import tomllib
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
