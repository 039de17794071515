"""Toolchains: one module each, behind :class:`~qbuild.toolchains.base.Toolchain`.

Belongs here: how a compiler is described, laid out and called, and what is looked up of the
machine for it. Which toolchains there are, and what a recipe must know of them, is one table:
:mod:`qbuild.recipe.toolchains`. Nobody outside asks for a toolchain's name.
"""

from __future__ import annotations

import importlib

from qbuild import host
from qbuild.recipe.model import Recipe
from qbuild.recipe.toolchains import TOOLCHAINS, ToolchainName, by_visual_studio
from qbuild.toolchains.base import Context, Installed, Toolchain


def get_toolchain(context: Context) -> Toolchain:
    """Return a recipe's toolchain; only its own module is loaded."""
    name = context.recipe.toolchain.name
    if by_visual_studio(context.recipe) and context.installed.visual_studio is not None:
        name = "msvc"  # on Windows it drives nvcc as well
    return _class_of(name)(context)


def capture(recipe: Recipe) -> Installed:
    """Look at this machine for what the recipe's toolchain needs to know of it, and only that.

    Raises:
        ToolchainError: What Visual Studio's installer says cannot be read.
    """
    if by_visual_studio(recipe):
        name: ToolchainName = "msvc"
        if host.system() != "windows":
            return Installed()
    else:
        name = recipe.toolchain.name
    return _class_of(name).capture()


def _class_of(name: ToolchainName) -> type[Toolchain]:
    module, _, attribute = TOOLCHAINS[name].made_by.partition(":")
    found: type[Toolchain] = getattr(importlib.import_module(module), attribute)
    return found
