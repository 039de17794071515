"""The compile as a drawing: a lane for each compiler that ran at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qbuild.extras.report.boxes import Box, clip
from qbuild.extras.report.data import Edge

_LANE: Final = 22.0
_MOST_LANES: Final = 48


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The compile as a drawing: a lane per compiler that ran at the same time."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    ticks: tuple[tuple[float, str], ...]
    count: int
    left_out: int


def lanes(
    edges: Sequence[Edge], *, wall: float, width: float, css: Mapping[str, str]
) -> Lanes | None:
    """Return each compile step as a box from its start to its end.

    Args:
        edges: The steps, in the order in which they began.
        wall: Seconds that the whole took.
        width: Of the drawing.
        css: Part of the source → class of its boxes.
    """
    if not edges or wall <= 0:
        return None
    free: list[float] = []
    boxes = []
    left_out = 0
    for edge in edges:
        lane = next((n for n, end in enumerate(free) if end <= edge.start + 1e-9), len(free))
        if lane == len(free):
            if lane == _MOST_LANES:
                left_out += 1
                continue
            free.append(0.0)
        free[lane] = edge.end
        x, w = edge.start / wall * width, (edge.end - edge.start) / wall * width
        name = edge.output.rpartition("/")[2].removesuffix(".obj").removesuffix(".o")
        boxes.append(
            Box(
                x=round(x, 2), y=lane * _LANE, w=round(max(0.4, w - 0.6), 2), h=_LANE - 3,
                css=css[edge.area], text=clip(name, w - 8) if w > 40 else "",
                title=f"{edge.output}: {edge.end - edge.start:.1f} s",
            )
        )  # fmt: skip
    return Lanes(
        width=width,
        height=len(free) * _LANE,
        boxes=tuple(boxes),
        ticks=tuple((round(at / wall * width, 1), clock(at)) for at in _ticks(wall)),
        count=len(free),
        left_out=left_out,
    )


def _ticks(wall: float) -> list[float]:
    steps = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000)
    step = next((s for s in steps if wall / s <= 8), wall / 8)
    # None so near the end that its words would not fit.
    return [step * n for n in range(int(0.95 * wall / step) + 1)]


def clock(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 60:
        whole = seconds >= 10 or seconds == int(seconds)
        return f"{seconds:.0f} s" if whole else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
