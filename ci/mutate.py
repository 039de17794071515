#!/usr/bin/env python3
"""Break lines of the central modules one at a time and see whether a unit test dies with them.

    python ci/mutate.py                        every module, a sample of its mutants
    python ci/mutate.py store toml --most 0    two modules, all of their mutants
    python ci/mutate.py --list                 what would be broken

A mutant is one changed node of the syntax tree: a condition turned round, a comparison off by one,
a `raise` or a call left out, a number changed, a returned value dropped. Its module's tests run in
a child of a process that has the libraries imported already, so that a mutant takes a second or
two. Survivors that cannot be noticed are listed in ``ci/mutants.toml`` with the reason; any other
survivor is an exit status of 1 when fewer than ``--least`` percent were caught.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import random
import signal
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "toolchain" / "qbuild"
KNOWN = Path(__file__).with_name("mutants.toml")

MODULES = {
    "store": ["test_store.py", "test_attack.py"],
    "process": ["test_stopping.py", "../integration/test_process.py"],
    "bounds": ["test_bounds.py"],
    "toml": ["test_bounds.py", "test_recipe.py"],
    "steps/ensure": ["test_ensure.py"],
    "steps/plan": ["test_plan.py"],
    "steps/stage": ["test_ensure.py"],
    "steps/cmake": ["test_plan.py"],
    "cli/build": ["test_delivery.py", "test_attack.py", "test_cli.py"],
    "binary/names": ["test_archive.py", "test_bounds.py", "test_untar.py"],
    "binary/zip_reader": ["test_archive.py", "test_bounds.py"],
    "binary/zip_writer": ["test_archive.py"],
    "binary/untar": ["test_untar.py", "test_bounds.py"],
    "verify/verdict": ["test_verify_model.py", "test_delivery.py", "test_verify_cli.py"],
    "verify/structure": ["test_verify_papers.py", "test_verify_hostile.py"],
    "patches/series": ["test_patch_model.py"],
    "recipe/lock": ["test_lock.py"],
}
"""Module below ``toolchain/qbuild`` → test files below ``tests/unit`` that keep its promises."""

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: module, line (1-based), what it is, and its number among the module's."""

    module: str
    line: int
    what: str
    number: int


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (what, replacement) for a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        new = copy.deepcopy(node)
        new.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        yield f"{ast.unparse(node)}  →  {ast.unparse(new)}", new
    elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.BinOp) and type(node.op) in _SWAPS):
        joined = copy.deepcopy(node)
        joined.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield f"{ast.unparse(node)}  →  {ast.unparse(joined)}", joined
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)}  →  {ast.unparse(node.operand)}", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):  # True and False are, too
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield f"{node.value}  →  {value}", ast.Constant(value)
    elif isinstance(node, ast.If | ast.While):
        turned = copy.deepcopy(node)
        turned.test = ast.UnaryOp(ast.Not(), turned.test)
        yield f"{ast.unparse(node.test)}  →  not", turned
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield f"left out: {ast.unparse(node)[:70]}", ast.Pass()
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield f"{ast.unparse(node)[:70]}  →  return None", ast.Return(ast.Constant(None))


