"""Processor seconds of llama-bench with and without OpenBLAS, for several kinds of weights.

    python benchmarks/openblas.py --plain avx2/llama-bench --openblas openblas/llama-bench

Both are programs of unpacked bundles. The models are random weights of a Qwen3 shape (about 120
million parameters, see random_model.py), in F32, F16 and Q4_0. Each case runs each program in turn,
round after round, and the median of the user's processor seconds is shown: on a shared machine the
time on the clock means nothing. A run of a one-token prompt is subtracted, so that reading the
model does not count. OpenBLAS runs twice: with the kernels it picks for this machine, and with
OPENBLAS_CORETYPE=Haswell, those it would pick on a PC that has AVX2 and no AVX-512.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import random_model


@dataclass(frozen=True)
class Case:
    """One line of the table: what llama-bench is asked for."""

    weights: str
    prompt: int
    threads: int
    batch: int
    poll: int = 50

    @property
    def words(self) -> list[str]:
        return ["-t", str(self.threads), "-b", str(self.batch), "-ub", str(self.batch),
                "--poll", str(self.poll)]  # fmt: skip


CASES = [
    *(Case(w, p, t, 512) for w in ("F32", "F16", "Q4_0") for p in (256, 512) for t in (1, 2)),
    *(Case(w, 512, 1, b) for w in ("F32", "F16", "Q4_0") for b in (128, 32)),
    *(Case(w, 512, 2, 512, poll=0) for w in ("F32", "F16", "Q4_0")),
]


def cpu_seconds(program: Path, model: Path, case: Case, prompt: int, env: dict[str, str]) -> float:
    """Return the user's processor seconds of one run."""
    words = [str(program), "-m", str(model), "-p", str(prompt), "-n", "0", "-r", "1",
             "--no-warmup", "-o", "json", *case.words]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert json.loads(done.stdout)[0]["n_prompt"] == prompt
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", type=Path, required=True, help="llama-bench without OpenBLAS")
    parser.add_argument("--openblas", type=Path, required=True, help="llama-bench with it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", default="", help="only F32, F16 or Q4_0")
    parser.add_argument("--threads", type=int, default=0, help="only cases of so many")
    args = parser.parse_args()
    programs: list[tuple[Path, dict[str, str]]] = [
        (args.plain, {}),
        (args.openblas, {}),
        (args.openblas, {"OPENBLAS_CORETYPE": "Haswell"}),
    ]
    print("| weights | prompt | threads | batch | plain, CPU s | OpenBLAS, CPU s (ratio) | "
          "as on Haswell, CPU s (ratio) |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        models: dict[str, Path] = {}
        for case in CASES:
            if args.weights not in ("", case.weights) or args.threads not in (0, case.threads):
                continue
            if case.weights not in models:
                path = Path(name) / f"{case.weights}.gguf"
                models[case.weights] = random_model.write_model(path, case.weights)
            model = models[case.weights]
            seconds: list[list[float]] = [[] for _ in programs]
            for _ in range(args.rounds):
                for (program, env), row in zip(programs, seconds, strict=True):
                    whole, start = (
                        cpu_seconds(program, model, case, prompt, env)
                        for prompt in (case.prompt, 1)
                    )
                    row.append(whole - start)
            plain, *others = (statistics.median(row) for row in seconds)
            compared = " | ".join(f"{each:.2f} ({each / plain:.2f})" for each in others)
            poll = "" if case.poll else ", `--poll 0`"
            print(f"| {case.weights} | {case.prompt} | {case.threads}{poll} | {case.batch} | "
                  f"{plain:.2f} | {compared} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
