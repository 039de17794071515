"""The dependency graph as an arc diagram: one row per file, and a line down to what it loads.

Files stand above everything they load, so that every line goes downwards; lines within the zip
run at the left, those to the system and to drivers at the right. That is as wide as a phone
whatever the depth of the graph, and no line crosses a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from qbuild.extras.report.boxes import CHAR, Box, clip
from qbuild.extras.report.data import Needs

OUTSIDE: Final = ("system", "driver", "missing")
_HEADS: Final = {
    "system": "part of the target system",
    "driver": "comes with a driver",
    "missing": "brought by nothing",
}
_NODE_H: Final = 24.0
_ROW: Final = 30.0
_HEAD: Final = 32.0
_ARCS: Final = 92.0  # width that the lines have at each side

_LONGEST: Final = 26
_MOST: Final = 40


@dataclass(frozen=True, kw_only=True)
class Link:
    """A line from a file to what it loads: its curve, the numbers of both ends, its class."""

    path: str
    user: int
    needed: int
    css: str


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The drawing; a node's number is its place in ``boxes``."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    heads: tuple[Box, ...]
    left_out: int = 0


@dataclass(kw_only=True)
class _Node:
    name: str
    css: str
    users: set[str] = field(default_factory=set)


def graph(rows: Sequence[Needs]) -> Graph | None:
    """Return the drawing of what each file loads, or nothing when there are no files."""
    if not rows:
        return None
    shown = rows[:_MOST]
    nodes = {row.name: _Node(name=row.name, css=row.kind) for row in shown}
    pairs: list[tuple[str, str, str]] = []
    for row in shown:
        for css, names in (
            ("inside", row.inside),
            ("system", row.system),
            ("driver", row.driver),
            ("missing", row.missing),
        ):
            for name in grouped(names):
                key = name if css == "inside" else f"{css} {name}"
                if key == row.name or (css == "inside" and name not in nodes):
                    continue  # itself, or beyond what is shown
                nodes.setdefault(key, _Node(name=name, css=css)).users.add(row.name)
                pairs.append((row.name, key, css))
    order = _order(nodes)
    place = {key: index for index, key in enumerate(order)}
    width = max(min(_LONGEST, len(node.name)) for node in nodes.values()) * CHAR + 20
    boxes, heads, bottom = _stack([nodes[key] for key in order], width)
    return Graph(
        width=2 * _ARCS + width,
        height=bottom,
        boxes=boxes,
        links=tuple(
            Link(
                path=_arc(boxes[place[user]], boxes[place[needed]], left=css == "inside"),
                user=place[user],
                needed=place[needed],
                css=css,
            )
            for user, needed, css in pairs
        ),
        heads=heads,
        left_out=len(rows) - len(shown),
    )


_API_SETS: Final = ("api-ms-win-crt-", "api-ms-win-", "ext-ms-win-")


def grouped(names: Iterable[str]) -> dict[str, int]:
    """Return the names, Windows' many API sets as one each, with how many each stands for."""
    found: dict[str, int] = defaultdict(int)
    for name in names:
        prefix = next((p for p in _API_SETS if name.lower().startswith(p)), None)
        found[f"{prefix}*" if prefix else name] += 1
    return found


def _order(nodes: Mapping[str, _Node]) -> list[str]:
    """Return the keys so that users stand above what they load, the system last."""
    inside = [key for key, node in nodes.items() if node.css not in OUTSIDE]
    loads: dict[str, list[str]] = defaultdict(list)
    waiting = {}
    for key in inside:
        waiting[key] = len(nodes[key].users)
        for user in nodes[key].users:
            loads[user].append(key)
    placed: list[str] = []
    ready = [key for key in inside if not waiting[key]]
    while ready:
        placed += ready
        freed = []
        for user in ready:
            for key in loads[user]:
                waiting[key] -= 1
                if not waiting[key]:
                    freed.append(key)
        ready = sorted(freed)
    placed += [key for key in inside if waiting[key] > 0]  # in a circle: there is no right place
    for css in OUTSIDE:
        placed += sorted(key for key, node in nodes.items() if node.css == css)
    return placed


def _stack(nodes: Sequence[_Node], width: float) -> tuple[tuple[Box, ...], tuple[Box, ...], float]:
    """Return the boxes from top to bottom, the headings of their groups, and the height."""
    boxes, heads, at, group = [], [], 1.0, ""
    for node in nodes:
        mine = node.css if node.css in OUTSIDE else "inside"
        if mine != group:
            at += 6 if group else 0
            words = _HEADS.get(mine, "in the zip")
            heads.append(Box(x=_ARCS, y=at + 14, w=0, h=0, css="head", text=words))
            at += _HEAD - 6
            group = mine
        boxes.append(
            Box(
                x=_ARCS,
                y=at,
                w=width,
                h=_NODE_H,
                css=node.css,
                text=clip(node.name, _LONGEST * CHAR),
                title=f"{node.name}: {_HEADS[mine]}" if mine in _HEADS else node.name,
            )
        )
        at += _ROW
    return tuple(boxes), tuple(heads), at


def _arc(user: Box, needed: Box, *, left: bool) -> str:
    """Return a line from the lower half of one box to the upper half of another."""
    side = user.x if left else user.x + user.w
    sign = -1 if left else 1
    y1, y2 = user.y + user.h * 0.62, needed.y + needed.h * 0.4
    # The longer the way, the wider the arc: lines that span each other do not touch.
    reach = side + sign * min(_ARCS - 10, 16 + abs(y2 - y1) * 0.24) * 1.3
    tip = side + sign * 5
    return f"M{side:.0f} {y1:.1f}C{reach:.0f} {y1:.1f} {reach:.0f} {y2:.1f} {tip:.0f} {y2:.1f}"
