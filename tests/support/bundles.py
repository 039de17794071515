"""Facts, a source tree and a toolchain folder to make bundles from in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbuild.bundle.facts import (
    BundleFacts,
    InputFile,
    PatchFacts,
    SeriesFacts,
    SourceFacts,
    ToolchainFacts,
)
from qbuild.recipe.model import Build, Os, Recipe, Target

WHEEL = InputFile(
    name="ziglang", version="0.17.1", filename="ziglang-0.17.1-py3-none-any.whl", sha256="5" * 64
)
NINJA = InputFile(
    name="ninja", version="1.13.2", filename="ninja-1.13.2-py3-none-any.whl", sha256="6" * 64
)


def facts(os: Os = "windows", **changes: Any) -> BundleFacts:
    """Return the facts of an avx2 bundle; ``build`` and other fields can be replaced."""
    recipe = Recipe(
        name="avx2",
        summary="A desktop or laptop with AVX2",
        target=Target(os=os, cpu="x86-64-v3"),
        build=changes.pop("build", Build()),
    )
    values: dict[str, Any] = {
        "recipe": recipe,
        "source": SourceFacts(
            repository="https://github.com/ggml-org/llama.cpp",
            commit="0c1e57098bba43ac29e6e3b677cdceebdd22334f",
            tree="b2da53584951ec8aa40680229509a6646a637560",
            version="0.5.0-dev",
            date="2026-10-01",
        ),
        "patched_commit": "1" * 40,
        "patched_tree": "2" * 40,
        "series": (
            SeriesFacts(
                name="windows-gnu",
                summary="Exports only the API on MinGW",
                digest="3" * 64,
                patches=(
                    PatchFacts(
                        file="0001-export-api.patch",
                        subject="ggml: export the API on MinGW",
                        why="lld would export everything",
                        sha256="4" * 64,
                    ),
                ),
            ),
        ),
        "toolchain": ToolchainFacts(
            name="zig", version="0.17.1", triple="x86_64-windows-gnu", inputs=(WHEEL,)
        ),
        "lock": {"source": {"commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f"}},
        "cmake": {"GGML_AVX2": True, "GGML_NATIVE": False},
        "qbuild_version": "0.1.0",
        "tools": (NINJA,),
    }
    return BundleFacts(**{**values, **changes})


FACTS = facts()


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write text files below a folder and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return root


def source_tree(root: Path) -> Path:
    """Write the parts of llama.cpp's tree that licences come from (placeholders for texts)."""
    return write_tree(
        root,
        {
            "LICENSE": "MIT License: llama.cpp\n",
            "licenses/LICENSE-jsonhpp": "MIT License: json\r\nsecond line\r\n",
            "vendor/CMakeLists.txt": "",
            "vendor/nlohmann/json.hpp": "// version 3.12.0\n",
            "vendor/cpp-httplib/LICENSE": "MIT License: httplib\n",
            "vendor/cpp-httplib/httplib.h": '#define CPPHTTPLIB_VERSION "0.58.0"\n',
            "vendor/hash/hash.h": "",
            "vendor/hash/xxhash/LICENSE": "BSD: xxhash\n",
        },
    )


def zig_wheel(root: Path) -> Path:
    """Write the parts of the unpacked ziglang wheel that licences come from."""
    lib = "ziglang/lib"
    return write_tree(
        root,
        {
            "ziglang/LICENSE": "MIT: zig\n",
            f"{lib}/compiler_rt/x.zig": "",
            **{
                f"{lib}/{name}/LICENSE.TXT": f"Apache: {name}\n"
                for name in ("libcxx", "libcxxabi", "libunwind")
            },
            f"{lib}/libc/mingw/COPYING": "ZPL: mingw\n",
            f"{lib}/libc/mingw/winpthreads/barrier.c": (
                "/*\n   Copyright (c) 2011-2016  mingw-w64 project\n text\n"
                " DEALINGS IN THE SOFTWARE.\n*/\nint code;\n"
            ),
            f"{lib}/libc/mingw/gdtoa/gdtoa.h": (
                "/***\nThe author of this software is David M. Gay.\ntext\nTHIS SOFTWARE.\n***/\n"
            ),
            f"{lib}/libc/musl/COPYRIGHT": "MIT: musl\n",
            f"{lib}/libc/glibc/LICENSES": "glibc notices\n",
            f"{lib}/libc/glibc/csu/elf-init-2.33.c": (
                "/* x\n   Copyright (C) FSF\n <https://www.gnu.org/licenses/>.  */\nint code;\n"
            ),
        },
    )
