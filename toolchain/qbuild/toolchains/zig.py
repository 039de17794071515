"""The default toolchain: clang, lld, libc++ and mingw-w64 from the pinned ``ziglang`` wheel.

It needs nothing installed, builds Linux binaries for an old glibc and Windows binaries on UCRT.

Four things about it are not obvious:

* zig links libc++ statically into every shared library and keeps its symbols hidden. libc++'s
  default on ELF compares exception types by the address of their name, so an exception thrown in
  one library was seen to miss its ``catch`` in another. :data:`ADJUSTMENTS` switches the pinned
  header to comparison by name (libc++'s own ``_LIBCPP_TYPEINFO_COMPARISON_IMPLEMENTATION`` 2,
  what it uses on Windows anyway) before zig builds its libc++ from it.
* For the same reason each library must use its own copy of libc++'s templates: ELF would let the
  first library's weak symbols serve all, and a stream of one library met the locale ids of another
  (``free(): invalid pointer`` in ``llama-cli --version``). ``-Bsymbolic`` binds them at link time.
* ccache and CMake want a compiler that is one program, so ``cc`` and friends are small scripts.
* zig builds the target's C runtime on first use and keeps it in its cache folder: minutes once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbuild.errors import ToolchainError
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.toolchains.base import (
    APART,
    COLD,
    TUNE,
    UNITE,
    Layout,
    Place,
    Prepared,
    Toolchain,
    WorkTree,
    hide_paths,
    linker_lines,
    tool_lines,
    wants_windows,
    write_layout,
)

FORMAT = 1

ADJUSTMENTS = (
    (
        "ziglang/lib/libcxx/include/typeinfo",
        "#        else\n#          define _LIBCPP_TYPEINFO_COMPARISON_IMPLEMENTATION 1\n",
        "#        else\n#          define _LIBCPP_TYPEINFO_COMPARISON_IMPLEMENTATION 2\n",
        "exceptions must be caught across shared libraries that each carry libc++",
    ),
)
"""(file in the wheel, text, replacement, why): applied once, when the wheel is unpacked."""

FAST = ("fast-variable-crosslane-shuffle", "fast-variable-perlane-shuffle")
"""Names of LLVM's for what every processor with AVX-512 is quick at, in its own models of them.

clang's default, a mean of all x86 processors, takes byte shuffles apart as the first ones with
SSSE3 needed it. On a Zen 4 answers of Q4_K models came a fifth faster, of Q6_K and Q4_0 three
percent; AVX2 code gained nothing (docs/benchmarks.md, the race). ``-mtune`` will not do: zig 0.17
takes it for ``-mcpu`` and uses instructions that the level lacks.
"""

GROUPS = {
    "llama": 10,
    "llama-common": 10,
    "mtmd": 16,
    "server-context": 5,
    "llama-server-impl": 4,
    "llama-cli-impl": 8,
}
"""llama.cpp's targets whose files are compiled in groups, and how many make one.

About half of what clang did was to read the same headers again (docs/benchmarks.md). Not ggml's:
its kernels' files are large, and some are compiled with options of their own. A group is small
enough for many compilers to have something to do: the largest took 21 CPU seconds and 516 MB, where
the largest file alone takes 25 and 432.
"""

ALONE = (
    "common/json.cpp",  # specialises a template that others use before
    "src/llama-kv-cache-dsv4.cpp",  # names a function as llama-memory's file does
    "tools/mtmd/mtmd-helper.cpp",  # refuse mtmd's own headers
    "tools/mtmd/mtmd-helper-gen.cpp",
)

RUN_ONCE = ("common/arg.cpp",)
"""A single function with all command-line options: inlining took more than half of its time."""


def target_triple(recipe: Recipe) -> str:
    """Return zig's name of the target, e.g. ``x86_64-linux-gnu.2.28``."""
    if wants_windows(recipe):
        return f"{recipe.target.arch}-windows-gnu"
    return f"{recipe.target.arch}-linux-gnu.{recipe.target.glibc}"


