"""``gcc`` and ``clang`` as found on the build machine, for Linux bundles.

Such a bundle runs on the build machine's glibc and newer; ``verify`` reports the floor it has.
Its compiler is not pinned: provenance names the version, and only a machine with the same
compiler rebuilds the same bytes.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, ClassVar

from qbuild.errors import ToolchainError
from qbuild.toolchains.base import (
    Installed,
    Layout,
    Place,
    Prepared,
    Program,
    ScriptWords,
    Toolchain,
    WorkTree,
    hide_paths,
    linker_lines,
    tool_lines,
    wants_windows,
    write_layout,
)

FORMAT = 1


class SystemCompiler(Toolchain):
    """A compiler found on PATH."""

    programs: ClassVar[tuple[str, str]]  # C and C++ compiler to look for

    @classmethod
    def capture(cls) -> Installed:
        """Look for the compilers on PATH."""
        found = {}
        for program in cls.programs:
            if path := shutil.which(program):
                real = Path(path).resolve()
                info = real.stat()
                found[program] = Program(path=str(real), size=info.st_size, time=info.st_mtime_ns)
        return Installed(programs=found)

    def _found(self) -> list[Program]:
        if wants_windows(self.recipe):
            raise ToolchainError(
                f"the {self.name} toolchain builds for Linux only",
                where=f"recipe {self.recipe.name}: toolchain.name with target.os = windows",
                fix="use the zig toolchain: --set toolchain.name=zig",
            )
        installed = self.context.installed.programs
        for program in self.programs:
            if program not in installed:
                raise ToolchainError(
                    f"`{program}` is not on PATH",
                    where=self.context.where,
                    fix=f"install {self.name}, or use the zig toolchain, which needs nothing "
                    "installed: --set toolchain.name=zig",
                )
        return [installed[program] for program in self.programs]

    def describe(self) -> dict[str, Any]:
        """Return path, size and time of the compilers: they change when it is upgraded."""
        return {
            "name": self.name,
            "format": FORMAT,
            "version": "",
            "wheels": {},
            "target": "native",
            "programs": {each.path: [each.size, each.time] for each in self._found()},
        }

    def layout(self, place: Place) -> Layout:
        """Return the wrappers, which carry the path maps, and the toolchain file."""
        flags = hide_paths(place.work)
        shared = self.recipe.bundle.system_libstdcxx
        lines = [
            *tool_lines({"CMAKE_C_COMPILER": "cc", "CMAKE_CXX_COMPILER": "c++"}),
            *linker_lines("-s" if shared else "-s -static-libstdc++ -static-libgcc"),
        ]
        return Layout(
            wrappers={name: [place.programs[name], *flags] for name in ("cc", "c++")},
            toolchain_file="\n".join(lines) + "\n",
        )

    def prepare(self, tree: WorkTree) -> Prepared:
        """Write the wrapper scripts and the toolchain file."""
        c, cxx = self._found()
        return write_layout(self.layout(tree.place(**{"cc": c.path, "c++": cxx.path})), tree.work)

    def script(self, shell: str, here: str) -> ScriptWords:
        """Return the compilers by name: a person's own machine has them elsewhere."""
        words = super().script(shell, here)
        c, cxx = self.programs
        return dataclasses.replace(words, programs={**words.programs, "cc": c, "c++": cxx})


class Gcc(SystemCompiler):
    """gcc as found on PATH."""

    programs = ("gcc", "g++")


class Clang(SystemCompiler):
    """clang as found on PATH."""

    programs = ("clang", "clang++")
