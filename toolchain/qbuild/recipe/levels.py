"""The one table of processor levels: what each adds, how it is told, and what people call it.

Levels are the x86-64 psABI's (System V ABI, micro-architecture levels); each includes the ones
before it. Which instructions a level may use is in ``toolchain/data/cpu-levels.toml``, by the
disassembler's names. To add a level, add it to :data:`CpuLevel`, here and there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

CpuLevel = Literal["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"]

NAMES: Final[tuple[CpuLevel, ...]] = get_args(CpuLevel)  # from the lowest to the highest


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level."""

    extensions: tuple[str, ...]  # what it brings that ggml has a switch for, as recipes name it
    # what it adds to the level before, in the spelling of Linux's /proc/cpuinfo (pni is SSE3, abm
    # brings LZCNT)
    flags: tuple[str, ...]
    shown_by: str  # the flag that tells it from the level before; "": every processor has it
    # the same for Windows: PF_… number of IsProcessorFeaturePresent (winnt.h); 0: every processor
    # that runs 64-bit Windows has it
    windows: int
    qemu: str  # the oldest CPU model of qemu that has it
    qemu_user: bool = True  # whether qemu-user can play it: it has no AVX-512
    short: str  # for one line
    oldest: str  # first processors, from the vendors' product tables
    needs: str  # what a reader of a bundle's README has to have
    instead: str  # what to take where it is missing


_V3: Final = ("sse4.2", "avx", "f16c", "bmi2", "fma", "avx2")

LEVELS: Final[Mapping[str, Level]] = MappingProxyType(
    {
        "x86-64": Level(
            extensions=(),
            flags=(),
            shown_by="",
            windows=0,
            qemu="qemu64",
            short="any 64-bit CPU",
            oldest="every 64-bit PC",
            needs="any 64-bit Intel or AMD processor",
            instead="No recipe of qbuild makes one for it.",
        ),
        "x86-64-v2": Level(
            extensions=("sse4.2",),
            flags=("cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"),
            shown_by="sse4_2",
            windows=38,
            qemu="Nehalem",
            short="SSE4.2 CPU",
            oldest="Intel Nehalem (2008), AMD Bulldozer (2011)",
            needs="a processor with SSE4.2 and POPCNT: Intel Core of the first generation "
            "(Nehalem, 2008) or newer, AMD FX (Bulldozer, 2011) or newer",
            instead='Build a recipe of your own with target.cpu = "x86-64".',
        ),
        "x86-64-v3": Level(
            extensions=_V3,
            flags=("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
            shown_by="avx2",
            windows=40,
            qemu="Haswell",
            short="AVX2 CPU",
            oldest="Intel Haswell (2013), AMD Excavator (2015)",
            needs="a processor with AVX2, FMA, F16C and BMI2: Intel Core of the 4th generation "
            "(Haswell, 2013) or newer, AMD Ryzen or newer. Most Pentium and Celeron models before "
            "2020 lack AVX2",
            instead="Take the bundle of the recipe `baseline` instead.",
        ),
        "x86-64-v4": Level(
            extensions=(*_V3, "avx512"),
            flags=("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
            shown_by="avx512vl",
            windows=41,
            qemu="Skylake-Server",
            qemu_user=False,
            short="AVX-512 CPU",
            oldest="Intel Skylake-X (2017), AMD Zen 4 (2022)",
            needs="a processor with AVX-512 (F, BW, CD, DQ, VL): Intel Xeon Scalable (Skylake-SP, "
            "2017) or newer, AMD Ryzen 7000 (Zen 4) or newer",
            instead="Take the bundle of the recipe `avx2` instead, or `baseline`.",
        ),
    }
)
"""Name → level. Names that strangers wrote may be none of them: see ``get``."""


def upto(name: str) -> tuple[CpuLevel, ...]:
    """Return a level and those below it, the lowest first."""
    return NAMES[: NAMES.index(name) + 1]
