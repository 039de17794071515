"""Ask the real llama-server and ``qbuild model`` about broken models, and print how they agree.

    python benchmarks/model_agreement.py SERVER SOURCE [--count 200] [--seed 1] [--sound]

SERVER is the pin's llama-server for this machine, SOURCE the pinned source tree. ``--sound`` asks
about whole models of each architecture instead. Each row is one file: what was done to it, what
the server did (``loads``, ``refuses``), what ``qbuild model`` says, and its reason.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import agreement, broken_models


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("server", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sound", action="store_true", help="whole models, nothing broken")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = list(broken_models.whole(args.source, folder))
        if args.sound:
            cases = [(f"{each.arch}: sound", each) for each in models]
        else:
            cases = list(broken_models.broken(models, args.count, args.seed))
        rows = []
        for what, made in cases:
            row = agreement.compare(what, made.write(folder / "m.gguf"), args.server)
            rows.append(row)
            print(row.text(), flush=True)
    print(agreement.summary(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
