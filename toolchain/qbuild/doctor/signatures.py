"""Texts by which a message of another program is known, however it was wrapped or quoted.

The tables of ``toolchain/data/doctor`` are written in them (their README says how). A text is
compared *compact*: without blanks and line breaks, in lower case, with one kind of quotes.

Searching a plain text is many times faster than asking a regular expression at every place of a
log of megabytes, so from an expression's own text the pieces are found that must be there; where
that is not sure the expression is asked everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

GAP: Final = ".{0,240}?"
"""What "…" in a signature stands for: three full lines of a terminal, so that noise of another
job may stand between two halves of a message."""

REACH: Final = 2500
"""Characters on either side of a plain piece that a signature may span; the longest has 1,200."""

_SAME: Final = str.maketrans(
    dict.fromkeys('"`´‘’‚‛“”„‟«»‹›「」『』', "'") | dict(zip("（）：，。？", "():,.?", strict=True))
)


def compact(text: str) -> str:
    """Return text as signatures are compared: no blanks, lower case, one kind of quotes."""
    return "".join(text.lower().translate(_SAME).split())


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One text by which a diagnosis is known."""

    literal: str = ""  # compact text to look for; empty: ``pattern`` is asked
    pattern: re.Pattern[str] | None = None  # regular expression on compact text

    def find(self, compacted: str) -> Found | None:
        """Return its first place in a compact text."""
        if self.pattern is None:
            at = compacted.find(self.literal)
            return None if at < 0 else Found(start=at, end=at + len(self.literal), groups={})
        for start, end in _windows(compacted, required(self.pattern.pattern)):
            if match := self.pattern.search(compacted, start, end):
                groups = {key: value or "" for key, value in match.groupdict().items()}
                return Found(start=match.start(), end=match.end(), groups=groups)
        return None


def _windows(text: str, pieces: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that an expression which needs one of ``pieces`` can match in."""
    if not pieces:
        yield 0, len(text)
        return
    places = sorted(at for piece in pieces for at in _places(text, piece))
    begin, end = -1, -1
    for at in places:
        if at - REACH > end:
            if end >= 0:
                yield begin, end
            begin = max(0, at - REACH)
        end = min(len(text), at + REACH)
    if end >= 0:
        yield begin, end


def _places(text: str, piece: str) -> Iterator[int]:
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + len(piece))


@dataclass(frozen=True, kw_only=True)
class Found:
    """A place in a compact text, and what the signature's named groups caught there."""

    start: int
    end: int
    groups: dict[str, str]


def signature(text: str) -> Signature:
    """Return a table's text as a signature: plain, with gaps (``…``), or ``re:`` an expression."""
    if text.startswith("re:"):
        return Signature(pattern=re.compile(text[3:]))
    parts = [compact(part) for part in text.split("…")]
    if len(parts) == 1:
        return Signature(literal=parts[0])
    return Signature(pattern=re.compile(GAP.join(re.escape(part) for part in parts)))


_TOKEN: Final = re.compile(
    r"""(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<look>\(\?(?:=|!|<=|<!))
      |(?P<open>\((?:\?(?:P<\w+>|:))?)|(?P<close>\))|(?P<bar>\|)
      |(?P<count>[*+?]\??|\{[0-9,]+\}\??)|(?P<any>[.^$])|(?P<char>.)""",
    re.VERBOSE | re.DOTALL,
)
_SHORTEST: Final = 4
"""Characters; shorter pieces are everywhere. One outside ASCII says as much as three."""

Pieces = tuple[str, ...]  # texts of which one must be there; empty: nothing is known


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
