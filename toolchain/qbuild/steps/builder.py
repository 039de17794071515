"""Make the plan's results: each step from the store when it is there, else from its inputs.

Work is pulled from the end: a bundle that exists needs no stage, a stage no compile, and so on.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbuild import host, process
from qbuild.bundle.launch.profile import profiles_of
from qbuild.bundle.launch.source_options import check_in_tree
from qbuild.console import Reporter
from qbuild.errors import CompileError, ConfigureError, StoreError, ToolchainError
from qbuild.recipe.lock import WheelPin
from qbuild.steps import cmake, ninja, openblas
from qbuild.steps import web_ui as webui
from qbuild.steps.object_cache import ObjectCache
from qbuild.steps.options import BuildOptions, Record
from qbuild.steps.pinned import UNPACKED, ensure, fetch_pin, fetch_wheel, program
from qbuild.steps.plan import Plan, Step
from qbuild.store import Entry, Store, link_tree, remove_tree, write_atomically
from qbuild.toolchains import spread
from qbuild.toolchains.base import CUDA_TREE, Prepared

_MARGIN = 1 << 30
"""Bytes that must stay free on the store's disk while a build tree grows."""

_SOURCE_SIZE = 40_000_000
"""Bytes of llama.cpp's objects at one commit, as measured."""

_BUILD_DISK = 1_200_000_000
"""Bytes that source, patched tree, build tree and results take together, as measured."""

AfterCompile = Callable[[Path, Mapping[str, Path], Mapping[str, str]], None]
"""Called with the work folder, the build tools and the environment while the tree still stands."""


