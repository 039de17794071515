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

from qbuild.recipe.isa import LEVELS

_V3: Final = LEVELS["x86-64-v3"]
_V4: Final = LEVELS["x86-64-v4"]

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
"""CPU models that qemu-user can play (none has AVX-512) → the variant that is to be chosen there."""

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
    needs = set(LEVELS[level])
    return tuple(name for name, extensions in VARIANTS.items() if needs <= set(extensions))


def extensions_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the variants among files: name → extensions, sorted, as manifests hold them."""
    found = {name: variant_of(name) for name in files}
    return {name: sorted(VARIANTS[variant]) for name, variant in found.items() if variant}
