"""The size map: every file as a box whose area is its size (a squarified treemap)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from qbuild.extras.report.boxes import CHAR, Box, clip
from qbuild.extras.report.data import Item

_GAP: Final = 2.0


def treemap(
    items: Sequence[Item], *, width: float, height: float, words: Mapping[str, str]
) -> tuple[Box, ...]:
    """Return a box per file, its area in proportion to the file's size.

    The layout is the squarified treemap of Bruls, Huizing and van Wijk (2000): rows are filled
    along the shorter side for as long as that makes their boxes squarer. Files too small for a
    box of their own share one.

    Args:
        items: The files.
        width: Of the drawing.
        height: Of the drawing.
        words: File → the words for its size.
    """
    total = sum(item.size for item in items)
    if not total:
        return ()
    least = total * 0.004
    large = [item for item in items if item.size >= least][:60]
    small = [item for item in items if item not in large]
    cells: list[tuple[float, str, str, str, str]] = [
        (item.size, item.kind, item.path, words[item.path], f"{item.path}: {words[item.path]}")
        for item in large
    ]
    if rest := sum(item.size for item in small):
        # Drawn no smaller than what an eye can find.
        cells.append((max(rest, least), "other", f"+{len(small)}", "", f"{len(small)} small files"))
    cells.sort(key=lambda cell: -cell[0])
    scale = width * height / sum(cell[0] for cell in cells)
    boxes = []
    for (x, y, w, h), (_, kind, name, size, title) in zip(
        _squarify([cell[0] * scale for cell in cells], 0, 0, width, height), cells, strict=True
    ):
        inner = max(0.0, w - _GAP)
        tall = max(0.0, h - _GAP)
        room = inner - 14
        text = clip(name, room) if tall >= 22 else ""
        boxes.append(
            Box(
                x=round(x, 1), y=round(y, 1), w=round(inner, 1), h=round(tall, 1), css=kind,
                text=text, more=size if text and tall >= 40 and len(size) * CHAR <= room else "",
                title=title,
            )
        )  # fmt: skip
    return tuple(boxes)


def _squarify(
    areas: Sequence[float], x: float, y: float, w: float, h: float
) -> list[tuple[float, float, float, float]]:
    """Return a rectangle per area; the areas are sorted, the largest first."""
    placed: list[tuple[float, float, float, float]] = []
    at = 0
    while at < len(areas):
        side = min(w, h)
        row = [areas[at]]
        while at + len(row) < len(areas):
            longer = [*row, areas[at + len(row)]]
            if _worst(longer, side) > _worst(row, side):
                break
            row = longer
        thick = sum(row) / side if side else 0.0
        offset = 0.0
        for area in row:
            length = area / thick if thick else 0.0
            if w >= h:
                placed.append((x, y + offset, thick, length))
            else:
                placed.append((x + offset, y, length, thick))
            offset += length
        if w >= h:
            x, w = x + thick, max(0.0, w - thick)
        else:
            y, h = y + thick, max(0.0, h - thick)
        at += len(row)
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest ratio of long to short side in a row that fills one side."""
    if not side or not min(row):
        return float("inf")
    thick = sum(row) / side
    return max(max(thick * thick / area, area / (thick * thick)) for area in row)
