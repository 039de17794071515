"""What lies beside a zip and in the store: its verdict, its build record, what took long.

None of it is in the zip: a zip that came from elsewhere has no history here, and the report then
says so. What is there is data of unknown origin and only shown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import bounds
from qbuild.errors import QbuildError
from qbuild.extras.report.data import Built, Checked, CheckLine, Edge, Fact, Timeline
from qbuild.store import Entry, Store
from qbuild.verify.papers import dig, texts
from qbuild.verify.verdict import from_json

if TYPE_CHECKING:
    from qbuild.verify.verdict import Verdict

_ABSOLUTE: Final = re.compile(r"(?:[A-Za-z]:)?/")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
MOST_EDGES: Final = 600
"""Compile steps that a page can draw; the shortest beyond them are summed up."""

_RAN: Final = "run."
_WORDS: Final = {"passed": "it ran and passed", "failed": "it failed", "not-run": "it was not run"}
_ORDER: Final = {"failed": 0, "not-run": 1, "passed": 2}
_STEPS: Final = ("configure", "ninja", "compile", "stage", "bundle", "verify")


def checked(path: Path, found: Verdict) -> Checked:
    """Return how a zip came out of the checks that were made for this page.

    The verdict that lies beside a zip is a file that anybody can write, so its word counts against
    the zip only: what its programs did when they were run is shown as said there, not as checked.
    """
    said, problem = _verdict_beside(path, found.sha256)
    lines = [
        CheckLine(title=check.title, status=check.status, details=check.details)
        for check in found.checks
    ]
    ran = [check for check in (said.checks if said else ()) if check.id.startswith(_RAN)]
    source = f"said by {path.name}.verdict.json, not checked for this page"
    lines += [
        CheckLine(
            title=check.title,
            status="not-run" if check.status == "passed" else check.status,
            details=(f"{source}: {_WORDS[check.status]}", *check.details),
        )
        for check in ran
    ]
    refused = not found.ok or (said is not None and not said.ok)
    if said is not None and found.ok and not said.ok:
        problem = f"{path.name}.verdict.json refuses it"
    note = found.summary().partition(": ")[2]
    return Checked(
        state="refused" if refused else "accepted",
        note=f"{note}; {problem}" if problem else note,
        checks=tuple(sorted(lines, key=lambda line: _ORDER[line.status])),
    )


def _verdict_beside(path: Path, sha256: str) -> tuple[Verdict | None, str]:
    """Return the verdict that lies beside a zip if it is about these bytes, and else why not."""
    beside = path.with_name(f"{path.name}.verdict.json")
    try:
        if not beside.is_file():
            return None, f"its programs were not run: there is no {beside.name} beside the zip"
        verdict = from_json(_read(beside))
    except (OSError, QbuildError, ValueError) as error:
        what = error.what if isinstance(error, QbuildError) else "it cannot be read"
        return None, f"{beside.name}: {what}"
    if verdict.sha256 != sha256:
        return None, f"{beside.name} is the verdict on another file (other sha256)"
    return verdict, ""


def built_of(path: Path, sha256: str, store: Store | None) -> Built:
    """Return how a zip was built, from the record beside it and the store's entries.

    Args:
        path: The zip.
        sha256: Of its bytes.
        store: Where the compile's own record may lie.
    """
    beside = path.with_name(f"{path.name}.build.json")
    try:
        if not beside.is_file():
            return Built(note=f"there is no {beside.name} beside the zip")
        record = bounds.load_json(_read(beside))
    except (OSError, ValueError):
        return Built(note=f"{beside.name} cannot be read")
    if dig(record, "zip", "sha256") != sha256:
        return Built(note=f"{beside.name} is the record of another file (other sha256)")
    compiled, note = _compiled(dig(record, "bundle"), store)
    timeline = None
    if compiled is not None:
        try:
            timeline = timeline_of(bounds.load_json(_read(compiled.path / "timeline.json")))
        except (OSError, ValueError, TypeError):
            note = "the store's record of the compile cannot be read"
    reused = texts(dig(record, "reused"))
    return Built(
        steps=_steps(dig(record, "seconds")),
        reused=reused,
        facts=_facts(record, compiled),
        timeline=timeline,
        timeline_note=note,
    )


def _read(path: Path) -> str:
    return bounds.read_bytes(path, bounds.JSON).decode()


def _steps(seconds: object) -> tuple[tuple[str, float], ...]:
    """Return the steps that ran; configure and ninja are parts of the step compile."""
    if not isinstance(seconds, Mapping):
        return ()
    found = {str(name): float(value) for name, value in seconds.items() if _number(value)}
    if "compile" in found and "ninja" in found:
        # The step's own time also holds its inputs, which are listed by themselves.
        del found["compile"]
    order = {name: index for index, name in enumerate(_STEPS)}
    # What is fetched and patched comes before all of them.
    return tuple(sorted(found.items(), key=lambda each: order.get(each[0], -1)))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


def _facts(record: Any, compiled: Entry | None) -> tuple[Fact, ...]:
    hermetic = dig(record, "hermetic")
    if hermetic is None and compiled is not None:  # this run compiled nothing: that one knows
        hermetic = compiled.facts.get("hermetic")
    network = "not known"
    if isinstance(hermetic, bool):
        network = (
            "cut off while it was configured and compiled"
            if hermetic
            else "not cut off: the system allowed no namespace"
        )
    facts = [
        Fact(label="Build machine", value=str(dig(record, "host") or "not known")),
        Fact(label="Network", value=network),
    ]
    if compiler := compiled.facts.get("compiler") if compiled is not None else None:
        facts.append(Fact(label="Compiler calls itself", value=str(compiler)))
    if origin := dig(record, "origin"):
        facts.append(Fact(label="Source fetched from", value=str(origin)))
    return tuple(facts)


def _compiled(bundle_key: object, store: Store | None) -> tuple[Entry | None, str]:
    """Follow the keys from bundle to compile; return the compile's entry, or why there is none."""
    if store is None or not isinstance(bundle_key, str):
        return None, "the build record names no bundle step"
    key: object = bundle_key
    entry = None
    for kind, before in (("bundle", "stage"), ("stage", "compile"), ("compile", "")):
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            return None, "the build record names no step of the store"
        try:
            entry = store.find(kind, key)
        except QbuildError:
            entry = None
        if entry is None:
            return None, f"this store does not hold the zip's {kind} step (built elsewhere?)"
        key = entry.inputs.get(before)
    return entry, ""


