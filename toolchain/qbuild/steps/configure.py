"""Configure: every option spelled out, in a work folder that the compile step then fills.

Its result is no entry of the store: the unfinished build tree lies in ``work/`` under this step's
key, and the next run resumes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import process
from qbuild.cuda import flags
from qbuild.cuda.arch import parse_archs
from qbuild.errors import ConfigureError
from qbuild.held import remove_tree
from qbuild.recipe import isa
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.model import CmakeValue
from qbuild.steps import cmake, ninja
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.tools import TOOLS
from qbuild.steps.work import Work, lay_out
from qbuild.store import write_atomically
from qbuild.toolchains.base import CUDA_TREE, Layout, Place

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell

FORMAT: Final = 2

_FIXED: Final[dict[str, CmakeValue]] = {
    # What upstream would download or look for at build time: all off. Names are the options in
    # the pinned commit's CMakeLists.txt files.
    "FETCHCONTENT_FULLY_DISCONNECTED": True,
    "GGML_OPENMP_FETCH": False,
    "LLAMA_BUILD_BORINGSSL": False,
    "LLAMA_BUILD_LIBRESSL": False,
    "LLAMA_LLGUIDANCE": False,
    "LLAMA_OPENSSL": False,
    "LLAMA_USE_PREBUILT_UI": False,
    # What upstream would take from the build machine.
    "GGML_NATIVE": False,
    "GGML_CCACHE": False,
    "LLAMA_USE_SYSTEM_GGML": False,
    # ggml's own thread pool needs no OpenMP runtime in the bundle.
    "GGML_OPENMP": False,
    # What is not shipped.
    "GGML_BUILD_EXAMPLES": False,
    "GGML_BUILD_TESTS": False,
    "LLAMA_BUILD_APP": False,
    "LLAMA_BUILD_EXAMPLES": False,
    # What is.
    "GGML_CPU": True,
    "LLAMA_BUILD_COMMON": True,
    "LLAMA_BUILD_SERVER": True,
    "LLAMA_BUILD_TOOLS": True,
    # Binaries are taken from the build tree as they are: they must be final there.
    "CMAKE_BUILD_WITH_INSTALL_RPATH": True,
    "CMAKE_COLOR_DIAGNOSTICS": False,
}


class ConfigureStep(Kind):
    """A configured build tree in ``work/``."""

    kind = "configure"

    def wheels(self, ask: Request) -> tuple[WheelPin, ...]:
        """Return CMake and ninja.

        Raises:
            LockError: The lockfile lacks one.
        """
        return tuple(ask.lock.wheel(project, ask.host) for project in TOOLS)

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return source, compiler, tools, cache entries, what CMake includes, and what feeds it.

        Raises:
            ToolchainError: The toolchain cannot build this recipe.
        """
        return {
            "format": FORMAT,
            "patch": before["patch"].key,
            "toolchain": ask.toolchain.describe(),
            "layout": _layout(ask),
            "tools": {w.project: w.sha256 for w in ask.wheels if w.project in TOOLS},
            "cache": cache_entries(ask),
            "included": cmake.PLAIN_FOLDERS,
            **{step.kind: step.key for step in before.values() if step.configures},
        }

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return compiler, processor and linkage."""
        recipe = plan.recipe
        return f"{plan.toolchain.name}, {recipe.target.cpu}, {recipe.build.linkage}"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Configure in a work folder.

        Raises:
            ConfigureError: CMake refuses.
        """
        configure(build, lay_out(build, dest))
        return {}

    def script(self, plan: Plan, step: Step, out: Shell) -> None:
        """Write wrappers, toolchain file, options and the call of CMake."""
        words = plan.toolchain.script(out.shell, out.here)
        place = Place(programs=words.programs, work=out.here, cache_dir=f"{out.here}/cache")
        layout = plan.toolchain.layout(place).on(windows=out.windows)
        out.note("The compiler as one program, and CMake's toolchain and options")
        for name, command in layout.wrappers.items():
            out.wrapper(name, command)
        escaped = out.here.replace("\\", "\\\\").replace("$", "\\$")
        cache = cmake.init_cache({**step.inputs["cache"], **layout.cache})
        for file, text in (
            ("toolchain.cmake", layout.toolchain_file),
            # CMake knows the folder of the file, whatever shell wrote it.
            ("cache.cmake", cache.replace(escaped, "${CMAKE_CURRENT_LIST_DIR}")),
            (cmake.PLAIN_FOLDERS_FILE, cmake.PLAIN_FOLDERS),
        ):
            out.file(file, text, literal=True)
        for name, value in layout.env.items():
            out.environment(name, value)
        if layout.setup:
            out.note("The compiler's environment")
            out.setup(layout.setup)
        out.note("Configure and compile")
        suffix = out.suffix
        maker = f"-DCMAKE_MAKE_PROGRAM={out.here}/tools/ninja/bin/ninja{suffix}"
        out.run(
            f"tools/cmake/cmake/data/bin/cmake{suffix}", "-S", "src", "-B", "build",
            *layout.generator,
            "-C", "cache.cmake", f"-DCMAKE_TOOLCHAIN_FILE={out.here}/toolchain.cmake",
            f"-DCMAKE_PROJECT_INCLUDE={out.here}/{cmake.PLAIN_FOLDERS_FILE}",
            *([maker] if "Ninja" in layout.generator else []),
            *(word for kind in plan.feeding() for word in kind.script_options(out, plan.recipe)),
            "-Wno-author",
        )  # fmt: skip


