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

FORMAT = 1  # version of the report's JSON

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
    """One file of the zip."""

    path: str  # name in the zip
    kind: Kind  # what it is for
    size: int  # bytes when unpacked
    packed: int  # bytes inside the zip
    why: str  # why it is there, in a few words
    # what its bytes are, for programs and libraries: (part, bytes), largest first
    parts: tuple[tuple[Part, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one program or library loads."""

    name: str  # file name without folder
    kind: Kind  # ``program``, ``library`` or ``backend``
    inside: tuple[str, ...] = ()  # files of the zip it loads
    system: tuple[str, ...] = ()  # libraries of the target system it loads
    driver: tuple[str, ...] = ()  # libraries that come with a driver
    missing: tuple[str, ...] = ()  # libraries that nothing brings
    users: tuple[str, ...] = ()  # files of the zip that load it


@dataclass(frozen=True, kw_only=True)
class GpuCode:
    """The CUDA device code of one file."""

    path: str  # name in the zip
    ours: bool  # whether llama.cpp's own kernels are meant, not a library of NVIDIA
    # one line per architecture and kind: (``sm_61 machine code``, pieces, bytes)
    archs: tuple[tuple[str, int, int], ...] = ()
    compression: str = ""  # how the strongest is stored
    problem: str = ""  # what is wrong with it, or ""


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
    """The verdict on the zip, made by reading it for this page."""

    state: State  # how it came out
    note: str  # counts, and what is the matter with the verdict that lies beside the zip
    checks: tuple[CheckLine, ...] = ()  # each check, failures first


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One compile step as ninja's log recorded it: its output, start and end in seconds."""

    output: str
    start: float
    end: float
    area: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What the compile took."""

    edges: tuple[Edge, ...]  # every step, in the order in which they began
    left_out: int  # steps beyond those that a page can show, all of them short
    areas: tuple[tuple[str, float], ...]  # part of the source → seconds of work, largest first
    wall: float  # seconds from the first start to the last end
    work: float  # seconds of all steps together


@dataclass(frozen=True, kw_only=True)
class Built:
    """How the zip was built, as far as the record beside it and the store tell."""

    note: str = ""  # what is not known, or ""
    steps: tuple[tuple[str, float], ...] = ()  # (step, seconds) in the order they ran
    reused: tuple[str, ...] = ()  # steps whose results were there already
    facts: tuple[Fact, ...] = ()  # host, origin and the like
    timeline: Timeline | None = None  # the compile in detail
    timeline_note: str = ""  # why there is none, or where it is from


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
    """The difference to another zip."""

    name: str  # file name of the other zip
    sha256: str  # of the other zip
    identical: bool  # whether both are the same bytes
    made: tuple[Change, ...] = ()  # differences in what they were made from
    files: tuple[FileChange, ...] = ()  # files that differ
    same: int = 0  # number of files that are equal
    left_out: int = 0  # differing files beyond those listed
    places: tuple[str, ...] = ()  # where the bytes of the files first differ, one line each


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one page says about one zip."""

    zip_name: str  # file name of the zip
    sha256: str  # of its bytes
    size: int  # bytes of the zip
    unpacked: int  # bytes of its files
    summary: str  # one line that says what it is
    ours: bool  # whether it holds qbuild's manifest
    problems: tuple[str, ...]  # what is wrong with the zip or its papers, found while reading
    labels: tuple[str, ...]  # what was not done, in sentences
    key_facts: tuple[Fact, ...]  # the few things one wants to know first
    files: tuple[Item, ...]  # its files, largest first
    left_out: tuple[int, int]  # (number, bytes) of files beyond those listed
    needs: tuple[Needs, ...]  # who needs which library
    cpu: tuple[Fact, ...]  # processor level and what it means
    switches: tuple[tuple[str, bool], ...]  # ggml's instruction sets: (name, whether it is on)
    gpu: tuple[GpuCode, ...]  # CUDA code by file
    gpus: tuple[tuple[str, str], ...]  # (family of GPUs, how they run llama.cpp's kernels)
    patches: tuple[Patch, ...]  # applied patches in order
    pins: tuple[Fact, ...]  # what exactly it was made from
    checked: Checked  # the verdict
    built: Built  # how the build went
    rebuild: tuple[Fact, ...]  # commands that check it and make it again
    recipe: str  # the resolved recipe as TOML
    against: Against | None = None  # the difference to another zip
    speed: Speed | None = None  # what `qbuild bench` measured of it

    def as_json(self) -> dict[str, Any]:
        """Return the report as a machine reads it."""
        return {"format": FORMAT, **dataclasses.asdict(self)}
