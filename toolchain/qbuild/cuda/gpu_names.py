"""The many ways in which one graphics card is called.

A driver says "NVIDIA A100-SXM4-80GB", a shop "GeForce RTX 3070 Ti Laptop", `lspci` "GA104M
[GeForce RTX 3070 Mobile / Max-Q]", a cloud "GRID T4-8Q": the chip, and with it the compute
capability, is told by what is left when maker, memory, socket and edition are taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_VENDOR: Final = re.compile(
    r"\b(nvidia|corporation|geforce|quadro|tesla|grid|graphics|card|laptop|notebook|mobile|gpu)\b|\((r|tm)\)"
)
_SPOKEN: Final = re.compile(r"\[([^\]]+)\]")
_TAIL: Final = re.compile(
    r"""[\s,(-]+(?:
        (?:with\s)?max-?\s?q(?:\sdesign)? | lhr | lite\shash\srate | \(?nvgpu\)? | generation
      | \(?pascal\)? | oem
      | (?:workstation|server|desktop|founders)(?:\sedition)? | edition | sff | super-q
      | pci-?e?(?:[\s-].*)? | sxm\d?(?:[\s-].*)? | nvl\b.* | hbm\d\w* | cg\d.*
      | \d+(?:\.\d+)?\s?g[bi]?b?(?:\s.*)? | ddr\d\w* | gddr\d\w*
      | mig\b.* | \d+[abcq]                    # parts of a card, as virtual machines see them
    )\)?$""",
    re.VERBOSE,
)


def plain(name: str) -> str:
    """Return a name without its maker, letter case, blanks and punctuation."""
    return re.sub(r"[^a-z0-9]+", "", _VENDOR.sub(" ", name.lower()))


def spellings(name: str) -> Iterator[str]:
    """Yield ever shorter plain names of a card, longest first, for a look into the table.

    Args:
        name: As a person, a driver or `lspci` writes it.
    """
    text = name.lower()
    yield plain(text)
    if spoken := _SPOKEN.search(text):
        text = spoken[1]
    for each in re.split(r"\s+/\s+", text):
        shorter = each.strip()
        while shorter:
            yield plain(shorter)
            unmade = " ".join(_VENDOR.sub(" ", shorter).split()).strip(" -,")
            cut = _TAIL.sub("", unmade)
            if cut == shorter:
                break
            shorter = cut


def chip(name: str) -> str | None:
    """Return the chip that a name tells (GP106, AD104), in upper case."""
    found = re.search(r"\b(g[kmpvhb]\d\w?\d?|tu1\d\d|ga1\d\w|ad1\d\d)(?=\w{0,3}\b)", name.lower())
    return found[1].upper() if found else None
