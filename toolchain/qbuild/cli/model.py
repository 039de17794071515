"""``qbuild model``: what a GGUF file is, what is wrong with it, what of it fits this machine."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.cli.common import add_machine, print_json
from qbuild.console import Reporter
from qbuild.errors import ModelError, UsageError

if TYPE_CHECKING:
    from qbuild.doctor.machine_facts import Facts
    from qbuild.modelfile.fit import Placement
    from qbuild.modelfile.machine import Budget
    from qbuild.modelfile.summary import Summary
    from qbuild.recipe.model import Recipe

_WIDTH = 96


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("file", metavar="FILE", help="a .gguf file, or any part of a split one")
    parser.add_argument(
        "--recipe", metavar="RECIPE", help="whose bundle runs it; else the one that `detect` names"
    )
    parser.add_argument("--os", metavar="OS", help="linux or windows, instead of the recipe's")
    add_machine(parser)
    parser.add_argument(
        "--ctx-size", type=int, metavar="N", help="context that is wanted, in tokens"
    )
    parser.add_argument("--cache-type", metavar="TYPE", help="KV cache type, e.g. q8_0")
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="conversations at once (1)"
    )
    parser.add_argument("--mmproj", metavar="FILE", help="the projector to use with it")
    parser.add_argument("--draft", metavar="FILE", help="the model that is to draft for it")
    parser.add_argument(
        "--sha256", action="store_true", help="hash the files, too (reads all of them)"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Print the model, its traps, and what fits.

    Raises:
        ModelError: The file is no GGUF file or is damaged in its header.
        UsageError: An option does not fit.
    """
    from qbuild.modelfile.summary import as_json, lines, summarise

    _check(args)
    summary = summarise(
        Path(args.file),
        Path(args.mmproj) if args.mmproj else None,
        Path(args.draft) if args.draft else None,
    )
    data: dict[str, Any] = as_json(summary)
    text = list(lines(summary))
    if args.sha256:
        data["sha256"] = _hashes(summary, reporter)
        text += [f"sha256:   {value}  {name}" for name, value in data["sha256"].items()]
    text += _trap_lines(summary)
    if summary.shape is not None and summary.shape.remembers:
        fit, fit_text = _fit(args, summary)
        data["fit"] = fit
        text += ["", *fit_text]
    if args.json:
        print_json(data)
    elif not args.quiet:
        if isinstance(sys.stdout, io.TextIOWrapper):  # tokens have letters that a code page lacks
            sys.stdout.reconfigure(errors="replace")
        print("\n".join(text))
    return 0 if summary.loads else ModelError.exit_code


def _check(args: argparse.Namespace) -> None:
    from qbuild.modelfile.tables import table

    if args.cache_type and args.cache_type not in table()["cache"]["types"]:
        known = ", ".join(table()["cache"]["types"])
        raise UsageError(f"there is no cache type `{args.cache_type}`", fix=f"one of {known}")
    if args.ctx_size is not None and not 0 < args.ctx_size <= 1 << 24:
        raise UsageError(f"--ctx-size takes a number of tokens, not {args.ctx_size}")
    if not 1 <= args.parallel <= 256:
        raise UsageError(f"--parallel takes a number from 1 to 256, not {args.parallel}")


def _hashes(summary: Summary, reporter: Reporter) -> dict[str, str]:
    from qbuild.hashing import sha256_file

    found = {}
    for part in summary.model.parts:
        reporter.say(f"sha256 of {part.path.name}")
        found[part.path.name] = sha256_file(part.path)
    return found


def _trap_lines(summary: Summary) -> list[str]:
    import textwrap

    from qbuild.modelfile.text import printable

    found = []
    for trap in summary.traps:
        text = f"{trap.severity} [{trap.id}] {printable(trap.what, 600)}"
        found += textwrap.wrap(text, _WIDTH, subsequent_indent="         ")
        found += textwrap.wrap(
            f"  to do: {trap.fix}", _WIDTH, subsequent_indent="         ", break_on_hyphens=False
        )
    return ["", *found] if found else []


