"""``clang-cuda``: the zig toolchain for the CPU side, clang with NVIDIA's wheels for the GPU side.

Nothing is installed and no NVIDIA program but ``ptxas`` runs: it builds Windows and Linux bundles
with CUDA kernels on either. How it works is told in ``docs/clang-cuda.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qbuild.cuda import flags, runtime, table, tree
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.tree import zig_program
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.model import CmakeValue
from qbuild.toolchains.base import (
    CUDA_TREE,
    CUDA_WRAPPER,
    Context,
    Layout,
    Place,
    Prepared,
    Toolchain,
    WorkTree,
    hide_paths,
    write_layout,
)
from qbuild.toolchains.zig import Zig

FORMAT: Final = 1

SERIES: Final = ("cuda-clang", "nvcuda")
"""Patch series without which llama.cpp knows nothing of this compiler."""


STAND_IN: Final = "stand-in.fatbin"
"""What host code that was compiled without device code registers in its place."""


class ClangCuda(Toolchain):
    """clang as CUDA compiler, from wheels only.

    Asked for no device code it compiles the host's alone: for test programs that run on the
    emulated GPU, which has the kernels from elsewhere. Their host code names them, nothing more.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.zig = Zig(context)

    def cache_entries(self) -> Mapping[str, CmakeValue]:
        """Return what the compiler of the host's code asks for."""
        return self.zig.cache_entries()

    @property
    def _target(self) -> str:
        return f"{self.recipe.target.os}-{self.recipe.target.arch}"

    def wheels(self) -> tuple[WheelPin, ...]:
        """Return compilers for the host, headers and libraries for the target.

        Raises:
            ToolchainError: It cannot build this recipe's architectures on this host.
            LockError: The lockfile lacks one.
        """
        lock, host = self.context.lock, self.context.host
        table.check_target(
            self.name,
            host.partition("-")[0],
            self.recipe.target.os,
            parse_archs(self.recipe.cuda.architectures),
            where=f"recipe {self.recipe.name}: cuda.architectures",
        )
        programs = tuple(lock.wheel(project, host) for project in tree.HOST_WHEELS)
        cudart = lock.wheel(tree.RUNTIME, self._target)
        if self.recipe.bundle.cublas == "none":
            promised = self.recipe.cuda.driver or None
            runtime.check_driver(cudart.version, target=self.recipe.target.os, driver=promised)
            return (*programs, cudart)
        return (*programs, cudart, self._cublas())

    def _cublas(self) -> WheelPin:
        pinned = self.context.lock.versions(tree.CUBLAS, self._target)
        version = runtime.planned(
            {pin.version: pin.size for pin in pinned},
            parse_archs(self.recipe.cuda.architectures),
            target=self.recipe.target.os,
            driver=self.recipe.cuda.driver or None,
        )
        return self.context.lock.wheel(tree.CUBLAS, self._target, version)

    def describe(self) -> dict[str, Any]:
        """Return compiler, target, wheels, and everything of qbuild's own that is compiled in.

        Raises:
            ToolchainError: It cannot build this recipe on this host.
        """
        lacking = [name for name in SERIES if name not in self.recipe.patches.series]
        if lacking:
            raise ToolchainError(
                f"clang-cuda needs the patch series {' and '.join(lacking)}",
                where=f"recipe {self.recipe.name}: patches.series",
                fix="add them; the recipe gtx1060 shows the order",
            )
        zig = next(wheel for wheel in self.wheels() if wheel.project == tree.ZIG)
        if zig.version != flags.ZIG_VERSION:
            raise ToolchainError(
                f"clang-cuda was written for ziglang {flags.ZIG_VERSION}, not {zig.version}",
                where="qbuild.lock",
                fix="compare its `zig c++ --verbose` with qbuild.cuda.flags, then change both",
            )
        base = self.zig.describe()
        return {
            "name": self.name,
            "format": FORMAT,
            "version": zig.version,
            "target": base["target"],
            "c++": base,
            "tree": self.tree_inputs(),
            **({} if self.context.device_code else {"device": STAND_IN}),
        }

    def tree_inputs(self) -> dict[str, Any]:
        """Return what the CUDA tree is made from; equal inputs make equal trees."""
        return {
            "format": tree.FORMAT,
            "host": self.context.host.partition("-")[0],
            "target": self.recipe.target.os,
            "wheels": {w.filename: w.sha256 for w in self.wheels()},
            "own": tree.own_digest(),
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
        """Return zig's layout with one more compiler, which CMake is told of by cache entries."""
        base = self.zig.layout(place)
        system = self.recipe.target.os
        cuda, lib = place.programs[CUDA_TREE], place.programs["zig-lib"]
        paths = flags.Paths(zig=place.programs["zig"], zig_lib=lib, tree=cuda)
        command = [
            *flags.compiler_command(paths, system, glibc=self.recipe.target.glibc),
            "-g0",
            *hide_paths(place.work),
            # Headers put their own names into error messages (`__FILE__`).
            f"-ffile-prefix-map={cuda}=cuda",
            f"-ffile-prefix-map={lib}=zig",
        ]
        if not self.context.device_code:
            command.append("--cuda-host-only")
            for word in ("-fcuda-include-gpubinary", f"{place.work}/tools/{STAND_IN}"):
                command += ["-Xclang", word]
        entries = flags.path_entries(
            compiler=f"{place.work}/tools/{CUDA_WRAPPER}",
            libraries=[
                f"{cuda}/{name}"
                for name in tree.linked(system, cublas=self.recipe.bundle.cublas != "none")
            ],
        )
        return Layout(
            wrappers={**base.wrappers, CUDA_WRAPPER: command},
            toolchain_file=base.toolchain_file,
            env=base.env,
            cache={**base.cache, **entries},
        )

    def prepare(self, tree: WorkTree) -> Prepared:
        """Write the wrapper scripts and the toolchain file."""
        zig = zig_program(tree.unpacked)
        programs = {
            "zig": zig.as_posix(),
            "zig-lib": (zig.parent / "lib").as_posix(),
            CUDA_TREE: tree.unpacked[CUDA_TREE].as_posix(),
        }
        prepared = write_layout(self.layout(tree.place(**programs)), tree.work)
        if not self.context.device_code:
            text = b"no device code: the emulated GPU knows the kernels by their names"
            (tree.work / "tools" / STAND_IN).write_bytes(text.ljust(128, b"\0"))
        return prepared
