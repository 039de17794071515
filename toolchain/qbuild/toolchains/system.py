"""``gcc`` and ``clang`` as found on the build machine, for Linux bundles.

Such a bundle runs on the build machine's glibc and newer; ``verify`` reports the floor it has.
Its compiler is not pinned: provenance names the version, and only a machine with the same
compiler rebuilds the same bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbuild.errors import ToolchainError
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.recipe.model import Recipe
from qbuild.toolchains.base import (
    Layout,
    Prepared,
    hide_paths,
    linker_lines,
    tool_lines,
    wants_windows,
    write_layout,
)

FORMAT = 1


class SystemCompiler:
    """A compiler found on PATH.

    Args:
        name: Recipe name of the toolchain, ``gcc`` or ``clang``.
        programs: C and C++ compiler to look for.
    """

    def __init__(self, name: str, programs: tuple[str, str]) -> None:
        self.name = name
        self._programs = programs

    def wheels(
        self,
        recipe: Recipe,  # noqa: ARG002
        lock: Lock,  # noqa: ARG002
        host: str,  # noqa: ARG002
    ) -> tuple[WheelPin, ...]:
        """Return nothing: the system provides it."""
        return ()

    def _find(self, recipe: Recipe) -> list[Path]:
        if wants_windows(recipe):
            raise ToolchainError(
                f"the {self.name} toolchain builds for Linux only",
                where=f"recipe {recipe.name}: toolchain.name with target.os = windows",
                fix="use the zig toolchain: --set toolchain.name=zig",
            )
        found = []
        for program in self._programs:
            path = shutil.which(program)
            if path is None:
                raise ToolchainError(
                    f"`{program}` is not on PATH",
                    where=f"recipe {recipe.name}: toolchain.name = {self.name}",
                    fix=f"install {self.name}, or use the zig toolchain, which needs nothing "
                    "installed: --set toolchain.name=zig",
                )
            found.append(Path(path).resolve())
        return found

    def describe(self, recipe: Recipe, lock: Lock, host: str) -> dict[str, Any]:  # noqa: ARG002
        """Return path, size and time of the compilers: they change when it is upgraded."""
        programs = {}
        for path in self._find(recipe):
            info = path.stat()
            programs[str(path)] = [info.st_size, info.st_mtime_ns]
        return {
            "name": self.name,
            "format": FORMAT,
            "version": "",
            "wheels": {},
            "target": "native",
            "programs": programs,
        }

    def tree_inputs(
        self,
        recipe: Recipe,  # noqa: ARG002
        lock: Lock,  # noqa: ARG002
        host: str,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Return nothing: it compiles no CUDA code."""
        return None

    def provides(self, recipe: Recipe) -> Mapping[str, tuple[str, str]]:  # noqa: ARG002
        """Return nothing: what it links is linked in."""
        return {}

    def layout(
        self,
        recipe: Recipe,
        *,
        programs: Mapping[str, str],
        work: str,
        cache_dir: str,  # noqa: ARG002
    ) -> Layout:
        """Return the wrappers, which carry the path maps, and the toolchain file."""
        flags = hide_paths(work)
        link = "-s" if recipe.bundle.system_libstdcxx else "-s -static-libstdc++ -static-libgcc"
        lines = [
            *tool_lines({"CMAKE_C_COMPILER": "cc", "CMAKE_CXX_COMPILER": "c++"}),
            *linker_lines(link),
        ]
        return Layout(
            wrappers={"cc": [programs["cc"], *flags], "c++": [programs["c++"], *flags]},
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
        """Write the wrapper scripts and the toolchain file."""
        c, cxx = self._find(recipe)
        layout = self.layout(
            recipe,
            programs={"cc": str(c), "c++": str(cxx)},
            work=work.as_posix(),
            cache_dir=str(cache_dir),
        )
        return write_layout(layout, work)