def cache_entries(ask: Request) -> dict[str, CmakeValue]:
    """Return every CMake cache entry the recipe stands for, in a fixed order."""
    recipe, pin = ask.recipe, ask.pin
    entries = dict(_FIXED) | {"LLAMA_BUILD_TESTS": bool(ask.tests)}
    entries |= {
        "BUILD_SHARED_LIBS": recipe.build.linkage == "shared",
        "CMAKE_BUILD_TYPE": recipe.build.type,
        "CMAKE_INSTALL_RPATH": "$ORIGIN" if recipe.target.os == "linux" else "",
        "LLAMA_BUILD_COMMIT": pin.commit[:9],
        # Upstream counts commits, which a shallow source cannot: 0 unless the lockfile knows.
        "LLAMA_BUILD_NUMBER": pin.build_number or 0,
        "LLAMA_BUILD_UI": False,  # a step of its own has made it: see web_ui.py
    }
    entries |= ask.toolchain.cache_entries()
    entries |= isa.switches(recipe.target.cpu, recipe.target.isa)
    if recipe.target.variants:  # each sets the switches for itself
        entries |= {"GGML_BACKEND_DL": True, "GGML_CPU_ALL_VARIANTS": True}
    if recipe.cuda.architectures:
        entries |= flags.cache_entries(
            parse_archs(recipe.cuda.architectures),
            kv_types=recipe.cuda.kv_cache,
            peer_copy=recipe.cuda.peer_copy,
            own_blas=recipe.bundle.cublas == "none",
            compiler=recipe.toolchain.name,
        )
    entries |= ask.entries
    entries |= recipe.build.options
    if defined := isa.definitions(recipe.target.cpu):
        entries[cmake.DEFINITIONS] = ";".join(defined)
    return dict(sorted(entries.items()))


def _layout(ask: Request) -> dict[str, Any]:
    """Return wrappers and toolchain file with placeholders for what differs between folders."""
    names = ("zig", "zig-lib", CUDA_TREE, "cuda-root", "cc", "c++")
    programs = {name: f"@{name}@" for name in names}
    place = Place(programs=programs, work="@work@", cache_dir="@cache@")
    layout = ask.toolchain.layout(place)
    return {
        "wrappers": {name: list(words) for name, words in layout.wrappers.items()},
        "toolchain_file": layout.toolchain_file,
        "cache": dict(layout.cache),
        **_calls(layout),
    }


def _calls(layout: Layout) -> dict[str, Any]:
    """Return what is called besides wrappers; nothing for toolchains that have only those."""
    return {"generator": list(layout.generator[:2])} if layout.setup else {}


