"""Which part of a model goes where on a machine, and the flags that say so.

Pure arithmetic. How llama.cpp shares a model out: `--n-gpu-layers N` puts the output layer and the
last N - 1 layers on the GPU, with what these layers remember; `--n-cpu-moe M` leaves the experts of
the first M layers on the CPU; the token embeddings always stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from qbuild.modelfile.machine import Budget
from qbuild.modelfile.memory import (
    Context,
    Weights,
    cache_fits,
    compute_estimate,
    kept_bytes,
    layer_bytes,
)
from qbuild.modelfile.shape import Shape

CONTEXTS: Final = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_WANTED_GPU: Final = 32768
_WANTED_CPU: Final = 8192  # a CPU reads long prompts slowly

Where = Literal["gpu", "experts", "partly", "cpu"]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a model lies, run with one context."""

    context: Context  # how it is run
    # ``gpu``: all of it there; ``experts``: all but experts; ``partly``: some layers; ``cpu``:
    # nothing on a GPU
    where: Where
    gpu_layers: int  # --n-gpu-layers
    cpu_moe: int  # --n-cpu-moe
    gpu: int  # bytes on the GPU, the estimate for computing among them
    ram: int  # bytes in main memory, the same
    fits: bool | None  # main memory has room for its part; ``None``: not known


def place(shape: Shape, weights: Weights, context: Context, budget: Budget) -> Placement:
    """Return the placement that puts most on the GPU."""
    return _Placer(shape=shape, weights=weights, context=context, budget=budget).best()


@dataclass(frozen=True, kw_only=True)
class _Placer:
    shape: Shape
    weights: Weights
    context: Context
    budget: Budget

    def best(self) -> Placement:
        weights = self.weights
        kept = [layer_bytes(each, self.shape, self.context) for each in self.shape.layers]
        everything = weights.total + sum(kept) + self._drafts()
        top = weights.output + weights.tied
        gpu = everything - weights.input + weights.tied
        all_layers = self.shape.count + 1
        if gpu <= self._room(shared=False):
            return self._made("gpu", all_layers, 0, gpu, everything)
        room = self._room(shared=True)
        if any(weights.experts):
            for moe, part in enumerate(weights.experts, 1):
                gpu -= part
                if gpu <= room:
                    return self._made("experts", all_layers, moe, gpu, everything)
        gpu, layers = top, 0
        for layer, remembers in zip(reversed(weights.layers), reversed(kept), strict=True):
            if gpu + layer + remembers > room:
                break
            gpu += layer + remembers
            layers += 1
        if not layers:
            return self._made("cpu", 0, 0, 0, everything)
        moe = len(weights.experts) if any(weights.experts) else 0
        layers += len(self.shape.drafts) + 1
        return self._made("partly", layers, moe, gpu, everything)

    def _drafts(self) -> int:
        if not self.context.mtp:
            return 0
        kept = (layer_bytes(each, self.shape, self.context) for each in self.shape.drafts)
        return self.weights.drafts + sum(kept)

    def _compute(self, *, shared: bool) -> int:
        return compute_estimate(self.shape, self.context, self.weights, shared=shared)

    def _room(self, *, shared: bool) -> int:
        """Return what the cards have for weights and context.

        Each card computes; and a layer lies on one card, so several cannot be filled to the brim.
        """
        cards = len(self.budget.gpus)
        if not cards:
            return -1
        pairs = zip(self.weights.layers, self.weights.experts, strict=True)
        largest = max((a + b for a, b in pairs), default=0)
        return self.budget.gpu - self._compute(shared=shared) * cards - largest * (cards - 1)

    def _made(self, where: Where, layers: int, moe: int, gpu: int, everything: int) -> Placement:
        ram = everything - gpu + self._compute(shared=False)
        if layers:
            ram += self.weights.tied  # the CPU keeps its copy of the token embeddings
            gpu += self._compute(shared=where != "gpu") * len(self.budget.gpus)
        return Placement(
            context=self.context,
            where=where,
            gpu_layers=layers,
            cpu_moe=moe,
            gpu=gpu,
            ram=ram,
            fits=None if self.budget.ram is None else ram <= self.budget.ram,
        )


def contexts(shape: Shape) -> tuple[int, ...]:
    """Return the context sizes worth a line: powers of two up to the model's own."""
    below = [each for each in CONTEXTS if each < shape.context]
    return (*below, shape.context)


