"""Neighbouring accesses are counted as the one that the GPU's compiler makes of them."""

from __future__ import annotations

import re

import pytest

from qbuild.emulator.joined import join


def load(name: str, pointer: str, site: int, kind: str = "i32", align: int = 4) -> list[str]:
    size = {"i8": 1, "i32": 4, "i64": 8}[kind]
    return [
        f"  call void @qe_count_access(ptr %q.t, ptr {pointer}, i32 {size}, i32 {4 * site})",
        f"  {name} = load {kind}, ptr {pointer}, align {align}, !tbaa !4",
    ]


def store(pointer: str, site: int, align: int = 4) -> list[str]:
    return [
        f"  call void @qe_count_access(ptr %q.t, ptr {pointer}, i32 4, i32 {4 * site + 1})",
        f"  store i32 0, ptr {pointer}, align {align}",
    ]


def place(name: str, of: str, offset: int) -> str:
    return f"  {name} = getelementptr inbounds nuw i8, ptr {of}, i64 {offset}"


def counted(lines: list[str]) -> list[tuple[str, int]]:
    """Return pointer and bytes of what is counted, in order."""
    found = re.findall(
        r"@qe_count_access\(ptr %q\.t, ptr (\S+), i32 (\d+),", "\n".join(join(lines))
    )
    return [(pointer, int(size)) for pointer, size in found]


FOUR = [
    *load("%a", "%p", 0, align=16),
    place("%p1", "%p", 4),
    *load("%b", "%p1", 1),
    place("%p2", "%p1", 4),
    *load("%c", "%p2", 2, align=8),
    place("%p3", "%p", 12),
    *load("%d", "%p3", 3),
]


def test_four_words_of_an_aligned_base_are_one_access() -> None:
    assert counted(FOUR) == [("%p", 16)]
    # at the last of them, where every pointer is known
    lines = join(FOUR)
    assert lines.index("  %d = load i32, ptr %p3, align 4, !tbaa !4") == len(lines) - 1
    assert "@qe_count_access" in lines[-2]


def test_no_more_than_the_alignment_fits() -> None:
    lines = [line.replace("align 16", "align 8") for line in FOUR]
    assert counted(lines) == [("%p", 8), ("%p2", 8)]
    assert len(counted([line.replace("align 16", "align 4") for line in FOUR])) == 3


def test_order_in_the_text_does_not_matter() -> None:
    lines = [
        place("%p1", "%p", 4),
        *load("%b", "%p1", 1),
        *load("%a", "%p", 0, align=8),
    ]
    assert counted(lines) == [("%p", 8)]


@pytest.mark.parametrize(
    "between",
    [
        store("%other", 9),
        ["  call void @qe_barrier(ptr %q.t)"],
        ["next:                                              ; preds = %0"],
        ["  %x = atomicrmw add ptr %y, i32 1"],
    ],
)
def test_what_may_write_keeps_loads_apart(between: list[str]) -> None:
    if "atomicrmw" in between[0]:
        call = "  call void @qe_count_access(ptr %q.t, ptr %y, i32 4, i32 38)"
        between = [call, *between]
    lines = [
        *load("%a", "%p", 0, align=8),
        *between,
        place("%p1", "%p", 4),
        *load("%b", "%p1", 1),
    ]
    assert [each for each in counted(lines) if each[0] in ("%p", "%p1")] == [("%p", 4), ("%p1", 4)]


def test_arithmetic_between_does_not() -> None:
    lines = [
        *load("%a", "%p", 0, align=8),
        "  %x = call i32 @qe_dp4a_s32(i32 %a, i32 %a, i32 0)",
        "  %y = call float @llvm.fma.f32(float %f, float %f, float %f)",
        place("%p1", "%p", 4),
        *load("%b", "%p1", 1),
    ]
    assert counted(lines) == [("%p", 8)]


def test_stores_are_joined_and_gaps_are_not() -> None:
    lines = [
        place("%p1", "%p", 4),
        place("%p3", "%p", 12),
        *store("%p", 0, align=16),
        *store("%p1", 1),
        *store("%p3", 2),
    ]
    assert counted(lines) == [("%p", 8), ("%p3", 4)]


def test_three_are_two_and_one() -> None:
    assert counted(FOUR[:-3]) == [("%p", 8), ("%p2", 4)]
