"""The machine a model is to run on, as far as memory is concerned, and what a recipe uses of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from qbuild import resources
from qbuild.cuda.arch import coverage, find_gpu, parse_arch
from qbuild.doctor.detect.cards import capability_of
from qbuild.doctor.machine_facts import Facts, GpuFacts
from qbuild.errors import QbuildError, UsageError
from qbuild.modelfile.memory import GIB
from qbuild.recipe.model import Recipe

_KEPT_FREE_GPU: Final = 1 * GIB
"""What llama.cpp's own --fit leaves free on each card (--fit-target): driver, desktop, CUDA."""
_KEPT_FREE_RAM: Final = 2 * GIB
_NEW_DRIVER: Final = "999.99"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a model may take."""

    gpus: tuple[int, ...] = ()  # usable bytes of each card
    ram: int | None = None  # usable bytes of main memory; ``None``: not known
    notes: tuple[str, ...] = ()  # what a person should know about these numbers

    @property
    def gpu(self) -> int:
        """Usable bytes of all cards together."""
        return sum(self.gpus)


def with_cards(
    facts: Facts, names: Sequence[str], vram_gb: float | None, ram_gb: float | None
) -> tuple[Facts, tuple[str, ...]]:
    """Return facts with other cards or memory than the machine has, and notes.

    Args:
        facts: The machine.
        names: Names of the cards instead of its own; empty: its own.
        vram_gb: Memory of each card in GiB; ``None``: by the card's name.
        ram_gb: Main memory in GiB; ``None``: the machine's.

    Raises:
        UsageError: A card is not known, or its memory is not.
    """
    notes: list[str] = []
    if ram_gb is not None:
        facts = replace(facts, ram_gb=ram_gb, memory_limit_gb=None)
    if names:
        cards = []
        for name in names:
            capability, known = _look_up(name)
            size = vram_gb or _size(name, known, notes)
            # a card that is only thought of has a driver that is new enough
            cards.append(
                GpuFacts(
                    name=name,
                    vendor="nvidia",
                    capability=capability,
                    vram_gb=size,
                    driver=_NEW_DRIVER,
                )
            )
        facts = replace(facts, gpus=tuple(cards))
    elif vram_gb is not None:
        cards = [replace(each, vram_gb=vram_gb) for each in facts.cards()]
        if not cards:
            raise UsageError(
                "--vram is the memory of a card, and the machine has none",
                fix='name it, too: --gpu "GTX 1060"',
            )
        facts = replace(facts, gpus=tuple(cards))
    return facts, tuple(dict.fromkeys(notes))


def _look_up(name: str) -> tuple[str | None, str | None]:
    """Return a card's compute capability and its name in the table."""
    try:
        gpu = find_gpu(name)
    except QbuildError as error:
        raise UsageError(error.what, where="--gpu", fix=error.fix) from error
    return str(gpu.capability), gpu.name


def _size(name: str, known: str | None, notes: list[str]) -> float:
    sizes = resources.read_table("gpu-memory.toml")["memory"].get(known)
    if not sizes:
        raise UsageError(
            f"how much memory {name} has is not in the table", where="--gpu", fix="add --vram GB"
        )
    if len(sizes) > 1:
        others = ", ".join(str(each) for each in sizes[1:])
        notes.append(f"{name} comes with {sizes[0]} GB (taken) or {others}: --vram says which")
    return float(sizes[0])


def uses_gpu(recipe: Recipe) -> bool:
    """Tell whether a recipe's bundle computes on NVIDIA cards."""
    cuda = getattr(recipe, "cuda", None)
    return bool(
        getattr(cuda, "architectures", ())
        or recipe.toolchain.name in ("nvcc", "clang-cuda")
        or recipe.build.options.get("GGML_CUDA")
    )


def cache_types(recipe: Recipe) -> tuple[str, ...]:
    """Return the cache types worth offering, largest first.

    On a GPU flash attention has kernels for those that the recipe names, on the CPU for all.
    """
    if not uses_gpu(recipe):
        return ("f16", "q8_0", "q4_0")
    cuda = getattr(recipe, "cuda", None)
    pairs = getattr(cuda, "kv_cache", ("q4_0-q4_0", "q8_0-q8_0"))
    return ("f16", *(each for each in ("q8_0", "q4_0") if f"{each}-{each}" in pairs))


def budget_of(facts: Facts, recipe: Recipe | None) -> Budget:
    """Return what a model may take of a machine with a recipe's bundle.

    Args:
        facts: The machine.
        recipe: The bundle's recipe; ``None``: not known, every NVIDIA card counts.
    """
    notes: list[str] = []
    cards: list[int] = []
    if recipe is None or uses_gpu(recipe):
        for card in facts.cards():
            if card.vendor not in ("nvidia", None):
                continue
            name = card.name or "the card"
            if not card.vram_gb:
                notes.append(f"how much memory {name} has is not known: --vram GB says it")
                continue
            if recipe is not None and not _runs_on(recipe, card):
                notes.append(f"recipe {recipe.name} has no code for {name}")
                continue
            whole = int(card.vram_gb * GIB)
            cards.append(whole - min(_KEPT_FREE_GPU, whole // 4))
    elif any(card.vendor == "nvidia" for card in facts.cards()):
        notes.append(f"recipe {recipe.name} uses no GPU")
    ram = None
    if facts.memory_gb is not None:
        whole = int(facts.memory_gb * GIB)
        ram = whole - min(_KEPT_FREE_RAM, whole // 4)
    return Budget(gpus=tuple(cards), ram=ram, notes=tuple(notes))


def _runs_on(recipe: Recipe, card: GpuFacts) -> bool:
    """Tell whether a bundle has code for a card; where that is not known, it is taken to."""
    named = getattr(getattr(recipe, "cuda", None), "architectures", ())
    capability = capability_of(card)
    if not named or capability is None:
        return True
    try:
        archs = [parse_arch(each) for each in named]
        return coverage(archs, find_gpu(capability).capability)[0] != "none"
    except QbuildError:
        return True
