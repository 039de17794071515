"""Which quantisation a file really has, and whether its name agrees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from qbuild.modelfile.parts import Model
from qbuild.modelfile.tables import table, types_by_name

_IN_NAME: Final = re.compile(
    r"(?:^|[-._ ])(UD-)?"
    r"(I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|F16|F32|FP16|MXFP4|NVFP4)(?=$|[-._ ])",
    re.I,
)
_SPELLED: Final = {"FP16": "F16", "MXFP4": "MXFP4_MOE"}
_FAR: Final = 1.35


@dataclass(frozen=True, kw_only=True)
class Quant:
    """How a model's weights are stored."""

    said: str | None  # what the header says (general.file_type), e.g. ``Q4_K_M``
    named: str | None  # what the file's name says
    mix: tuple[tuple[str, float], ...]  # tensor type → share of the weights' bytes, largest first
    bits: float  # bits per weight over all tensors
    block_bits: float  # the same within the layers only: what quantisation names promise


def quant_of(model: Model) -> Quant:
    """Return how a model's weights are stored.

    Raises:
        ModelError: general.file_type is no number.
    """
    bytes_of: dict[str, int] = {}
    values = size = block_values = block_size = 0
    for tensor in model.tensors:
        bytes_of[tensor.type.name] = bytes_of.get(tensor.type.name, 0) + tensor.size
        values += tensor.values
        size += tensor.size
        if len(tensor.shape) > 1 and tensor.name.startswith("blk."):
            block_values += tensor.values
            block_size += tensor.size
    number = model.head.integer("general.file_type")
    said = None if number is None else table()["file_types"].get(str(number & ~1024))
    shares = sorted(bytes_of.items(), key=lambda item: -item[1])
    return Quant(
        said=said,
        named=name_says(model.path.name, said),
        mix=tuple((name, part / size) for name, part in shares) if size else (),
        bits=size * 8 / values if values else 0.0,
        block_bits=block_size * 8 / block_values if block_values else 0.0,
    )


def name_says(name: str, said: str | None = None) -> str | None:
    """Return the quantisation in a file's name.

    Args:
        name: The file's name.
        said: What the header says; taken when it is one of several in the name, else the last is.
    """
    found = [
        ("UD-" if dynamic else "") + _SPELLED.get(kind.upper(), kind.upper())
        for dynamic, kind in _IN_NAME.findall(name.removesuffix(".gguf"))
    ]
    if said in found:
        return said
    return found[-1] if found else None


def expected_bits(name: str) -> float | None:
    """Return the bits per weight that a quantisation's name promises; ``None``: not known.

    Q4_K_M is mostly q4_K; some tensors get more. IQ3_M and the like have no type of their own.
    """
    kind = re.sub(r"^UD-|_MOE$", "", name)
    types = {each.upper(): bits.bits for each, bits in types_by_name().items()}
    short = re.sub(r"_(XXS|XS|XL|S|M|L)$", "", kind)
    digit = re.match(r"I?Q([1-8])", kind)
    guess = float(digit[1]) + 0.5 if digit else None
    return types.get(kind, types.get(short, guess))


def disagrees(quant: Quant) -> str | None:
    """Return how the name and the content disagree; ``None``: they do not.

    A dynamic quantisation (UD-…) gives each tensor what it needs, so only its bits are compared,
    and generously.
    """
    named = quant.named
    if named is None:
        return None
    plain = named.removeprefix("UD-")
    known = table()["file_types"].values()
    if quant.said and quant.said != named and named in known:
        return f"the name says {named}, the header says {quant.said}"
    bits = expected_bits(plain)
    if bits and quant.block_bits:
        ratio = quant.block_bits / bits
        if ratio < 1 / _FAR or ratio > _FAR * (1.25 if named.startswith("UD-") else 1.15):
            return (
                f"the name says {named} (about {bits:.1f} bits per weight), the layers have "
                f"{quant.block_bits:.1f}"
            )
    return None