class Builder:
    """Runs a plan against a store."""

    def __init__(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> None:
        self.plan = plan
        self.store = store
        self.reporter = reporter
        self.options = options
        self.record = Record()
        self.objects = ObjectCache(plan, store, options, self.wheel)
        self._entries: dict[str, Entry] = {}
        self.after_compile: AfterCompile | None = None

    def bundle(self) -> Entry:
        """Return the finished bundle, making whatever is missing."""
        self._announce()
        made = self._ensure(self.plan.bundle, self._make_bundle)
        compiled = self.store.find("compile", self.plan.compile.key)
        if compiled is not None:
            self._remember(compiled)
        return made

    def _remember(self, compiled: Entry) -> None:
        """Put into the record how the objects came about, also when an earlier run made them."""
        self.record.hermetic = compiled.facts.get("hermetic")
        self.record.shared = list(compiled.facts.get("shared", []))
        self.record.compiled_on = dict(compiled.facts.get("compiled_on", {}))

    def stage(self) -> Entry:
        """Return the staged binaries."""
        return self._ensure(self.plan.stage, self._make_stage)

    def compile(self) -> Entry:
        """Return the compiled binaries."""
        return self._ensure(self.plan.compile, self._make_compile)

    def patch(self) -> Entry:
        """Return the patched source tree."""
        return self._ensure(self.plan.patch, self._make_patch)

    def source(self) -> Entry:
        """Return the repository that holds the pinned commit."""
        if self.plan.source.key not in self._entries:
            self._entries[self.plan.source.key] = fetch_pin(
                self.plan.pin,
                self.store,
                self.reporter,
                origins=self.options.origins,
                offline=self.options.offline,
                record=self.record,
            )
        return self._entries[self.plan.source.key]

    def wheel(self, wheel: WheelPin) -> Entry:
        """Return an unpacked wheel."""
        return fetch_wheel(
            wheel, self.store, self.reporter, offline=self.options.offline, record=self.record
        )

    def _announce(self) -> None:
        """Say how much will be fetched and how much disk it takes, before anything is."""
        plan = self.plan
        if self.store.find("compile", plan.compile.key) is not None:
            return
        missing = [
            w
            for w in plan.wheels
            if self.store.find("wheel", plan.wheel_steps[w.project].key) is None
        ]
        if missing and self.options.offline:
            self._say_missing(missing)
        source = plan.pin.sdist.size if plan.pin.sdist else _SOURCE_SIZE
        if self.store.find("source", plan.source.key) is not None:
            source = 0
        download = sum(w.size for w in missing) + source
        disk = _BUILD_DISK + UNPACKED * sum(w.size for w in missing)
        if plan.npm is not None and self.store.find(plan.npm.kind, plan.npm.key) is None:
            download += webui.DOWNLOAD
            disk += webui.DOWNLOAD + webui.DISK
        if download:
            self.reporter.say(
                f"to fetch: up to {download / 1e6:.0f} MB; disk: about {disk / 1e9:.1f} GB "
                f"in {self.store.root}"
            )

    def _say_missing(self, missing: Sequence[WheelPin]) -> None:
        """Name all that an offline build lacks at once; mirrors may still deliver it."""
        names = ", ".join(wheel.filename for wheel in missing)
        self.reporter.warn(f"--offline: the store lacks {len(missing)} wheels: {names}")

    # -- one step ---------------------------------------------------------------------------

    def _ensure(self, step: Step, make: Callable[[Path], Mapping[str, Any]]) -> Entry:
        """Return a step's result; one run asks for the same step once."""
        if step.key not in self._entries:
            self._entries[step.key] = ensure(step, make, self.store, self.reporter, self.record)
        return self._entries[step.key]

    # -- patch ------------------------------------------------------------------------------

    def _make_patch(self, dest: Path) -> Mapping[str, Any]:
        from qbuild.patches import apply_series

        repo = self.source().path / "repo.git"
        names = ", ".join(s.name for s in self.plan.series) or "nothing"
        self.reporter.say(f"patch: {names}")
        tree = apply_series(repo, self.plan.pin.commit, self.plan.series, dest / "tree")
        for applied in tree.patches:
            if applied.status != "clean":
                self.reporter.say(f"patch: {applied.series}/{applied.file}: {applied.status}")
        return {
            "commit": tree.commit,
            "tree": tree.tree,
            "patches": [
                {"series": p.series, "file": p.file, "subject": p.subject, "status": p.status}
                for p in tree.patches
            ],
        }

    # -- the web UI -------------------------------------------------------------------------

    def npm(self) -> Entry | None:
        """Return npm's cache of the web UI's packages; nothing when the recipe wants no UI."""
        if self.plan.npm is None:
            return None
        return self._ensure(self.plan.npm, self._make_npm)

    def web_ui(self) -> Path | None:
        """Return the folder of the finished web UI; nothing when the recipe wants none."""
        if self.plan.web_ui is None:
            return None
        return self._ensure(self.plan.web_ui, self._make_web_ui).path

    def _node(self) -> Path:
        (node,) = (w for w in self.plan.wheels if w.project == webui.PROJECT)
        return self.wheel(node).path / "files"

    def _make_npm(self, dest: Path) -> Mapping[str, Any]:
        return webui.fetch_packages(
            dest,
            node=self._node(),
            source=self.patch().path / "tree" / webui.SOURCE,
            offline=self.options.offline,
            reporter=self.reporter,
        )

    def _make_web_ui(self, dest: Path) -> Mapping[str, Any]:
        step, npm = self.plan.web_ui, self.npm()
        assert step is not None and npm is not None
        self.reporter.say("web UI: npm builds it (a minute or two)")
        return webui.build(
            dest,
            node=self._node(),
            source=self.patch().path / "tree" / webui.SOURCE,
            packages=npm.path,
            name=step.inputs["name"],
            work=self.store.work_path(step.key),
            log=self.store.root / "cache" / "web-ui.log",
            reporter=self.reporter,
        )

    # -- the folder that clang takes for a CUDA installation ---------------------------------

    def _make_tree(self, dest: Path) -> Mapping[str, Any]:
        from qbuild.cuda import tree as cuda_tree

        plan = self.plan
        assert plan.tree is not None
        self.reporter.say("CUDA tree: headers, ptxas and import libraries from the wheels")
        unpacked = {w.project: self.wheel(w).path / "files" for w in plan.wheels}
        commands = cuda_tree.assemble(
            dest / "tree",
            unpacked,
            host=plan.tree.inputs["host"],
            target=plan.tree.inputs["target"],
        )
        cache = self.store.root / "cache" / "zig"
        cache.mkdir(parents=True, exist_ok=True)
        env = {"PATH": host.search_path(), "HOME": str(dest), "LC_ALL": "C", "TZ": "UTC"}
        env |= {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
        log = self.store.root / "cache" / "cuda-tree.log"
        lines: list[str] = []
        for command in commands:
            status = process.run_logged(
                list(command.argv), cwd=dest, env=env, log=log, on_line=lines.append
            )
            if status != 0 or not command.makes.is_file():
                raise ToolchainError(
                    f"{command.makes.name} of the CUDA tree could not be made: "
                    + (lines[-1] if lines else f"exit code {status}"),
                    where=f"full log: {log}",
                    fix="this is a fault of qbuild or of a wheel; please report it",
                )
        return {"makes": [command.makes.name for command in commands]}

    # -- OpenBLAS ----------------------------------------------------------------------------

    def openblas(self) -> Path | None:
        """Return the folder of the recipe's OpenBLAS, checked; nothing when it wants none."""
        if self.plan.openblas is None:
            return None
        return self._ensure(self.plan.openblas, self._make_openblas).path / "tree"

    def _make_openblas(self, dest: Path) -> Mapping[str, Any]:
        recipe = self.plan.recipe
        files = None
        for wheel in openblas.wheels(recipe, self.plan.lock):
            files = self.wheel(wheel).path / "files"
        found = openblas.locate(recipe, os.environ, files)
        self.reporter.say(f"OpenBLAS {found.version}: {found.link.name} fits the recipe")
        return openblas.assemble(found, dest / "tree")

    # -- configure and compile --------------------------------------------------------------

    def _make_compile(self, dest: Path) -> Mapping[str, Any]:
        """Configure and compile in the work tree, which survives until it succeeded."""
        plan = self.plan
        work = self.store.work_path(plan.configure.key)
        with self.store.lock("work", plan.configure.key, self.reporter):
            self._check_space(work)
            prepared, tools = self._prepare(work)
            env = self._environment(prepared, work)
            log = work / "build.log"
            self._configure(work, prepared, tools, env, log)
            started = time.monotonic()
            jobs = self.options.jobs or host.default_jobs()
            targets = plan.compile.inputs["targets"]
            binaries = work / "build" / "bin"
            if "Ninja" in prepared.generator:
                ninja.build(
                    tools["ninja"],
                    work / "build",
                    targets,
                    jobs=jobs,
                    env=env,
                    log=log,
                    reporter=self.reporter,
                    network=self.options.network,
                )
            else:
                self._msbuild(tools["cmake"], work, targets, jobs, env, log)
                binaries /= plan.recipe.build.type
            self.record.seconds["ninja"] = round(time.monotonic() - started, 2)
            shutil.copytree(binaries, dest / "bin", symlinks=True)
            if self.after_compile is not None:
                self.after_compile(work, tools, env)
            # Logs hold times and paths: they lie in the store for people, never in a bundle.
            shutil.copyfile(log, dest / "build.log")
            edges = [[e.output, e.start_ms, e.end_ms] for e in ninja.read_log(work / "build")]
            (dest / "timeline.json").write_text(json.dumps(edges), encoding="utf-8")
            version = _compiler_version(work / "build")
            hosts = self._compiled_on(work / "distcc.log")
            if not self.options.keep_work:
                self.store.discard(work)
        return {
            "compiler": version,
            "hermetic": self.record.hermetic,
            "shared": self.options.shared.words(),
            "compiled_on": hosts,
        }

    def _compiled_on(self, log: Path) -> dict[str, int]:
        """Return host → files, and say so when none of the hosts compiled anything."""
        asked = self.options.shared.hosts
        if not asked:
            return {}
        hosts = spread.compiled_on(log)
        if hosts and not set(hosts) - {spread.HERE}:
            self.reporter.warn(
                f"everything was compiled on this machine, nothing on {', '.join(asked)}: "
                f"{spread.why_here(log)}"
            )
        return hosts

    def _msbuild(
        self,
        program: Path,
        work: Path,
        targets: Sequence[str],
        jobs: int,
        env: Mapping[str, str],
        log: Path,
    ) -> None:
        """Compile with the Visual Studio generator (never run on a real Windows)."""
        command = cmake.build_command(
            program, work / "build", targets, config=self.plan.recipe.build.type, jobs=jobs
        )
        lines: list[str] = []
        if process.run_logged(command, cwd=work, env=env, log=log, on_line=lines.append) != 0:
            text = "\n".join(lines)
            raise CompileError(
                lines[-1] if lines else "MSBuild failed",
                where=f"full log: {log}",
                fix=ninja.advice(text),
            )

    def _prepare(self, work: Path) -> tuple[Prepared, dict[str, Path]]:
        """Lay out the work tree: source, wrappers, toolchain."""
        plan = self.plan
        unpacked = {w.project: self.wheel(w).path / "files" for w in plan.wheels}
        if plan.tree is not None:
            unpacked[CUDA_TREE] = self._ensure(plan.tree, self._make_tree).path / "tree"
        source = self.patch().path / "tree"
        check_in_tree(plan.recipe, profiles_of(plan.recipe), source)  # a moment, not a build
        built_ui = self.web_ui()
        marker = work / "src.complete"
        stamp = plan.patch.key + (plan.web_ui.key if plan.web_ui else "")
        if not marker.exists() or marker.read_text(encoding="utf-8") != stamp:
            remove_tree(work)
            work.mkdir(parents=True, exist_ok=True)
            # Links, not copies: a build only reads its source, and a file that it changed after
            # all would show as damage of the store's entry the next time.
            link_tree(source, work / "src")
            if built_ui is not None:
                link_tree(built_ui / "dist", work / "src" / webui.DIST)
            write_atomically(marker, stamp.encode())
        cache = self.store.root / "cache"
        prepared = plan.toolchain.prepare(
            plan.recipe, unpacked=unpacked, work=work, cache_dir=cache
        )
        return prepared, {
            "cmake": program(unpacked["cmake"], "cmake"),
            "ninja": program(unpacked["ninja"], "ninja"),
        }

    def _environment(self, prepared: Prepared, work: Path) -> dict[str, str]:
        """Return the whole environment of configure and compile: nothing of the user's."""
        env = {
            "PATH": host.search_path(),
            "HOME": str(work),
            "TMPDIR": str(work / "tmp"),
            "LC_ALL": "C",
            "TZ": "UTC",
            **prepared.env,
        }
        (work / "tmp").mkdir(exist_ok=True)
        env |= host.needed_variables(env["TMPDIR"])
        return env | self.objects.environment(work)

    def _configure(
        self,
        work: Path,
        prepared: Prepared,
        tools: Mapping[str, Path],
        env: Mapping[str, str],
        log: Path,
    ) -> None:
        plan = self.plan
        shared = self.options.shared
        isolated = bool(process.isolation()) and not self.options.network
        self.record.hermetic = isolated and not shared
        if shared:
            left = ", and the network is not cut" if self.options.network else ""
            self.reporter.warn(f"not hermetic: {'; '.join(shared.words())}{left}")
        elif not isolated:
            self.reporter.warn(
                "this system lets qbuild cut no network: the build is not proven hermetic"
            )
        entries = {**plan.configure.inputs["cache"], **prepared.cache}
        if plan.tree is not None:
            entries["GGML_CUDA_CLANG_ID"] = self.objects.compiler_id(cuda=True)[:16]
        launcher = self.objects.launcher()
        if shared.hosts:
            spreader = self._write_spread(work)
            launcher = launcher or spreader
        if (blas := self.openblas()) is not None:
            entries["CMAKE_MODULE_PATH"] = (blas / "cmake").as_posix()
        text = cmake.init_cache(entries)
        if launcher is not None:
            for language in ("C", "CXX"):
                text += (
                    f'set(CMAKE_{language}_COMPILER_LAUNCHER "{launcher.as_posix()}"'
                    ' CACHE STRING "" FORCE)\n'
                )
        marker = work / "configured"
        # An unfinished tree holds objects: it is resumed only under the same sharing.
        stamp = f"{plan.configure.key} {launcher} {shared.words()}"
        if marker.exists() and marker.read_text(encoding="utf-8") == stamp:
            self.reporter.say(f"compile: resuming the unfinished build {plan.configure.short}")
            return
        remove_tree(work / "build")
        (work / "cache.cmake").write_text(text, encoding="utf-8")
        (work / "toolchain.cmake").write_text(prepared.toolchain_file, encoding="utf-8")
        (work / cmake.PLAIN_FOLDERS_FILE).write_text(cmake.PLAIN_FOLDERS, encoding="utf-8")
        command = cmake.configure_command(tools["cmake"], tools["ninja"], work, prepared.generator)
        started = time.monotonic()
        lines: list[str] = []
        label = f"configure: {plan.toolchain.name} for {plan.recipe.target.os}"
        self.reporter.say(label + " (the first time builds the C runtime: minutes)")
        with self.reporter.task("configure") as task:

            def follow(line: str) -> None:
                lines.append(line)
                task.update(note=line[:60])

            status = process.run_logged(
                command,
                cwd=work,
                env=env,
                log=log,
                on_line=follow,
                cut_network=not self.options.network,
                bind_lives=True,
            )
        if status != 0:
            text = "\n".join(lines)
            raise ConfigureError(
                f"CMake failed: {cmake.first_error(text)}",
                where=f"full log: {log}",
                fix=ninja.advice(text),
            )
        cache_text = (work / "build" / "CMakeCache.txt").read_text(encoding="utf-8")
        cmake.check_options_known(entries, cache_text, plan.recipe)
        self.record.seconds["configure"] = round(time.monotonic() - started, 2)
        write_atomically(marker, stamp.encode())

    def _write_spread(self, work: Path) -> Path:
        """Write what lets distcc run the pinned compiler elsewhere.

        Raises:
            ToolchainError: The recipe's compiler is not pinned, or distcc is missing.
        """
        if self.plan.toolchain.name != "zig":
            raise ToolchainError(
                f"the {self.plan.toolchain.name} toolchain cannot be spread over machines: "
                "each would use a compiler of its own",
                where=f"recipe {self.plan.recipe.name}: toolchain.name",
                fix="leave --compile-on out, or use the zig toolchain",
            )
        wheel = next(w for w in self.plan.wheels if w.project == "ziglang")
        zig = self.wheel(wheel).path / "files" / "ziglang" / "zig"
        cache = self.store.root / "cache"
        layout = self.plan.toolchain.layout(
            self.plan.recipe,
            programs={"zig": str(zig)},
            work=work.as_posix(),
            cache_dir=str(cache),
        )
        return spread.write_spread(
            layout.wrappers, version=wheel.version, work=work, cache_dir=cache / "zig"
        )

    def _check_space(self, work: Path) -> None:
        need = _MARGIN
        self.store.root.mkdir(parents=True, exist_ok=True)
        free = host.free_disk(str(self.store.root))
        if free < need and not work.exists():
            raise StoreError(
                f"{free / 1e9:.1f} GB are free; a build tree needs {need / 1e9:.1f} GB",
                where=str(self.store.root),
                fix="free some space, or choose another disk with --store",
            )

    # -- stage and bundle -------------------------------------------------------------------

    def _make_stage(self, dest: Path) -> Mapping[str, Any]:
        from qbuild.steps.stage import stage

        built = self.compile().path / "bin"
        recipe = self.plan.recipe
        names = stage(
            built, dest, targets=recipe.build.targets, windows=recipe.target.os == "windows"
        )
        return {"files": names}

    def _make_bundle(self, dest: Path) -> Mapping[str, Any]:
        from qbuild.steps.bundle import bundle_from_plan

        staged = self.stage().path
        compiled = self.compile()
        patched = self.patch()
        unpacked: dict[str, Path] = {
            w.project: self.wheel(w).path / "files" for w in self.plan.wheels
        }
        if (blas := self.openblas()) is not None:
            unpacked[openblas.STEP] = blas
        if (built_ui := self.web_ui()) is not None:
            unpacked[webui.STEP] = built_ui
        self.reporter.say(f"bundle: {self.plan.zip_name}")
        return bundle_from_plan(
            self.plan,
            staged=staged,
            patched=patched,
            compiled=compiled,
            unpacked=unpacked,
            dest=dest,
        )


def _compiler_version(build: Path) -> str:
    for path in sorted(build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("set(CMAKE_CXX_COMPILER_VERSION "):
                return line.split('"')[1]
    return "unknown"
