"""``nvcc``: NVIDIA's own compiler from an installed CUDA toolkit, with the machine's gcc or clang.

It is what upstream builds with, for Linux bundles made on Linux. As with ``gcc``, the compiler is
not pinned: provenance names the versions. What a bundle carries of NVIDIA's is pinned all the same:
within CUDA 12 it comes from the wheels that ``clang-cuda`` takes it from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from qbuild.cuda import runtime, table, toolkit, tree
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.toolkit import HostCompiler, Toolkit
from qbuild.errors import ToolchainError, UsageError
from qbuild.recipe.lock import WheelPin
from qbuild.toolchains.base import (
    Installed,
    Layout,
    Place,
    Prepared,
    ScriptWords,
    Toolchain,
    WorkTree,
    hide_paths,
    linker_lines,
    tool_lines,
    write_layout,
)

FORMAT: Final = 1

SERIES: Final = ("nvcuda",)
"""Patch series without which a bundle does not load where the driver is missing."""

SEED_SINCE: Final = (12, 9)
"""First nvcc with ``--frandom-seed``: before it, symbols of static kernels hold random numbers."""

_RULE: Final = (
    "<CMAKE_CUDA_COMPILER> -forward-unknown-to-host-compiler -ccbin=<CMAKE_CUDA_HOST_COMPILER> "
    "<DEFINES> <INCLUDES> <FLAGS> "
    "--frandom-seed=<OBJECT> -x cu <CUDA_COMPILE_MODE> <SOURCE> -o <OBJECT>"
)
"""The pinned CMake's own rule (CMakeCUDAInformation.cmake) with a seed that differs from file to
file and not from run to run."""


class Nvcc(Toolchain):
    """nvcc as CUDA compiler."""

    @classmethod
    def capture(cls) -> Installed:
        """Look for CUDA toolkits and host compilers."""
        return Installed(cuda=toolkit.capture())

    def _chosen(self) -> tuple[Toolkit, HostCompiler]:
        machine = self.context.installed.cuda
        if machine is None:
            raise ToolchainError(
                "nothing is known of the CUDA toolkits of the machine that builds",
                where=self.context.where,
                fix="plan on that machine",
            )
        return toolkit.choose(
            machine,
            parse_archs(self.recipe.cuda.architectures),
            where=f"recipe {self.recipe.name}: toolchain.name = nvcc",
            cublas=self.recipe.bundle.cublas != "none",
        )

    def programs(self) -> dict[str, str]:
        """Return what :meth:`layout` calls this machine's compilers and toolkit.

        Raises:
            ToolchainError: No toolkit here will do.
        """
        chosen, compiler = self._chosen()
        return {"cc": compiler.cc, "c++": compiler.cxx, "cuda-root": chosen.root}

    def wheels(self) -> tuple[WheelPin, ...]:
        """Return the libraries that the bundle carries: wheels for the target.

        Raises:
            ToolchainError: It cannot build this recipe on this host, or the lockfile pins no
                libraries of the toolkit's major version.
            LockError: The lockfile lacks one.
        """
        recipe, lock = self.recipe, self.context.lock
        archs = parse_archs(recipe.cuda.architectures)
        system = self.context.host.partition("-")[0]
        table.check_target(self.name, system, recipe.target.os, archs, where=self.context.where)
        if system != "linux":
            raise ToolchainError(
                f"nvcc on {system} needs MSVC, which this version of qbuild does not drive",
                where=self.context.where,
                fix='set toolchain.name = "clang-cuda", which needs neither',
            )
        if not self.provides():
            return ()
        version = self._chosen()[0].version
        if table.parse_version(version)[0] != tree.MAJOR:
            raise ToolchainError(
                f"the lockfile pins NVIDIA's libraries of CUDA {tree.MAJOR}, "
                f"not those that a build with CUDA {version} needs",
                where=f"recipe {recipe.name}: bundle.cuda_runtime = bundled",
                fix=f"use a toolkit of CUDA {tree.MAJOR}, or leave the libraries to the user: "
                "--set bundle.cuda_runtime=separate",
            )
        target = f"{recipe.target.os}-{recipe.target.arch}"
        if recipe.bundle.cublas != "bundled":
            return (lock.wheel(tree.RUNTIME, target),)
        pinned = lock.versions(tree.CUBLAS, target)
        cublas = runtime.planned(
            {pin.version: pin.size for pin in pinned},
            archs,
            target=recipe.target.os,
            driver=recipe.cuda.driver or None,
        )
        return (lock.wheel(tree.RUNTIME, target), lock.wheel(tree.CUBLAS, target, cublas))

    def describe(self) -> dict[str, Any]:
        """Return versions, sizes and times of all compilers: they change with an upgrade.

        Raises:
            ToolchainError: It cannot build this recipe on this machine.
        """
        lacking = [name for name in SERIES if name not in self.recipe.patches.series]
        if lacking:
            raise ToolchainError(
                f"nvcc needs the patch series {' and '.join(lacking)}",
                where=f"recipe {self.recipe.name}: patches.series",
                fix="add it: without it the bundle does not load where the driver is missing",
            )
        wheels = self.wheels()
        chosen, compiler = self._chosen()
        programs = {f"{chosen.root}/{name}": [size, time] for name, size, time in chosen.stamp}
        programs |= {path: [size, time] for path, size, time in compiler.stamp}
        return {
            "name": self.name,
            "format": FORMAT,
            "version": chosen.version,
            "toolkit": table.minor(chosen.version),
            "target": "native",
            "host-compiler": f"{compiler.kind} {compiler.version}",
            "programs": programs,
            "wheels": {wheel.filename: wheel.sha256 for wheel in wheels},
        }

    def provides(self) -> Mapping[str, tuple[str, str]]:
        """Return the libraries that a bundle may take from wheels; see :class:`Toolchain`."""
        inside = self.recipe.bundle
        return tree.provided(
            self.recipe.target.os,
            runtime=inside.cuda_runtime == "bundled",
            cublas=inside.cublas == "bundled",
        )

    def layout(self, place: Place) -> Layout:
        """Return wrappers for nvcc and its host compiler, and the toolchain file."""
        version = table.parse_version(self._chosen()[0].version)
        hidden = hide_paths(place.work)
        root = place.programs["cuda-root"]
        shared = self.recipe.bundle.system_libstdcxx
        lines = [
            *tool_lines(
                {
                    "CMAKE_C_COMPILER": "cc",
                    "CMAKE_CXX_COMPILER": "c++",
                    "CMAKE_CUDA_COMPILER": "nvcc",
                    "CMAKE_CUDA_HOST_COMPILER": "c++",
                }
            ),
            f'set(CUDAToolkit_ROOT "{root}" CACHE PATH "")',
            # CMake's default adds the static runtime beside the shared one that ggml links.
            'set(CMAKE_CUDA_RUNTIME_LIBRARY Shared CACHE STRING "")',
            *linker_lines("-s" if shared else "-s -static-libstdc++ -static-libgcc"),
        ]
        if version[:2] >= SEED_SINCE:
            lines.append(f'set(CMAKE_CUDA_COMPILE_OBJECT "{_RULE}")')
        return Layout(
            wrappers={
                "cc": [place.programs["cc"], *hidden],
                # nvcc preprocesses device code with it too: the path maps reach every __FILE__.
                "c++": [place.programs["c++"], *hidden],
                "nvcc": [f"{root}/bin/nvcc"],
            },
            toolchain_file="\n".join(lines) + "\n",
        )

    def prepare(self, tree: WorkTree) -> Prepared:
        """Write the wrapper scripts and the toolchain file.

        Raises:
            ToolchainError: No toolkit here will do, or the work folder's name is unfit for nvcc.
        """
        if bad := toolkit.unfit(tree.work.as_posix()):
            # CMake hands nvcc its host compiler (`-ccbin=…/tools/c++`) unquoted.
            raise ToolchainError(
                f"nvcc cannot build in a folder whose path holds {bad}",
                where=str(tree.work),
                fix="choose another store, e.g. --store /var/tmp/qbuild",
            )
        return write_layout(self.layout(tree.place(**self.programs())), tree.work)

    def script(self, shell: str, here: str) -> ScriptWords:
        """Return this machine's compilers and toolkit.

        Raises:
            UsageError: The shell is a Windows one.
        """
        if shell != "sh":
            raise UsageError(
                f"there is no {shell} script for the nvcc toolchain: it builds on Linux",
                where=f"recipe {self.recipe.name}",
                fix="--script sh",
            )
        words = super().script(shell, here)
        return dataclasses.replace(words, programs={**words.programs, **self.programs()})