def machine(args: argparse.Namespace) -> Facts:
    """Return the machine that is meant: its hardware is all that counts, but not its cores."""
    if args.facts:
        from qbuild.doctor.machine_facts import load_facts

        return load_facts(Path(args.facts))
    from qbuild.doctor.detect.hardware import capture_hardware
    from qbuild.doctor.machine_facts import Facts
    from qbuild.doctor.probe import HostProbe

    probe = HostProbe()
    system: Any = probe.system()
    return Facts(os=system, **capture_hardware(probe, cores=False))


def _recipe(args: argparse.Namespace, facts: Facts) -> Recipe | None:
    from qbuild.recipe.load import known_recipes, load_recipe

    if args.recipe:
        return load_recipe(args.recipe, os=args.os)
    from qbuild.doctor.detect import recommend

    found = recommend(facts, tuple(known_recipes()))
    return load_recipe(found.recipe, os=args.os or found.os) if found.recipe else None


def _fit(args: argparse.Namespace, summary: Summary) -> tuple[dict[str, Any], list[str]]:
    from qbuild.modelfile import fit
    from qbuild.modelfile.machine import budget_of, cache_types, with_cards

    facts, notes = with_cards(machine(args), args.gpu, args.vram, args.ram)
    recipe = _recipe(args, facts)
    budget = budget_of(facts, recipe)
    types = cache_types(recipe) if recipe else ("f16", "q8_0", "q4_0")
    wanted = (args.cache_type,) if args.cache_type else types
    shape, weights = summary.shape, summary.weights
    assert shape and weights
    if args.cache_type and shape.attention_layers and not _usable(args.cache_type, summary):
        sizes = ", ".join(str(each) for each in sorted(shape.head_sizes))
        raise UsageError(
            f"cache type {args.cache_type} does not divide this model's heads ({sizes})",
            fix="take f16",
        )
    chosen = fit.suggest(
        shape, weights, budget, types=wanted, tokens=args.ctx_size, slots=args.parallel
    )
    shown = list(fit.rows(shape, weights, budget, types=types, slots=args.parallel))
    command = _command(args, summary, recipe, facts, chosen)
    data = {
        "recipe": recipe.name if recipe else None,
        "gpu_bytes": list(budget.gpus),
        "ram_bytes": budget.ram,
        "rows": [
            {
                "context": size,
                "kept_bytes": kept,
                "total_bytes": weights.total + kept[next(iter(kept))],
                "placement": _placement_json(found),
            }
            for size, kept, found in shown
        ],
        "suggested": _placement_json(chosen),
        "command": command,
        "notes": [*notes, *budget.notes, *_notes(args, summary, budget, chosen)],
    }
    return data, list(_fit_lines(summary, recipe, budget, shown, chosen, data))


def _notes(
    args: argparse.Namespace, summary: Summary, budget: Budget, chosen: Placement
) -> Iterator[str]:
    """Yield what else takes memory or quality."""
    from qbuild.modelfile.memory import PROMPT_CACHE
    from qbuild.modelfile.summary import amount

    shape = summary.shape
    if shape and args.ctx_size and args.ctx_size > shape.context:
        yield f"the model was trained for {shape.context} tokens of context, not {args.ctx_size}"
    if args.mmproj:
        size = amount(Path(args.mmproj).stat().st_size)
        yield f"the mmproj takes {size} more, on the GPU where there is one"
    if budget.ram is not None and 0 <= budget.ram - chosen.ram < PROMPT_CACHE:
        left = max((budget.ram - chosen.ram) >> 20, 0)
        yield (
            f"llama-server keeps earlier prompts in up to {amount(PROMPT_CACHE)} of main memory "
            f"besides, where {left} MiB are left: --cache-ram {left} limits it"
        )


