"""From a processor's feature flags to its x86-64 psABI level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbuild.doctor.machine_facts import CpuFacts, Level

LEVELS: Final[tuple[Level, ...]] = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
"""The System V ABI's micro-architecture levels, each of which includes the ones before it."""

NEEDS: Final[dict[Level, tuple[str, ...]]] = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"),
    "x86-64-v3": ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
"""What a level adds, in the spelling of Linux's /proc/cpuinfo (pni is SSE3, abm brings LZCNT)."""


def level_of_flags(flags: frozenset[str]) -> Level:
    """Return the highest level whose features are all there.

    Linux leaves AVX out of its list when the system (or a hypervisor) does not save its
    registers, so the list tells what may be used, not what the silicon has.
    """
    level: Level = "x86-64"
    for each in LEVELS[1:]:
        if not flags.issuperset(NEEDS[each]):
            break
        level = each
    return level


def level_of(cpu: CpuFacts) -> Level | None:
    """Return a processor's level: by its flags, else as it was written down."""
    return level_of_flags(frozenset(cpu.flags)) if cpu.flags else cpu.level


def missing_for(cpu: CpuFacts, level: Level) -> tuple[str, ...]:
    """Return the features that a processor lacks for a level; nothing if its flags are unknown."""
    if not cpu.flags:
        return ()
    upto = LEVELS[: LEVELS.index(level) + 1]
    return tuple(flag for each in upto for flag in NEEDS[each] if flag not in cpu.flags)


PROCESSOR_FEATURES: Final[Mapping[int, str]] = {
    13: "pni",
    14: "cx16",
    17: "xsave",
    36: "ssse3",
    37: "sse4_1",
    38: "sse4_2",
    39: "avx",
    40: "avx2",
    41: "avx512f",
    60: "bmi2",
}
"""PF_… numbers of Windows' IsProcessorFeaturePresent (winnt.h) → the same feature's Linux name."""

_WITH_SSE42 = ("popcnt", "lahf_lm")
_WITH_AVX2 = ("bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_WITH_AVX512F = ("avx512bw", "avx512cd", "avx512dq", "avx512vl")


def flags_from_windows(present: Mapping[int, bool]) -> tuple[str, ...]:
    """Return Linux-style flags from what IsProcessorFeaturePresent says.

    Windows cannot be asked for FMA, F16C, BMI1, LZCNT and MOVBE, nor for parts of AVX-512. Every
    Intel and AMD processor with AVX2 has the former (Haswell, Excavator, Zen), and every one with
    AVX-512F but Knights Landing has the latter, so they are taken as present.

    Args:
        present: Number of a feature → answer. Windows before 10 2004 says no to 36 and up.
    """
    flags = {name for number, name in PROCESSOR_FEATURES.items() if present.get(number)}
    flags.update(_WITH_SSE42 if "sse4_2" in flags else ())
    flags.update(_WITH_AVX2 if "avx2" in flags else ())
    flags.update(_WITH_AVX512F if "avx512f" in flags else ())
    return tuple(sorted(flags))
