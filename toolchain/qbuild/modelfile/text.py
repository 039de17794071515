"""Text from a file that somebody else made, for a person's terminal."""

from __future__ import annotations

from typing import Final

_LONG: Final = 200


def printable(text: str, most: int = _LONG) -> str:
    """Return a text without what steers a terminal, and not longer than so many characters."""
    shown = "".join(each if each.isprintable() else "\ufffd" for each in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "…"
