"""``nvcc``: NVIDIA's own compiler from an installed CUDA toolkit, with the machine's gcc or clang.

It is what upstream builds with, for Linux bundles made on Linux. As with ``gcc``, the compiler is
not pinned: provenance names the versions. What a bundle carries of NVIDIA's is pinned all the same:
within CUDA 12 it comes from the wheels that ``clang-cuda`` takes it from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from qbuild.cuda import runtime, table, toolkit, tree
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.toolkit import HostCompiler, Toolkit
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.recipe.model import Recipe
from qbuild.toolchains.base import (
    Layout,
    Prepared,
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


class Nvcc:
    """nvcc as CUDA compiler."""

    name = "nvcc"

    def _chosen(self, recipe: Recipe) -> tuple[Toolkit, HostCompiler]:
        return toolkit.choose(
            toolkit.capture(),
            parse_archs(recipe.cuda.architectures),
            where=f"recipe {recipe.name}: toolchain.name = nvcc",
        )

    def programs(self, recipe: Recipe) -> dict[str, str]:
        """Return what :meth:`layout` calls this machine's compilers and toolkit.

        Raises:
            ToolchainError: No toolkit here will do.
        """
        chosen, compiler = self._chosen(recipe)
        return {"cc": compiler.cc, "c++": compiler.cxx, "cuda-root": chosen.root}

    def wheels(self, recipe: Recipe, lock: Lock, host: str) -> tuple[WheelPin, ...]:
        """Return the libraries that the bundle carries: wheels for the target.

        Raises:
            ToolchainError: It cannot build this recipe on this host, or the lockfile pins no
                libraries of the toolkit's major version.
            LockError: The lockfile lacks one.
        """
        archs = parse_archs(recipe.cuda.architectures)
        where = f"recipe {recipe.name}: toolchain.name = nvcc"
        system = host.partition("-")[0]
        table.check_target(self.name, system, recipe.target.os, archs, where=where)
        if system != "linux":
            raise ToolchainError(
                f"nvcc on {system} needs MSVC, which this version of qbuild does not drive",
                where=where,
                fix='set toolchain.name = "clang-cuda", which needs neither',
            )
        if recipe.bundle.cuda_runtime == "separate":
            return ()
        version = self._chosen(recipe)[0].version
        if table.parse_version(version)[0] != tree.MAJOR:
            raise ToolchainError(
                f"the lockfile pins NVIDIA's libraries of CUDA {tree.MAJOR}, "
                f"not those that a build with CUDA {version} needs",
                where=f"recipe {recipe.name}: bundle.cuda_runtime = bundled",
                fix=f"use a toolkit of CUDA {tree.MAJOR}, or leave the libraries to the user: "
                "--set bundle.cuda_runtime=separate",
            )
        target = f"{recipe.target.os}-{recipe.target.arch}"
        pinned = lock.versions(tree.CUBLAS, target)
        cublas = runtime.planned(
            {pin.version: pin.size for pin in pinned},
            archs,
            target=recipe.target.os,
            driver=recipe.cuda.driver or None,
        )
        return (lock.wheel(tree.RUNTIME, target), lock.wheel(tree.CUBLAS, target, cublas))

    def describe(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any]:
        """Return versions, sizes and times of all compilers: they change with an upgrade.

        Raises:
            ToolchainError: It cannot build this recipe on this machine.
        """
        lacking = [name for name in SERIES if name not in recipe.patches.series]
        if lacking:
            raise ToolchainError(
                f"nvcc needs the patch series {' and '.join(lacking)}",
                where=f"recipe {recipe.name}: patches.series",
                fix="add it: without it the bundle does not load where the driver is missing",
            )
        wheels = self.wheels(recipe, lock, host)
        chosen, compiler = self._chosen(recipe)
        programs = {f"{chosen.root}/{name}": [size, time] for name, size, time in chosen.stamp}
        for path in (compiler.cc, compiler.cxx):
            info = Path(path).stat()
            programs[path] = [info.st_size, info.st_mtime_ns]
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

    def tree_inputs(
        self,
        recipe: Recipe,  # noqa: ARG002
        lock: Lock,  # noqa: ARG002
        host: str,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Return nothing: the toolkit is one already."""
        return None

    def provides(self, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """Return the libraries that a bundle may take from wheels; see :class:`Toolchain`."""
        return tree.provided(recipe)

    def layout(
        self,
        recipe: Recipe,
        *,
        programs: Mapping[str, str],
        work: str,
        cache_dir: str,  # noqa: ARG002
    ) -> Layout:
        """Return wrappers for nvcc and its host compiler, and the toolchain file."""
        version = table.parse_version(self._chosen(recipe)[0].version)
        hidden = hide_paths(work)
        root = programs["cuda-root"]
        link = "-s" if recipe.bundle.system_libstdcxx else "-s -static-libstdc++ -static-libgcc"
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
            *linker_lines(link),
        ]
        if version[:2] >= SEED_SINCE:
            lines.append(f'set(CMAKE_CUDA_COMPILE_OBJECT "{_RULE}")')
        return Layout(
            wrappers={
                "cc": [programs["cc"], *hidden],
                # nvcc preprocesses device code with it too: the path maps reach every __FILE__.
                "c++": [programs["c++"], *hidden],
                "nvcc": [f"{root}/bin/nvcc"],
            },
            toolchain_file="\n".join(lines) + "\n",
        )

    def prepare(
        self,
        recipe: Recipe,
        *,
        unpacked: Mapping[str, Path],  # noqa: ARG002
        work: Path,
        cache_dir: Path,
    ) -> Prepared:
        """Write the wrapper scripts and the toolchain file.

        Raises:
            ToolchainError: No toolkit here will do, or the work folder's name is unfit for nvcc.
        """
        if bad := toolkit.unfit(work.as_posix()):
            # CMake hands nvcc its host compiler (`-ccbin=…/tools/c++`) unquoted.
            raise ToolchainError(
                f"nvcc cannot build in a folder whose path holds {bad}",
                where=str(work),
                fix="choose another store, e.g. --store /var/tmp/qbuild",
            )
        layout = self.layout(
            recipe,
            programs=self.programs(recipe),
            work=work.as_posix(),
            cache_dir=str(cache_dir),
        )
        return write_layout(layout, work)
