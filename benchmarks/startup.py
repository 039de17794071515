"""How much processor time short commands take, against another checkout of qbuild.

    python benchmarks/startup.py OTHER/.venv/bin/python THIS/.venv/bin/python [ROUNDS]

Rounds alternate between the two, so that what else the machine does meets both. A build that finds
its zip up to date is one of the commands: each checkout makes it once, in a folder of its own
(minutes, unless the store has it). `model` reads a file of one layer, whose template was looked at
before. Medians of CPU seconds, and the ratio with its quartiles.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from qbuild.verify import tiny_gguf

COMMANDS = {
    "list": ["list"],
    "model": ["model", "MODEL"],
    "plan": ["plan", "avx2"],
    "no-op build": ["--recipe", "avx2", "--no-run", "-q"],
}


def cpu_s(python: str, words: list[str]) -> float:
    """Return the CPU seconds of one command, children included.

    Raises:
        SystemExit: It failed.
    """
    # without byte code each start would compile the package again
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [python, "-m", "qbuild", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env, cwd=Path.home())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a line per command."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    one, two = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    with tempfile.TemporaryDirectory() as scratch:
        model = str(tiny_gguf.write(Path(scratch, "tiny.gguf")))
        for name, given in COMMANDS.items():
            words = [model if word == "MODEL" else word for word in given]
            line = {
                python: [*words, "--dist", f"{scratch}/{number}"] if "build" in name else words
                for number, python in enumerate((one, two))
            }
            for python in (one, two):
                cpu_s(python, line[python])
            pairs = []
            for index in range(rounds):
                first, second = (one, two) if index % 2 else (two, one)
                took = {python: cpu_s(python, line[python]) for python in (first, second)}
                pairs.append((took[one], took[two]))
            low, middle, high = statistics.quantiles([b / a for a, b in pairs], n=4)
            before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"{name:<12} {before * 1000:5.0f} ms → {after * 1000:5.0f} ms"
                f"  ratio {middle:.3f} ({low:.3f} to {high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
