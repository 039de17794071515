"""What a report says about one zip, as plain frozen data; sizes are bytes, times seconds.

Every text in here may come from the zip, whose maker is unknown: only the page's template, which
escapes, may put it into HTML.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from qbuild.extras.report.speed import Speed

FORMAT = 1
"""Version of the report's JSON."""

Kind = Literal["program", "library", "backend", "script", "licence", "paper", "other"]
Part = Literal["code", "gpu", "constants", "tables", "rest"]
State = Literal["accepted", "refused"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One line of a table: what, its value, and a remark."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One file of the zip.

    Args:
        path: Name in the zip.
        kind: What it is for.
        size: Bytes when unpacked.
        packed: Bytes inside the zip.
        why: Why it is there, in a few words.
        parts: What its bytes are, for programs and libraries: (part, bytes), largest first.
    """

    path: str
    kind: Kind
    size: int
    packed: int
    why: str
    parts: tuple[tuple[Part, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one program or library loads.

    Args:
        name: File name without folder.
        kind: ``program``, ``library`` or ``backend``.
        inside: Files of the zip it loads.
        system: Libraries of the target system it loads.
        driver: Libraries that come with a driver.
        missing: Libraries that nothing brings.
        users: Files of the zip that load it.
    """

    name: str
    kind: Kind
    inside: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuCode:
    """The CUDA device code of one file.

    Args:
        path: Name in the zip.
        ours: Whether llama.cpp's own kernels are meant, not a library of NVIDIA.
        archs: One line per architecture and kind: (``sm_61 machine code``, pieces, bytes).
        compression: How the strongest is stored.
        problem: What is wrong with it, or "".
    """

    path: str
    ours: bool
    archs: tuple[tuple[str, int, int], ...] = ()
    compression: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One patch with its reason."""

    series: str
    file: str
    subject: str
    why: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """One check of the verdict: its title, how it came out (``passed``, ...), what was seen."""

    title: str
    status: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The verdict on the zip, made by reading it for this page.

    Args:
        state: How it came out.
        note: Counts, and what is the matter with the verdict that lies beside the zip.
        checks: Each check, failures first.
    """

    state: State
    note: str
    checks: tuple[CheckLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One compile step as ninja's log recorded it: its output, start and end in seconds."""

    output: str
    start: float
    end: float
    area: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What the compile took.

    Args:
        edges: Every step, in the order in which they began.
        left_out: Steps beyond those that a page can show, all of them short.
        areas: Part of the source → seconds of work, largest first.
        wall: Seconds from the first start to the last end.
        work: Seconds of all steps together.
    """

    edges: tuple[Edge, ...]
    left_out: int
    areas: tuple[tuple[str, float], ...]
    wall: float
    work: float


@dataclass(frozen=True, kw_only=True)
class Built:
    """How the zip was built, as far as the record beside it and the store tell.

    Args:
        note: What is not known, or "".
        steps: (step, seconds) in the order they ran.
        reused: Steps whose results were there already.
        facts: Host, origin and the like.
        timeline: The compile in detail.
        timeline_note: Why there is none, or where it is from.
    """

    note: str = ""
    steps: tuple[tuple[str, float], ...] = ()
    reused: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    timeline: Timeline | None = None
    timeline_note: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing in which two zips differ: what, how it is here, how it is there."""

    what: str
    here: str
    there: str


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A file in which two zips differ; a size is ``None`` where the file is absent."""

    path: str
    here: int | None
    there: int | None


@dataclass(frozen=True, kw_only=True)
class Against:
    """The difference to another zip.

    Args:
        name: File name of the other zip.
        sha256: Of the other zip.
        identical: Whether both are the same bytes.
        made: Differences in what they were made from.
        files: Files that differ.
        same: Number of files that are equal.
        left_out: Differing files beyond those listed.
        places: Where the bytes of the files first differ, one line each.
    """

    name: str
    sha256: str
    identical: bool
    made: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    same: int = 0
    left_out: int = 0
    places: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one page says about one zip.

    Args:
        zip_name: File name of the zip.
        sha256: Of its bytes.
        size: Bytes of the zip.
        unpacked: Bytes of its files.
        summary: One line that says what it is.
        ours: Whether it holds qbuild's manifest.
        problems: What is wrong with the zip or its papers, found while reading.
        labels: What was not done, in sentences.
        key_facts: The few things one wants to know first.
        files: Its files, largest first.
        left_out: (number, bytes) of files beyond those listed.
        needs: Who needs which library.
        cpu: Processor level and what it means.
        switches: ggml's instruction sets: (name, whether it is on).
        gpu: CUDA code by file.
        gpus: (family of GPUs, how they run llama.cpp's kernels).
        patches: Applied patches in order.
        pins: What exactly it was made from.
        checked: The verdict.
        built: How the build went.
        rebuild: Commands that check it and make it again.
        recipe: The resolved recipe as TOML.
        against: The difference to another zip.
        speed: What `qbuild bench` measured of it.
    """

    zip_name: str
    sha256: str
    size: int
    unpacked: int
    summary: str
    ours: bool
    problems: tuple[str, ...]
    labels: tuple[str, ...]
    key_facts: tuple[Fact, ...]
    files: tuple[Item, ...]
    left_out: tuple[int, int]
    needs: tuple[Needs, ...]
    cpu: tuple[Fact, ...]
    switches: tuple[tuple[str, bool], ...]
    gpu: tuple[GpuCode, ...]
    gpus: tuple[tuple[str, str], ...]
    patches: tuple[Patch, ...]
    pins: tuple[Fact, ...]
    checked: Checked
    built: Built
    rebuild: tuple[Fact, ...]
    recipe: str
    against: Against | None = None
    speed: Speed | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the report as a machine reads it."""
        return {"format": FORMAT, **dataclasses.asdict(self)}
