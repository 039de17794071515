"""The table of what device code may use: intrinsics and PTX texts, and the C function for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from qbuild import resources

FILE = "emulator.toml"
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Meaning:
    """What stands for an intrinsic or a PTX text."""

    function: str  # a function of ``toolchain/emulator/intrinsics.c``, or of the table's own IR
    thread: bool = False  # whether it takes the running thread first
    ir: str = ""  # LLVM assembly that defines it, where C has no way to say its types; else ""


@dataclass(frozen=True)
class Table:
    """Everything that device code may use beyond plain LLVM instructions."""

    intrinsics: Mapping[str, Meaning]
    asm: Mapping[str, Meaning]


def plain(text: str) -> str:
    """Return a PTX text as the table spells it: escapes resolved, blanks collapsed."""
    return " ".join(_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).split())


@cache
def table() -> Table:
    """Return the committed table."""
    data = resources.read_table(FILE)
    # What several PTX texts stand for is written once.
    defined = {row["function"]: row["ir"] for row in data["asm"] if "ir" in row}
    return Table(
        intrinsics={
            name: Meaning(function=row[0], thread="thread" in row[1:])
            for name, row in data["intrinsics"].items()
        },
        asm={
            plain(row["ptx"]): Meaning(
                function=row["function"],
                thread=row.get("thread", False),
                ir=defined.get(row["function"], ""),
            )
            for row in data["asm"]
        },
    )
