"""From facts about a machine to a recipe, with reasons and with what would make it faster.

Pure: facts come in, the rules are data (``toolchain/data/detect.toml``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from qbuild import resources
from qbuild.cuda import table
from qbuild.cuda.arch import find_gpu
from qbuild.doctor.detect.cards import capability_of, own_build, without_recipe
from qbuild.doctor.detect.levels import level_of, missing_for
from qbuild.doctor.machine_facts import Facts, GpuFacts
from qbuild.errors import QbuildError
from qbuild.recipe.gpu import slug
from qbuild.recipe.levels import NAMES, CpuLevel, upto


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Which recipe to take."""

    recipe: str | None  # its name; ``None``: no recipe's bundle would run on this machine
    os: str  # what to build it for: ``linux`` or ``windows``
    reasons: tuple[str, ...]  # why, in sentences
    hints: tuple[str, ...] = ()  # what would make it faster, or what else to know
    better: tuple[str, ...] = ()  # recipes that fit better and do not exist yet
    command: str = ""  # what builds it for exactly this machine; empty where no recipe fits

    def as_json(self) -> dict[str, object]:
        """Return it as a machine reads it."""
        return {
            "recipe": self.recipe,
            "os": self.os,
            "reasons": list(self.reasons),
            "hints": list(self.hints),
            "better": list(self.better),
            "command": self.command,
        }


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of the table; see its head for the meaning."""

    name: str
    cpu: CpuLevel
    why: str = ""
    offer: str = ""
    gpu: tuple[str, str] | None = None
    cuda: str = ""
    compression: str = "none"
    laptop: bool = False
    exact: bool = False
    ram: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Card:
    """A graphics card as far as a recipe is concerned; ``why_not`` says why it cannot be used."""

    facts: GpuFacts
    capability: tuple[int, int] | None
    why_not: str = ""

    def __str__(self) -> str:
        parts = []
        if self.capability:
            parts.append(f"compute capability {self.capability[0]}.{self.capability[1]}")
        if self.facts.vram_gb:
            parts.append(f"{self.facts.vram_gb:.0f} GB")
        if self.facts.driver:
            parts.append(f"driver {self.facts.driver}")
        name = self.facts.name or "NVIDIA card"
        return f"{name} ({', '.join(parts)})" if parts else name


@dataclass(kw_only=True)
class _Notes:
    reasons: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)


@cache
def _table() -> dict[str, Any]:
    return resources.read_table("detect.toml")


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules, best first."""
    return tuple(
        Rule(**{**row, "gpu": tuple(row["gpu"]) if "gpu" in row else None})
        for row in _table()["recipe"]
    )


_LEAST = ("x86-64", "x86-64-v2")  # levels that are risked on a processor that nobody described


def recommend(facts: Facts, available: Collection[str]) -> Recommendation:
    """Return the recipe that fits a machine."""
    notes = _Notes()
    target = "windows" if facts.os == "windows" else "linux"
    level = level_of(facts.cpu) if facts.cpu else None
    cards = [_judge(card, facts) for card in facts.cards() if _nvidia(card)]
    usable = [card for card in cards if not card.why_not]
    chosen = None
    if _wrong_machine(facts, notes):
        return Recommendation(recipe=None, os=target, reasons=tuple(notes.reasons))
    for rule in rules():
        if not _fits(rule, facts, usable):
            continue
        if level is None and rule.cpu not in _LEAST:
            continue
        if level and _below(level, rule.cpu) and not (rule.gpu and level != "x86-64"):
            continue
        if rule.name in available:
            chosen = rule
            break
        wanted = rule.gpu or rule.name in ("laptop", "avx2", "baseline")
        if wanted and rule.name not in notes.better:
            notes.better.append(rule.name)
            notes.hints.append(f"recipe {rule.name} would fit once it exists: {rule.offer}")
    if chosen is None:
        notes.reasons.append(
            f"this CPU is {level} and no recipe is made for less than x86-64-v2: "
            + _lack(facts, "x86-64-v2")
            if level == "x86-64"
            else "none of the recipes that fit this machine is there"
        )
    else:
        _explain(chosen, facts, level, usable, notes)
    notes.hints += _hints(facts, level, cards, chosen, available)
    return Recommendation(
        recipe=chosen.name if chosen else None,
        os=target,
        reasons=tuple(notes.reasons),
        hints=tuple(dict.fromkeys(notes.hints)),
        better=tuple(notes.better),
        command=_command(chosen, usable, level, target) if chosen else "",
    )


def _below(level: CpuLevel, other: CpuLevel) -> bool:
    return NAMES.index(level) < NAMES.index(other)


