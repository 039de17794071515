"""What qbuild costs and what it saves, as ratios measured in one run.

    python benchmarks/build.py overhead     # qbuild against cmake and ninja by hand
    python benchmarks/build.py noop         # the second run of a finished build
    python benchmarks/build.py fetch        # bytes fetched against a full clone
    python benchmarks/build.py cache        # one file patched; a second recipe after the first

Each prints a Markdown table. `docs/benchmarks.md` holds the last results with machine and date.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from qbuild import host, resources
from qbuild.cli.common import store as user_store
from qbuild.console import Plain, Silent
from qbuild.held import remove_tree
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.builder import Builder
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import Plan, make_plan
from qbuild.store import Store
from qbuild.toolchains.base import WorkTree

PAIRS = 5
SMALL = ['build.targets=["ggml"]', "build.linkage=static"]


def plan_of(recipe: str, *overrides: str, system: str = "linux") -> Plan:
    return make_plan(
        load_recipe(recipe, os=system, overrides=list(overrides)),
        load_lock(resources.lockfile()),
        host=host.platform_key(),
    )


def timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def overhead(home: Store) -> None:
    """Plan, configure and compile by qbuild, and the same cmake and ninja commands by hand."""
    plan = plan_of("avx2", *SMALL)
    inputs = Builder(plan, home, Plain(), BuildOptions())
    cmake = inputs.wheel(plan.wheels[0]).path / "files/cmake/data/bin/cmake"
    ninja = next((inputs.wheel(plan.wheels[1]).path / "files").glob("*.data/scripts/ninja"))
    source = inputs.result("patch").path / "tree"
    options = BuildOptions(compiler_cache=False)
    zig_cache = home.root / "cache" / "zig"
    if not zig_cache.exists():  # zig's C runtime is built once per target: not part of either side
        Builder(plan, home, Plain(), options).result("compile")
        remove_tree(home.root / "compile" / plan["compile"].key)

    def clean() -> None:
        remove_tree(home.root / "compile" / plan["compile"].key)
        remove_tree(home.work_path(plan["configure"].key))

    def by_qbuild() -> None:
        Builder(plan_of("avx2", *SMALL), home, Silent(), options).result("compile")

    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "work"
        work.mkdir()
        shutil.copytree(source, work / "src", symlinks=True)
        layout = plan.toolchain.prepare(
            WorkTree(unpacked=inputs.all_unpacked(), work=work, cache_dir=home.root / "cache")
        )
        from qbuild.steps.cmake import init_cache

        (work / "toolchain.cmake").write_text(layout.toolchain_file)
        (work / "cache.cmake").write_text(init_cache(plan["configure"].inputs["cache"]))
        env = {"PATH": os.defpath, "HOME": name, "LC_ALL": "C", **layout.env}

        def by_hand() -> None:
            configure = [
                str(cmake), "-S", "src", "-B", "build", "-G", "Ninja", "-C", "cache.cmake",
                f"-DCMAKE_TOOLCHAIN_FILE={work}/toolchain.cmake", f"-DCMAKE_MAKE_PROGRAM={ninja}",
                "-Wno-author",
            ]  # fmt: skip
            compile_ = [str(ninja), "-C", "build", f"-j{host.default_jobs()}", "ggml"]
            for command in (configure, compile_):
                subprocess.run(command, cwd=work, env=env, check=True, capture_output=True)

        pairs = []
        for _ in range(PAIRS):
            clean()
            remove_tree(work / "build")
            pairs.append((timed(by_qbuild), timed(by_hand)))
    ratios = sorted(a / b for a, b in pairs)
    print("| | median s | min | max |\n| --- | --- | --- | --- |")
    for label, values in (
        ("qbuild: plan, configure, compile", [a for a, _ in pairs]),
        ("cmake and ninja by hand", [b for _, b in pairs]),
    ):
        print(
            f"| {label} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |"
        )
    print(
        f"| ratio, pair by pair | {statistics.median(ratios):.3f} | {ratios[0]:.3f} "
        f"| {ratios[-1]:.3f} |"
    )


def noop(home: Store) -> None:
    """The second run of a finished build: a new process, nothing to do."""
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable, "-m", "qbuild", "--recipe", "avx2", "--os", "linux", "--store",
            str(home.root), "--dist", name, "-q",
        ]  # fmt: skip
        subprocess.run(command, check=True)
        times = [
            timed(lambda: subprocess.run(command, check=True, capture_output=True))
            for _ in range(9)
        ]
    print("| | median s | min | max |\n| --- | --- | --- | --- |")
    print(
        f"| second run of `qbuild --recipe avx2` | {statistics.median(times):.2f} "
        f"| {min(times):.2f} | {max(times):.2f} |"
    )


def fetch(home: Store) -> None:
    """Bytes of the single-commit repository against what a full clone would bring."""
    plan = plan_of("avx2")
    entry = Builder(plan, home, Plain(), BuildOptions()).result("source")
    print("| | MB |\n| --- | --- |")
    print(f"| git objects of the pinned commit alone | {entry.size / 1e6:.1f} |")
    if plan.pin.sdist:
        print(f"| the sdist that carries them | {plan.pin.sdist.size / 1e6:.1f} |")
    print("| a full clone | not measured: upstream's repository is not reachable from here |")


def cache(home: Store) -> None:
    """Rebuilds with the compiler cache: nothing changed, one file changed, another recipe."""
    with tempfile.TemporaryDirectory(dir=home.root) as name:
        own = Store(Path(name) / "store")
        for kind in ("source", "wheel"):
            if (home.root / kind).is_dir():
                shutil.copytree(
                    home.root / kind, own.root / kind, symlinks=True, copy_function=os.link
                )
        if (home.root / "cache" / "zig").is_dir():
            shutil.copytree(home.root / "cache" / "zig", own.root / "cache" / "zig")
        rows = []

        def build(label: str, *overrides: str, recipe: str = "avx2") -> None:
            plan = plan_of(recipe, *SMALL, *overrides)
            rows.append(
                (
                    label,
                    timed(lambda: Builder(plan, own, Plain(), BuildOptions()).result("compile")),
                )
            )
            remove_tree(own.root / "compile")

        build("cold: every file compiled")
        build("again, all objects from the compiler cache")
        build("second recipe (baseline) after the first", recipe="baseline")
    print("| | s | of cold |\n| --- | --- | --- |")
    for label, seconds in rows:
        print(f"| {label} | {seconds:.1f} | {seconds / rows[0][1]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("overhead", "noop", "fetch", "cache"))
    parser.add_argument("--store", default=None)
    args = parser.parse_args()
    {"overhead": overhead, "noop": noop, "fetch": fetch, "cache": cache}[args.what](
        user_store(args)
    )


if __name__ == "__main__":
    main()
