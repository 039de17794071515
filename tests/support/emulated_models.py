"""Tiny models with random weights, of every kind that the emulated GPU's tokens are compared for.

    python -m tests.support.emulated_models DIR

writes one GGUF file per kind and tensor type. The weights come from SHAKE-256 and are scaled so
that activations stay near one: what a model says is noise, the same noise on both backends.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from qbuild.modelfile.tables import types_by_name
from support import gguf_files as g

Make = Callable[..., tuple[g.Keys, g.Tensors]]

KINDS: Final[dict[str, tuple[Make, dict[str, int]]]] = {
    "dense": (g.qwen3, {"layers": 2}),
    "experts": (g.qwen3moe, {"layers": 2}),
    "delta-net": (g.qwen35, {"layers": 4, "drafts": 0}),
    "drafts": (g.qwen35, {"layers": 4, "drafts": 1}),
}
TYPES: Final = ("f16", "q4_0", "q4_K", "q6_K", "q8_0", "iq4_xs", "mxfp4")

_SPREAD: Final = 0.06
"""Standard deviation of a weight: one over the root of 256 inputs."""

# Where a block keeps its scale, and the half float there that makes its random bytes spread so.
_SCALES: Final = {
    "q4_0": ((0, 0.0135),), "q8_0": ((0, 0.0008),), "q4_K": ((0, 0.0004), (2, 0.0029)),
    "q6_K": ((208, 6.2e-5),), "iq4_xs": ((0, 6.2e-5),),
}  # fmt: skip


def _bytes(label: str, count: int) -> np.ndarray:
    raw = hashlib.shake_256(f"qbuild emulated model: {label}".encode()).digest(count)
    return np.frombuffer(raw, dtype=np.uint8)


def _normal(label: str, count: int) -> np.ndarray:
    """Return about normally distributed numbers: sums of eight bytes."""
    sums = _bytes(label, count * 8).reshape(count, 8).astype(np.float32).sum(axis=1)
    return (sums - 1020.0) / 209.0


def weights(name: str, shape: tuple[int, ...], kind: str) -> bytes:
    """Return a tensor's bytes."""
    count = int(np.prod(shape))
    if kind == "f32":
        return _vector(name, count).astype("<f4").tobytes()
    if kind == "f16":
        return (_normal(name, count) * _SPREAD).astype("<f2").tobytes()
    if kind == "bf16":
        bits = (_normal(name, count) * _SPREAD).astype("<f4").view("<u4")
        return (bits >> 16).astype("<u2").tobytes()
    type_ = types_by_name()[kind]
    blocks = _bytes(name, count // type_.block * type_.bytes).reshape(-1, type_.bytes).copy()
    for at, scale in _SCALES.get(kind, ()):
        blocks[:, at : at + 2] = np.frombuffer(struct.pack("<e", scale), dtype=np.uint8)
    if kind == "mxfp4":
        blocks[:, 0] = 121  # a power of two: E8M0 of ggml, 2**(121 - 128) per half unit
    return blocks.tobytes()


def _vector(name: str, count: int) -> np.ndarray:
    """Return what a tensor of 32-bit floats holds: norms are one, the rest is small."""
    noise = _normal(name, count)
    if "norm" in name:
        return np.ones(count, dtype=np.float32)
    if name.endswith("ssm_a"):
        return -0.1 - np.abs(noise) * 0.2  # decay: a negative number
    if "conv1d" in name:
        return noise * 0.3
    return noise * _SPREAD


def _fitting(shape: tuple[int, ...], kind: str) -> str:
    """Return a tensor's type: q8_0 where a row is no whole number of blocks."""
    return kind if shape[0] % types_by_name()[kind].block == 0 else "q8_0"


def write(path: Path, kind: str, type_: str) -> Path:
    """Write one model.

    Args:
        path: The file.
        kind: One of :data:`KINDS`.
        type_: Type of its matrices: one of :data:`TYPES`, or ``f32`` or ``bf16``.
    """
    make, options = KINDS[kind]
    return fill(path, kind, *make(type_, **options))


def fill(path: Path, label: str, keys: g.Keys, described: g.Tensors) -> Path:
    """Write a file whose tensors hold random numbers that the label names."""
    tensors = [(name, shape, _fitting(shape, each)) for name, shape, each in described]
    header, size = g.header(keys, tensors)
    with path.open("wb") as out:
        out.write(header)
        for name, shape, tensor_type in tensors:
            data = weights(f"{label} {name}", shape, tensor_type)
            out.write(data + bytes(-len(data) % g.ALIGN))
        out.truncate(len(header) + size)
    return path


def lora(path: Path, type_: str, *, rank: int = 16) -> Path:
    """Write an adapter for the first layer of the dense model."""
    keys: g.Keys = {
        "general.architecture": "qwen3",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(rank),
    }
    tensors: g.Tensors = []
    for name, inner, outer in (
        ("attn_q", g.EMBEDDING, g.HEADS * g.HEAD),
        ("ffn_up", g.EMBEDDING, g.FEED),
        ("ffn_down", g.FEED, g.EMBEDDING),
    ):
        tensors.append((f"blk.0.{name}.weight.lora_a", (inner, rank), type_))
        tensors.append((f"blk.0.{name}.weight.lora_b", (rank, outer), type_))
    return fill(path, "lora", keys, tensors)


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for type_ in TYPES:
            print(write(folder / f"{kind}-{type_}.gguf", kind, type_))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
