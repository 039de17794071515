"""The file that turns pictures or sound into what a model reads (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbuild.errors import ModelError
from qbuild.modelfile.header import Header, Tensor

_LAST: Final = (
    ("mm.model.peg.0.bias", 0),
    ("mm.model.mb_block.1.block.2.1.bias", 0),
    ("mm.input_projection.weight", 0),
    ("mm.model.fc.weight", 1),
    ("mm.3.weight", 1),
    ("mm.2.weight", 1),
    ("mm.1.bias", 0),
    ("mm.1.weight", 1),
)
"""Tensors that may be a projector's last step, and which side of them is the model's width."""
_FIRST_SIDE: Final = {"gemma3": 0, "gemma3nv": 0}


def is_projector(head: Header) -> bool:
    """Tell whether a file is an mmproj."""
    return head.keys.get("general.architecture") == "clip" or head.keys.get("general.type") == (
        "mmproj"
    )


def projector_kind(head: Header) -> str | None:
    """Return which projector it is, e.g. ``qwen3vl_merger``."""
    for key in ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type"):
        if kind := head.text(key):
            return kind
    return None


def width_of(head: Header) -> int | None:
    """Return the width of the model that a projector was made for; ``None``: not known.

    Raises:
        ModelError: The file is no projector.
    """
    if not is_projector(head):
        raise ModelError(
            "this is no mmproj file",
            where=str(head.path),
            fix="the projector comes from the model's own page, mostly as mmproj-….gguf",
        )
    tensors: Mapping[str, Tensor] = {each.name: each for each in head.tensors}
    kind = projector_kind(head) or ""
    for name, side in _LAST:
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if name == "mm.input_projection.weight":
            side = _FIRST_SIDE.get(kind, 1)
        if side < len(tensor.shape):
            return tensor.shape[side]
    for key in ("clip.vision.projection_dim", "clip.audio.projection_dim"):
        if width := head.integer(key):
            return width
    return None
