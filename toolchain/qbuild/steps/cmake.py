"""CMake: an init-cache file that spells out every option, its command lines, its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from qbuild.errors import ConfigureError
from qbuild.recipe.convert import suggest
from qbuild.recipe.model import CmakeValue, Recipe

DEFINITIONS = "QBUILD_DEFINITIONS"
"""Cache entry: preprocessor names that every file is compiled with."""

PLAIN_FOLDERS_FILE = "plain-folders.cmake"
PLAIN_FOLDERS = """\
# Written by qbuild, read by CMake after project(). Include folders lose their `..`: compilers put
# the name of a header as they found it into the binary (`__FILE__`), and a compiler cache hands
# them the plain name. With and without a cache the bytes must be the same.
if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  return()
endif()

# ggml asks git for its commit and puts the answer into a binary: that of whatever repository lies
# around the build, or another one where there is no git. The source has no repository of its own,
# so the answer is nothing on every machine.
set(GIT_EXE "${CMAKE_COMMAND};-E;true" CACHE STRING "" FORCE)

# What a recipe asks to define for every file; nothing for most.
add_compile_definitions(${QBUILD_DEFINITIONS})

# What clang may take for fast in files that may use AVX-512. It allows no instruction; it changes
# which of the allowed ones are chosen.
function(qbuild_tune target)
  get_target_property(options "${target}" COMPILE_OPTIONS)
  if(QBUILD_TUNE AND target MATCHES "^ggml-cpu" AND options MATCHES "-mavx512f(;|$)")
    foreach(feature IN LISTS QBUILD_TUNE)
      set(words "-Xclang -target-feature -Xclang +${feature}")
      target_compile_options("${target}" PRIVATE "SHELL:${words}")
    endforeach()
  endif()
endfunction()

# Many small files that read the same large headers are compiled as one: QBUILD_UNITE holds
# `target=files in a unit`. Those of QBUILD_APART stay alone, as they name things that others name
# as well; those of QBUILD_COLD run once, when a program starts, and are not worth what inlining
# costs there.
function(qbuild_unite target)
  get_target_property(folder "${target}" SOURCE_DIR)
  get_target_property(sources "${target}" SOURCES)
  foreach(entry IN LISTS QBUILD_UNITE)
    if(NOT entry MATCHES "^(.+)=([0-9]+)$" OR NOT CMAKE_MATCH_1 STREQUAL target)
      continue()
    endif()
    set_target_properties("${target}" PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${CMAKE_MATCH_2})
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE name)
      set(apart OFF)
      if(name IN_LIST QBUILD_APART)
        set(apart ON)
      endif()
      set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
        SKIP_UNITY_BUILD_INCLUSION ${apart})
      if(name IN_LIST QBUILD_COLD)
        set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
          COMPILE_OPTIONS "-mllvm;-inline-threshold=20")
      endif()
    endforeach()
  endforeach()
endfunction()

function(qbuild_plain_folders folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    qbuild_tune("${target}")
    qbuild_unite("${target}")
    foreach(property IN ITEMS INCLUDE_DIRECTORIES INTERFACE_INCLUDE_DIRECTORIES)
      get_target_property(value "${target}" ${property})
      if(value)
        set(before "")
        while(NOT value STREQUAL before)
          set(before "${value}")
          string(REGEX REPLACE "/[.](/|;|>|$)" "\\\\1" value "${value}")
          string(REGEX REPLACE "/[^/;<>.][^/;<>]*/[.][.](/|;|>|$)" "\\\\1" value "${value}")
        endwhile()
        set_property(TARGET "${target}" PROPERTY ${property} "${value}")
      endif()
    endforeach()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    qbuild_plain_folders("${inner}")
  endforeach()
endfunction()

cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
  qbuild_plain_folders "${CMAKE_SOURCE_DIR}")