def _without_folder(output: str) -> str:
    """Return an output without the build folder's path: reports are passed on."""
    if not _ABSOLUTE.match(output):
        return output
    _, inside, rest = output.partition("/build/")
    return rest if inside else output.rpartition("/")[2]


def timeline_of(rows: object) -> Timeline | None:
    """Return ninja's record as a timeline, or nothing when there is none in it.

    Args:
        rows: List of [output, start, end], in milliseconds.

    Raises:
        ValueError: A row is something else.
    """
    # A step with several outputs, such as a library and its links, stands there once for each.
    steps: dict[tuple[float, float, str], Edge] = {}
    for row in rows if isinstance(rows, list) else ():
        output, start, end = row
        if not (isinstance(output, str) and _number(start) and _number(end)):
            raise ValueError("a row of the timeline is malformed")
        output = _without_folder(output)
        part = area(output)
        steps.setdefault(
            (start, end, part if part == "linking" else output),
            Edge(output=output, start=start / 1000, end=max(start, end) / 1000, area=part),
        )
    edges = list(steps.values())
    if not edges:
        return None
    first = min(edge.start for edge in edges)
    areas: dict[str, float] = defaultdict(float)
    for edge in edges:
        areas[edge.area] += edge.end - edge.start
    kept = sorted(edges, key=lambda edge: edge.start - edge.end)[:MOST_EDGES]
    moved = [
        Edge(output=e.output, start=e.start - first, end=e.end - first, area=e.area)
        for e in sorted(kept, key=lambda edge: (edge.start, edge.output))
    ]
    return Timeline(
        edges=tuple(moved),
        left_out=len(edges) - len(kept),
        areas=tuple(sorted(areas.items(), key=lambda each: (-each[1], each[0]))),
        wall=max(edge.end for edge in edges) - first,
        work=sum(edge.end - edge.start for edge in edges),
    )


AREAS: Final = ("CUDA kernels", "ggml", "llama", "common", "server and tools", "other", "linking")


def area(output: str) -> str:
    """Return the part of llama.cpp that an output belongs to: one of :data:`AREAS`."""
    if not output.endswith((".o", ".obj")):
        return "linking"
    for name, prefixes in (
        ("CUDA kernels", ("ggml/src/ggml-cuda",)),
        ("ggml", ("ggml/",)),
        ("llama", ("src/",)),
        ("common", ("common/", "vendor/")),
        ("server and tools", ("tools/", "app/")),
    ):
        if output.startswith(prefixes):
            return name
    return "other"
