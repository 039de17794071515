"""From a processor's feature flags to its x86-64 psABI level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbuild.doctor.machine_facts import CpuFacts
from qbuild.recipe.levels import LEVELS, NAMES, CpuLevel, upto


def level_of_flags(flags: frozenset[str]) -> CpuLevel:
    """Return the highest level whose features are all there.

    Linux leaves AVX out of its list when the system (or a hypervisor) does not save its
    registers, so the list tells what may be used, not what the silicon has.
    """
    level: CpuLevel = "x86-64"
    for each in NAMES[1:]:
        if not flags.issuperset(LEVELS[each].flags):
            break
        level = each
    return level


def level_of(cpu: CpuFacts) -> CpuLevel | None:
    """Return a processor's level: by its flags, else as it was written down."""
    return level_of_flags(frozenset(cpu.flags)) if cpu.flags else cpu.level


def missing_for(cpu: CpuFacts, level: CpuLevel) -> tuple[str, ...]:
    """Return the features that a processor lacks for a level; nothing if its flags are unknown."""
    if not cpu.flags:
        return ()
    needed = (flag for each in upto(level) for flag in LEVELS[each].flags)
    return tuple(flag for flag in needed if flag not in cpu.flags)


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
