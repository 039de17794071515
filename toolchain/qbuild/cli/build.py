"""``qbuild [build] RECIPE``: from a recipe to a verified zip in ``dist/``."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild import bounds, held
from qbuild.cli.common import (
    add_build,
    add_recipe,
    build_options,
    gpu_name,
    make_plan,
    print_json,
    store,
)
from qbuild.console import Reporter
from qbuild.errors import StoreError, UsageError

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.options import BuildOptions, Record
    from qbuild.steps.plan import Plan
    from qbuild.store import Store
    from qbuild.verify.verdict import Verdict


_ABANDONED_S = 3600
"""Age in seconds at which a half-written zip in the output folder belongs to no living run."""


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe and build options."""
    add_recipe(parser)
    add_build(parser)
    parser.add_argument(
        "--release",
        action="store_true",
        help="use no compiler cache and nothing of other machines, and refuse results that did; "
        "a result that this machine made alone is used as it is",
    )
    parser.add_argument(
        "--no-run", action="store_true", help="verify by reading only; run nothing of the zip"
    )
    parser.add_argument(
        "--emulator",
        action="store_true",
        help="also prepare the zip's CUDA kernels for `qbuild verify ZIP --emulate`: minutes; "
        "they stay in the store, the zip is the same",
    )


@dataclass(frozen=True, kw_only=True)
class Made:
    """A verified zip in its place."""

    plan: Plan  # what it was made from
    path: Path  # the zip
    record: dict[str, Any]  # its build record
    # what was found when it was checked just now; none: it was up to date
    verdict: Verdict | None = None


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Build, verify and deliver the zip."""
    made = make(args, reporter)
    if args.emulator:
        _prepare_emulator(args, made, reporter)
    _tell(args, made)
    return 0


def _prepare_emulator(args: argparse.Namespace, made: Made, reporter: Reporter) -> None:
    """Make the kernels that stand for the zip's machine code, unless the store has them."""
    from qbuild.steps import emulator
    from qbuild.steps.builder import Builder

    home = store(args)
    builder = Builder(made.plan, home, reporter, build_options(args))
    with home.in_use():
        emulator.tie(builder, emulator.kernels(builder))


def make(args: argparse.Namespace, reporter: Reporter) -> Made:
    """Return the command line's zip, built, verified and delivered; up to date: as it lies."""
    options = build_options(args)
    if args.release:
        options = _for_release(options)
    if not (args.name or args.recipe or gpu_name(args)):
        _take_detected(args, reporter)
    plan = make_plan(args, mails=False)
    dist = Path(args.dist).absolute()
    done = up_to_date(plan, dist)
    if done is not None and not (args.release and done.get("shared")):
        return Made(plan=plan, path=dist / plan.zip_name, record=done)
    for series in plan.series:  # before minutes are spent on what they would change
        series.read_mails()
    from qbuild.steps.builder import Builder

    _check_writable(dist)
    home = store(args)
    home.clean_tmp()
    reporter.say(f"{plan.recipe.name}: {plan.recipe.summary}")
    builder = Builder(plan, home, reporter, options)
    with home.in_use():
        if args.release:
            _refuse_shared(builder)
        zip_path = builder.bundle().path / plan.zip_name
        started = time.monotonic()
        verdict = check(zip_path, home, reporter, run=plan.recipe.checks.run and not args.no_run)
        builder.record.seconds["verify"] = round(time.monotonic() - started, 2)
        if (dist / plan.zip_name).exists():
            reporter.say(f"{plan.zip_name} was in {dist} already: it is replaced")
        record = deliver(plan, zip_path, dist, verdict, builder.record)
    return Made(plan=plan, path=dist / plan.zip_name, record=record, verdict=verdict)


