"""The program that computes graphs of our own on two backends: how it is compiled.

Apart from :mod:`qbuild.emulator.make`, whose changes are changes to every library of kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from qbuild.emulator.make import Kit, sources

PROGRAM: Final = "test-graphs"

_TRIPLE: Final = "x86_64-linux-gnu.2.28"


def files() -> list[Path]:
    """Return its sources and headers."""
    return sorted((sources() / "tests").iterdir())


def commands(
    kit: Kit, headers: Path, libraries: Path, scratch: Path, program: Path
) -> list[list[str]]:
    """Return the commands that make it, a Linux program beside ggml's libraries.

    Args:
        kit: What compiles.
        headers: ggml's ``include`` folder.
        libraries: Where ggml's libraries are.
        scratch: Where objects may be put.
        program: The program.
    """
    compiler = [str(kit.zig), "c++", "-target", _TRIPLE, "-std=c++17", "-O1", "-Wall"]
    made = {path: str(scratch / f"{path.stem}.o") for path in files() if path.suffix == ".cpp"}
    steps = [
        [*compiler, "-I", str(headers), "-c", str(path), "-o", to] for path, to in made.items()
    ]
    linked = [str(libraries / name) for name in ("libggml.so", "libggml-base.so")]
    link = [*compiler, "-s", *made.values(), *linked, "-Wl,-rpath,$ORIGIN", "-o", str(program)]
    return [*steps, link]
