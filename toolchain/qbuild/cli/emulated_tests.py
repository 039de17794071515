"""``qbuild test RECIPE --emulate``: upstream's test-backend-ops on the emulated GPU."""

from __future__ import annotations

import argparse
import collections
import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import host
from qbuild.cli.common import build_options, load, load_lock, print_json, store
from qbuild.console import Reporter
from qbuild.cuda.arch import parse_archs
from qbuild.emulator import backend_ops, cases, counted, gpus, graphs, roofline
from qbuild.emulator.backend_ops import Outcome, Program
from qbuild.errors import CompileError, UsageError

if TYPE_CHECKING:
    from qbuild.recipe.model import Recipe

_FOLDER: Final = "emulated-tests"
_COUNTS: Final = "QBUILD_EMULATOR_COUNTS"
_HEADER: Final = Path("tree", "ggml", "include", "ggml.h")
_SHOWN: Final = 8


def run_tests(args: argparse.Namespace, reporter: Reporter) -> int:
    """Make kernels and test program, run the cases, print what came out.

    Raises:
        UsageError: The recipe's target is not this system's, or the cases cannot be read.
        CompileError: A case failed.
    """
    from qbuild.steps import emulator
    from qbuild.steps import plan as plans
    from qbuild.steps.builder import Builder

    args.overrides = [*args.overrides, "build.ui=false"]
    sample = _sample(args)
    recipe = _recipe_for_here(args)
    gpu = _gpu(args, recipe)
    chosen = sample.selection if sample else _chosen(args, gpu)
    lock, patches = load_lock(args), Path(args.patches) if args.patches else None
    key, home = host.platform_key(), store(args)

    def builder(*, device_code: bool) -> Builder:
        plan = plans.make_plan(
            recipe, lock, host=key, patches_root=patches,
            tests=emulator.test_targets(), device_code=device_code,
        )  # fmt: skip
        return Builder(plan, home, reporter, build_options(args))

    with home.in_use():
        with_code = builder(device_code=True)
        only, counts = _units(args, sample), bool(args.count)
        kernels = emulator.kernels(with_code, checks=args.check, only=only, counts=counts)
        programs = emulator.tests(builder(device_code=False))
        places = [kernels.path / "files", programs.path / "bin"]
        if args.prepare or (chosen is not None and not args.cases):
            places.append(emulator.test_graphs(with_code, programs).path / "bin")
        header = (with_code.result("patch").path / _HEADER).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="qbuild-emulated-") as name:
            folder = Path(args.prepare or name).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            emulator.put_together(folder, *places)
            if args.prepare:
                print(folder / "test-backend-ops")
                return 0
            program = _program(args, folder, gpu, kernels.key, programs.key)
            outcome = _run(args, program, chosen, sample, cases.numbers_in(header), reporter)
            done = _counts(program)
    summary = summarise(outcome, kernels.facts["units"], gpu) | {
        "shuffle": args.shuffle,
        "checked": args.check,
        "log": str(program.log),
    }
    if args.json:
        told = {"counts": [_described(each, gpu) for each in done]} if args.count else {}
        print_json(summary | told)
    else:
        _tell(summary)
        _tell_counts(done, gpu)
    _check_all_right(outcome, gpu.name, program)
    return 0


def _program(args: argparse.Namespace, folder: Path, gpu: gpus.Gpu, *made: str) -> Program:
    """Return the test program, whose results are named after what it was made of and runs on."""
    words = [*made, gpu.name, str(args.shuffle)]
    id = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    place = Path(args.dist).absolute() / _FOLDER
    place.mkdir(parents=True, exist_ok=True)
    return Program(
        path=folder / "test-backend-ops",
        env=gpus.environment([gpu])
        | {"QBUILD_EMULATOR_SHUFFLE": str(args.shuffle)}
        | {_COUNTS: str(folder / "counts.tsv")},
        log=place / f"{id}.log",
        state=place / f"{id}.jsonl",
    )


def _recipe_for_here(args: argparse.Namespace) -> Recipe:
    recipe = load(args)
    if recipe.target.os != host.system():
        raise UsageError(
            f"tests run on this machine, and the recipe builds for {recipe.target.os}",
            fix=f"add --os {host.system()}",
        )
    return recipe


def _gpu(args: argparse.Namespace, recipe: Recipe) -> gpus.Gpu:
    archs = parse_archs(recipe.cuda.architectures, where="cuda.architectures")
    return gpus.for_archs([arch.number for arch in archs], args.emulate)


def _units(args: argparse.Namespace, sample: cases.Sample | None) -> Sequence[str]:
    """Return the units whose kernels are made; none: all."""
    if sample:
        return sample.units
    return tuple(filter(None, (args.units or args.count or "").split(",")))