def suggest(
    shape: Shape,
    weights: Weights,
    budget: Budget,
    *,
    types: Sequence[str],
    tokens: int | None = None,
    slots: int = 1,
) -> Placement:
    """Return the placement to start with.

    With a GPU: 32768 tokens, or less where only then everything lies on the GPU, or more where
    there is room for more. What does not fit goes to the CPU: experts first. On the CPU: 8192.

    Args:
        shape: The model's dimensions.
        weights: Its weights.
        budget: The machine.
        types: Cache types to try, largest first.
        tokens: Context size that is wanted; ``None``: a sensible one.
        slots: Conversations at once.
    """
    usable = [each for each in types if cache_fits(shape, each)] or ["f16"]

    def at(size: int, kind: str) -> Placement:
        context = Context(tokens=size, keys=kind, values=kind, slots=slots)
        return place(shape, weights, context, budget)

    if tokens is not None:
        tried = [at(tokens, kind) for kind in usable]
        return next((each for each in tried if _good(each)), tried[0])
    wanted = _WANTED_GPU if budget.gpu else _WANTED_CPU
    ladder = [each for each in reversed(contexts(shape)) if each <= wanted] or [shape.context]
    for size in ladder:
        for kind in usable[:2]:
            found = at(size, kind)
            if _good(found):
                return _larger(found, shape, at)
    for kind in usable[:2]:
        found = at(ladder[0], kind)
        if found.where == "experts" and found.fits is not False:
            return found
    return at(min(ladder[0], _WANTED_CPU), usable[0])


def _good(found: Placement) -> bool:
    if found.where == "cpu" and found.gpu_layers == 0 and found.fits is not False:
        return True
    return found.where == "gpu" and found.fits is not False


def _larger(found: Placement, shape: Shape, at: Callable[[int, str], Placement]) -> Placement:
    """Return the largest context that fits as well, where there is a GPU with room."""
    if found.where != "gpu":
        return found
    for size in reversed(contexts(shape)):
        if size <= found.context.tokens:
            break
        larger = at(size, found.context.keys)
        if _good(larger):
            return larger
    return found


def flags(found: Placement) -> list[str]:
    """Return the flags of a placement, for llama-server and llama-cli."""
    context = found.context
    words = ["--ctx-size", str(context.tokens)]
    words += ["--n-gpu-layers", str(found.gpu_layers)]
    if found.cpu_moe:
        words += ["--n-cpu-moe", str(found.cpu_moe)]
    if context.keys != "f16":
        words += ["--cache-type-k", context.keys]
    if context.values != "f16":
        words += ["--cache-type-v", context.values]
    return [*words, "--parallel", str(context.slots)]


def rows(
    shape: Shape, weights: Weights, budget: Budget, *, types: Sequence[str], slots: int
) -> Iterator[tuple[int, dict[str, int], Placement]]:
    """Yield context size, what is kept by cache type, and the placement with the first type."""
    usable = [each for each in types if cache_fits(shape, each)] or ["f16"]
    for size in contexts(shape):
        context = Context(tokens=size, slots=slots, keys=usable[0], values=usable[0])
        kept = {
            kind: kept_bytes(shape, replace(context, keys=kind, values=kind)) for kind in usable
        }
        yield size, kept, place(shape, weights, context, budget)


def demand(
    shape: Shape, weights: Weights, context: Context, *, gpu_layers: int | None, cpu_moe: int
) -> tuple[int, int]:
    """Return the bytes on the GPU and in main memory that given flags take.

    Args:
        shape: The model's dimensions.
        weights: Its weights.
        context: How it is run.
        gpu_layers: --n-gpu-layers; ``None``: all of them.
        cpu_moe: --n-cpu-moe: the first so many layers keep their experts on the CPU.
    """
    count = len(weights.layers)
    wanted = shape.count + 1 if gpu_layers is None else gpu_layers
    if wanted <= 0:
        kept = sum(layer_bytes(each, shape, context) for each in shape.layers)
        estimate = compute_estimate(shape, context, weights, shared=False)
        return 0, weights.total + kept + estimate
    # the output layer is the first that goes there, then layers from the last one on; those that
    # draft are counted among them
    first = max(0, count - max(0, wanted - 1 - len(shape.drafts)))
    gpu, ram = weights.output + weights.tied, weights.input
    for number, layer in enumerate(shape.layers):
        kept = layer_bytes(layer, shape, context)
        if number >= first:
            gpu += weights.layers[number] + kept
            gpu += weights.experts[number] if number >= cpu_moe else 0
            ram += weights.experts[number] if number < cpu_moe else 0
        else:
            ram += weights.layers[number] + weights.experts[number] + kept
    shared = first > 0 or (cpu_moe > 0 and any(weights.experts))
    gpu += compute_estimate(shape, context, weights, shared=shared)
    return gpu, ram + compute_estimate(shape, context, weights, shared=False)
