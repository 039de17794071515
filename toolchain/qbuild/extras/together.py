"""Whether servers that run side by side fit a machine, counted as `qbuild model` counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbuild.bundle.launch.profile import profiles_of
from qbuild.errors import ModelError, UsageError
from qbuild.modelfile.fit import demand, place
from qbuild.modelfile.machine import Budget
from qbuild.modelfile.memory import Context
from qbuild.modelfile.summary import Summary, amount, summarise
from qbuild.recipe.model import FlagValue, Launch, Recipe


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one server takes."""

    name: str  # its profile
    model: str  # the model's file
    gpu: int  # bytes on the GPU
    ram: int  # bytes in main memory


def profiles_together(recipe: Recipe, name: str) -> dict[str, Launch]:
    """Return the servers that a profile starts together, or the one that it is.

    Raises:
        UsageError: The recipe has no such profile.
    """
    profiles = profiles_of(recipe)
    if name not in profiles:
        raise UsageError(
            f"recipe `{recipe.name}` has no launch profile `{name}`",
            fix=f"one of: {', '.join(profiles) or 'none'}",
        )
    profile = profiles[name]
    return {each: profiles[each] for each in profile.starts} or {name: profile}


def shares(profiles: Mapping[str, Launch], folder: Path, budget: Budget) -> list[Share]:
    """Return what each server takes; those with `auto` layers get what the others leave.

    Args:
        profiles: Name → profile.
        folder: The unpacked bundle, below which the models lie.
        budget: What the machine has for models.

    Raises:
        ModelError: A model is missing or damaged.
    """
    found: dict[str, Share] = {}
    left = Budget(gpus=budget.gpus, ram=budget.ram)
    ordered = sorted(profiles.items(), key=lambda row: row[1].flags.get("n-gpu-layers") == "auto")
    for name, profile in ordered:
        path = folder / profile.model
        if not path.is_file():
            raise ModelError(
                f"profile `{name}` starts a model that is not there",
                where=str(path),
                fix="put it there, or name the folder with --models: what fits is counted from it",
            )
        share = _share(name, profile, summarise(path), left)
        found[name] = share
        left = Budget(
            gpus=_less(left.gpus, share.gpu),
            ram=None if left.ram is None else max(0, left.ram - share.ram),
        )
    return [found[name] for name in profiles]


def _less(gpus: tuple[int, ...], taken: int) -> tuple[int, ...]:
    """Return what the cards have left; what one card lacks is taken from the next."""
    rest = []
    for each in gpus:
        part = min(each, taken)
        taken -= part
        rest.append(each - part)
    return tuple(rest)


def _share(name: str, profile: Launch, summary: Summary, left: Budget) -> Share:
    shape, weights = summary.shape, summary.weights
    if shape is None or weights is None:
        raise ModelError(
            f"this is {summary.special}, no model to serve", where=summary.model.path.name
        )
    flags = profile.flags
    context = Context(
        tokens=_number(flags.get("ctx-size"), shape.context),
        keys=str(flags.get("cache-type-k", "f16")),
        values=str(flags.get("cache-type-v", "f16")),
        slots=_number(flags.get("parallel"), 1),
    )
    layers = flags.get("n-gpu-layers", "auto" if left.gpus else 0)
    if layers == "auto":
        placed = place(shape, weights, context, left)
        return Share(name=name, model=profile.model, gpu=placed.gpu, ram=placed.ram)
    moe = (
        len(weights.layers) if flags.get("cpu-moe") is True else _number(flags.get("n-cpu-moe"), 0)
    )
    gpu_layers = None if layers == "all" else _number(layers, 0)
    if not left.gpus:
        gpu_layers = 0
    gpu, ram = demand(shape, weights, context, gpu_layers=gpu_layers, cpu_moe=moe)
    return Share(name=name, model=profile.model, gpu=gpu, ram=ram)


def _number(value: FlagValue | None, default: int) -> int:
    try:
        found = int(value) if value is not None else default
    except (TypeError, ValueError):
        return default
    return found or default


def lines(found: list[Share], budget: Budget) -> Iterator[str]:
    """Yield the count as a table."""
    width = max(len(each.name) for each in found)
    yield f"{'':<{width}}  {'GPU':>10}  {'RAM':>10}  model"
    for each in found:
        yield f"{each.name:<{width}}  {amount(each.gpu):>10}  {amount(each.ram):>10}  {each.model}"
    gpu, ram = sum(each.gpu for each in found), sum(each.ram for each in found)
    yield f"{'together':<{width}}  {amount(gpu):>10}  {amount(ram):>10}"
    there = amount(budget.ram) if budget.ram is not None else "unknown"
    yield f"{'usable':<{width}}  {amount(budget.gpu):>10}  {there:>10}"


def check_together(found: list[Share], budget: Budget) -> None:
    """Stop when the servers do not fit side by side.

    Raises:
        UsageError: They take more of the GPU, or of main memory, than there is.
    """
    gpu, ram = sum(each.gpu for each in found), sum(each.ram for each in found)
    over = []
    if gpu > budget.gpu:
        over.append(f"{amount(gpu)} of GPU memory, of which {amount(budget.gpu)} are usable")
    if budget.ram is not None and ram > budget.ram:
        over.append(f"{amount(ram)} of main memory, of which {amount(budget.ram)} are usable")
    if over:
        largest = max(found, key=lambda each: each.gpu if gpu > budget.gpu else each.ram)
        raise UsageError(
            f"{len(found)} servers do not fit together: they take {' and '.join(over)}",
            where=", ".join(each.name for each in found),
            fix=f"lower ctx-size, or let one of them run on the CPU (n-gpu-layers = 0); "
            f"`{largest.name}` takes most",
        )
