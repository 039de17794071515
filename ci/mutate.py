#!/usr/bin/env python3
"""Break lines of the central modules one at a time and see whether a test dies with them.

    python ci/mutate.py --map                  once: which test runs which line (minutes)
    python ci/mutate.py                        every mutant of every module; goes on where it ended
    python ci/mutate.py store bounds --most 20   two modules, 20 mutants of each, drawn by --seed
    python ci/mutate.py --again                what survived so far once more (after new tests)
    python ci/mutate.py --list                 what would be broken

A mutant is one changed node of the syntax tree: a condition turned round, a comparison off by one,
a `raise` or a call left out, a number changed, a returned value dropped (``ci/mutants.py``). All
tests are collected once; each mutant is put into a child of that process, in place of the code of
its function, and there the tests that run its line are run until one fails, first those that run
little else.
What runs when a module is imported is changed in a process that imports it anew, with the module's
own test files. Mutants may delete and kill what they like: all of it happens in namespaces where
only a temporary ``/tmp`` can be written and no other process can be seen.

Survivors that cannot be noticed are listed in ``ci/mutants.toml`` with the reason; they count as
survivors all the same. The exit status is 1 when fewer than ``--least`` percent were caught.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import sys
import time
import tomllib
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from mutants import Mutant, mutants
from mutation_tests import PACKAGE, ROOT, anew, map_lines, warm

KNOWN = Path(__file__).with_name("mutants.toml")
OUT = ROOT / "build" / "mutants"

MODULES = {
    "store": ["test_store_promises.py"],
    "process": ["test_process_promises.py"],
    "bounds": ["test_bounds.py"],
    "recipe/toml": ["test_bounds.py", "test_old_python.py"],
    "steps/ensure": ["test_ensure.py"],
    "steps/plan": ["test_plan.py"],
    "steps/stage": ["test_ensure.py"],
    "steps/cmake": ["test_plan.py"],
    "cli/build": ["test_build_verb.py"],
    "binary/names": ["test_archive_promises.py"],
    "binary/zip_reader": ["test_archive_promises.py"],
    "binary/zip_writer": ["test_archive_promises.py", "test_archive.py"],
    "verify/verdict": ["test_verify_model.py"],
    "verify/structure": ["test_structure.py"],
    "patches/series": ["test_patch_model.py"],
    "recipe/lock": ["test_lock.py"],
}
"""Module below ``toolchain/qbuild`` → test files below ``tests/unit`` for what runs at import."""

MAPPED = ["tests/unit", "tests/integration/test_process.py", "tests/integration/test_patches.py"]
"""Tests that run the modules in the test process itself, where a change can be put."""


def source(module: str) -> Path:
    """Return a module's file."""
    return PACKAGE / f"{module}.py"


def digest(module: str) -> str:
    """Return what tells one state of a module from another."""
    return hashlib.sha256(source(module).read_bytes()).hexdigest()[:12]


def known() -> dict[tuple[str, str, str], str]:
    """Return (module, function, what) → why nothing can notice it."""
    rows = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("mutant", [])
    return {
        (row["module"], function, row["what"]): row["why"]
        for row in rows
        for function in row["functions"]
    }


def chosen(modules: list[str], most: int, seed: int) -> list[Mutant]:
    """Return the mutants to try: all of them, or ``most`` of each module, drawn by the seed."""
    out = []
    for module in modules:
        every = mutants(module, source(module))
        dice = random.Random(f"{module} {seed}")
        size = min(most or len(every), len(every))
        out += [every[i] for i in sorted(dice.sample(range(len(every)), size))]
    return out


