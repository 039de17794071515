"""Plain texts that a regular expression cannot match without.

Searching a plain text is many times faster than asking a regular expression at every place of a
log of megabytes. From an expression's own text this finds the pieces that must be there; where it
is not sure it says nothing, and the expression is asked everywhere.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<look>\(\?(?:=|!|<=|<!))
      |(?P<open>\((?:\?(?:P<\w+>|:))?)|(?P<close>\))|(?P<bar>\|)
      |(?P<count>[*+?]\??|\{[0-9,]+\}\??)|(?P<any>[.^$])|(?P<char>.)""",
    re.VERBOSE | re.DOTALL,
)
_SHORTEST: Final = 4
"""Characters; shorter pieces are everywhere. One outside ASCII says as much as three."""

Pieces = tuple[str, ...]
"""Texts of which one must be there; empty: nothing is known."""


@cache
def required(pattern: str) -> Pieces:
    """Return texts of which at least one stands in everything that the expression matches."""
    found, rest = _branches([(m.lastgroup or "", m[0]) for m in _TOKEN.finditer(pattern)], 0)
    return found if rest == len(list(_TOKEN.finditer(pattern))) else ()


def _branches(tokens: list[tuple[str, str]], at: int) -> tuple[Pieces, int]:
    """Read alternatives up to a closing bracket or the end; each must give a piece."""
    each: list[Pieces] = []
    while True:
        piece, at = _sequence(tokens, at)
        each.append(piece)
        if at >= len(tokens) or tokens[at][0] == "close":
            break
        at += 1  # the bar
    return (tuple(text for piece in each for text in piece) if all(each) else ()), at


def _sequence(tokens: list[tuple[str, str]], at: int) -> tuple[Pieces, int]:
    """Read one alternative; return the best piece of it."""
    best: Pieces = ()
    run = ""
    while at < len(tokens) and tokens[at][0] not in ("close", "bar"):
        kind, text = tokens[at]
        piece: Pieces = ()
        if kind in ("open", "look"):
            piece, at = _branches(tokens, at + 1)
            piece = () if kind == "look" else piece
        literal = _literal(kind, text)
        at += 1
        optional = at < len(tokens) and tokens[at][0] == "count"
        if literal and not optional:
            run += literal
            continue
        best, run = _better(best, (run,)), ""
        if optional:
            if tokens[at][1][0] == "+":
                best = _better(best, piece)
            at += 1
        else:
            best = _better(best, piece)
    return _better(best, (run,)), at


def _literal(kind: str, text: str) -> str:
    if kind == "char":
        return text
    return text[1] if kind == "escape" and not text[1].isalnum() else ""


def _better(one: Pieces, other: Pieces) -> Pieces:
    """Return the pieces that say more: the ones whose shortest text is longer."""
    usable = [each for each in (one, other) if each and min(map(_weight, each)) >= _SHORTEST]
    return max(usable, key=lambda each: min(map(_weight, each)), default=())


def _weight(text: str) -> int:
    return sum(1 if char.isascii() else 3 for char in text)