def _usable(kind: str, summary: Summary) -> bool:
    from qbuild.modelfile.memory import cache_fits

    return summary.shape is not None and cache_fits(summary.shape, kind)


def _placement_json(found: Placement) -> dict[str, Any]:
    return {
        "context": found.context.tokens,
        "cache_type": found.context.keys,
        "where": found.where,
        "n_gpu_layers": found.gpu_layers,
        "n_cpu_moe": found.cpu_moe,
        "gpu_bytes_estimate": found.gpu,
        "ram_bytes_estimate": found.ram,
        "fits": found.fits,
    }


def _fit_lines(
    summary: Summary,
    recipe: Recipe | None,
    budget: Budget,
    rows: list[Any],
    chosen: Placement,
    data: dict[str, Any],
) -> Iterator[str]:
    import textwrap

    from qbuild.modelfile.summary import amount

    shape, weights = summary.shape, summary.weights
    assert shape and weights
    types = list(rows[0][1])
    room = [f"{len(budget.gpus)} GPU, {amount(budget.gpu)} usable"] if budget.gpus else ["no GPU"]
    room.append(
        f"{amount(budget.ram)} of RAM usable" if budget.ram is not None else "RAM not known"
    )
    yield f"with recipe {recipe.name if recipe else '(none fits)'}: {', '.join(room)}"
    size = amount(weights.total)
    yield f"weights {size}; what is kept per context, and all of it with {types[0]}:"
    yield ""
    head = "".join(f"{'kept ' + kind:>12}" for kind in types)
    yield f"{'context':>10}{head}{'total':>12}  where"
    for tokens, kept, found in rows:
        cells = "".join(f"{amount(kept[kind]):>12}" for kind in types)
        total = amount(weights.total + kept[types[0]])
        yield f"{tokens:>10}{cells}{total:>12}  {_where(found, shape.count)}"
    yield ""
    if shape.more:
        yield from textwrap.wrap(
            f"{shape.more}: the numbers above are the least it takes, not all.", _WIDTH
        )
    for note in data["notes"]:
        yield from textwrap.wrap(f"- {note}", _WIDTH, subsequent_indent="  ")
    yield from textwrap.wrap(
        "Weights and what is kept are llama.cpp's buffer sizes; where it goes adds an estimate for "
        "computing. The split over a GPU was not measured on one.",
        _WIDTH,
    )
    yield ""
    if chosen.fits is False:
        yield from textwrap.wrap(
            f"It does not fit: {amount(chosen.ram)} of main memory are needed. It may still run, "
            "slowly, as weights are read from the disk again and again.",
            _WIDTH,
        )
    yield str(data["command"])


def _where(found: Placement, count: int) -> str:
    if found.where == "gpu":
        return "all on the GPU"
    short = "" if found.fits is not False else ", too little RAM"
    if found.where == "experts":
        return f"GPU, experts of {found.cpu_moe} layers on the CPU{short}"
    if found.where == "partly":
        return f"{found.gpu_layers} of {count + 1} layers on the GPU{short}"
    return f"CPU{short}"


def _command(
    args: argparse.Namespace,
    summary: Summary,
    recipe: Recipe | None,
    facts: Facts,
    chosen: Placement,
) -> str:
    from qbuild.modelfile.fit import flags

    windows = (recipe.target.os if recipe else facts.os) == "windows"
    words = [".\\llama-server.exe" if windows else "./llama-server", "-m", str(summary.model.path)]
    if args.mmproj:
        words += ["--mmproj", args.mmproj]
    if args.draft:
        words += ["--spec-draft-model", args.draft]
    given = flags(chosen)
    if not chosen.gpu_layers:
        at = given.index("--n-gpu-layers")
        del given[at : at + 2]
    words += given
    if windows:
        return " ".join(f'"{each}"' if " " in each or "&" in each else each for each in words)
    return shlex.join(words)
