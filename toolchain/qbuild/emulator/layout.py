"""Sizes and alignments of LLVM types, as the NVPTX and x86-64 targets both lay them out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from qbuild.errors import ToolchainError

_SCALARS: Final = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16,
    "half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8,
}  # fmt: skip
_ARRAY: Final = re.compile(r"([\[<])(\d+) x (.*)[\]>]", re.DOTALL)


@dataclass(frozen=True)
class Size:
    """Bytes that a type takes, and to what it is aligned."""

    size: int
    align: int


def split_top(text: str) -> list[str]:
    """Split at commas outside brackets and quotes: ``i32, { i8, i8 }`` → two parts."""
    parts: list[str] = []
    depth, quoted, start = 0, False, 0
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


def size_of(type_text: str, structs: Mapping[str, str]) -> Size:
    """Return the size of a type.

    Args:
        type_text: As LLVM's assembly spells it, e.g. ``[32 x %struct.block_q8_1]``.
        structs: Name of each named type → its body.

    Raises:
        ToolchainError: It is no type that device code was seen to use.
    """
    text = type_text.strip()
    if text in _SCALARS:
        return Size(_SCALARS[text], _SCALARS[text])
    if text.startswith("ptr addrspace("):
        return Size(8, 8)
    if match := _ARRAY.fullmatch(text):
        element = size_of(match[3], structs)
        size = int(match[2]) * element.size
        if match[1] == "<":
            align = 1 << max(size - 1, 0).bit_length()
            return Size(align, align)
        return Size(size, element.align)
    if text in structs:
        return size_of(structs[text], structs)
    if text.startswith("<{") and text.endswith("}>"):
        return Size(sum(size_of(part, structs).size for part in split_top(text[2:-2])), 1)
    if text.startswith("{") and text.endswith("}"):
        at, align = 0, 1
        for part in split_top(text[1:-1]):
            member = size_of(part, structs)
            at = -(-at // member.align) * member.align + member.size
            align = max(align, member.align)
        return Size(-(-at // align) * align, align)
    raise ToolchainError(f"device code uses a type that the emulator does not know: {text[:80]}")
