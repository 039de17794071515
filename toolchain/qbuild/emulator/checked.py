"""Makes every memory access of a function ask the executor first: memcheck and races.

A line of LLVM assembly is one instruction, so the calls are put in line by line. Constant data of
the unit is left alone; the executor sorts out the rest by address (shared, device, stack).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

LOAD: Final = 0
STORE: Final = 1
ATOMIC: Final = 2

_VALUE: Final = r"(%[\w.$-]+|%\"[^\"]+\")"
_LOAD = re.compile(rf"^  \S+ = load (?:atomic )?(?:volatile )?(?P<type>.+), ptr {_VALUE}(?:,.*)?$")
_STORE = re.compile(rf"^  store (?:atomic )?(?:volatile )?(?P<stored>.+), ptr {_VALUE}(?:,.*)?$")
_ATOMIC = re.compile(
    rf"^  \S+ = (?:atomicrmw|cmpxchg) (?:weak )?(?:volatile )?(?:\w+ )?ptr {_VALUE}, (?P<value>.+)$"
)
_COPY = re.compile(
    rf"^  (?:tail )?call void @llvm\.mem(?:cpy|move)\.[\w.]+\(ptr [^%@]*{_VALUE}, "
    rf"ptr [^%@]*(?P<from>\S+), i(?:32|64) (?P<bytes>\d+), "
)
_SET = re.compile(
    rf"^  (?:tail )?call void @llvm\.memset\.[\w.]+\(ptr [^%@]*{_VALUE}, i8 [^,]*, "
    r"i(?:32|64) (?P<bytes>\d+), "
)

DECLARED: Final = {
    "qe_access": "void @qe_access(ptr, ptr, i32, i32)",
    "qe_stored": "void @qe_stored(ptr, ptr, i32, i32)",
}


def instrument(body: str, size_of: Callable[[str], int], first: int) -> tuple[str, int]:
    """Put a call before each access, and one behind each store.

    Args:
        body: A function's lines, shared memory in address space 0 already.
        size_of: Bytes of a type.
        first: Number of the unit's next access.

    Returns:
        The new lines and the number of the next access.
    """
    out: list[str] = []
    site = first
    for line in body.split("\n"):
        behind = ""
        for kind, pointer, size in _accesses(line, size_of):
            arguments = f"ptr %q.t, ptr {pointer}, i32 {size}, i32 {site * 4 + kind}"
            out.append(f"  call void @qe_access({arguments})")
            if kind == STORE:
                behind = f"  call void @qe_stored({arguments})"
            site += 1
        out.append(line)
        if behind:
            out.append(behind)
    return "\n".join(out), site


def _accesses(line: str, size_of: Callable[[str], int]) -> Iterator[tuple[int, str, int]]:
    """Yield (kind, pointer, bytes) of each access that a line makes."""
    if " load " in line and (match := _LOAD.match(line)):
        yield LOAD, match[2], size_of(match["type"])
    elif line.startswith("  store ") and (match := _STORE.match(line)):
        yield STORE, match[2], size_of(_type_of(match["stored"]))
    elif (" atomicrmw " in line or " cmpxchg " in line) and (match := _ATOMIC.match(line)):
        yield ATOMIC, match[1], size_of(_type_of(match["value"]))
    elif "@llvm.mem" in line:
        if match := _COPY.match(line):
            if match["from"].startswith("%"):
                yield LOAD, match["from"], int(match["bytes"])
            yield STORE, match[1], int(match["bytes"])
        elif match := _SET.match(line):
            yield STORE, match[1], int(match["bytes"])


def _type_of(text: str) -> str:
    """Return the type in front of a value: ``<2 x float> %4`` → ``<2 x float>``."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in "[<{(") - (char in "]>})")
        if char == " " and depth == 0:
            return text[:at]
    return text
