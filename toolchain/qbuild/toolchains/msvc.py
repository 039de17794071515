"""``msvc``, and ``nvcc`` on Windows: Visual Studio's compiler as it is installed, on Windows only.

What is taken is decided by :mod:`qbuild.toolchains.visual_studio` from captured facts; a plan and
a script of one can therefore be made on any machine. No build with it was ever run on a real
Windows by qbuild's authors: README and documentation say so.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from qbuild import host
from qbuild.doctor.probe import HostProbe
from qbuild.errors import ToolchainError, UsageError
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.toolchains.base import (
    Installed,
    Layout,
    Place,
    Prepared,
    ScriptWords,
    Toolchain,
    WorkTree,
    linker_lines,
    script_programs,
    wants_windows,
    write_layout,
)
from qbuild.toolchains.visual_studio import vcvars
from qbuild.toolchains.visual_studio.choose import Choice, choose
from qbuild.toolchains.visual_studio.installed import capture, numbers, parse_facts

FORMAT: Final = 1

RUNTIME: Final = "msvc-runtime"
RUNTIME_VERSION: Final = "14.51.36231"
"""The pinned redistributable; newer than every toolset it has to serve."""

_RUNTIME_DLLS: Final = (
    "concrt140.dll", "msvcp140.dll", "msvcp140_1.dll", "msvcp140_2.dll", "msvcp140_atomic_wait.dll",
    "msvcp140_codecvt_ids.dll", "vcruntime140.dll", "vcruntime140_1.dll",
)  # fmt: skip

# /Brepro: no times, and __DATE__ and __TIME__ fixed; /pathmap, which works only together with
# /experimental:deterministic, keeps the build folder out of __FILE__. /wd5049 is its warning.
_COMPILE: Final = "/Brepro /experimental:deterministic /wd5049"
_LINK: Final = "/Brepro /INCREMENTAL:NO"
_VARIABLES: Final = ("CL", "_CL_", "LINK", "_LINK_", "INCLUDE", "LIB", "LIBPATH")
"""The compiler's and the linker's; vcvarsall adds to the last three what is there already."""
_SEED_SINCE: Final = (12, 9)  # nvcc --frandom-seed


class Msvc(Toolchain):
    """Visual Studio's compiler, and nvcc with it."""

    @classmethod
    def capture(cls) -> Installed:
        """Look for Visual Studio, SDKs and CUDA toolkits.

        Raises:
            ToolchainError: What Visual Studio's installer says cannot be read.
        """
        return Installed(visual_studio=parse_facts(capture(HostProbe()), where="this machine"))

    def choice(self) -> Choice:
        """Return what the recipe is built with.

        Raises:
            ToolchainError: It cannot be built, or nothing is known of a Windows machine.
        """
        recipe, facts = self.recipe, self.context.installed.visual_studio
        if not wants_windows(recipe):
            raise ToolchainError(
                f"the {self.name} toolchain builds for Windows only",
                where=f"recipe {recipe.name}: toolchain.name with target.os = {recipe.target.os}",
                fix="use another: --set toolchain.name="
                + ("clang-cuda" if recipe.cuda.architectures else "zig"),
            )
        if facts is None:
            raise ToolchainError(
                f"the {self.name} toolchain runs on Windows only",
                where=self.context.where,
                fix="run qbuild on Windows, use the zig or clang-cuda toolchain, or plan for a "
                "captured machine: `qbuild plan --facts FILE`",
            )
        if recipe.toolchain.runtime == "dynamic" and recipe.bundle.vc_runtime == "none":
            raise ToolchainError(
                "a build with /MD needs Microsoft's runtime DLLs, which a plain Windows lacks",
                where=f"recipe {recipe.name}: bundle.vc_runtime = none",
                fix='set it to "app-local" or "installed", or toolchain.runtime = "static" (/MT)',
            )
        return choose(facts, recipe)

    def wheels(self) -> tuple[WheelPin, ...]:
        """Return the runtime's wheel where its DLLs go into the bundle."""
        if self.recipe.bundle.vc_runtime != "app-local":
            return ()
        return (self.context.lock.wheel(RUNTIME, "windows-x86_64", RUNTIME_VERSION),)

    def describe(self) -> dict[str, Any]:
        """Return toolset, SDK and CUDA; folders change nothing and stay out."""
        made = self.choice()
        return {
            "name": self.name,
            "format": FORMAT,
            "version": made.toolset,
            "target": "x86_64-pc-windows-msvc",
            "wheels": {},
            "sdk": made.sdk,
            "cuda": made.cuda,
            "generator": self.recipe.toolchain.generator,
        }

    def provides(self) -> Mapping[str, tuple[str, str]]:
        """Return the runtime's DLLs where they go into the bundle."""
        if self.recipe.bundle.vc_runtime != "app-local":
            return {}
        folder = f"msvc_runtime-{RUNTIME_VERSION}.data/data/Scripts"
        return {name: (RUNTIME, f"{folder}/{name}") for name in _RUNTIME_DLLS}

    def cache_entries(self) -> Mapping[str, CmakeValue]:
        """Return the C runtime, as CMake calls it."""
        suffix = "" if self.recipe.toolchain.runtime == "static" else "DLL"
        return {"CMAKE_MSVC_RUNTIME_LIBRARY": f"MultiThreaded{suffix}"}

    def layout(self, place: Place) -> Layout:  # noqa: ARG002 - no folder stands in its files
        """Return the toolchain file and how CMake is called; there are no wrappers."""
        made = self.choice()
        return Layout(
            wrappers={},
            toolchain_file="\n".join(_toolchain_lines(made, self.recipe)) + "\n",
            setup=made.vcvars,
            generator=_generator(made, self.recipe),
        )

    def prepare(self, tree: WorkTree) -> Prepared:
        """Capture the compiler's environment once and write the toolchain file."""
        made = self.choice()
        if host.system() != "windows":
            raise ToolchainError(
                f"the {self.name} toolchain runs on Windows only",
                where=self.context.where,
                fix="use the zig or clang-cuda toolchain on this machine",
            )
        layout = self.layout(tree.place())
        prepared = write_layout(layout, tree.work)
        return Prepared(
            toolchain_file=prepared.toolchain_file,
            cache=prepared.cache,
            env=_capture(made, tree.work),
            generator=layout.generator,
        )

    def script(self, shell: str, here: str) -> ScriptWords:
        """Return what a script on Windows needs.

        Raises:
            UsageError: The shell is not a Windows one.
        """
        if shell == "sh":
            raise UsageError(
                f"the {self.name} toolchain runs on Windows only",
                fix="--script cmd or --script ps1",
            )
        notes: tuple[str, ...] = ()
        last: tuple[str, ...] = ()
        if self.recipe.cuda.architectures:
            folder = self.choice().cuda_folder
            notes = (
                "No blank or comma in the folder's path: how nvcc hands it to cl was not tried.",
            )
            last = (
                "Where no CUDA toolkit is installed, cudart64_*.dll, cublas64_*.dll and",
                f"cublasLt64_*.dll belong beside them; they lie in {folder}\\bin.",
            )
            if self.recipe.bundle.cublas == "none":
                last = (
                    "Where no CUDA toolkit is installed, cudart64_*.dll belongs beside them;",
                    f"it lies in {folder}\\bin.",
                )
        return ScriptWords(
            programs=script_programs(shell, here),
            notes=notes,
            variables=_VARIABLES,
            # pip puts a wheel's data/Scripts into Scripts.
            libraries=tuple(
                f"tools/{project}/Scripts/{name}" for name, (project, _) in self.provides().items()
            ),
            last=last,
        )