def _command(rule: Rule, usable: list[_Card], level: CpuLevel | None, target: str) -> str:
    """Return the one command that builds for this machine: its GPUs and its processor."""
    numbers = _numbers(usable)
    words = ["qbuild", "--recipe", rule.name]
    if rule.exact and len(numbers) == 1:
        words = ["qbuild", "--gpu", _gpu_name(usable[0])]
    elif rule.exact:
        words += ["--cuda-arch", ",".join(numbers)]
    if level and _below(level, rule.cpu):
        words += ["--set", f"target.cpu={level}"]
    return " ".join([*words, "--os", target])


def _gpu_name(card: _Card) -> str:
    """Return a card as --gpu takes it: its name as one word, or its compute capability."""
    assert card.capability is not None
    number = f"{card.capability[0]}.{card.capability[1]}"
    try:
        gpu = find_gpu(card.facts.name or "")
    except QbuildError:
        return number
    return slug(gpu.name) if str(gpu.capability) == number and gpu.listed else number


def _numbers(usable: list[_Card]) -> list[str]:
    """Return the cards' architectures as --cuda-arch takes them, each once."""
    known = sorted({card.capability for card in usable if card.capability})
    return [f"{major}{minor}" for major, minor in known]


def _wrong_machine(facts: Facts, notes: _Notes) -> bool:
    if facts.os == "darwin":
        notes.reasons.append("recipes make bundles for Linux and Windows, not for macOS")
        return True
    if facts.cpu and facts.cpu.arch not in (None, "x86_64", "amd64", "AMD64"):
        notes.reasons.append(f"recipes make bundles for x86-64, not for {facts.cpu.arch}")
        return True
    return False


def _nvidia(card: GpuFacts) -> bool:
    """Return whether it is NVIDIA's: facts that a person wrote may say so by the name only."""
    return card.vendor == "nvidia" or (card.vendor is None and capability_of(card) is not None)


def _judge(card: GpuFacts, facts: Facts) -> _Card:
    """Return whether a card can be used, and if not, why."""
    text = capability_of(card)
    capability = None
    if match := re.fullmatch(r"([0-9]{1,2})\.([0-9])", text or ""):
        capability = (int(match[1]), int(match[2]))
    # the driver that WSL shows is Windows' own, with Windows' numbers
    target = "windows" if facts.os == "windows" or facts.is_wsl else "linux"
    floor = table.driver_floor("12", target)
    if capability and not own_build(text or "", facts.os):
        return _Card(
            facts=card,
            capability=capability,
            why_not="no recipe has code for it, and CUDA 12 cannot make any: no driver helps",
        )
    if not card.driver:
        where = "on the Windows side" if facts.is_wsl else "here"
        return _Card(
            facts=card,
            capability=capability,
            why_not=f"no NVIDIA driver is loaded; install {floor} or newer {where}",
        )
    if capability is None:
        return _Card(
            facts=card,
            capability=None,
            why_not="its compute capability is not known (the name is not in the table): write it "
            'into the facts ("capability": "8.6"), or build with --cuda-arch',
        )
    if not _older(card.driver, floor):
        return _Card(facts=card, capability=capability)
    why = f"driver {card.driver} is too old for CUDA 12; install {floor} or newer"
    if without_recipe([card]):
        command = own_build(text or "", facts.os)
        why = (
            "no recipe has code for it, so a newer driver alone does not help; with driver "
            f"{floor} or newer `{command}` builds for it"
        )
    return _Card(facts=card, capability=capability, why_not=why)


def _fits(rule: Rule, facts: Facts, usable: list[_Card]) -> bool:
    if rule.gpu:
        low, high = (tuple(int(part) for part in end.split(".")) for end in rule.gpu)
        target = "windows" if facts.os == "windows" or facts.is_wsl else "linux"
        floor = table.driver_floor(rule.cuda, target, rule.compression)
        return bool(usable) and all(
            card.capability is not None
            and low <= card.capability <= high
            and not _older(card.facts.driver, floor)
            for card in usable
        )
    if rule.laptop and (not facts.laptop or usable):
        return False
    return rule.ram is None or facts.ram_gb is None or facts.ram_gb <= rule.ram


def _older(driver: str | None, floor: str) -> bool:
    try:
        return driver is not None and table.parse_version(driver) < table.parse_version(floor)
    except QbuildError:  # a number that nobody can read stops nobody
        return False


def _lack(facts: Facts, level: CpuLevel) -> str:
    lacking = missing_for(facts.cpu, level) if facts.cpu else ()
    names = {"pni": "SSE3", "abm": "LZCNT", "cx16": "CMPXCHG16B", "lahf_lm": "LAHF"}
    shown = ", ".join(names.get(each, each.upper().replace("_", ".")) for each in lacking)
    return f"{shown} missing" if shown else "that level is missing"


