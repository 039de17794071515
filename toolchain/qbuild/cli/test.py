"""``qbuild test RECIPE``: build the tests that the patch series bring and run them with ctest."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbuild import host, process
from qbuild.cli.common import (
    add_build,
    add_recipe,
    build_options,
    load,
    load_lock,
    print_json,
    store,
)
from qbuild.console import Reporter
from qbuild.errors import CompileError, UsageError

if TYPE_CHECKING:
    from qbuild.recipe.model import Recipe

_RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) \.*\s*(\S.*?)\s+[\d.]+ sec", re.MULTILINE)


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe and build options."""
    add_recipe(parser)
    add_build(parser)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="TARGET",
        help="also build and run this test of upstream's, e.g. test-chat; may be repeated",
    )
    _add_emulated(parser.add_argument_group("on the emulated GPU"))


def _add_emulated(emulated: argparse._ArgumentGroup) -> None:
    emulated.add_argument(
        "--emulate",
        nargs="?",
        const="",
        metavar="GPU",
        help="run upstream's test-backend-ops, CUDA against CPU, on an emulated GPU (without a "
        "name: the first that the recipe has kernels for); results are emulated, never validated",
    )
    emulated.add_argument(
        "--units", metavar="LIST", help="only make the kernels of these units, e.g. mmvq,matrix"
    )
    emulated.add_argument(
        "--ops", metavar="LIST", help="only these operations, e.g. MUL_MAT,SOFT_MAX"
    )
    emulated.add_argument(
        "--params", metavar="REGEX", help="only cases whose parameters match, e.g. type_a=q4_0"
    )
    emulated.add_argument(
        "--cases",
        metavar="FILE",
        help="the cases of this file instead of the GPU's (emulated-cases-61.txt …)",
    )
    emulated.add_argument(
        "--sample",
        action="store_true",
        help="compile few small units and run their cases alone: what CI has time for",
    )
    emulated.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="begin no further cases after so long; the same command goes on where it stopped",
    )
    emulated.add_argument(
        "--prepare", metavar="FOLDER", help="put programs and kernels there, and run nothing"
    )
    emulated.add_argument(
        "--again", action="store_true", help="run cases again that have a result already"
    )
    emulated.add_argument(
        "--check",
        action="store_true",
        help="check every access to memory, and shared memory for races (kernels are compiled "
        "once more for it, and run several times slower)",
    )
    emulated.add_argument(
        "--count",
        metavar="UNITS",
        help="count instructions and sectors of device memory in the kernels of these units of "
        "ggml-cuda, e.g. mmvq,mmq-q,matrix with --ops MUL_MAT; an estimate",
    )
    emulated.add_argument(
        "--shuffle",
        type=int,
        metavar="SEED",
        default=0,
        help="run lanes and warps in an order drawn from this seed: shows races",
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Build and run the tests; every failure is named.

    Raises:
        UsageError: The recipe's series bring no tests, or the target cannot run here.
        CompileError: A test failed.
    """
    from qbuild import resources
    from qbuild.held import remove_tree
    from qbuild.steps import plan as plans
    from qbuild.steps.builder import Builder
    from qbuild.steps.captured import capture

    if args.emulate is not None:
        from qbuild.cli.emulated_tests import run_tests

        return run_tests(args, reporter)
    # Tests look inside the libraries, and one counts memory by replacing operator new, which a
    # library with a C++ runtime of its own does not hear of: everything goes into one program.
    # A CUDA backend is a library in any case: its recipes keep their linkage.
    recipe = load(args)
    if not recipe.cuda.architectures:
        args.overrides = [*args.overrides, "build.linkage=static"]
        recipe = load(args)
    if recipe.target.os != host.system():
        raise UsageError(
            f"tests run on this machine, and the recipe builds for {recipe.target.os}",
            fix=f"add --os {host.system()}",
        )
    root = Path(args.patches) if args.patches else resources.patches_dir()
    tests = _tests_of(recipe, root, args.also)
    found = capture(recipe)
    lock, key = load_lock(args), host.platform_key()
    plan = plans.make_plan(recipe, lock, host=key, patches_root=root, tests=tests, captured=found)
    builder = Builder(plan, store(args), reporter, build_options(args))
    results: dict[str, str] = {}

    def run(work: Path, tools: Mapping[str, Path], env: Mapping[str, str]) -> None:
        results.update(_ctest(tools["cmake"].with_stem("ctest"), work, env, tests, reporter))
        failed = [name for name, result in results.items() if result != "Passed"]
        missing = [name for name in tests if name not in results]
        if failed or missing:
            raise CompileError(
                f"tests failed: {', '.join(failed + missing)}",
                where=f"full log: {work / 'ctest.log'}",
            )

    builder.after_compile = run
    # A finished entry would skip the tests: what was asked for is running them.
    remove_tree(builder.store.entry_path("compile", plan["compile"].key))
    with builder.store.in_use():
        builder.result("compile")
    if args.json:
        print_json(results)
    else:
        lines = [f"{name}: {result}" for name, result in results.items()]
        print("\n".join([*lines, f"{len(results)} passed, 0 failed"]))
    return 0


def _tests_of(recipe: Recipe, root: Path, also: Sequence[str]) -> tuple[str, ...]:
    """Return the tests that a recipe's series bring, and those named besides.

    Raises:
        UsageError: There are none.
    """
    from qbuild.patches import load_series

    names = [
        test
        for series in (load_series(root, name) for name in recipe.series)
        for patch in series.patches
        for test in patch.entry.tests
        if "/" not in test  # qbuild's own tests are named by file; ctest's by target
    ]
    tests = tuple(dict.fromkeys([*names, *also]))
    if not tests:
        raise UsageError(
            f"the series of recipe {recipe.name} bring no tests",
            where=", ".join(recipe.series) or "no series",
            fix="name some of upstream's with --also",
        )
    return tests


def _ctest(
    ctest: Path, work: Path, env: Mapping[str, str], tests: tuple[str, ...], reporter: Reporter
) -> dict[str, str]:
    """Run the tests of these names and return name → ctest's word for the result."""
    log = work / "ctest.log"
    log.unlink(missing_ok=True)
    pattern = "|".join(f"^{re.escape(name)}$" for name in tests)
    command = [str(ctest), "--test-dir", str(work / "build"), "-R", pattern, "--output-on-failure"]
    with reporter.task("test", total=len(tests)) as task:
        done = 0

        def follow(line: str) -> None:
            nonlocal done
            if match := _RESULT.match(line):
                done += 1
                task.update(done=done, note=match[1])

        process.run_logged(command, cwd=work / "build", env=env, log=log, on_line=follow)
    text = log.read_text(encoding="utf-8", errors="replace")
    return {m[1]: m[2].strip("* ") for m in _RESULT.finditer(text)}