def _toolchain_lines(made: Choice, recipe: Recipe) -> list[str]:
    """Return the lines of CMake's toolchain file; the work folder is where the file lies."""
    map_src = '\\"/pathmap:${_work}\\\\src=.\\"'
    map_build = '\\"/pathmap:${_work}\\\\build=build\\"'
    compile_flags = f"{_COMPILE} {map_src} {map_build}"
    ninja = recipe.toolchain.generator == "ninja"
    lines = [
        'file(TO_NATIVE_PATH "${CMAKE_CURRENT_LIST_DIR}" _work)',
        # Without it CMAKE_MSVC_RUNTIME_LIBRARY is ignored by projects written for CMake 3.14.
        "set(CMAKE_POLICY_DEFAULT_CMP0091 NEW)",
    ]
    if ninja:
        lines += [f'set(CMAKE_{lang}_COMPILER "{made.cl}")' for lang in ("C", "CXX")]
    else:
        lines.append(f'set(CMAKE_CONFIGURATION_TYPES "{recipe.build.type}" CACHE STRING "")')
    lines += [f'set(CMAKE_{lang}_FLAGS_INIT "{compile_flags}")' for lang in ("C", "CXX")]
    lines += linker_lines(_LINK)
    lines.append('set(CMAKE_STATIC_LINKER_FLAGS_INIT "/Brepro")')
    if made.cuda:
        folder = made.cuda_folder.replace("\\", "/")
        seed = " --frandom-seed=qbuild" if numbers(made.cuda) >= _SEED_SINCE else ""
        through = _COMPILE.replace(" ", ",")
        lines += [
            f'set(CMAKE_CUDA_COMPILER "{folder}/bin/nvcc.exe")',
            f'set(CUDAToolkit_ROOT "{folder}")',
            f'set(CMAKE_CUDA_FLAGS_INIT "-Xcompiler={through} {_through(map_src)}{seed}")',
        ]
        if ninja:
            lines.append(f'set(CMAKE_CUDA_HOST_COMPILER "{made.cl}")')
    return lines


def _through(flag: str) -> str:
    """Return a quoted flag of cl as nvcc hands it on."""
    return flag.replace('"/', '"-Xcompiler=/', 1)


def _generator(made: Choice, recipe: Recipe) -> tuple[str, ...]:
    """Return CMake's arguments that choose the build system."""
    if recipe.toolchain.generator == "ninja":
        return ("-G", "Ninja")
    toolset = f"{made.platform_toolset},version={made.toolset},host=x64"
    if made.cuda:
        toolset += f",cuda={made.cuda_folder}"
    return (
        "-G", made.studio.generator, "-A", f"x64,version={made.sdk}", "-T", toolset,
        f"-DCMAKE_GENERATOR_INSTANCE={made.studio.path}",
    )  # fmt: skip


def _capture(made: Choice, work: Path) -> dict[str, str]:
    """Run vcvarsall in an environment made from nothing and return what the compiler needs."""
    keep = ("SYSTEMROOT", "COMSPEC", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMDATA",
            "PROCESSOR_ARCHITECTURE")  # fmt: skip
    env = {name: os.environ[name] for name in keep if name in os.environ}
    root = env.get("SYSTEMROOT", "C:\\Windows")
    env["PATH"] = f"{root}\\System32;{root};{root}\\System32\\Wbem"
    # cmd reads a batch file in its own code page; one line of ASCII and quotes suits all of them.
    script = work / "vcvars.cmd"
    script.write_text(
        f"@echo off\r\n{vcvars.capture_command(made)}\r\n", encoding="mbcs", newline="\n"
    )
    done = subprocess.run(
        [env.get("COMSPEC", "cmd.exe"), "/d", "/c", str(script)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return vcvars.parse(done.stdout.decode("utf-8", "replace"), made)
