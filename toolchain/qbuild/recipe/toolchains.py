"""The toolchains that a recipe may name, and what a recipe has to know of each: one table.

The code of a toolchain lies in :mod:`qbuild.toolchains`; recipes are checked without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from qbuild.recipe.model import Recipe

ToolchainName = Literal["zig", "gcc", "clang", "msvc", "nvcc", "clang-cuda"]


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is true of a toolchain, whatever recipe it builds."""

    made_by: str  # ``module:Class`` of its code
    cuda: bool = False  # it compiles device code
    visual_studio: bool = False  # for Windows it is Visual Studio's compiler as it is installed
    brings_libc: bool = False  # it brings its own C library, and so promises how old a glibc may be
    spreads: bool = False  # the same compiler can be put on other machines (distcc)


TOOLCHAINS: Final[Mapping[ToolchainName, Traits]] = {
    "zig": Traits(made_by="qbuild.toolchains.zig:Zig", brings_libc=True, spreads=True),
    "clang-cuda": Traits(
        made_by="qbuild.toolchains.clang_cuda:ClangCuda", cuda=True, brings_libc=True
    ),
    "nvcc": Traits(made_by="qbuild.toolchains.nvcc:Nvcc", cuda=True, visual_studio=True),
    "msvc": Traits(made_by="qbuild.toolchains.msvc:Msvc", visual_studio=True),
    "gcc": Traits(made_by="qbuild.toolchains.system:Gcc"),
    "clang": Traits(made_by="qbuild.toolchains.system:Clang"),
}
"""Recipe name → traits."""


def traits(recipe: Recipe) -> Traits:
    """Return the traits of a recipe's toolchain."""
    return TOOLCHAINS[recipe.toolchain.name]


def by_visual_studio(recipe: Recipe) -> bool:
    """Return whether Visual Studio's compiler builds this recipe."""
    return traits(recipe).visual_studio and recipe.target.os == "windows"