def configure(build: Builder, work: Work) -> None:
    """Run CMake in a work folder, unless an unfinished build lies there.

    Raises:
        ConfigureError: CMake refuses or does not recognise the compiler, or the recipe sets an
            option that llama.cpp lacks.
    """
    step = build.plan["configure"]
    _say_hermetic(build)
    launcher = build.objects.launcher()
    if build.options.shared.hosts:
        spreader = build.objects.write_spread(work.folder)
        launcher = launcher or spreader
    marker = work.folder / "configured"
    # An unfinished tree holds objects: it is resumed only under the same sharing.
    stamp = f"{step.key} {launcher} {build.options.shared.words()}"
    tree, generator = work.folder / "build", work.prepared.generator
    known = marker.exists() and marker.read_text(encoding="utf-8") == stamp
    if known and not cmake.unwritten(tree, generator):
        build.reporter.say(f"compile: resuming the unfinished build {step.short}")
        return
    marker.unlink(missing_ok=True)
    remove_tree(tree)
    entries = _entries(build, work)
    (work.folder / "cache.cmake").write_text(
        _cache_file(entries, launcher), encoding="utf-8", newline="\n"
    )
    (work.folder / "toolchain.cmake").write_text(
        work.prepared.toolchain_file, encoding="utf-8", newline="\n"
    )
    plain = work.folder / cmake.PLAIN_FOLDERS_FILE
    plain.write_text(cmake.PLAIN_FOLDERS, encoding="utf-8", newline="\n")
    started = time.monotonic()
    _run_cmake(build, work)
    if lost := cmake.unwritten(tree, generator):
        raise ConfigureError(
            f"CMake wrote no {lost[0]}, and did not say why",
            where=str(tree),
            fix="see whether the disk is full or files may not grow (`ulimit -f`), and run again",
        )
    cache_text = (tree / "CMakeCache.txt").read_text(encoding="utf-8")
    cmake.check_compilers_known(tree)
    cmake.check_options_known(entries, cache_text, build.plan.recipe)
    build.record.seconds["configure"] = round(time.monotonic() - started, 2)
    write_atomically(marker, stamp.encode())


def _say_hermetic(build: Builder) -> None:
    """Record whether the build is hermetic, and warn when it is not."""
    options = build.options
    isolated = bool(process.isolation()) and not options.network
    build.record.hermetic = isolated and not options.shared
    if options.shared:
        left = ", and the network is not cut" if options.network else ""
        build.reporter.warn(f"not hermetic: {'; '.join(options.shared.words())}{left}")
    elif not isolated:
        build.reporter.warn(
            "this system lets qbuild cut no network: the build is not proven hermetic"
        )


def _entries(build: Builder, work: Work) -> dict[str, CmakeValue]:
    """Return the cache entries, those that name folders included."""
    plan = build.plan
    entries = {**plan["configure"].inputs["cache"], **work.prepared.cache}
    if plan.find(CUDA_TREE) is not None:
        entries["GGML_CUDA_CLANG_ID"] = build.objects.compiler_id()[:16]
    for kind in plan.feeding():
        entries |= kind.in_cmake(build.result(kind.kind))
    return entries


def _cache_file(entries: Mapping[str, CmakeValue], launcher: Path | None) -> str:
    text = cmake.init_cache(entries)
    if launcher is not None:
        for language in ("C", "CXX"):
            text += (
                f'set(CMAKE_{language}_COMPILER_LAUNCHER "{launcher.as_posix()}"'
                ' CACHE STRING "" FORCE)\n'
            )
    return text


def _run_cmake(build: Builder, work: Work) -> None:
    command = cmake.configure_command(
        work.tools["cmake"], work.tools["ninja"], work.folder, work.prepared.generator
    )
    lines: list[str] = []
    label = f"configure: {build.plan.toolchain.name} for {build.plan.recipe.target.os}"
    build.reporter.say(label + " (the first time builds the C runtime: minutes)")
    with build.reporter.task("configure") as task:

        def follow(line: str) -> None:
            lines.append(line)
            task.update(note=line[:60])

        status = process.run_logged(
            command,
            cwd=work.folder,
            env=work.env,
            log=work.log,
            on_line=follow,
            cut_network=not build.options.network,
            bind_lives=True,
        )
    if status != 0:
        text = "\n".join(lines)
        raise ConfigureError(
            f"CMake failed: {cmake.first_error(text)}",
            where=f"full log: {work.log}",
            fix=ninja.advice(text),
        )
