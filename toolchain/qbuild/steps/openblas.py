"""OpenBLAS for ggml's BLAS backend, read and checked before anything is configured.

Three origins: the pinned ``scipy-openblas32`` wheel of the *target* system, a prebuilt folder that
``OpenBLAS_DIR`` names, or the system's own (Linux); see :mod:`qbuild.steps.blas_library`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.errors import ToolchainError, UsageError
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.tools import OPENBLAS as PROJECT

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell
    from qbuild.store import Entry

FORMAT: Final = 1


class OpenBlasStep(Kind):
    """The folder of headers and libraries that CMake is given."""

    kind = "openblas"
    label = "OpenBLAS"
    configures = True
    bundled = True

    def wheels(self, ask: Request) -> tuple[WheelPin, ...]:
        """Return the wheel that the recipe takes OpenBLAS from: the target's, whatever the host.

        Raises:
            LockError: The lockfile lacks it.
        """
        if ask.recipe.openblas.origin != "wheel":
            return ()
        target = ask.recipe.target
        return (ask.lock.wheel(PROJECT, f"{target.os}-{target.arch}"),)

    def cache_entries(self, recipe: Recipe) -> Mapping[str, CmakeValue]:
        """Return what turns the BLAS backend on, where a recipe wants it."""
        if recipe.openblas.origin == "none":
            return {}
        return {
            "GGML_BLAS": True,
            "GGML_BLAS_VENDOR": "OpenBLAS",
            # Read by no CMake file: tells third-party.toml whether a copy is in the bundle.
            "QBUILD_OPENBLAS_INSIDE": recipe.openblas.origin != "system",
        }

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the pinned wheel, or the digests of what was found on this machine.

        Raises:
            ToolchainError: The machine's OpenBLAS was not looked at.
        """
        recipe = ask.recipe
        origin = recipe.openblas.origin
        if origin == "none":
            return None
        inputs = {"format": FORMAT, "origin": origin, "target": recipe.target.os}
        if origin == "wheel":
            (wheel,) = self.wheels(ask)
            return {**inputs, "file": wheel.filename, "sha256": wheel.sha256}
        if ask.captured.openblas is None:
            raise ToolchainError(
                "nothing is known of the OpenBLAS of the machine that builds",
                where=f"recipe {recipe.name}: openblas.origin = {origin}",
                fix='plan on that machine, or set openblas.origin = "wheel"',
            )
        toolchain = [recipe.toolchain.name, recipe.toolchain.runtime]
        return {**inputs, "files": dict(ask.captured.openblas), "toolchain": toolchain}

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return what is done with it."""
        return "checked and laid out for CMake"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Find it again, check it and copy what is compiled with, linked and shipped.

        Raises:
            ToolchainError: It is missing or does not fit.
        """
        from qbuild.steps import blas_library  # a plan need not wait for it

        recipe = build.plan.recipe
        files = build.unpacked(PROJECT) if recipe.openblas.origin == "wheel" else None
        found = blas_library.locate(recipe, os.environ, files)
        build.reporter.say(f"OpenBLAS {found.version}: {found.link.name} fits the recipe")
        return blas_library.assemble(found, dest / "tree")

    def script(self, plan: Plan, step: Step, out: Shell) -> None:  # noqa: ARG002
        """Write CMake's module for it.

        Raises:
            UsageError: It does not come from the pinned wheel.
        """
        from qbuild.steps import blas_library

        origin, target = plan.recipe.openblas.origin, plan.recipe.target.os
        if origin != "wheel":
            raise UsageError(
                "there is a script for OpenBLAS from the pinned wheel only",
                where=f"recipe {plan.recipe.name}: openblas.origin = {origin}",
                fix="--set openblas.origin=wheel, or `qbuild build`, which reads the folder first",
            )
        out.note("OpenBLAS: CMake's module for it")
        root = f"${{CMAKE_CURRENT_LIST_DIR}}/tools/{PROJECT}/{blas_library.WHEEL_ROOT}"
        text = blas_library.find_module(
            f"{root}/include",
            f"{root}/{blas_library.WHEEL_LINK[target]}",
            prefix=blas_library.WHEEL_PREFIX,
            suffix="",
        )
        out.file("FindBLAS.cmake", text, literal=True)

    def in_cmake(self, entry: Entry) -> Mapping[str, CmakeValue]:
        """Return where CMake finds the module."""
        return {"CMAKE_MODULE_PATH": (entry.path / "tree" / "cmake").as_posix()}

    def in_bundle(self, entry: Entry) -> Path:
        """Return the folder with its licence, and in ``bin`` what the programs load."""
        return entry.path / "tree"

    def script_options(self, out: Shell, recipe: Recipe) -> tuple[str, ...]:  # noqa: ARG002
        """Return what makes CMake find the module."""
        return (f"-DCMAKE_MODULE_PATH={out.here}",)

    def script_libraries(self, recipe: Recipe) -> tuple[str, ...]:
        """Return what the programs load."""
        from qbuild.steps import blas_library

        name = blas_library.WHEEL_SHIPPED[recipe.target.os]
        return (f"tools/{PROJECT}/{blas_library.WHEEL_ROOT}/{name}",)
