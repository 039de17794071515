"""Compile: ninja (or MSBuild) in the configured work folder, which survives until it succeeded."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import host, process
from qbuild.errors import CompileError
from qbuild.steps import cmake, ninja
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.configure import configure
from qbuild.steps.work import Work, lay_out
from qbuild.toolchains import spread

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell

FORMAT: Final = 1


class CompileStep(Kind):
    """``bin`` of the build tree, the log and who compiled what when."""

    kind = "compile"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return the configured tree and the targets."""
        return {
            "format": FORMAT,
            "configure": before["configure"].key,
            "targets": list(ask.tests or ask.recipe.build.targets),
        }

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return the targets."""
        return ", ".join(plan.recipe.build.targets)

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Configure and compile.

        Raises:
            ConfigureError: CMake refuses.
            CompileError: A command failed; carries the first error and the log's path.
        """
        key = build.plan["configure"].key
        folder = build.store.work_path(key)
        with build.store.lock("work", key, build.reporter):
            work = lay_out(build, folder)
            configure(build, work)
            started = time.monotonic()
            binaries = _compile(step, build, work)
            build.record.seconds["ninja"] = round(time.monotonic() - started, 2)
            shutil.copytree(binaries, dest / "bin", symlinks=True)
            if build.after_compile is not None:
                build.after_compile(folder, work.tools, work.env)
            # Logs hold times and paths: they lie in the store for people, never in a bundle.
            shutil.copyfile(work.log, dest / "build.log")
            edges = [[e.output, e.start_ms, e.end_ms] for e in ninja.read_log(folder / "build")]
            (dest / "timeline.json").write_text(json.dumps(edges), encoding="utf-8", newline="\n")
            facts = {
                "compiler": _compiler_version(folder / "build"),
                "hermetic": build.record.hermetic,
                "shared": build.options.shared.words(),
                "compiled_on": _compiled_on(build, folder / "distcc.log"),
            }
            if not build.options.keep_work:
                build.store.discard(folder)
        return facts

    def script(self, plan: Plan, step: Step, out: Shell) -> None:
        """Write the call of ninja or MSBuild, and what puts libraries beside the programs."""
        recipe = plan.recipe
        targets, config = step.inputs["targets"], recipe.build.type
        binaries = "build/bin"
        if "Ninja" in plan["configure"].inputs["layout"].get("generator", ["Ninja"]):
            out.run(f"tools/ninja/bin/ninja{out.suffix}", "-C", "build", *targets)
        else:
            program = f"tools/cmake/cmake/data/bin/cmake{out.suffix}"
            out.run(*cmake.build_command(program, "build", targets, config=config, jobs=2))
            binaries = f"build/bin/{config}"
        words = plan.toolchain.script(out.shell, out.here)
        libraries = [name for kind in plan.feeding() for name in kind.script_libraries(recipe)]
        libraries += words.libraries
        if libraries:
            out.note("The libraries that the programs load")
        for path in libraries:
            out.copy_file(path, binaries)
        for line in (*words.last, f"The binaries lie in {binaries}."):
            out.note(line)


def _compile(step: Step, build: Builder, work: Work) -> Path:
    """Build the targets; return the folder of the binaries."""
    jobs = build.options.jobs or host.default_jobs()
    targets = step.inputs["targets"]
    binaries = work.folder / "build" / "bin"
    if "Ninja" not in work.prepared.generator:
        _msbuild(build, work, targets, jobs)
        return binaries / build.plan.recipe.build.type
    ninja.build(
        work.tools["ninja"],
        work.folder / "build",
        targets,
        jobs=jobs,
        env=work.env,
        log=work.log,
        reporter=build.reporter,
        network=build.options.network,
    )
    return binaries


def _msbuild(build: Builder, work: Work, targets: list[str], jobs: int) -> None:
    """Compile with the Visual Studio generator (never run on a real Windows)."""
    config = build.plan.recipe.build.type
    command = cmake.build_command(
        work.tools["cmake"], work.folder / "build", targets, config=config, jobs=jobs
    )
    lines: list[str] = []
    status = process.run_logged(
        command, cwd=work.folder, env=work.env, log=work.log, on_line=lines.append
    )
    if status != 0:
        raise CompileError(
            lines[-1] if lines else "MSBuild failed",
            where=f"full log: {work.log}",
            fix=ninja.advice("\n".join(lines)),
        )


def _compiled_on(build: Builder, log: Path) -> dict[str, int]:
    """Return host → files, and say so when none of the hosts compiled anything."""
    asked = build.options.shared.hosts
    if not asked:
        return {}
    hosts = spread.compiled_on(log)
    if hosts and not set(hosts) - {spread.HERE}:
        build.reporter.warn(
            f"everything was compiled on this machine, nothing on {', '.join(asked)}: "
            f"{spread.why_here(log)}"
        )
    return hosts


def _compiler_version(build: Path) -> str:
    for path in sorted(build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("set(CMAKE_CXX_COMPILER_VERSION "):
                return line.split('"')[1]
    return "unknown"