def _explain(
    chosen: Rule, facts: Facts, level: CpuLevel | None, usable: list[_Card], notes: _Notes
) -> None:
    if chosen.gpu:
        kinds = Counter(str(card) for card in usable)
        cards = f"{len(usable)} cards: " if len(usable) > 1 else ""
        if len(kinds) > 1:
            cards += ", ".join(f"{n} x {kind}" if n > 1 else kind for kind, n in kinds.items())
        else:
            cards += next(iter(kinds))
        notes.reasons.append(cards)
    if facts.cpu and facts.cpu.model:
        cores = f", {facts.cpu.cores} cores" if facts.cpu.cores else ""
        notes.reasons.append(f"CPU {facts.cpu.model}{cores}: {level or 'level not known'}")
    elif level:
        notes.reasons.append(f"the CPU is {level}")
    if level is None:
        notes.reasons.append("the CPU's level is not known, so the recipe that asks least is taken")
    notes.reasons.append(f"recipe {chosen.name}: {chosen.why}")
    if chosen.exact:
        numbers = _numbers(usable)
        option = "--gpu" if len(numbers) == 1 else "--cuda-arch"
        notes.reasons.append(f"GPU code for {', '.join(numbers)}: {option}")
    if level and _below(level, chosen.cpu):
        notes.reasons.append(
            f"CPU code for {level} in place of {chosen.cpu} ({_lack(facts, chosen.cpu)}): "
            "--set target.cpu"
        )


def _unused(level: CpuLevel | None, flags: frozenset[str], chosen: Rule | None) -> Iterator[str]:
    """Yield what the processor has and a recipe of one level leaves unused."""
    way = "`--set target.variants=true` adds" if chosen and chosen.gpu else "recipe `cpu` has"
    if level == "x86-64-v4":
        yield f"AVX-512 is there: {way} code that uses it"
    for flag, isa in (("avx_vnni", "avx-vnni"), ("avx512_vnni", "avx512-vnni")):
        if flag in flags:
            yield f"{isa} is there: {way} code that uses it"
            break


def _hints(
    facts: Facts,
    level: CpuLevel | None,
    cards: list[_Card],
    chosen: Rule | None,
    available: Collection[str],
) -> Iterator[str]:
    for card in cards:
        if card.why_not:
            yield f"{card} is not used: {card.why_not}"
    known = [card for card in cards if not card.why_not]
    for card in known:
        if card.capability and card.capability < (6, 1):
            yield (
                f"{card} is older than every GPU recipe: none has code for it as it is, and what "
                "--cuda-arch builds for it was not tried"
            )
    if len({card.capability for card in known}) > 1:
        yield "several kinds of cards: CUDA_VISIBLE_DEVICES can pick one"
    if chosen and chosen.gpu and any((card.facts.vram_gb or 99) < 4 for card in known):
        yield "with less than 4 GB of GPU memory only part of a model fits there (--n-gpu-layers)"
    others = [card for card in facts.cards() if card.vendor in ("amd", "intel") and not known]
    if others and not cards:
        yield f"{others[0].name or 'the graphics chip'} is not used: the recipes know CUDA only"
    flags = frozenset(facts.cpu.flags if facts.cpu else ())
    if facts.virtual and level in ("x86-64", "x86-64-v2") and not facts.is_wsl:
        yield "a virtual machine may hide AVX2: pass the host's CPU through (CPU type `host`)"
    if chosen is None or chosen.name != "cpu":
        yield from _unused(level, flags, chosen)
    blas = _table()["openblas"]
    cores = facts.cpu.cores if facts.cpu and facts.cpu.cores else 0
    if (
        chosen
        and not chosen.gpu
        and level not in (None, *upto("x86-64-v2"))
        and cores >= blas["cores"]
    ):
        once = "" if blas["name"] in available else " (once it exists)"
        yield f"recipe {blas['name']}{once}: {blas['offer']}"
    if facts.memory_gb and facts.memory_gb < 8:
        half = facts.memory_gb / 2
        yield f"{facts.memory_gb:.1f} GB of memory: models of up to about {half:.0f} GB"
    if facts.disk == "hdd":
        yield "models load slowly from a hard disk: keep them on an SSD"
    if facts.is_wsl:
        yield "for a zip that runs on the Windows side add --os windows"
    if cores and facts.cpu and facts.cpu.threads and facts.cpu.threads > cores:
        yield f"--threads {cores} (the physical cores) is mostly the fastest on the CPU"
