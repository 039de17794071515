"""Windows' 32-bit codes (NTSTATUS, HRESULT, Win32 errors) in all the ways programs print them.

A program that Windows refuses to start ends with an NTSTATUS such as 0xC0000135. What prints it may
take it for a signed number (-1073741515), an unsigned one (3221225781), widen it to 64 bits
(18446744072635810101), or be written in JavaScript, whose numbers hold 53 bits
(18446744072635810000): then several codes look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = re.compile(
    r"""(?<![\w.])(?:
        0x(?:f{8})?(?P<hex>[c8e][0-9a-f]{7})(?![0-9a-f])
      | (?P<dec>-?[0-9]{9,20})(?![\w])
    )|\b(?:code|status|exception|error)\b[\s:=(]{0,3}(?P<bare>[c8e][0-9a-f]{7})(?![0-9a-f])""",
    re.VERBOSE | re.IGNORECASE,
)
_WIN32: Final = re.compile(
    r"""(?:
        \[(?:win)?error\s+(?P<a>[0-9]{1,5})\]            # Python 3 and 2
      | \(os\serror\s(?P<b>[0-9]{1,5})\)                  # Rust
      | win32exception\s\((?P<c>[0-9]{1,5})\)             # .NET
      | (?:loadlibrary|createprocess|getlasterror)\w*\b[^\n]{0,120}?
        (?:error|code|failed)[\s:=(]{1,3}(?P<d>[0-9]{1,5})\b   # C and C++
      | \(0x(?P<e>[0-9a-f]{2,4})\)                         # LLVM
      | \bcode\s(?P<f>4551)\b                              # Inno Setup and the like
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_TOP: Final = 1 << 31
_WIDE: Final = 1 << 64
_FACILITY_WIN32: Final = 0x80070000
"""An HRESULT with this upper half carries a Win32 error in its lower one."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A code in a text.

    Args:
        codes: The 32-bit codes that it can stand for; more than one where it was rounded.
        start, end: Where it stands.
    """

    codes: tuple[int, ...]
    start: int
    end: int


def rounded(code: int) -> str:
    """Return how JavaScript prints a code that was widened to an unsigned 64-bit number."""
    digits = f"{float(_WIDE - (1 << 32) + code):.17g}"
    shortest = repr(float(digits)).replace("e+19", "").replace(".", "")
    return shortest.ljust(20, "0")


def spellings(code: int) -> tuple[str, ...]:
    """Return every spelling of a code that is looked for (for tests and pages)."""
    signed, wide = code - (1 << 32), _WIDE - (1 << 32) + code
    return (
        *(f"0x{code:08X}", f"0x{code:08x}", str(signed), str(code)),
        *(f"0x{wide:016X}", str(wide), rounded(code)),
    )


def seen_in(text: str, known: Sequence[int]) -> Iterator[Seen]:
    """Yield the known codes in a text, in order.

    Args:
        text: Lines as they are: here blanks count, they keep numbers apart.
        known: Codes worth finding.
    """
    wanted = frozenset(known)
    by_rounding: dict[str, list[int]] = {}
    for code in known:
        by_rounding.setdefault(rounded(code), []).append(code)
    for match in _NUMBER.finditer(text):
        digits = match["hex"] or match["bare"]
        codes = [int(digits, 16)] if digits else _of_decimal(match["dec"], by_rounding)
        if found := tuple(code for code in codes if code in wanted):
            yield Seen(codes=found, start=match.start(), end=match.end())
    for match in _WIN32.finditer(text):
        number = int(match["e"], 16) if match["e"] else int(match[match.lastgroup or 0])
        code = _FACILITY_WIN32 + number
        if code in wanted:
            yield Seen(codes=(code,), start=match.start(), end=match.end())


def _of_decimal(text: str, by_rounding: dict[str, list[int]]) -> list[int]:
    value = int(text)
    if value < 0:
        return [value + (1 << 32)] if value >= -_TOP else []
    if value < 1 << 32:
        return [value] if value >= _TOP else []
    if text in by_rounding:
        return by_rounding[text]
    low = value - (_WIDE - (1 << 32))
    return [low] if _TOP <= low < 1 << 32 else []


def win32(number: int) -> int:
    """Return the HRESULT that carries a Win32 error: 126 → 0x8007007E."""
    return _FACILITY_WIN32 + number