class _Rewrite(ast.NodeTransformer):
    """Counts possible changes; makes the one with the wanted number."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.found = wanted, list[tuple[int, str]]()

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.AnnAssign):  # an annotation is no code
            if node.value is not None:
                node.value = self.visit(node.value)  # type: ignore[assignment]
            return node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
            return node
        replacement = None
        for what, new in _changes(node):
            if len(self.found) == self.wanted:
                replacement = ast.copy_location(new, node)
            self.found.append((node.lineno, what))  # type: ignore[attr-defined]
        if replacement is not None:
            return ast.fix_missing_locations(replacement)
        return self.generic_visit(node)


def mutants(module: str) -> list[Mutant]:
    """Return every mutant of a module."""
    rewrite = _Rewrite()
    rewrite.visit(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")))
    return [Mutant(module, line, what, n) for n, (line, what) in enumerate(rewrite.found)]


def code_of(mutant: Mutant) -> CodeType:
    """Return the changed module's code."""
    path = PACKAGE / f"{mutant.module}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _Rewrite(mutant.number).visit(tree)  # changes it in its place
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed module to whoever imports it."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = "qbuild." + mutant.module.replace("/", ".")
        self._code = code_of(mutant)

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._name:
            return None
        file = PACKAGE / (name.removeprefix("qbuild.").replace(".", "/") + ".py")
        return importlib.util.spec_from_file_location(name, file, loader=self)

    def create_module(self, _: ModuleSpec) -> None:
        """Let the machinery make it."""

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def run_tests(tests: list[str], mutant: Mutant | None) -> int:
    """Run tests (in a child) and return pytest's exit status."""
    import pytest

    if mutant is not None:
        sys.meta_path.insert(0, _Instead(mutant))
    files = [str(ROOT / "tests" / "unit" / name) for name in tests]
    files = [name for name in files if Path(name).exists()]
    words = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    return int(pytest.main(words))


def outcome(tests: list[str], mutant: Mutant | None, limit_s: float) -> str:
    """Return ``caught``, ``survived`` or ``timeout`` (which is caught, too)."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        status = 1
        with contextlib.suppress(BaseException):
            status = run_tests(tests, mutant)
        os._exit(0 if status == 0 else 1)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "caught"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def known() -> dict[tuple[str, str], str]:
    """Return (module, what) → why nothing can notice it."""
    if not KNOWN.exists():
        return {}
    rows = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("mutant", [])
    return {(row["module"], row["what"]): row["why"] for row in rows}


def warm_up() -> None:
    """Import what the tests need, and nothing of qbuild: that is what changes."""
    for name in ("pytest", "pefile", "elftools.elf.elffile", "iced_x86", "deflate", "filelock",
                 "tomlkit", "cyclonedx.model.bom", "platformdirs", "psutil"):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> int:
    """Run and print a table; the exit status says whether enough were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help="default: all", metavar="MODULE")
    parser.add_argument("--most", type=int, default=15, help="mutants of a module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=90.0, help="percent that must be caught")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per mutant, at least")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path, help="write every outcome here as JSON lines")
    args = parser.parse_args()
    dice = random.Random(args.seed)
    sys.path.insert(0, str(ROOT / "tests"))
    os.chdir(ROOT)
    warm_up()
    excused, caught, total = known(), 0, 0
    for module in args.modules or MODULES:
        every = mutants(module)
        chosen = sorted(dice.sample(range(len(every)), min(args.most or len(every), len(every))))
        if args.list:
            print(f"{module}: {len(every)} mutants, {len(chosen)} chosen")
            continue
        started = time.monotonic()
        if (how := outcome(MODULES[module], None, 20 * args.limit)) != "survived":
            print(f"{module}: its tests, with nothing changed: {how}")
            return 2
        limit = max(args.limit, 5 * (time.monotonic() - started))  # on a busy machine, too
        here = 0
        for mutant in (every[index] for index in chosen):
            reason = excused.get((module, mutant.what))
            how = "excused" if reason else outcome(MODULES[module], mutant, limit)
            total += how != "excused"
            here += how in ("caught", "timeout")
            if how == "survived":
                print(f"  SURVIVED {module}:{mutant.line}: {mutant.what}", flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({**asdict(mutant), "how": how}) + "\n")
        caught += here
        print(f"{module}: {here} of {len(chosen)} caught ({len(every)} possible)", flush=True)
    if args.list or not total:
        return 0
    percent = 100 * caught / total
    print(f"{caught} of {total} caught: {percent:.1f} %")
    return 0 if percent >= args.least else 1


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.TextIOWrapper(sys.stdout.buffer, line_buffering=True)):
        sys.exit(main())