def adjust(tree: Path) -> None:
    """Apply :data:`ADJUSTMENTS` to an unpacked wheel.

    Raises:
        ToolchainError: A file does not hold the expected text exactly once.
    """
    for name, old, new, why in ADJUSTMENTS:
        path = tree / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(old) != 1:
            raise ToolchainError(
                f"the ziglang wheel's {name} is not the one that was reviewed ({why})",
                where=name,
                fix="use the ziglang version that qbuild.lock pins",
            )
        path.write_bytes(text.replace(old, new).encode())


def adjustments_digest() -> str:
    """Return the sha256 of :data:`ADJUSTMENTS`: part of the unpacked wheel's key."""
    return hashlib.sha256(repr(ADJUSTMENTS).encode()).hexdigest()


class Zig(Toolchain):
    """Cross compiler from the ``ziglang`` wheel."""

    def wheels(self) -> tuple[WheelPin, ...]:
        """Return the ziglang wheel."""
        return (self.context.lock.wheel("ziglang", self.context.host),)

    def describe(self) -> dict[str, Any]:
        """Return version, wheel hash, target and adjustments."""
        (wheel,) = self.wheels()
        return {
            "name": "zig",  # also as the C++ side of clang-cuda
            "format": FORMAT,
            "version": wheel.version,
            "wheels": {wheel.filename: wheel.sha256},
            "target": target_triple(self.recipe),
            "adjustments": adjustments_digest(),
        }

    def cache_entries(self) -> Mapping[str, CmakeValue]:
        """Return how files are grouped, and what is fast in AVX-512 code, where some is made."""
        entries = {
            UNITE: ";".join(f"{target}={count}" for target, count in GROUPS.items()),
            APART: ";".join(ALONE),
            COLD: ";".join(RUN_ONCE),
        }
        return entries | ({TUNE: ";".join(FAST)} if self.recipe.avx512 else {})

    def layout(self, place: Place) -> Layout:
        """Return the wrappers, which carry target and path maps, and the toolchain file."""
        windows = wants_windows(self.recipe)
        zig = place.programs["zig"]
        # zig asks clang for debug information unless told not to; everything is stripped at link
        # time anyway, and without it a file was seen to compile in 4/5 of the time.
        flags = ["-target", target_triple(self.recipe), "-g0", *hide_paths(place.work)]
        variables = {
            "CMAKE_C_COMPILER": "cc",
            "CMAKE_CXX_COMPILER": "c++",
            "CMAKE_AR": "ar",
            "CMAKE_RANLIB": "ranlib",
        } | ({"CMAKE_RC_COMPILER": "rc"} if windows else {})
        lines = [
            f"set(CMAKE_SYSTEM_NAME {'Windows' if windows else 'Linux'})",
            f"set(CMAKE_SYSTEM_PROCESSOR {'AMD64' if windows else 'x86_64'})",
            *tool_lines(variables),
            *linker_lines("-s", shared="-s" if windows else "-s -Wl,-Bsymbolic"),
            # Nothing of the build machine may be found.
            'set(CMAKE_FIND_ROOT_PATH "${CMAKE_CURRENT_LIST_DIR}/no-sysroot")',
            "set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)",
            *(
                f"set(CMAKE_FIND_ROOT_PATH_MODE_{kind} ONLY)"
                for kind in ("LIBRARY", "INCLUDE", "PACKAGE")
            ),
        ]
        return Layout(
            wrappers={
                "cc": [zig, "cc", *flags],
                "c++": [zig, "c++", *flags],
                "ar": [zig, "ar"],
                "ranlib": [zig, "ranlib"],
                "rc": [zig, "rc"],
            },
            toolchain_file="\n".join(lines) + "\n",
            env={
                "ZIG_GLOBAL_CACHE_DIR": f"{place.cache_dir}/zig",
                "ZIG_LOCAL_CACHE_DIR": f"{place.cache_dir}/zig",
            },
        )

    def prepare(self, tree: WorkTree) -> Prepared:
        """Write the wrapper scripts and the toolchain file."""
        zig = tree.unpacked["ziglang"] / "ziglang" / "zig"
        if not zig.is_file():
            zig = zig.with_name("zig.exe")
        if not zig.is_file():
            raise ToolchainError("the ziglang wheel holds no zig program", where=str(zig.parent))
        return write_layout(self.layout(tree.place(zig=str(zig))), tree.work)
