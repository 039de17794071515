"""Toolchains: one module each, behind the :class:`~qbuild.toolchains.base.Toolchain` protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qbuild.errors import ToolchainError
from qbuild.toolchains.base import Toolchain

if TYPE_CHECKING:
    from qbuild.toolchains.visual_studio.installed import MsvcFacts

ON_WINDOWS: Final = ("msvc", "nvcc")
"""Toolchains that take Visual Studio as it is installed."""


def _zig() -> Toolchain:
    from qbuild.toolchains.zig import Zig

    return Zig()


def _clang_cuda() -> Toolchain:
    from qbuild.toolchains.clang_cuda import ClangCuda

    return ClangCuda()


def _nvcc() -> Toolchain:
    from qbuild.toolchains.nvcc import Nvcc

    return Nvcc()


def _gcc() -> Toolchain:
    from qbuild.toolchains.system import SystemCompiler

    return SystemCompiler("gcc", ("gcc", "g++"))


def _clang() -> Toolchain:
    from qbuild.toolchains.system import SystemCompiler

    return SystemCompiler("clang", ("clang", "clang++"))


def _msvc(name: str, machine: MsvcFacts | None) -> Toolchain:
    from qbuild.toolchains.msvc import Msvc

    return Msvc(name, machine)


_KNOWN: dict[str, Callable[[], Toolchain]] = {
    "zig": _zig,
    "clang-cuda": _clang_cuda,
    "nvcc": _nvcc,
    "gcc": _gcc,
    "clang": _clang,
}


def get_toolchain(name: str, machine: MsvcFacts | None = None) -> Toolchain:
    """Return the toolchain of that recipe name; only its own module is loaded.

    Args:
        name: As recipes spell it.
        machine: What a Windows machine has, for msvc and nvcc.

    Raises:
        ToolchainError: It is not available in this version of qbuild.
    """
    if name == "msvc" or (name in ON_WINDOWS and machine is not None):
        return _msvc(name, machine)
    if name not in _KNOWN:
        raise ToolchainError(
            f"the {name} toolchain is not available in this version of qbuild",
            fix=f"use one of: {', '.join([*_KNOWN, 'msvc'])}",
        )
    return _KNOWN[name]()