def _check_writable(dist: Path) -> None:
    """Make the output folder before minutes are spent on what goes into it.

    Raises:
        StoreError: It cannot be made, or cannot be written to.
    """
    import os

    try:
        dist.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(dist, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise StoreError(
            f"cannot write into the output folder: {problem}",
            where=str(dist),
            fix="choose another one with --dist",
        )


def _for_release(options: BuildOptions) -> BuildOptions:
    """Return the options of a build that uses nothing but the pins.

    Raises:
        UsageError: A remote cache or other machines are configured.
    """
    import dataclasses

    from qbuild.steps.shared import refuse

    refuse(options.shared, "a release build")
    return dataclasses.replace(options, compiler_cache=False)


def _refuse_shared(builder: Builder) -> None:
    """Do not release what an earlier run compiled with other machines' objects.

    Raises:
        StoreError: The store's objects came about that way.
    """
    shared = builder.result("compile").facts.get("shared")
    if shared:
        raise StoreError(
            f"the store's result is not hermetic: {'; '.join(shared)}",
            where=str(builder.store.entry_path("compile", builder.plan["compile"].key)),
            fix="use another --store, or remove results with `qbuild cache prune`",
        )


def _take_detected(args: argparse.Namespace, reporter: Reporter) -> None:
    """Name the recipe that fits this machine when the command line names none.

    Raises:
        UsageError: None of the recipes fits.
    """
    from qbuild.cli.doctor import this_machine
    from qbuild.doctor.detect import recommend
    from qbuild.recipe.load import known_recipes

    found = recommend(this_machine(args), tuple(known_recipes()))
    if found.recipe is None:
        raise UsageError(
            "no recipe named, and none fits this machine",
            where="; ".join(found.reasons) or None,
            fix="name one for another machine, e.g. `qbuild --recipe avx2`; see `qbuild list`",
        )
    words = shlex.split(found.command)[1:] or ["--recipe", found.recipe, "--os", found.os]
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--set":
            args.overrides.append(value)
        elif option == "--cuda-arch":
            args.cuda_arch.append(value)
        elif option == "--gpu":
            args.for_gpu = value
        elif option != "--os" or not args.os:
            setattr(args, option.lstrip("-"), value)
    reporter.say(
        f"no recipe named; `qbuild {' '.join(words)}` fits this machine: "
        + "; ".join(found.reasons)
    )


def check(zip_path: Path, home: Store, reporter: Reporter, *, run: bool) -> Verdict:
    """Return the verdict on a zip of ours.

    Raises:
        VerifyError: It does not keep a promise.
    """
    from qbuild.verify import verify_zip
    from qbuild.verify.run import run_zip

    reporter.say(f"verify: {zip_path.name}")
    verdict = verify_zip(zip_path, reporter=reporter)
    verdict.raise_if_failed(zip_path)
    if run:
        verdict = verdict.with_checks(
            run_zip(zip_path, cache_dir=home.root / "cache", reporter=reporter)
        )
        verdict.raise_if_failed(zip_path)
    return verdict


def deliver(
    plan: Plan, zip_path: Path, dist: Path, verdict: Verdict, record: Record
) -> dict[str, Any]:
    """Put the verified zip, its hash, verdict and build record into ``dist``.

    Raises:
        StoreError: The folder cannot be written.
    """
    from qbuild.steps.bundle_facts import host_tools
    from qbuild.store import write_atomically
    from qbuild.verify.verdict import to_json

    target = dist / plan.zip_name
    _place(zip_path, target, verdict)
    info = target.stat()
    digest = verdict.sha256
    data: dict[str, Any] = {
        "bundle": plan["bundle"].key,
        "zip": {
            "name": plan.zip_name,
            "sha256": digest,
            "size": info.st_size,
            "mtime_ns": info.st_mtime_ns,
            "inode": info.st_ino,
        },
        "checks": {
            "passed": sum(c.status == "passed" for c in verdict.checks),
            "not_run": [c.title for c in verdict.not_run],
        },
        "host": plan.host,
        "host_tools": host_tools(plan),
        **({"altered": record.altered} if record.altered else {}),
        "hermetic": record.hermetic,
        "shared": record.shared,
        "compiled_on": record.compiled_on,
        "origin": record.origin,
        "made": record.made,
        "reused": record.reused,
        "seconds": record.seconds,
    }
    write_atomically(dist / f"{plan.zip_name}.sha256", f"{digest}  {plan.zip_name}\n".encode())
    write_atomically(dist / f"{plan.zip_name}.verdict.json", to_json(verdict).encode())
    write_atomically(
        dist / f"{plan.zip_name}.build.json",
        (json.dumps(data, indent=2, sort_keys=True) + "\n").encode(),
    )
    return data


def _place(zip_path: Path, target: Path, verdict: Verdict) -> None:
    """Copy a zip into its place, whole, and only with the very bytes that were accepted.

    Raises:
        VerifyError: The verdict is a refusal.
        StoreError: The folder cannot be written, or the disk returned other bytes.
    """
    import os
    import shutil
    import time

    from qbuild.hashing import sha256_file

    verdict.raise_if_failed(zip_path)
    aside = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.part-*"):  # by a run that was killed
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    left.unlink()
        shutil.copyfile(zip_path, aside)
        if sha256_file(aside) != verdict.sha256:
            raise StoreError(
                "the copy of the zip is not the zip that was checked",
                where=str(target),
                fix="check this disk and its memory, then run again",
            )
        held.replace(aside, target)
    except OSError as error:
        raise StoreError(
            f"cannot write the zip: {held.why(error)}",
            where=str(target),
            fix="the finished zip is kept in the store; choose another --dist and run again",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # e.g. the folder is a file: the first error counts
            aside.unlink()


def up_to_date(plan: Plan, dist: Path) -> dict[str, Any] | None:
    """Return the build record of an unchanged, verified zip of this very plan, or nothing.

    The zip is recognised by size, modification time and inode: reading it again would take
    longer than the rest of the run.
    """
    target = dist / plan.zip_name
    try:
        data: dict[str, Any] = bounds.load_json(
            bounds.read_bytes(dist / f"{plan.zip_name}.build.json", bounds.JSON)
        )
        info = target.stat()
        known = data["zip"]
        same = (
            data["bundle"] == plan["bundle"].key
            and known["size"] == info.st_size
            and known["mtime_ns"] == info.st_mtime_ns
            and known["inode"] == info.st_ino
            and (dist / f"{plan.zip_name}.verdict.json").is_file()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data if same else None


def _tell(args: argparse.Namespace, made: Made) -> None:
    fresh = made.verdict is not None
    if args.json:
        print_json({**made.record, "path": str(made.path), "fresh": fresh})
        return
    if args.quiet:
        return
    if made.verdict is not None:
        print(made.verdict.summary())
    known = made.record["zip"]
    state = "verified" if fresh else "up to date"
    print(f"{made.path}  ({known['size'] / 1e6:.1f} MB, {state})\nsha256 {known['sha256']}")
    for title in made.record["checks"]["not_run"]:
        print(f"not run here: {title}")
