"""Include folders reach the compiler without ``..``: a compiler cache spells them so, too.

Seen in a real bundle: `vendor/nlohmann/../nlohmann/json.hpp` without a cache and
`vendor/nlohmann/json.hpp` with one, so that the two builds had other bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbuild.steps import cmake

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


def test_no_dots_are_left(tmp_path: Path, tool_wheels: list[Path]) -> None:
    source = tmp_path / "src"
    (source / "vendor/inner").mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(TOP, encoding="utf-8")
    (source / "vendor/inner/CMakeLists.txt").write_text(INNER, encoding="utf-8")
    for name in ("cache.cmake", "toolchain.cmake"):
        (tmp_path / name).touch()
    (tmp_path / cmake.PLAIN_FOLDERS_FILE).write_text(cmake.PLAIN_FOLDERS, encoding="utf-8")
    (program,) = (p for wheel in tool_wheels for p in wheel.glob("files/cmake/data/bin/cmake"))
    (ninja,) = (p for wheel in tool_wheels for p in wheel.glob("files/*.data/scripts/ninja"))
    command = cmake.configure_command(program, ninja, tmp_path)
    subprocess.run(command, check=True, capture_output=True)
    root = source.as_posix()
    assert (tmp_path / "build/seen.txt").read_text(encoding="utf-8").split(";") == [
        f"{root}/vendor", f"{root}/vendor/inner", f"{root}/include",
        f"$<BUILD_INTERFACE:{root}/vendor/c>",
    ]  # fmt: skip
