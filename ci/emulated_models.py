"""Compare tokens of tiny models, emulated GPU against CPU, on a finished zip: the wide table.

    python ci/emulated_models.py ZIP --results FILE.jsonl [--minutes N] [--all] [--only WORD]

Every kind of model (dense, experts, delta-net, drafts) in every tensor type, each in one setting of
KV cache and flash attention in turn (--all: in each); experts also with --cpu-moe, drafts also with
MTP, some on two devices split by layers and by tensors. What has a result in FILE is not run again,
so the table can be filled in pieces. Ends with 1 when a model says something else on the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import platformdirs

from qbuild.console import Silent
from qbuild.emulator import gpus, report
from qbuild.hashing import sha256_file
from qbuild.store import Store
from qbuild.verify import emulate
from qbuild.verify.emulate import Setting
from qbuild.verify.verdict import Check
from support import emulated_models

NO_HALVES = [[byte, False] for byte in range(128, 256)]
"""Forbids the tokens that are no whole character: the server tells no probabilities of those."""

_SPLIT = ("q4_0", "q4_K", "q8_0")


def pairs(every: bool) -> Iterator[tuple[str, str, Setting, int]]:
    """Yield kind, type, setting and number of devices of each row."""
    turn = 0
    for kind in emulated_models.KINDS:
        for type_ in emulated_models.TYPES:
            for setting in emulate.SETTINGS if every else (emulate.SETTINGS[turn % 4],):
                yield kind, type_, setting, 1
            turn += 1
            if kind == "experts":
                yield kind, type_, emulate.EXPERTS_ON_CPU, 1
            if kind == "drafts":
                yield kind, type_, emulate.DRAFTS, 1
            if kind in ("dense", "experts") and type_ in _SPLIT:
                for setting in emulate.TWO_DEVICES:
                    yield kind, type_, setting, 2
        turn += 2  # seven types and two: the kinds begin at different settings


def row_of(kind: str, type_: str, setting: Setting) -> str:
    """Return a row's name."""
    return f"{kind}-{type_} {setting.name}"


def run(
    args: argparse.Namespace, todo: list[tuple[str, str, Setting, int]]
) -> Iterator[tuple[Check, list[str]]]:
    """Run rows until the time is over; yield what each showed, and the kernels that ran."""
    store = Store(Path(args.store or platformdirs.user_cache_dir("qbuild", appauthor=False)))
    until = time.monotonic() + args.minutes * 60
    for devices in (1, 2):
        rows = [row for row in todo if row[3] == devices]
        if not rows or time.monotonic() >= until:
            continue
        with (
            tempfile.TemporaryDirectory() as scratch,
            emulate.prepared(
                args.zip, [gpus.find(args.gpu)] * devices, home=store, reporter=Silent()
            ) as session,
        ):
            if isinstance(session, Check):
                sys.exit("\n".join((session.title, *session.details)))
            for kind, type_, setting, _ in rows:
                if time.monotonic() >= until:
                    break
                path = Path(scratch) / f"{kind}-{type_}.gguf"
                if not path.exists():
                    emulated_models.write(path, kind, type_)
                before = session.reported()
                check = session.compare(path, "The", setting, {"logit_bias": NO_HALVES})
                ran = report.read(session.reported()[len(before) :])
                yield check, sorted({f"{row.unit} {row.kernel}" for row in ran})


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the results that a file holds, by zip and row."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["zip"] + row["row"]: row for row in map(json.loads, lines)}


def main() -> int:
    """Fill the table, print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--gpu", default="GTX 1060")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--store")
    args = parser.parse_args()
    id = sha256_file(args.zip)
    rows = [row for row in pairs(args.all) if args.only in row_of(*row[:3])]
    known = read(args.results)
    todo = [row for row in rows if id + row_of(*row[:3]) not in known]
    for check, kernels in run(args, todo):
        row = check.id.removeprefix("emulated.").replace(".", " ", 1)
        result = {
            "zip": id, "row": row, "status": check.status, "said": list(check.details),
            "seconds": round(check.seconds or 0, 1), "kernels": kernels,
        }  # fmt: skip
        with args.results.open("a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
        print(row, check.status, *check.details, flush=True)
    known = read(args.results)
    done = [known[id + row_of(*row[:3])] for row in rows if id + row_of(*row[:3]) in known]
    wrong = [row for row in done if row["status"] != "passed"]
    ran = {name for row in done if row not in wrong for name in row.get("kernels", ())}
    print(f"{len(ran)} kernels ran in those that are right, emulated")
    named = ", ".join(row["row"] for row in wrong) or "-"
    print(f"{len(done)} of {len(rows)} rows, {len(wrong)} wrong: {named}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
