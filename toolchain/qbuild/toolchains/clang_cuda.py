"""``clang-cuda``: the zig toolchain for the CPU side, clang with NVIDIA's wheels for the GPU side.

Nothing is installed and no NVIDIA program but ``ptxas`` runs: it builds Windows and Linux bundles
with CUDA kernels on either. How it works is told in ``docs/clang-cuda.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from qbuild.cuda import flags, runtime, table, tree
from qbuild.cuda.arch import parse_archs
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.recipe.model import Recipe
from qbuild.toolchains.base import (
    CUDA_TREE,
    CUDA_WRAPPER,
    Layout,
    Prepared,
    hide_paths,
    wrapper_name,
    write_layout,
)
from qbuild.toolchains.zig import Zig

FORMAT: Final = 1

SERIES: Final = ("cuda-clang", "nvcuda")
"""Patch series without which llama.cpp knows nothing of this compiler."""


class ClangCuda:
    """clang as CUDA compiler, from wheels only."""

    name = "clang-cuda"

    def __init__(self) -> None:
        self.zig = Zig()

    def wheels(self, recipe: Recipe, lock: Lock, host: str) -> tuple[WheelPin, ...]:
        """Return compilers for the host, headers and libraries for the target.

        Raises:
            ToolchainError: It cannot build this recipe's architectures on this host.
            LockError: The lockfile lacks one.
        """
        table.check_target(
            self.name,
            host.partition("-")[0],
            recipe.target.os,
            parse_archs(recipe.cuda.architectures),
            where=f"recipe {recipe.name}: cuda.architectures",
        )
        target = f"{recipe.target.os}-{recipe.target.arch}"
        programs = tuple(lock.wheel(project, host) for project in tree.HOST_WHEELS)
        return (*programs, lock.wheel(tree.RUNTIME, target), self._cublas(recipe, lock, target))

    def _cublas(self, recipe: Recipe, lock: Lock, target: str) -> WheelPin:
        pinned = lock.versions(tree.CUBLAS, target)
        version = runtime.planned(
            {pin.version: pin.size for pin in pinned},
            parse_archs(recipe.cuda.architectures),
            target=recipe.target.os,
            driver=recipe.cuda.driver or None,
        )
        return lock.wheel(tree.CUBLAS, target, version)

    def describe(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any]:
        """Return compiler, target, wheels, and everything of qbuild's own that is compiled in.

        Raises:
            ToolchainError: It cannot build this recipe on this host.
        """
        lacking = [name for name in SERIES if name not in recipe.patches.series]
        if lacking:
            raise ToolchainError(
                f"clang-cuda needs the patch series {' and '.join(lacking)}",
                where=f"recipe {recipe.name}: patches.series",
                fix="add them; the recipe gtx1060 shows the order",
            )
        wheels = self.wheels(recipe, lock, host)
        zig = next(wheel for wheel in wheels if wheel.project == tree.ZIG)
        if zig.version != flags.ZIG_VERSION:
            raise ToolchainError(
                f"clang-cuda was written for ziglang {flags.ZIG_VERSION}, not {zig.version}",
                where="qbuild.lock",
                fix="compare its `zig c++ --verbose` with qbuild.cuda.flags, then change both",
            )
        base = self.zig.describe(recipe, lock, host)
        return {
            "name": self.name,
            "format": FORMAT,
            "version": zig.version,
            "target": base["target"],
            "c++": base,
            "tree": self.tree_inputs(recipe, lock, host),
        }

    def tree_inputs(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any]:
        """Return what the CUDA tree is made from; equal inputs make equal trees."""
        return {
            "format": tree.FORMAT,
            "host": host.partition("-")[0],
            "target": recipe.target.os,
            "wheels": {w.filename: w.sha256 for w in self.wheels(recipe, lock, host)},
            "own": tree.own_digest(),
        }

    def provides(self, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """Return the libraries that a bundle may take from wheels; see :class:`Toolchain`."""
        return tree.provided(recipe)

    def layout(
        self, recipe: Recipe, *, programs: Mapping[str, str], work: str, cache_dir: str
    ) -> Layout:
        """Return zig's layout with one more compiler, which CMake is told of by cache entries."""
        base = self.zig.layout(recipe, programs=programs, work=work, cache_dir=cache_dir)
        cuda, lib = programs[CUDA_TREE], programs["zig-lib"]
        paths = flags.Paths(zig=programs["zig"], zig_lib=lib, tree=cuda)
        command = [
            *flags.compiler_command(paths, recipe.target.os, glibc=recipe.target.glibc),
            "-g0",
            *hide_paths(work),
            # Headers put their own names into error messages (`__FILE__`).
            f"-ffile-prefix-map={cuda}=cuda",
            f"-ffile-prefix-map={lib}=zig",
        ]
        entries = flags.path_entries(
            compiler=f"{work}/tools/{wrapper_name(CUDA_WRAPPER)}",
            libraries=[f"{cuda}/{name}" for name in tree.LINKED[recipe.target.os]],
        )
        return Layout(
            wrappers={**base.wrappers, CUDA_WRAPPER: command},
            toolchain_file=base.toolchain_file,
            env=base.env,
            cache={**base.cache, **entries},
        )

    def prepare(
        self, recipe: Recipe, *, unpacked: Mapping[str, Path], work: Path, cache_dir: Path
    ) -> Prepared:
        """Write the wrapper scripts and the toolchain file."""
        zig = tree.zig_program(unpacked)
        programs = {
            "zig": zig.as_posix(),
            "zig-lib": (zig.parent / "lib").as_posix(),
            CUDA_TREE: unpacked[CUDA_TREE].as_posix(),
        }
        layout = self.layout(
            recipe, programs=programs, work=work.as_posix(), cache_dir=str(cache_dir)
        )
        return write_layout(layout, work)
