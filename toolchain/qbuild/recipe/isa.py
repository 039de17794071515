"""ggml's instruction-set switches.

ggml turns AVX and its friends on by default only for native builds without SOURCE_DATE_EPOCH, so
a recipe that left a switch to ggml would build different code on different machines. Every switch
is therefore written down, on or off, for every recipe.

Switch names: the options in ``ggml/CMakeLists.txt`` of the pinned commit.
"""

from __future__ import annotations

from collections.abc import Iterable

from qbuild.recipe.convert import KeyProblem, suggest
from qbuild.recipe.levels import LEVELS

EXTENSIONS = {
    "sse4.2": "GGML_SSE42",
    "avx": "GGML_AVX",
    "f16c": "GGML_F16C",
    "bmi2": "GGML_BMI2",
    "fma": "GGML_FMA",
    "avx2": "GGML_AVX2",
    "avx-vnni": "GGML_AVX_VNNI",
    "avx512": "GGML_AVX512",
    "avx512-vbmi": "GGML_AVX512_VBMI",
    "avx512-vnni": "GGML_AVX512_VNNI",
    "avx512-bf16": "GGML_AVX512_BF16",
    "amx-tile": "GGML_AMX_TILE",
    "amx-int8": "GGML_AMX_INT8",
    "amx-bf16": "GGML_AMX_BF16",
}
"""Extension name in a recipe → ggml's switch."""

GGML_SWITCHES = frozenset(EXTENSIONS.values())

_NEEDS = {
    "f16c": ("avx",),
    "fma": ("avx",),
    "avx2": ("avx",),
    "avx-vnni": ("avx2",),
    "avx512": ("avx2", "fma", "f16c"),
    "avx512-vbmi": ("avx512",),
    "avx512-vnni": ("avx512",),
    "avx512-bf16": ("avx512",),
}


def check(level: str, extra: Iterable[str]) -> None:
    """Check that the extensions exist and make sense together.

    Raises:
        KeyProblem: An extension is unknown, already in the level, or lacks one it builds on.
    """
    have = set(LEVELS[level].extensions)
    for name in extra:
        path = ("target", "isa")
        if name not in EXTENSIONS:
            raise KeyProblem(
                path,
                f"names `{name}`, which ggml has no switch for",
                suggest(name, EXTENSIONS) or f"one of: {', '.join(EXTENSIONS)}",
            )
        if name in LEVELS[level].extensions:
            raise KeyProblem(path, f"names `{name}`, which {level} already has", "leave it out")
        have.add(name)
    for name in sorted(have):
        missing = [need for need in _NEEDS.get(name, ()) if need not in have]
        if missing:
            raise KeyProblem(
                ("target", "isa"),
                f"names `{name}`, which builds on {', '.join(missing)}",
                "add it, or raise `target.cpu`",
            )


def has_avx512(level: str, extra: Iterable[str]) -> bool:
    """Tell whether a level with these extensions brings AVX-512 code."""
    return "avx512" in (*LEVELS[level].extensions, *extra)


def definitions(level: str) -> tuple[str, ...]:
    """Return what is defined so that code beside ggml keeps to a level, too.

    miniaudio's FLAC decoder (in libmtmd) counts zeros with LZCNT, written as assembly behind a
    CPUID test. LZCNT came with x86-64-v3; without the test (and the SSE code that needs its result)
    the compiler drops the instruction. Guarded or not, verify refuses what is above the level.
    """
    if "avx2" in LEVELS[level].extensions:
        return ()
    return ("MA_DR_FLAC_NO_CPUID", "MA_DR_FLAC_NO_SIMD")


def switches(level: str, extra: Iterable[str]) -> dict[str, bool]:
    """Return every ggml switch with its value, in a fixed order."""
    on = {EXTENSIONS[name] for name in (*LEVELS[level].extensions, *extra)}
    return {option: option in on for option in EXTENSIONS.values()}
