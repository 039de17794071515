"""How many bytes a model takes: weights, and what it keeps per token of context.

Everything here is arithmetic on the header. The sizes are those of llama.cpp's buffers; only
:func:`compute_estimate` is a guess, and called one wherever it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from qbuild.modelfile.header import Tensor
from qbuild.modelfile.shape import Layer, Shape
from qbuild.modelfile.tables import types_by_name

MIB: Final = 1 << 20
GIB: Final = 1 << 30
UBATCH: Final = 512  # llama.cpp's default --ubatch-size
PAD: Final = 256  # it rounds contexts and windows up to this
DRAFT_TOKENS: Final = 3  # its default --spec-draft-n-max
PROMPT_CACHE: Final = 8192 * MIB  # llama-server's default --cache-ram
_BLOCK: Final = re.compile(r"blk\.([0-9]{1,3})\.")
_EXPERTS: Final = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
"""What --n-cpu-moe leaves on the CPU (LLM_FFN_EXPS_REGEX)."""
_INPUT: Final = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
"""What llama.cpp always keeps on the CPU: each token reads one row of it."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """How a model is going to be run."""

    tokens: int  # context size, --ctx-size
    keys: str = "f16"  # cache type of K
    values: str = "f16"  # cache type of V
    slots: int = 1  # conversations at once, --parallel; they share the context
    mtp: bool = False  # draft with the model's own heads (--spec-type draft-mtp)

    @property
    def per_slot(self) -> int:
        """Cells that llama.cpp allots to each conversation."""
        whole = _pad(self.tokens)
        return whole if self.slots == 1 else _pad(max(whole // self.slots, 1))


def _pad(tokens: int) -> int:
    return -(-tokens // PAD) * PAD


def layer_bytes(layer: Layer, shape: Shape, context: Context) -> int:
    """Return what one layer keeps for a context."""
    cells = context.per_slot
    if layer.window:
        cells = _pad(min(cells, shape.window + UBATCH))
    types = types_by_name()
    per_cell = types[context.keys].row(layer.keys) + types[context.values].row(layer.values)
    rows = 1 + (DRAFT_TOKENS if context.mtp else 0)
    return context.slots * (cells * per_cell + rows * layer.state * 4)


def kept_bytes(shape: Shape, context: Context) -> int:
    """Return what all layers keep: KV buffers and recurrent state together."""
    layers = list(shape.layers) + (list(shape.drafts) if context.mtp else [])
    return sum(layer_bytes(each, shape, context) for each in layers)


def cache_fits(shape: Shape, kind: str) -> bool:
    """Tell whether a cache type can be used: its blocks must divide each head."""
    block = types_by_name()[kind].block
    return all(size % block == 0 for size in shape.head_sizes)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where a model's weights belong."""

    input: int  # bytes that stay on the CPU always (the token embeddings)
    output: int  # bytes of the output layer
    layers: tuple[int, ...]  # bytes of each layer without its experts
    experts: tuple[int, ...]  # bytes of each layer's experts
    drafts: int = 0  # bytes of the layers that draft; loaded only when they are used
    # bytes of the token embeddings when they are the output matrix, too: a GPU that holds the
    # output layer holds a second copy
    tied: int = 0

    @property
    def total(self) -> int:
        """Bytes that llama.cpp loads when it does not draft."""
        return self.input + self.output + sum(self.layers) + sum(self.experts)


def weigh(tensors: Iterable[Tensor], shape: Shape) -> Weights:
    """Return where the weights belong."""
    trunk = len(shape.layers)
    layers, experts = [0] * trunk, [0] * trunk
    entry = output = drafts = tied = 0
    own_output = False
    for tensor in tensors:
        match = _BLOCK.match(tensor.name)
        if match:
            number = int(match[1])
            if number >= trunk:
                drafts += tensor.size
            elif _EXPERTS.search(tensor.name):
                experts[number] += tensor.size
            else:
                layers[number] += tensor.size
        elif tensor.name.startswith(_INPUT):
            entry += tensor.size
            if tensor.name == "token_embd.weight":
                tied = tensor.size
        else:
            output += tensor.size
            own_output = own_output or tensor.name == "output.weight"
    return Weights(
        input=entry,
        output=output,
        layers=tuple(layers),
        experts=tuple(experts),
        drafts=drafts,
        tied=0 if own_output else tied,
    )


def compute_estimate(shape: Shape, context: Context, weights: Weights, *, shared: bool) -> int:
    """Return a guess at the buffer for intermediate results.

    The attention mask, some vectors per token of a batch, and the output row. A GPU that reads a
    batch with weights from main memory copies them over layer by layer, so a layer counts as well.

    Args:
        shape: The model's dimensions.
        context: How it is run.
        weights: Its weights.
        shared: Some layers or experts lie in main memory, others on a GPU.
    """
    mask = context.per_slot * UBATCH * 2
    stream = shape.embedding * UBATCH * 4 * 10
    logits = shape.vocabulary * 4 * context.slots
    largest = max((a + b for a, b in zip(weights.layers, weights.experts, strict=True)), default=0)
    return mask + stream + logits + (largest if shared else 0)