"""
"""What every configure reads. A change that can change the bytes is a change to configure's FORMAT;
the definitions count as cache entries do."""


def init_cache(entries: Mapping[str, CmakeValue]) -> str:
    """Return the text of the file that ``cmake -C`` reads."""
    lines = ["# Written by qbuild from the recipe; edits are lost."]
    for name, value in entries.items():
        if isinstance(value, bool):
            kind, text = "BOOL", "ON" if value else "OFF"
        else:
            kind, text = "STRING", str(value).replace("\\", "\\\\").replace("$", "\\$")
        lines.append(f'set({name} "{text}" CACHE {kind} "" FORCE)')
    return "\n".join(lines) + "\n"


def configure_command(
    cmake: Path, ninja: Path, work: Path, generator: Sequence[str] = ("-G", "Ninja")
) -> list[str]:
    """Return CMake's command line for a work folder that holds ``src`` and the three files."""
    maker = [f"-DCMAKE_MAKE_PROGRAM={ninja.as_posix()}"] if "Ninja" in generator else []
    return [
        str(cmake),
        "-S", str(work / "src"),
        "-B", str(work / "build"),
        *generator,
        "-C", str(work / "cache.cmake"),
        f"-DCMAKE_TOOLCHAIN_FILE={(work / 'toolchain.cmake').as_posix()}",
        f"-DCMAKE_PROJECT_INCLUDE={(work / PLAIN_FOLDERS_FILE).as_posix()}",
        *maker,
        # qbuild configures, not ninja: with files from the future (a clock that was put back) it
        # would do so a hundred times and give up.
        "-DCMAKE_SUPPRESS_REGENERATION=ON",
        "-Wno-author",
    ]  # fmt: skip


def build_command(
    cmake: Path | str, build: Path | str, targets: Sequence[str], *, config: str, jobs: int
) -> list[str]:
    """Return the command that builds with a generator that is not Ninja."""
    return [
        str(cmake), "--build", str(build), "--config", config, "--parallel", str(jobs),
        "--target", *targets,
    ]  # fmt: skip


_IDENTITY = re.compile(r'^set\(CMAKE_(C|CXX|CUDA)_COMPILER_ID "([^"]*)"\)', re.MULTILINE)


def check_compilers_known(build: Path) -> None:
    """Check that CMake recognised the compilers.

    One that it did not recognise gets none of the flags of a build type, such as ``-O3``, and CMake
    goes on all the same.

    Raises:
        ConfigureError: It did not recognise one.
    """
    for path in sorted(build.glob("CMakeFiles/*/CMake*Compiler.cmake")):
        for language, found in _IDENTITY.findall(path.read_text(encoding="utf-8")):
            if not found:
                raise ConfigureError(
                    f"CMake did not recognise the {language} compiler",
                    where=str(build / "CMakeFiles" / "CMakeConfigureLog.yaml"),
                    fix="that log says what it tried; see whether the compiler runs at all",
                )


def unwritten(build: Path, generator: Sequence[str]) -> list[str]:
    """Return the files that ninja reads first and that are not there.

    On a full disk CMake drops a file that it could not write to its end and ends with 0 all the
    same. What is there is whole: it is renamed into place.
    """
    names = ("build.ninja", "CMakeFiles/rules.ninja") if "Ninja" in generator else ()
    return [name for name in names if not (build / name).is_file()]


_ERROR = re.compile(r"^CMake Error.*(?:\n(?!CMake |--).*){0,8}", re.MULTILINE)


def first_error(log: str) -> str:
    """Return CMake's first error message, or the log's end when it names none."""
    match = _ERROR.search(log)
    return match.group(0).strip() if match else "\n".join(log.strip().splitlines()[-8:])


def check_options_known(entries: Mapping[str, CmakeValue], cache_text: str, recipe: Recipe) -> None:
    """Check that the project declared each option the recipe sets.

    CMake keeps an unknown ``-C`` entry in its cache without a word; a declared one gains the
    project's help text.

    Raises:
        ConfigureError: The recipe sets an option that this llama.cpp does not have.
    """
    helps: dict[str, str] = {}
    text = ""
    for line in cache_text.splitlines():
        if line.startswith("//"):
            text = line[2:]
        elif match := re.match(r"([A-Za-z0-9_]+):\w+=", line):
            helps[match.group(1)] = text
            text = ""
    declared = {name for name, line in helps.items() if line and "No help" not in line}
    for name in recipe.build.options:
        if name in entries and name.startswith(("GGML_", "LLAMA_")) and name not in declared:
            raise ConfigureError(
                f"this llama.cpp has no CMake option `{name}`",
                where=f"recipe {recipe.name}: build.options.{name}",
                fix=suggest(name, declared) or "see `option(…)` in llama.cpp's CMakeLists.txt",
            )
