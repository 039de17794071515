"""Files of chosen targets are compiled in groups; some stay alone, some without inlining."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.recipe.lock import load_lock
from qbuild.steps import cmake
from qbuild.steps.source import FORMAT
from qbuild.store import Store, step_key
from qbuild.toolchains.base import APART, COLD, UNITE, write_wrapper
from qbuild.toolchains.zig import ALONE, GROUPS, RUN_ONCE
from support import small_project

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")
pytestmark = pytest.mark.integration

TOP = """
cmake_minimum_required(VERSION 3.14)
project(top CXX)
add_subdirectory(lib)
add_library(other STATIC other/e.cpp other/f.cpp)
"""
LIB = """
add_library(grouped STATIC a.cpp b.cpp c.cpp d.cpp)
set_source_files_properties(a.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # as upstream does
"""
FILES = {
    "CMakeLists.txt": TOP,
    "lib/CMakeLists.txt": LIB,
    "lib/a.cpp": "static int one() { return 1; }\nint a() { return one(); }\n",
    "lib/b.cpp": "int b() { return 2; }\n",
    "lib/c.cpp": "static int one() { return 3; }\nint c() { return one(); }\n",  # named as in a
    "lib/d.cpp": "int d() { return 4; }\n",
    "other/e.cpp": "int e() { return 5; }\n",
    "other/f.cpp": "int f() { return 6; }\n",
}


def configured(folder: Path, tool_wheels: list[Path]) -> tuple[list[str], Path]:
    """Configure a project of two libraries; return ninja's command and the build folder."""
    for name, text in FILES.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    entries = {UNITE: "grouped=3", APART: "lib/c.cpp", COLD: "lib/d.cpp"}
    entries["CMAKE_EXPORT_COMPILE_COMMANDS"] = "ON"
    (folder / "cache.cmake").write_text(cmake.init_cache(entries), encoding="utf-8")
    compiler = write_wrapper(folder / "c++", [ZIG, "c++"]).as_posix()
    archiver = write_wrapper(folder / "ar", [ZIG, "ar"]).as_posix()
    (folder / "toolchain.cmake").write_text(
        f'set(CMAKE_CXX_COMPILER "{compiler}")\nset(CMAKE_AR "{archiver}" CACHE FILEPATH "")\n'
        'set(CMAKE_RANLIB "" CACHE FILEPATH "")\n'
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n",
        encoding="utf-8",
    )
    (folder / cmake.PLAIN_FOLDERS_FILE).write_text(cmake.PLAIN_FOLDERS, encoding="utf-8")
    program, ninja = small_project.cmake_and_ninja(tool_wheels)
    subprocess.run(cmake.configure_command(program, ninja, folder), check=True, capture_output=True)
    return [str(ninja), "-C", str(folder / "build")], folder / "build"


@pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig")
def test_groups_what_stays_alone_and_what_runs_once(
    tmp_path: Path, tool_wheels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = os.environ.get("QBUILD_TEST_ZIG_CACHE") or str(tmp_path / "zig-cache")
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, cache)
    make, build = configured(tmp_path, tool_wheels)
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    seen = {Path(each["file"]).name: each["command"] for each in commands}
    assert sorted(seen) == ["c.cpp", "d.cpp", "e.cpp", "f.cpp", "unity_0_cxx.cxx"]
    (unit,) = build.rglob("unity_0_cxx.cxx")
    lines = unit.read_text(encoding="utf-8").splitlines()
    names = [Path(line.split('"')[1]).name for line in lines if line.startswith("#include")]
    assert names == ["a.cpp", "b.cpp"]
    cold = [name for name, command in seen.items() if "-mllvm -inline-threshold" in command]
    assert cold == ["d.cpp"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_pinned_source_has_what_is_grouped(user_store: Store) -> None:
    """A file that upstream renames would be grouped, or inlined, without a word."""
    pin = load_lock(resources.lockfile()).source("llama.cpp")
    inputs = {"format": FORMAT, "commit": pin.commit, "tree": pin.tree}
    entry = user_store.find("source", step_key("source", inputs))
    if entry is None:
        pytest.skip("the pinned source is not in the store: `qbuild lock` fetches it")
    git = ["git", "--git-dir", str(entry.path / "repo.git"), "show"]

    def read(name: str) -> str:
        return subprocess.run(
            [*git, f"{pin.commit}:{name}"], capture_output=True, text=True, check=True
        ).stdout

    for name in (*ALONE, *RUN_ONCE):
        assert read(name), name
    lists = "".join(
        read(f"{folder}/CMakeLists.txt")
        for folder in ("src", "common", "tools/mtmd", "tools/server", "tools/cli")
    )
    named = re.compile(r"^(?:set\(TARGET|add_library\()\s*([\w-]+)", re.MULTILINE)
    assert set(GROUPS) <= set(named.findall(lists))
