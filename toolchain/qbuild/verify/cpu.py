"""Does the bundle stay within the CPU level it names? By disassembly of everything inside.

Files that the recipe's toolchain compiled may hold nothing above the level, guarded by a test or
not: reading cannot prove a guard. A third-party library may choose code paths at run time, when a
policy names it (see :mod:`qbuild.binary.isa`) *and* it is that library by what it exports.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qbuild.binary.isa import allowed_features, dispatcher_reason, scan
from qbuild.console import Task
from qbuild.recipe.isa import EXTENSIONS
from qbuild.recipe.levels import NAMES
from qbuild.recipe.variants import extensions_of
from qbuild.verify.binaries import Images, mapped
from qbuild.verify.structure import Unpacked
from qbuild.verify.verdict import Check, judge, not_run, passed

if TYPE_CHECKING:
    from qbuild.binary.isa import IsaReport

_TITLE: Final = "stays within its CPU level"
_ARCH: Final = "x86_64"


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One file's scan; ``dispatched`` is why it may hold code above the level, or ""."""

    name: str
    report: IsaReport
    dispatched: str


def level_checks(
    images: Images,
    unpacked: Unpacked,
    *,
    level: str,
    isa: tuple[str, ...],
    variants: Mapping[str, Any] | None,
    foreign: frozenset[str],
    task: Task | None = None,
) -> Iterator[Check]:
    """Disassemble every x86-64 binary and yield the checks.

    Args:
        images: The binaries.
        unpacked: Their bytes.
        level: Promised psABI level, or "" when nothing promises one.
        isa: Promised extensions beyond it, as recipes name them.
        variants: Files of which one is chosen at start → the extensions each may use, as the
            manifest says; ``None``: there are no such files.
        foreign: Files that are known third-party libraries by what they export.
        task: Gets the file being read.
    """
    known = level in NAMES
    if level and not known:
        yield judge("cpu", _TITLE, [f"manifest.json: names a CPU level {level!r} that is none"])
        return
    if unknown := _unknown(isa):
        what = f"manifest.json: names extensions that are none: {', '.join(unknown)}"
        yield judge("cpu", _TITLE, [what])
        return
    inside = extensions_of(name.rpartition("/")[2] for name in images.names)
    if (variants or {}) != inside:
        yield judge("cpu", _TITLE, _other_variants(dict(variants or {}), inside))
        return
    started = time.monotonic()
    scans = []
    for name in images.names:
        if task:
            task.update(note=f"disassembling {name}")
        image = images.pe.get(name) or images.elf[name]
        if image.machine == _ARCH:  # of another machine: that check has failed already
            own = inside.get(name.rpartition("/")[2])
            promised = (level or NAMES[0], isa)
            if own is not None and known:  # where nothing is promised, each says what it needs
                promised = (NAMES[0], tuple(own))
            scans.append(_scan(name, images, unpacked, *promised, foreign))
    seconds = time.monotonic() - started
    if not scans:
        yield not_run("cpu", _TITLE, "there is no x86-64 code inside")
        return
    yield from _judged(scans, level, isa, frozenset(inside), seconds)


def _judged(
    scans: list[Scanned], level: str, isa: tuple[str, ...], inside: frozenset[str], seconds: float
) -> Iterator[Check]:
    """Yield what was found, against the promised level; "" promises none."""
    total = sum(item.report.instructions for item in scans)
    ours = [item for item in scans if not item.dispatched]
    if not level:
        fixed = [item for item in ours if item.name.rpartition("/")[2] not in inside]
        lines = [f"no level is promised; what is inside needs {needed(fixed or ours)}"]
        if inside and fixed:
            chosen = {item.name: needed([item]) for item in ours if item not in fixed}
            shown = ", ".join(f"{name.rpartition('/')[2]} ({level_})"
                              for name, level_ in sorted(chosen.items()))  # fmt: skip
            lines.append(f"one of these is chosen at start, by the processor: {shown}")
        yield not_run("cpu", _TITLE, *lines)
    else:
        problems = [f"{item.name}: {found}" for item in ours for found in item.report.findings]
        above = f" with {', '.join(isa)}" if isa else ""
        seen = f"{total:,} instructions in {len(scans)} files, none above {level}{above}"
        if inside:
            seen += f"; in {len(inside)} variants of the CPU backend none above the variant's own"
        yield judge("cpu", _TITLE, problems, seen, seconds=seconds)
    notes = [
        f"{item.name}: {len(item.report.findings)} functions for newer CPUs; {item.dispatched}"
        for item in scans
        if item.dispatched and item.report.findings
    ]
    if notes:
        yield passed("cpu.dispatched", "third-party code that chooses at run time", *notes)


def variants_inside(images: Images) -> dict[str, list[str]]:
    """Return the files that ggml chooses one of, as a zip without a manifest shows them."""
    return extensions_of(name.rpartition("/")[2] for name in images.names)


def needed(scans: list[Scanned]) -> str:
    """Return the lowest level that has what files need, and what lies beyond all levels.

    Args:
        scans: Made with the lowest level, so that their features are all that is above it.
    """
    features = {feature for item in scans for feature in item.report.features}
    for level in NAMES:
        if features <= allowed_features(level):
            return level
    beyond = sorted(features - allowed_features(NAMES[-1]))
    return f"{_highest(features)} and {', '.join(beyond)}"


def _highest(features: set[str]) -> str:
    """Return the lowest level that has the features, as far as levels have them."""
    common = features & allowed_features(NAMES[-1])
    # Extensions imply what they extend, which the decoder does not repeat.
    common |= {"AVX512F" if name.startswith("AVX512") else "AVX2"
               for name in features if name.startswith("AVX")}  # fmt: skip
    return next(level for level in NAMES if common <= allowed_features(level))


def _other_variants(said: Mapping[str, Any], inside: Mapping[str, Any]) -> list[str]:
    """Return where the manifest's variants and those inside differ, one line each."""
    return [
        f"{name}: manifest.json says {said.get(name, 'nothing')}, "
        f"by its name it is {inside.get(name, 'no variant')}"
        for name in sorted(said.keys() | inside.keys())
        if said.get(name) != inside.get(name)
    ]


def _unknown(isa: tuple[str, ...]) -> list[str]:
    return [name for name in isa if name not in EXTENSIONS]


def _scan(
    name: str,
    images: Images,
    unpacked: Unpacked,
    level: str,
    isa: tuple[str, ...],
    foreign: frozenset[str],
) -> Scanned:
    image = images.pe.get(name) or images.elf[name]
    with mapped(unpacked, name) as data:
        report = scan(image, data, level=level, isa=isa)
    reason = dispatcher_reason(name.rpartition("/")[2]) if name in foreign else ""
    return Scanned(name=name, report=report, dispatched=reason)
