"""Keys that load and mislead: ids beyond the vocabulary, positions counted another way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qbuild.modelfile.header import Header, List
from qbuild.modelfile.shape import Shape
from qbuild.modelfile.text import printable
from qbuild.modelfile.trap import Trap

_IDS: Final = ".control_token_ids"
"""What the tool-call parser of qbuild's series reads from any key that ends so."""
_BASES: Final = {"qwen35": 10_000_000.0, "qwen35moe": 10_000_000.0, "qwen3next": 10_000_000.0}
"""Architecture → RoPE base of its published models; without the key llama.cpp counts with
10,000, and long contexts turn to noise.

From `rope_parameters.rope_theta` of Qwen3.5's config.json, as public reports quote it, and from a
training configuration of the 27B (THUDM/slime, scripts/models/qwen3.5-27B.sh: `--rotary-base
10000000`); Qwen3-Next's was not looked up.
"""
_DEFAULT: Final = 10_000.0
_MOST: Final = 4096


def key_traps(head: Header, shape: Shape) -> Iterator[Trap]:
    """Yield keys that llama.cpp takes, and which make answers worse."""
    yield from _rope(head, shape)
    for key in head.keys:
        if key.endswith(_IDS):
            yield from _ids(head, key, shape.vocabulary)


def _rope(head: Header, shape: Shape) -> Iterator[Trap]:
    wanted = _BASES.get(shape.arch)
    found = head.number(f"{shape.arch}.rope.freq_base")
    if wanted and (found is None or found <= _DEFAULT):
        said = "does not say" if found is None else f"says {found:,.0f} as"
        yield Trap(
            id="rope-base",
            severity="warning",
            what=f"the file {said} the base of its positions (RoPE): llama.cpp counts with "
            f"{found or _DEFAULT:,.0f}, models of this kind were trained with {wanted:,.0f}",
            fix=f"get a newer conversion, or start with --rope-freq-base {wanted:.0f}",
        )


def _ids(head: Header, key: str, vocabulary: int) -> Iterator[Trap]:
    value = head.keys[key]
    what = ""
    if not isinstance(value, List) or value.kind in (6, 7, 8, 12) or value.count > _MOST:
        what = "is no list of whole numbers"
    elif wrong := [
        each for each in head.items(key, most=_MOST) if not 0 <= each < (vocabulary or 1 << 31)
    ]:
        what = f"names token {wrong[0]}, the vocabulary has {vocabulary:,}"
    if what:
        yield Trap(
            id="control-ids",
            severity="warning",
            what=f"`{printable(key, 80)}` {what}: the tool-call parser finds no tags by it",
            fix="get the file again, or another conversion; --tool-call-format names the format",
        )
