"""Toolchains: one module each, behind the :class:`~qbuild.toolchains.base.Toolchain` protocol."""

from __future__ import annotations

from qbuild.errors import ToolchainError
from qbuild.toolchains.base import Toolchain


def get_toolchain(name: str) -> Toolchain:
    """Return the toolchain of that recipe name.

    Raises:
        ToolchainError: It is not available in this version of qbuild.
    """
    from qbuild.toolchains.system import SystemCompiler
    from qbuild.toolchains.zig import Zig

    known: dict[str, Toolchain] = {
        "zig": Zig(),
        "gcc": SystemCompiler("gcc", ("gcc", "g++")),
        "clang": SystemCompiler("clang", ("clang", "clang++")),
    }
    if name not in known:
        raise ToolchainError(
            f"the {name} toolchain is not available in this version of qbuild",
            fix=f"use one of: {', '.join(known)}",
        )
    return known[name]
