#!/usr/bin/env python3
"""Is a bundle slower than what people would build or download instead?

    python benchmarks/race.py --state race.jsonl --rounds 5 ours=avx2/llama-bench \\
        native=native/bin/llama-bench release=release/bin/llama-bench

The programs run in turn, round after round, on random weights of three kinds of model (dense,
mixture of experts, three recurrent layers of four as in Qwen3.5; 110 to 140 million parameters)
in five formats, with one and two threads, each a prompt and a generation. A run's figure is the
best of llama-bench's repetitions: what disturbs a run only makes it slower. The table has, for
each row, the ratio of the first program's rate to each other's in the same round: median and
quartiles; below 1 the first is slower. The last line is the geometric mean of the medians.

Rounds that are in the state file are not run again; ``--table`` only prints. On a shared machine
the command wants a high priority (``nice -n -15``).

What to race against (upstream's sources at the pin, ``cmake -DCMAKE_BUILD_TYPE=Release``):
as most people build, ``-DGGML_NATIVE=ON``; as upstream's releases, ``-DGGML_NATIVE=OFF
-DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON``; or ``qbuild --recipe benchmarks/plain.toml``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import emulated_models, gguf_files

LAYERS = {"dense": 10, "experts": 24, "delta-net": 12}
TYPES = ("q4_0", "q4_K", "q6_K", "q8_0", "f16")
WORK = {"prompt": ("-p", "128", "-n", "0"), "generation": ("-p", "0", "-n", "24")}


def models(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Write the models, one at a time; give kind, type and file."""
    # The tests' generator makes tiny models; its sizes are its own module's, in this process.
    gguf_files.EMBEDDING, gguf_files.FEED, gguf_files.HEADS = 1024, 3072, 16
    for kind, layers in LAYERS.items():
        make, options = emulated_models.KINDS[kind]
        emulated_models.KINDS[kind] = (make, {**options, "layers": layers})
        for type_ in TYPES:
            path = folder / f"{kind}-{type_}.gguf"
            yield kind, type_, path if path.exists() else emulated_models.write(path, kind, type_)


def rate(program: str, model: Path, work: str, threads: int) -> float:
    """Return tokens per second: the best of three repetitions."""
    words = [program, "-m", str(model), "-t", str(threads), *WORK[work], "-r", "3", "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr[-500:]}")
    results = json.loads(done.stdout[done.stdout.index("[") :])
    return float(max(results[0]["samples_ts"]))


def run(programs: dict[str, str], state: Path, rounds: int, folder: Path) -> None:
    """Run what the state file lacks; each program of a round is one line there."""
    have = {(*row["what"], row["round"], row["program"]) for row in read(state)}
    with state.open("a", encoding="utf-8") as out:
        for kind, type_, model in models(folder):
            for threads, work, number in itertools.product((1, 2), WORK, range(rounds)):
                what = [kind, type_, threads, work]
                names = list(programs)
                # Who begins changes from round to round: the first finds another machine.
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    if (*what, number, name) in have:
                        continue
                    figure = rate(programs[name], model, work, threads)
                    row = {"what": what, "round": number, "program": name, "rate": figure}
                    out.write(json.dumps(row) + "\n")
                    out.flush()
            print(f"{kind} {type_}: done", file=sys.stderr)


def read(state: Path) -> list[dict[str, Any]]:
    """Return the rows of a state file."""
    if not state.exists():
        return []
    return [json.loads(line) for line in state.read_text(encoding="utf-8").splitlines()]


def table(rows: list[dict[str, Any]], first: str) -> None:
    """Print the ratios as a Markdown table."""
    rates = {(*row["what"], row["round"], row["program"]): row["rate"] for row in rows}
    others = [name for name in dict.fromkeys(row["program"] for row in rows) if name != first]
    columns = [f"{first}, tokens/s", *(f"against {name}: median (quartiles)" for name in others)]
    print(f"| model | weights | threads | work | {' | '.join(columns)} |")
    print("| --- " * (5 + len(others)) + "|")
    medians: dict[str, list[float]] = {name: [] for name in others}
    for what in dict.fromkeys(tuple(row["what"]) for row in rows):
        numbers = sorted({row["round"] for row in rows if tuple(row["what"]) == what})
        rounds = [n for n in numbers if all((*what, n, name) in rates for name in (first, *others))]
        if len(rounds) < 2:  # no quartiles of one number
            continue
        own = [rates[(*what, number, first)] for number in rounds]
        cells = []
        for name in others:
            ratios = [one / rates[(*what, number, name)]
                      for one, number in zip(own, rounds, strict=True)]  # fmt: skip
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            medians[name].append(middle)
            cells.append(f"{middle:.2f} ({low:.2f} – {high:.2f})")
        kind, type_, threads, work = what
        print(f"| {kind} | {type_} | {threads} | {work} | {statistics.median(own):.0f} | "
              + " | ".join(cells) + " |")  # fmt: skip
    for name, values in medians.items():
        mean = math.exp(statistics.fmean(map(math.log, values)))
        print(f"\n{first} against {name}: geometric mean {mean:.3f}, worst row {min(values):.2f}")


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="NAME=LLAMA-BENCH")
    parser.add_argument("--state", type=Path, required=True, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, metavar="DIR", help="keep the models there")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    programs = dict(each.split("=", 1) for each in args.programs)
    if not args.table:
        with tempfile.TemporaryDirectory() as name:
            folder = args.models or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            run(programs, args.state, args.rounds, folder)
    table([row for row in read(args.state) if row["program"] in programs], next(iter(programs)))


if __name__ == "__main__":
    main()
