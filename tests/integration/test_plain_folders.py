"""What the build machine has does not show in the binaries.

Include folders reach the compiler without ``..``: a compiler cache spells them so, too. Seen in a
real bundle: `vendor/nlohmann/../nlohmann/json.hpp` without a cache and `vendor/nlohmann/json.hpp`
with one, so that the two builds had other bytes.

ggml asks git for its commit. Seen in a real bundle: ``unknown`` from Linux and the pinned commit
from a Windows host without git.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbuild.steps import cmake
from support import small_project

pytestmark = pytest.mark.integration

TOP = """
cmake_minimum_required(VERSION 3.14)
project(top NONE)
add_subdirectory(vendor/inner)
"""
INNER = """
project(inner NONE)
add_library(lib INTERFACE)
target_include_directories(lib INTERFACE
  .. . ${CMAKE_CURRENT_SOURCE_DIR}/../../include
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/../a/b/../../c>)
function(show)
  get_target_property(value lib INTERFACE_INCLUDE_DIRECTORIES)
  file(WRITE "${CMAKE_BINARY_DIR}/seen.txt" "${value}")
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL show)
"""

ASKS_GIT = """
set(GGML_BUILD_COMMIT "pinned")
find_program(GIT_EXE NAMES git git.exe NO_CMAKE_FIND_ROOT_PATH)
if(GIT_EXE)
  execute_process(COMMAND ${GIT_EXE} rev-parse --short HEAD
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    OUTPUT_VARIABLE GGML_BUILD_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXE} diff-index --quiet HEAD -- .
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} RESULT_VARIABLE GGML_GIT_DIRTY ERROR_QUIET)
endif()
file(WRITE "${CMAKE_BINARY_DIR}/git.txt" "${GGML_BUILD_COMMIT},${GGML_GIT_DIRTY}")
"""
"""As ggml/CMakeLists.txt does it."""


def configure(tmp_path: Path, tool_wheels: list[Path], cache: str = "") -> None:
    (tmp_path / "cache.cmake").write_text(cache, encoding="utf-8")
    (tmp_path / "toolchain.cmake").touch()
    (tmp_path / cmake.PLAIN_FOLDERS_FILE).write_text(cmake.PLAIN_FOLDERS, encoding="utf-8")
    program, ninja = small_project.cmake_and_ninja(tool_wheels)
    command = cmake.configure_command(program, ninja, tmp_path)
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("git", ["no git", "git"])
def test_no_repository_around_the_build_is_asked(
    git: str, tmp_path: Path, tool_wheels: list[Path]
) -> None:
    """A store may lie in a checkout; git is optional."""
    source = tmp_path / "src"
    (source / "ggml").mkdir(parents=True)
    top = TOP.replace("vendor/inner", "ggml")
    (source / "CMakeLists.txt").write_text(top, encoding="utf-8")
    (source / "ggml" / "CMakeLists.txt").write_text(ASKS_GIT, encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        who = ("-c", "user.name=t", "-c", "user.email=t@invalid")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    (source / "ggml" / "new").touch()
    places = ("SYSTEM_ENVIRONMENT_PATH", "CMAKE_SYSTEM_PATH") if git == "no git" else ()
    unseen = [f'set(CMAKE_FIND_USE_{each} OFF CACHE BOOL "")' for each in places]
    configure(tmp_path, tool_wheels, "\n".join(unseen))
    assert (tmp_path / "build/git.txt").read_text(encoding="utf-8") == ",0"


def test_no_dots_are_left(tmp_path: Path, tool_wheels: list[Path]) -> None:
    source = tmp_path / "src"
    (source / "vendor/inner").mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(TOP, encoding="utf-8")
    (source / "vendor/inner/CMakeLists.txt").write_text(INNER, encoding="utf-8")
    configure(tmp_path, tool_wheels)
    root = source.as_posix()
    assert (tmp_path / "build/seen.txt").read_text(encoding="utf-8").split(";") == [
        f"{root}/vendor", f"{root}/vendor/inner", f"{root}/include",
        f"$<BUILD_INTERFACE:{root}/vendor/c>",
    ]  # fmt: skip
