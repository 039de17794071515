"""What the report's drawings are made of: boxes with text that fits, in SVG user units.

The template turns these into SVG elements and escapes their texts; no drawing writes markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHAR: Final = 7.0  # width of a character of the drawings' 11.5 px monospace font


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle with at most two lines of text that fit into it.

    Args:
        x, y, w, h: Place and size.
        css: Class, from a fixed set.
        text: First line, cut to fit; "" when nothing fits.
        more: Second line, or "".
        title: What a tooltip and a screen reader say.
    """

    x: float
    y: float
    w: float
    h: float
    css: str
    text: str = ""
    more: str = ""
    title: str = ""


def clip(text: str, width: float) -> str:
    """Return a text cut in its middle, so that it fits into a width; "" when little would fit."""
    room = int(width / CHAR)
    if len(text) <= room:
        return text
    if room < 8:
        return ""
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"
