"""What reading a streamed answer costs, upstream's way and the patched way, in one run.

    python benchmarks/parse_cost.py --test BUILD/bin/test-chat-salvage --source LLAMA_CPP

``test-chat-salvage`` comes with the series parser-crash; it reads answers with several tool calls
of 2 to 64 KB, four bytes at a time as a server does for each token, in the way of upstream's server
(everything is parsed again) and in the way of the patched one. Prints a Markdown table and the
slope of log(time) over log(size): 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path


def slope(points: list[tuple[int, float]]) -> float:
    """Return the least-squares slope of log(y) over log(x)."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mx) ** 2 for x in xs
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--test", type=Path, required=True, help="test-chat-salvage")
    parser.add_argument("--source", type=Path, required=True, help="the patched source")
    parser.add_argument("--bytes", type=int, default=65536, help="longest answer")
    options = parser.parse_args()
    cases = options.source / "tests" / "tool-call-cases.json"
    command = [str(options.test.absolute()), str(cases.absolute()), "--bench", str(options.bytes)]
    done = subprocess.run(command, cwd=options.source, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    print("| template | bytes | upstream, s | patched, s | upstream / patched |")
    print("|---|---|---|---|---|")
    steepest = 0.0
    for row in rows:
        ratio = row["upstream_s"] / row["patched_s"]
        print(
            f"| {row['template']} | {row['bytes']} | {row['upstream_s']:.4f} "
            f"| {row['patched_s']:.6f} | {ratio:.0f} |"
        )
    print()
    for name in dict.fromkeys(row["template"] for row in rows):
        slopes = {
            key: slope([(row["bytes"], row[key]) for row in rows if row["template"] == name])
            for key in ("upstream_s", "patched_s")
        }
        steepest = max(steepest, slopes["patched_s"])
        print(
            f"{name}: slope upstream {slopes['upstream_s']:.2f}, patched {slopes['patched_s']:.2f}"
        )
    return 0 if steepest <= 1.2 else 1


if __name__ == "__main__":
    sys.exit(main())
