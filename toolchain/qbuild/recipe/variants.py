"""The CPU backend in many variants, of which the program loads the best one at start.

ggml builds one library per processor family (``GGML_CPU_ALL_VARIANTS``) and, when a program starts,
opens all of them, asks each for a score and keeps the highest. Names and switches of the variants:
``ggml/src/CMakeLists.txt`` of the pinned commit, the list for x86 with MinGW or on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from qbuild.recipe.levels import LEVELS

_V3: Final = LEVELS["x86-64-v3"].extensions
_V4: Final = LEVELS["x86-64-v4"].extensions

VARIANTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "x64": (),
        "sse42": ("sse4.2",),
        "sandybridge": ("sse4.2", "avx"),
        "ivybridge": ("sse4.2", "avx", "f16c"),
        "piledriver": ("sse4.2", "avx", "f16c", "fma"),
        "haswell": _V3,
        "alderlake": (*_V3, "avx-vnni"),
        "skylakex": _V4,
        "cannonlake": (*_V4, "avx512-vbmi"),
        "cascadelake": (*_V4, "avx512-vnni"),
        "icelake": (*_V4, "avx512-vbmi", "avx512-vnni"),
        "cooperlake": (*_V4, "avx512-vnni", "avx512-bf16"),
        "zen4": (*_V4, "avx512-vbmi", "avx512-vnni", "avx512-bf16"),
        "sapphirerapids": (
            *_V4, "avx512-vbmi", "avx512-vnni", "avx512-bf16", "amx-tile", "amx-int8",
        ),
    }
)  # fmt: skip
"""Variant → the extensions that its code may use."""

QEMU_CPUS: Final[Mapping[str, str]] = MappingProxyType(
    {"Nehalem": "sse42", "SandyBridge": "sandybridge", "IvyBridge": "ivybridge",
     "Haswell": "haswell"}
)  # fmt: skip
"""CPU models of qemu-user, none of which has AVX-512 → the variant that is to be chosen there."""

_FLAGS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {name: frozenset(flags.split()) for name, flags in {
        "sse4.2": "sse4_2", "avx": "avx", "f16c": "f16c", "bmi2": "bmi2", "fma": "fma",
        "avx2": "avx2", "avx-vnni": "avx_vnni",
        "avx512": "avx512f avx512cd avx512vl avx512dq avx512bw",
        "avx512-vbmi": "avx512vbmi", "avx512-vnni": "avx512_vnni", "avx512-bf16": "avx512_bf16",
        "amx-tile": "amx_tile", "amx-int8": "amx_int8",
    }.items()}
)  # fmt: skip
"""Extension → what Linux's /proc/cpuinfo calls what ggml asks CPUID for."""

_SCORES: Final = (
    "fma", "f16c", "sse4.2", "bmi2", "avx", "avx2", "avx-vnni", "avx512", "avx512-vbmi",
    "avx512-bf16", "avx512-vnni", "amx-int8",
)  # fmt: skip
"""Extension → bit of the score that ggml gives for it, by position (``cpu-feats.cpp``)."""

_FILE: Final = re.compile(r"(?:lib)?ggml-cpu-([a-z0-9]+)\.(?:so|dll)")


def variant_of(file_name: str) -> str | None:
    """Return the variant that a file of a bundle is, or nothing when it is none.

    Args:
        file_name: Without folder, e.g. ``libggml-cpu-haswell.so``.
    """
    match = _FILE.fullmatch(file_name)
    return match[1] if match and match[1] in VARIANTS else None


def useful(level: str) -> tuple[str, ...]:
    """Return the variants worth shipping beside programs that need a level themselves.

    A variant that uses less than the level would only be loaded where the program cannot start.
    """
    needs = set(LEVELS[level].extensions)
    return tuple(name for name, extensions in VARIANTS.items() if needs <= set(extensions))


def extensions_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the variants among files: name → extensions, sorted, as manifests hold them."""
    found = {name: variant_of(name) for name in files}
    return {name: sorted(VARIANTS[variant]) for name, variant in found.items() if variant}


def chosen(flags: Iterable[str], level: str) -> str:
    """Return the variant that ggml must load on a processor, by its own arithmetic.

    Args:
        flags: As /proc/cpuinfo lists them: what the system lets programs use.
        level: psABI level of the programs, which decides what ships.
    """
    have = set(flags)

    def score(name: str) -> int:
        wanted = VARIANTS[name]
        if any(not _FLAGS[each] <= have for each in wanted):
            return 0
        return 1 + sum(1 << _SCORES.index(each) for each in wanted if each in _SCORES)

    return max(useful(level), key=score)