def _sample(args: argparse.Namespace) -> cases.Sample | None:
    if args.count and (args.check or args.sample or not (args.ops or args.params or args.cases)):
        raise UsageError(
            "--count is for chosen cases, without checks",
            fix="leave out --check and --sample, and add --ops, --params or --cases",
        )
    if args.sample and (args.cases or args.ops or args.params):
        raise UsageError("--sample brings its own cases", fix="leave out --cases, --ops, --params")
    return cases.sample() if args.sample else None


def _chosen(args: argparse.Namespace, gpu: gpus.Gpu) -> cases.Selection | None:
    """Return the cases to run, or nothing where options of test-backend-ops choose them."""
    if args.cases:
        path = Path(args.cases)
        try:
            return cases.parse(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the cases cannot be read: {error}", where=str(path)) from error
    return None if args.ops or args.params else cases.selection(gpu.arch)


def _run(
    args: argparse.Namespace,
    program: Program,
    chosen: cases.Selection | None,
    sample: cases.Sample | None,
    numbers: Mapping[str, Mapping[str, int]],
    reporter: Reporter,
) -> Outcome:
    own, names = _graphs(program, sample.graph if sample else lambda _: True)
    operations = len(chosen.named) + len(chosen.own) if chosen else 0
    total = operations + len(names) if chosen else None
    with reporter.task("cases", total=total) as task:

        def progress(done: int, op: str) -> None:
            task.update(done=done, note=op)

        if chosen is None:
            options = [
                word
                for option, value in (("-o", args.ops), ("-p", args.params))
                if value
                for word in (option, value)
            ]
            return backend_ops.run_options(program, options, progress)
        if args.again:
            program.state.unlink(missing_ok=True)
            own.state.unlink(missing_ok=True)
        until = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
        done = backend_ops.run_selection(program, chosen, numbers, until=until, progress=progress)
        if not names:
            return done
        more = backend_ops.run_selection(
            own,
            cases.Selection(named=tuple(names), own=()),
            numbers,
            until=until,
            progress=lambda count, op: progress(operations + count, op),
        )
        return backend_ops.merged(done, more)


def _graphs(program: Program, wanted: Callable[[str], bool]) -> tuple[Program, Sequence[str]]:
    """Return the program of graphs beside another program, and the names of those to run."""
    path = program.path.with_name(graphs.PROGRAM)
    if not path.exists():
        return program, ()
    id = hashlib.sha256(path.read_bytes()).hexdigest()[:8]  # another program's results are others
    state = program.state.with_name(f"{program.state.stem}-graphs-{id}.jsonl")
    names = [name for name in backend_ops.names_of(path) if wanted(name)]
    return replace(program, path=path, state=state), names


def summarise(
    outcome: Outcome, units: Mapping[str, Sequence[str]], gpu: gpus.Gpu
) -> dict[str, Any]:
    """Return what a run showed, for people and machines.

    Args:
        outcome: The run.
        units: Unit → kernels of the library that ran.
        gpu: The GPU.
    """
    every = {(unit, name) for unit, names in units.items() for name in names}
    ran = every & outcome.ran.keys()
    known = cases.unreached(every, gpu.arch)
    out_of_reach = known or {}
    left = every - ran - out_of_reach.keys()
    return {
        "gpu": gpu.name,
        "emulated": True,
        "validated": False,
        "complete": outcome.complete,
        "cases": outcome.count(backend_ops.RIGHT) + len(outcome.failed),
        "failed": [{"case": each.case, "said": each.said} for each in outcome.failed],
        "not_supported": outcome.count(backend_ops.ABSENT),
        "kernels": len(every),
        "kernels_ran": len(ran),
        "reach_known": known is not None,
        "kernels_out_of_reach": len(out_of_reach.keys() - ran),
        "out_of_reach": dict(collections.Counter(out_of_reach.values())),
        "not_run_because": dict(collections.Counter(cases.unrun(left).values())),
        "wrongly_out_of_reach": sorted(name for _, name in ran & out_of_reach.keys()),
        "not_run": {
            unit: sorted(name for other, name in left if other == unit)
            for unit in sorted({unit for unit, _ in left})
        },
        "units": {
            unit: [sum(at == unit for at, _ in ran), len(names)] for unit, names in units.items()
        },
        "findings": outcome.findings,
        "seconds": round(outcome.seconds, 1),
    }


def _tell(summary: Mapping[str, Any]) -> None:
    reachable = summary["kernels"] - summary["kernels_out_of_reach"]
    print(
        f"emulated {summary['gpu']}: {summary['cases']} cases, {len(summary['failed'])} wrong, "
        f"{summary['not_supported']} not supported; {summary['seconds']:.0f} s"
    )
    share = f"{100 * summary['kernels_ran'] / max(1, reachable):.1f} %"
    print(
        f"  {summary['kernels_ran']} of {summary['kernels']} kernels ran: {share} of "
        + (
            f"the {reachable} that this GPU can reach"
            if summary["reach_known"]
            else "all; which of them this GPU can reach is not known"
        )
    )
    for why, count in sorted(summary["out_of_reach"].items(), key=lambda each: -each[1]):
        print(f"  {count:5} out of reach: {why}")
    for unit, names in summary["not_run"].items():
        print(f"  {len(names):5} of {unit} did not run")
    for why, count in summary["not_run_because"].items():
        print(f"  {count:5} of these: {why}")
    for name in summary["wrongly_out_of_reach"]:
        print(f"  ran although a rule says that it cannot: {name}")
    for each in summary["failed"][:_SHOWN]:
        print(f"  WRONG {each['case']}: {each['said']}")
    for finding in summary["findings"][:_SHOWN]:
        print(f"  {finding}")
    print("  emulated, never validated: nothing is said of ptxas' code, the driver or speed")


def _counts(program: Program) -> list[counted.Counted]:
    path = Path(program.env[_COUNTS])
    return counted.read(path) if path.exists() else []


def _described(counts: counted.Counted, gpu: gpus.Gpu) -> dict[str, Any]:
    least = roofline.estimate(counts, gpu)
    told = asdict(least) | {"seconds": least.seconds, "limit": least.limit}
    return asdict(counts) | {"estimate": told}


def _tell_counts(counts: Sequence[counted.Counted], gpu: gpus.Gpu) -> None:
    """Print what kernels did, for each kernel and thread, and how device memory was touched."""
    if not counts:
        return
    print("  counted in the device IR, before ptxas: an estimate. Per thread; sectors per request;")
    print("  used: of the sectors' bytes, over 100 % where threads of a warp read the same ones")
    print(
        "  passes: over shared memory for each needed, 1 without bank conflicts; lanes: of a warp's"
    )
    print("  32, how many run an instruction, if those that part meet again as soon as they can")
    print(
        f"  us: a launch takes no less on a {gpu.name} by its published rates, and what limits it"
    )
    names = (
        *counted.CLASSES, "lanes%", "shared", "passes", "device", "bytes", "sectors", "used %",
        "blocks", "us", "limit", "kernel",
    )  # fmt: skip
    print("  " + " ".join(f"{name:>7}" for name in names))
    for each in sorted(counts, key=lambda one: -one.threads):
        memory, threads = each.memory, each.threads
        row = [
            *(count / threads for count in each.instructions.values()),
            100 * each.together,
            (memory["shared_loads"] + memory["shared_stores"]) / threads,
            each.passes,
            (memory["loads"] + memory["stores"]) / threads,
            (memory["bytes_read"] + memory["bytes_written"]) / threads,
            memory["sectors"] / max(1, memory["requests"]),
            100 * each.used,
        ]
        told = " ".join(f"{value:7.1f}" for value in row)
        least = roofline.estimate(each, gpu)
        limit = least.limit.replace(" ", "-")
        told += f" {each.blocks:7} {1e6 * least.seconds:7.1f} {limit:>7}"
        print(f"  {told} {each.kernel[:60]}")


def _check_all_right(outcome: Outcome, gpu: str, program: Program) -> None:
    """Check that cases ran, that each was right, and that the emulated GPU had nothing to say.

    Raises:
        CompileError: None ran, one is wrong, a race or a wrong access was seen, or there was no
            time for all of them.
    """
    where = f"full log: {program.log}"
    if not outcome.results:
        raise CompileError(
            f"no case ran on the emulated {gpu}",
            where=where,
            fix="check --ops and --params; the log says whether the CUDA backend was loaded",
        )
    if outcome.failed:
        raise CompileError(
            f"test-backend-ops on the emulated {gpu}: {len(outcome.failed)} cases are "
            f"wrong, first {outcome.failed[0].case}",
            where=where,
        )
    if outcome.findings:
        raise CompileError(
            f"the emulated {gpu} found {len(outcome.findings)} faults that no result shows, "
            f"first: {outcome.findings[0]}",
            where=where,
        )
    if not outcome.complete:
        raise CompileError(
            f"{len(outcome.results)} cases have run; there was no time for the others",
            where=str(program.state),
            fix="run the same command again: it goes on there",
        )
