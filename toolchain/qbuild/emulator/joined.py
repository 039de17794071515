"""Neighbouring accesses of one basic block become one, before they are counted.

A load of four floats is four loads in the device IR: LLVM's NVPTX back end joins them behind it
(its "load store vectorizer"). What it would join is told here by the same signs: one block, one
base, neighbouring places, elements of one size, an alignment that the whole fits, and nothing in
between that may write (or, for stores, read). Counted apart they would be strided accesses, with
bank conflicts that are not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_SIZES: Final = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_PLACE = re.compile(
    rf"^  ({_NAME}) = getelementptr (?:inbounds |nuw |nusw )*({'|'.join(_SIZES)}), "
    rf"ptr ({_NAME}), i(?:32|64) (-?\d+)$"
)
_ACCESS = re.compile(
    rf"^  call void @qe_count_access\(ptr %q\.t, ptr ({_NAME}), i32 (\d+), i32 (\d+)\)$"
)
_ALIGN = re.compile(r", align (\d+)(?:,|$)")
_LABEL = re.compile(r'^(?:"[^"]+"|[\w.$-]+):')
_LARGEST: Final = 16  # bytes that one thread's access may have
_HARMLESS: Final = re.compile(
    r"@(?:llvm\.(?:fma|fmuladd|[us]?max|[us]?min|maxnum|minnum|fabs|assume|lifetime|abs|fsh|ct)"
    r"|qe_(?:tid|ntid|ctaid|nctaid|lane|dp4a|prmt|mulhi|half|float|low|high|pack|bfloat|fma|add"
    r"|sub|mul|neg|self|shared|count|v[a-z]+4|ex2|lg2|rcp|rsqrt|sqrt|div|sin|cos|bfe|f2i|trunc"
    r"|fabs|round|saturate))"
)


@dataclass(frozen=True, kw_only=True)
class _Access:
    line: int
    pointer: str
    size: int
    site: int
    root: str
    offset: int
    align: int


def join(lines: Sequence[str]) -> list[str]:
    """Return a function's lines with one call of the counters for what becomes one access."""
    places = {
        match[1]: (match[3], int(match[4]) * _SIZES[match[2]])
        for line in lines
        if (match := _PLACE.match(line))
    }
    out: list[str | None] = list(lines)
    pending: dict[bool, list[_Access]] = {False: [], True: []}

    def settle(*kinds: bool) -> None:
        for kind in kinds:
            for group in _groups(pending[kind]):
                _merge(group, out)
            pending[kind].clear()

    for at, line in enumerate(lines):
        if _LABEL.match(line):
            settle(False, True)
        elif match := _ACCESS.match(line):
            kind = int(match[3]) & 3
            store = kind == 1
            # a store ends the loads before it, a load the stores; an atomic all
            settle(*((False, True) if kind > 1 else (not store,)))
            align = _ALIGN.search(lines[at + 1])
            if kind <= 1 and align:
                root, offset = _resolve(match[1], places)
                pending[store].append(
                    _Access(
                        line=at, pointer=match[1], size=int(match[2]), site=int(match[3]),
                        root=root, offset=offset, align=int(align[1]),
                    )
                )  # fmt: skip
        elif "call " in line and not _HARMLESS.search(line):
            settle(False, True)
    settle(False, True)
    return [line for line in out if line is not None]


def _resolve(pointer: str, places: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    offset = 0
    while pointer in places:
        pointer, step = places[pointer]
        offset += step
    return pointer, offset


def _groups(accesses: Sequence[_Access]) -> list[list[_Access]]:
    """Return what becomes one access each: two or more neighbours."""
    found = []
    by_root: dict[tuple[str, int], list[_Access]] = {}
    for each in accesses:
        by_root.setdefault((each.root, each.size), []).append(each)
    for group in by_root.values():
        group.sort(key=lambda each: each.offset)
        at = 0
        while at < len(group):
            count = _length(group, at)
            if count > 1:
                found.append(group[at : at + count])
            at += count
    return found


def _length(group: Sequence[_Access], at: int) -> int:
    """Return how many from ``at`` on become one: a power of two, as aligned as it is long."""
    first = group[at]
    run = 1
    while (
        at + run < len(group)
        and group[at + run].offset == first.offset + run * first.size
        and (run + 1) * first.size <= min(_LARGEST, first.align)
    ):
        run += 1
    return 1 << (run.bit_length() - 1)


def _merge(group: Sequence[_Access], out: list[str | None]) -> None:
    first = group[0]
    last = max(each.line for each in group)
    for each in group:
        out[each.line] = None
    size = first.size * len(group)
    out[last] = (
        f"  call void @qe_count_access(ptr %q.t, ptr {first.pointer}, i32 {size}, i32 {first.site})"
    )
