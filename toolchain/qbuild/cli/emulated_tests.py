"""``qbuild test RECIPE --emulate``: upstream's test-backend-ops on the emulated GPU."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbuild import host
from qbuild.cli.common import build_options, load, load_lock, print_json, store
from qbuild.console import Reporter
from qbuild.emulator import gpus, report
from qbuild.errors import CompileError, UsageError

_CASE = re.compile(r"^\s{2}(\w+)\((.*)\): (.*)$")


def run_tests(args: argparse.Namespace, reporter: Reporter) -> int:
    """Make kernels and test program, run the cases, print what came out.

    Raises:
        UsageError: The recipe's target is not this system's.
        CompileError: A case failed.
    """
    from qbuild.steps import emulator
    from qbuild.steps import plan as plans
    from qbuild.steps.builder import Builder

    args.overrides = [*args.overrides, "build.ui=false"]
    gpu = gpus.find(args.emulate)
    recipe = load(args)
    if recipe.target.os != host.system():
        raise UsageError(
            f"tests run on this machine, and the recipe builds for {recipe.target.os}",
            fix=f"add --os {host.system()}",
        )
    lock, patches = load_lock(args), Path(args.patches) if args.patches else None
    key, home = host.platform_key(), store(args)

    def builder(*, device_code: bool) -> Builder:
        plan = plans.make_plan(
            recipe, lock, host=key, patches_root=patches,
            tests=emulator.test_targets(), device_code=device_code,
        )  # fmt: skip
        return Builder(plan, home, reporter, build_options(args))

    with home.in_use():
        kernels = emulator.kernels(builder(device_code=True), checks=args.check)
        programs = emulator.tests(builder(device_code=False))
        with tempfile.TemporaryDirectory(prefix="qbuild-emulated-") as name:
            folder = Path(name)
            emulator.put_together(folder, kernels.path / "files", programs.path / "bin")
            result = _run(args, folder, gpu, reporter)
    ran = report.read(result["report"])
    covered, every = emulator.coverage(kernels, [(row.unit, row.kernel) for row in ran])
    told = ("cases", "failed", "not_supported", "seconds")
    summary = {
        "gpu": gpu.name,
        "emulated": True,
        "validated": False,
        "kernels_ran": covered,
        "kernels": every,
        "shuffle": args.shuffle,
        "checked": args.check,
        "findings": result["findings"],
        **{key: result[key] for key in told},
    }
    if args.json:
        print_json(summary)
    else:
        _tell(summary)
    _check_all_right(result, gpu.name)
    return 0


def _check_all_right(result: Mapping[str, Any], gpu: str) -> None:
    """Check that cases ran and that each was right.

    Raises:
        CompileError: None ran, or one is wrong.
    """
    if not result["cases"]:
        raise CompileError(
            f"no case ran on the emulated {gpu}",
            where=f"full log: {result['log']}",
            fix="check --ops and --params; the log says whether the CUDA backend was loaded",
        )
    if result["failed"] or result["status"]:
        first = result["failed"][0] if result["failed"] else f"exit code {result['status']}"
        raise CompileError(
            f"test-backend-ops on the emulated {gpu}: {len(result['failed'])} cases are "
            f"wrong, first {first}",
            where=f"full log: {result['log']}",
        )


def _tell(summary: Mapping[str, Any]) -> None:
    print(
        f"emulated {summary['gpu']}: {summary['cases']} cases, {len(summary['failed'])} wrong, "
        f"{summary['not_supported']} not supported; {summary['kernels_ran']} of "
        f"{summary['kernels']} kernels ran, {summary['seconds']:.0f} s"
    )
    for finding in summary["findings"]:
        print(f"  {finding}")


def _run(
    args: argparse.Namespace, folder: Path, gpu: gpus.Gpu, reporter: Reporter
) -> Mapping[str, Any]:
    command = [str(folder / "test-backend-ops"), "test", "-b", "CUDA0"]
    for option, value in (("-o", args.ops), ("-p", args.params), ("--test-file", args.cases)):
        if value:
            command += [option, str(Path(value).absolute()) if option == "--test-file" else value]
    log = Path(args.dist).absolute() / "emulated-tests.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    written = folder / "report.tsv"
    env = {
        **os.environ,
        **gpus.environment([gpu]),
        "QBUILD_EMULATOR_REPORT": str(written),
        "QBUILD_EMULATOR_SHUFFLE": str(args.shuffle),
    }
    failed: list[str] = []
    findings: list[str] = []
    cases = absent = 0
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as out, reporter.task("test-backend-ops") as task:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True,
            errors="replace", cwd=folder,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            if line.startswith("emulated GPU: "):
                findings.append(line.removeprefix("emulated GPU: ").strip())
            match = _CASE.match(re.sub(r"\x1b\[[0-9;]*m", "", line))
            if match is None:
                continue
            if "not supported" in match[3]:
                absent += 1
            else:
                cases += 1
                if "OK" not in match[3]:
                    failed.append(f"{match[1]}({match[2]})")
            task.update(done=cases, note=match[1])
        status = process.wait()
    text = written.read_text(encoding="utf-8") if written.exists() else ""
    return {
        "cases": cases,
        "failed": failed,
        "findings": list(dict.fromkeys(findings)),
        "not_supported": absent,
        "status": status,
        "report": text,
        "log": str(log),
        "seconds": time.monotonic() - started,
    }
