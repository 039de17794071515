"""What a plan has to know of the machine that builds: looked at once, before the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qbuild.toolchains import capture as capture_toolchain
from qbuild.toolchains.base import Installed

if TYPE_CHECKING:
    from qbuild.recipe.model import Recipe
    from qbuild.toolchains.visual_studio.installed import MsvcFacts


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What was found on the machine."""

    installed: Installed = field(default_factory=Installed)  # for the toolchain
    # name → sha256 of the files of the OpenBLAS in a prebuilt folder or in the system; ``None``:
    # not looked at
    openblas: Mapping[str, str] | None = None


def capture(recipe: Recipe, visual_studio: MsvcFacts | None = None) -> Captured:
    """Look at this machine for what a plan of this recipe has to know, and for nothing else.

    Args:
        recipe: What is to be planned.
        visual_studio: What another, Windows machine has: the plan is for that one.

    Raises:
        ToolchainError: OpenBLAS is missing or does not fit.
    """
    installed = (
        Installed(visual_studio=visual_studio) if visual_studio else capture_toolchain(recipe)
    )
    found = None
    if recipe.openblas.origin in ("folder", "system"):
        from qbuild.steps import blas_library  # most recipes have none

        found = blas_library.digests(blas_library.locate(recipe, os.environ))
    return Captured(installed=installed, openblas=found)
