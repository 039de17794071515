"""The report as one HTML page that needs nothing else: no network, no script, no second file.

Texts of the zip pass through one gate: Jinja's autoescaping, after :func:`visible`. The page's own
content security policy forbids scripts and every load, and names its one style sheet by hash, so
that even an escape that somebody forgot could run nothing.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import __version__
from qbuild.extras.report import graph, lanes, sizemap
from qbuild.extras.report.collect import megabytes
from qbuild.extras.report.data import FileChange, Item, Report

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST: Final = 4000  # characters of one text that are shown; a recipe as TOML has half of that

_KINDS: Final = (
    ("program", "programs"),
    ("library", "libraries"),
    ("backend", "backends, loaded at run time"),
    ("script", "scripts"),
    ("licence", "licence texts"),
    ("paper", "papers and documentation"),
    ("other", "other files"),
)
_PARTS: Final = {
    "code": ("program", "code"),
    "gpu": ("backend", "GPU code"),
    "constants": ("library", "constants"),
    "tables": ("script", "unwind and link tables"),
    "rest": ("rest", "data and the rest"),
}
_AREAS: Final = {
    "CUDA kernels": "backend",
    "ggml": "library",
    "llama": "program",
    "common": "script",
    "server and tools": "tools",
    "other": "other",
    "linking": "link",
}
_STATES: Final = {
    "accepted": ("accepted", "Checked and accepted"),
    "refused": ("refused", "Checked and REFUSED"),
}


def render(report: Report) -> str:
    """Return the page of a report: a function of the report alone."""
    drawn = graph.graph(report.needs)
    timeline = report.built.timeline
    style = _style(len(drawn.boxes) if drawn else 0)
    words = {item.path: _size(item.size) for item in report.files}
    used = {item.kind for item in report.files}
    largest = max((item.size for item in report.files), default=1) or 1
    state_css, state_words = _STATES[report.checked.state]

    def file_bar(item: Item) -> list[tuple[str, float, float]]:
        return _bar(item, largest)

    return _environment().get_template("page.html").render(
        r=report,
        version=__version__,
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        sections=_sections(report),
        state_css=state_css,
        state_words=state_words,
        map_wide=sizemap.treemap(report.files, width=1000, height=380, words=words),
        map_narrow=sizemap.treemap(report.files, width=360, height=420, words=words),
        licences=[item for item in report.files if item.kind == "licence"],
        kinds=[each for each in _KINDS if each[0] in used],
        part_words=list(_PARTS.values()),
        parts=_parts,
        file_bar=file_bar,
        graph=drawn,
        outside=graph.OUTSIDE,
        short=_short,
        patch_groups=[
            (series, list(group))
            for series, group in itertools.groupby(report.patches, key=lambda each: each.series)
        ],
        check_css={"passed": "passed", "failed": "failed", "not-run": "notrun"},
        check_words={"passed": "passed", "failed": "FAILED", "not-run": "not run"},
        lanes=lanes.lanes(timeline.edges, wall=timeline.wall, width=1040, css=_AREAS)
        if timeline
        else None,
        area_css=_AREAS,
        area_words=[(_AREAS[name], name) for name, _ in timeline.areas] if timeline else [],
        slowest=sorted(timeline.edges, key=lambda e: e.start - e.end)[:12] if timeline else [],
        longest_step=max((seconds for _, seconds in report.built.steps), default=1) or 1,
        size=_size,
        clock=lanes.clock,
        delta=_delta,
    )  # fmt: skip


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def visible(value: Any) -> Any:
    """Return a value as the page shows it: no character that hides or reorders others, cut if long.

    A name with a right-to-left override in it would show as another name.
    """
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
        else f"\\u{{{ord(char):x}}}"
        for char in text
    )


@cache
def _style(nodes: int) -> str:
    """Return the style sheet, with a rule per node of the graph that lights up its lines."""
    base = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    rules = "".join(
        f"svg:has(#n{n}:hover,#n{n}:focus) .l{n}{{opacity:1;stroke-width:2.4}}\n"
        for n in range(nodes)
    )
    return base + rules


def _sections(report: Report) -> list[tuple[str, str]]:
    found = [
        ("inside", "Inside"),
        ("needs", "Libraries"),
        ("kernels", "Processor, GPU"),
        ("checks", "Checks"),
        ("patches", "Patches"),
        ("pins", "Pins"),
        ("build", "Build"),
        ("rebuild", "Rebuild"),
    ]
    if report.speed:
        found.insert(-1, ("speed", "Speed"))
    return [*found, ("against", "Difference")] if report.against else found


def _bar(item: Item, largest: int) -> list[tuple[str, float, float]]:
    """Return the pieces of a file's bar: class, start and length in percent of the largest."""
    pieces, at = [], 0.0
    parts = item.parts or (("rest", item.size),)
    for part, size in parts:
        length = 100 * size / largest
        pieces.append((_PARTS[part][0], round(at, 2), round(length, 2)))
        at += length
    return pieces


def _parts(item: Item) -> str:
    return ", ".join(f"{_size(size)} {_PARTS[part][1]}" for part, size in item.parts[:3])


def _short(names: Sequence[str]) -> list[str]:
    return [
        f"{name}\N{NO-BREAK SPACE}({count})" if count > 1 else name
        for name, count in graph.grouped(names).items()
    ]


def _size(size: float) -> str:
    """Return a size whose number and unit stay on one line."""
    return megabytes(size).replace(" ", "\N{NO-BREAK SPACE}")


def _delta(change: FileChange) -> str:
    if change.here is None or change.there is None:
        return "only here" if change.there is None else "only there"
    size = change.here - change.there
    if not size:
        return "same size"
    return f"{'+' if size > 0 else '−'}{_size(abs(size))}"
