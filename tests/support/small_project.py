"""A small CMake project in a git repository, shaped like llama.cpp as far as qbuild looks.

It builds in seconds with the pinned zig (or, where it is installed, the system's gcc), so that
kills, full disks and races can be tried many times through the real flow: real git, real CMake,
real ninja, real zip.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from qbuild import host

UNITS = 12
"""Source files of the program: enough for a kill to land between two of them."""

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(small C)
option(BUILD_SHARED_LIBS "shared" ON)
option(GGML_LLAMAFILE "an option of the project" OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(unused unused.c)
add_library(parts PARTS)
add_executable(llama-cli main.c)
target_link_libraries(llama-cli PRIVATE parts)
target_compile_definitions(llama-cli PRIVATE COMMIT="${LLAMA_BUILD_COMMIT}")
if(LLAMA_BUILD_TESTS)
    enable_testing()
    add_executable(test-parts test.c)
    target_link_libraries(test-parts PRIVATE parts)
    add_test(NAME test-parts COMMAND test-parts)
endif()
"""

TEST = f"""\
int part0(int);
int main(void) {{ return part0(1) == {UNITS} ? 0 : 1; }}
"""

MAIN = """\
#include <stdio.h>
#include <string.h>
int part0(int);
int main(int argc, char ** argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("version: 0.0.0 (build 0, commit %s)\\n", COMMIT);
        return 0;
    }
    printf("%d\\n", part0(argc));
    return 0;
}
"""


def _git(*args: str, cwd: Path) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
        "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    }
    identity = ["-c", "user.name=t", "-c", "user.email=t@invalid"]
    done = subprocess.run(
        ["git", *identity, *args], cwd=cwd, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class SmallProject:
    """A repository, a lockfile that pins it, and a recipe that builds it."""

    repo: Path
    lockfile: Path
    recipe: Path
    patches: Path
    zip_name: str

    def command(self, store: Path, dist: Path, *extra: str) -> list[str]:
        """Return the command line that builds it."""
        return [
            sys.executable, "-m", "qbuild", "build", str(self.recipe),
            "--lockfile", str(self.lockfile), "--patches", str(self.patches),
            "--origin", str(self.repo), "--store", str(store), "--dist", str(dist),
            "--no-compiler-cache", "-q", *extra,
        ]  # fmt: skip


CXX_UNIT = """\
#include <string>
#include <vector>
std::vector<std::string> words(int n) { return std::vector<std::string>(n, "word"); }
"""


def make(
    folder: Path,
    real_lockfile: Path,
    *,
    toolchain: str = "zig",
    cxx: bool = False,
    target: str = "linux",
) -> SmallProject:
    """Write the project, commit it, pin it; with ``cxx`` it has one more source file, in C++.

    ``target`` is the system that its program is for; Windows needs the zig toolchain.
    """
    repo = folder / "repo"
    repo.mkdir(parents=True)
    names = [f"part{i}.c" for i in range(UNITS)]
    sources = " ".join([*names, "words.cpp"] if cxx else names)
    text = CMAKE.replace("PARTS", sources)
    if cxx:
        (repo / "words.cpp").write_text(CXX_UNIT)
        text = text.replace("project(small C)", "project(small C CXX)")
    (repo / "CMakeLists.txt").write_text(text)
    (repo / "main.c").write_text(MAIN)
    (repo / "test.c").write_text(TEST)
    (repo / "unused.c").write_text("int unused(void) { return 1; }\n")
    (repo / "LICENSE").write_text("A licence text.\n")
    for i, name in enumerate(names):
        more = f"int part{i + 1}(int); " if i + 1 < UNITS else ""
        call = f"part{i + 1}(x) + 1" if i + 1 < UNITS else "x"
        (repo / name).write_text(f"{more}int part{i}(int x) {{ return {call}; }}\n")
    _git("init", "-q", cwd=repo)
    _git("add", "-A", cwd=repo)
    _git("commit", "-q", "-m", "small", cwd=repo)
    commit, tree = (_git("rev-parse", what, cwd=repo) for what in ("HEAD", "HEAD^{tree}"))
    wheels = real_lockfile.read_text().split("[[wheel]]", 1)[1]
    lockfile = folder / "small.lock"
    lockfile.write_text(
        f"""\
schema = 1

[[source]]
name = "llama.cpp"
url = "https://small.invalid/small.git"
commit = "{commit}"
tree = "{tree}"
date = "2026-01-02"
version = "0.0.0"

[[wheel]]{wheels}"""
    )
    version = "2.28" if toolchain == "zig" else platform.libc_ver()[1]
    glibc = f'glibc = "{version}"' if target == "linux" else ""
    recipe = folder / "small.toml"
    recipe.write_text(
        f"""\
schema = 1
name = "small"
summary = "A small project"
supports = ["{target}"]

[target]
os = "{target}"
cpu = "x86-64"
{glibc}

[toolchain]
name = "{toolchain}"

[build]
targets = ["llama-cli"]

[checks]
run = false
"""
    )
    patches = folder / "patches"
    patches.mkdir()
    return SmallProject(
        repo=repo,
        lockfile=lockfile,
        recipe=recipe,
        patches=patches,
        zip_name=f"llama-g{commit[:9]}-small-{target}-x86_64.zip",
    )


def cmake_and_ninja(tool_wheels: list[Path]) -> tuple[Path, Path]:
    """Return the two programs out of the wheels."""
    places = ("files/cmake/data/bin/cmake", "files/*.data/scripts/ninja")
    cmake, ninja = (
        next(found for wheel in tool_wheels for found in wheel.glob(host.program_name(place)))
        for place in places
    )
    return cmake, ninja


def lend_tools(root: Path, tool_wheels: list[Path]) -> Path:
    """Give a new store the wheels, and the C runtime that zig takes minutes to build.

    They are links: nothing writes into a wheel, and zig locks its cache.
    """
    for path in tool_wheels:
        (root / "wheel").mkdir(parents=True, exist_ok=True)
        (root / "wheel" / path.name).symlink_to(path)
    zig = Path(os.environ["QBUILD_TEST_ZIG_CACHE"])
    zig.mkdir(parents=True, exist_ok=True)
    (root / "cache").mkdir(parents=True, exist_ok=True)
    (root / "cache" / "zig").symlink_to(zig)
    return root