class Results:
    """Outcomes in a file of JSON lines; the last one of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, dict[tuple[str, str, int], str]()
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self._rows[row["module"], row["source"], row["number"]] = row["how"]

    def __getitem__(self, mutant: Mutant) -> str:
        return self._rows.get((mutant.module, digest(mutant.module), mutant.number), "")

    def add(self, mutant: Mutant, how: str) -> None:
        """Write an outcome down."""
        row = {**asdict(mutant), "source": digest(mutant.module), "how": how}
        self._rows[mutant.module, row["source"], mutant.number] = how
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def in_namespaces() -> None:
    """Begin again where mutants can break nothing: a read-only system, an empty ``/tmp``."""
    if os.environ.get("QBUILD_MUTATE_INSIDE"):
        return
    OUT.mkdir(parents=True, exist_ok=True)
    script = (
        f'mount --bind "{OUT}" "{OUT}" && mount -t tmpfs none /tmp && mount -o bind,remount,ro / &&'
        ' mkdir /tmp/home && exec "$@"'
    )
    words = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    words += ["--mount-proc", "sh", "-c", script, "sh", sys.executable, *sys.argv]
    inside = {"QBUILD_MUTATE_INSIDE": "1", "HOME": "/tmp/home", "PYTHONDONTWRITEBYTECODE": "1"}
    if not shutil.which("unshare"):
        sys.exit("unshare is missing (util-linux): mutants may delete what they like")
    os.execvpe(words[0], words, {**os.environ, **inside})


def table(tried: list[Mutant], results: Results) -> float:
    """Print what became of each module's mutants and return the percentage that was caught."""
    excused, done = known(), Counter[tuple[str, bool]]()
    for mutant in tried:
        if how := results[mutant]:
            done[mutant.module, how != "survived"] += 1
        if how == "survived":
            why = excused.get((mutant.module, mutant.function, mutant.what), "")
            place = f"{mutant.module}:{mutant.line} {mutant.function}"
            print(f"  SURVIVED {place}: {mutant.what}" + (f"  ({why})" if why else ""))
    for module in dict.fromkeys(mutant.module for mutant in tried):
        caught, survived = done[module, True], done[module, False]
        possible = len(mutants(module, source(module)))
        print(f"{module:<20} {caught:>4} of {caught + survived:>4} caught ({possible} possible)")
    caught = sum(count for (_, yes), count in done.items() if yes)
    percent = 100 * caught / max(1, done.total())
    print(f"{caught} of {done.total()} caught: {percent:.1f} %")
    return percent


def main() -> int:
    """Run and print a table; the exit status says whether enough were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help="default: all", metavar="MODULE")
    parser.add_argument("--most", type=int, default=0, help="mutants of a module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=90.0, help="percent that must be caught")
    parser.add_argument("--budget", type=float, default=15.0, metavar="SECONDS",
                        help="so long are the tests of one mutant together")  # fmt: skip
    parser.add_argument("--minutes", type=float, help="stop after so long; call again to go on")
    parser.add_argument("--again", action="store_true", help="also what survived before")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true", help="only say what is known")
    parser.add_argument("--map", nargs="*", metavar="TEST", help="default: all; else these anew")
    args = parser.parse_args()
    tried = chosen(args.modules or list(MODULES), args.most, args.seed)
    if args.list:
        for mutant in tried:
            print(f"{mutant.module}:{mutant.line} {mutant.function}: {mutant.what}")
        return 0
    os.chdir(ROOT)
    if not args.table:
        in_namespaces()
    lines = OUT / "lines.json"
    if args.map is not None:
        return map_lines(args.map or MAPPED, {name: source(name) for name in MODULES}, lines)
    results = Results(OUT / "results.jsonl")
    if not args.table:
        if not lines.exists():
            sys.exit("which test runs which line? First: python ci/mutate.py --map")
        again = ("", "survived") if args.again else ("",)
        todo = [mutant for mutant in tried if results[mutant] in again]
        end = time.monotonic() + 60 * (args.minutes or 1e6)
        # First what is cheap. It imports qbuild, and what comes then must not have it yet.
        if (child := os.fork()) == 0:
            inner = [each for each in todo if each.function]
            warm(inner, lines, args.budget, results.add, end - time.monotonic())
            os._exit(0)
        os.waitpid(child, 0)
        outer = [each for each in todo if not each.function]
        anew(outer, MODULES, results.add, end - time.monotonic())
        results = Results(OUT / "results.jsonl")
    return 0 if table(tried, results) >= args.least else 1


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
