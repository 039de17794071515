"""The pinned OpenBLAS of both systems: found by CMake, linked by zig, loaded and called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qbuild import host, resources
from qbuild.console import Plain
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps import blas_library, cmake
from qbuild.steps.pinned import fetch_wheel
from qbuild.store import Store
from qbuild.toolchains.base import Context, WorkTree
from qbuild.toolchains.zig import Zig
from qbuild.verify import wine

pytestmark = pytest.mark.integration

PROJECT = """\
cmake_minimum_required(VERSION 3.24)
project(t C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(BLA_VENDOR OpenBLAS)
find_package(BLAS)
add_library(user SHARED use.c)
target_compile_options(user PRIVATE ${BLAS_LINKER_FLAGS})
target_link_libraries(user PRIVATE ${BLAS_LIBRARIES})
target_include_directories(user SYSTEM PRIVATE ${BLAS_INCLUDE_DIRS})
add_executable(t main.c)
target_link_libraries(t PRIVATE user)
"""
USE = """\
#include <cblas.h>
#ifdef _WIN32
__declspec(dllexport)
#endif
float product(void) {
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4];
    openblas_set_num_threads(2);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
    return c[0] * 10000 + c[3];
}
"""
MAIN = """\
#include <stdio.h>
float product(void);
int main(void) { printf("%.0f\\n", product()); return 0; }
"""


PRODUCT = "170053"  # (1 2; 3 4) times the transpose of (5 6; 7 8) is (17 23; 39 53)


def build(system: str, store: Store, folder: Path) -> Path:
    """Build the program with zig against the wheel's OpenBLAS; return the folder of binaries."""
    recipe = load_recipe("openblas", os=system)
    lock = load_lock(resources.lockfile())
    wheel = lock.wheel(blas_library.PROJECT, f"{system}-x86_64")
    files = fetch_wheel(wheel, store, Plain(), offline=False).path / "files"
    facts = blas_library.assemble(blas_library.locate(recipe, {}, files), folder / "openblas")
    assert facts["version"] == wheel.version
    work = folder / "work"
    for name, text in (("CMakeLists.txt", PROJECT), ("use.c", USE), ("main.c", MAIN)):
        (work / "src").mkdir(parents=True, exist_ok=True)
        (work / "src" / name).write_text(text)
    pins = [lock.wheel(project, host.platform_key()) for project in ("ziglang", "cmake", "ninja")]
    unpacked = {
        pin.project: fetch_wheel(pin, store, Plain(), offline=False).path / "files" for pin in pins
    }
    cache = Path(os.environ["QBUILD_TEST_ZIG_CACHE"])
    context = Context(recipe=recipe, lock=lock, host=host.platform_key())
    prepared = Zig(context).prepare(WorkTree(unpacked=unpacked, work=work, cache_dir=cache))
    modules = {"CMAKE_MODULE_PATH": (folder / "openblas" / "cmake").as_posix()}
    (work / "cache.cmake").write_text(cmake.init_cache(modules))
    (work / "toolchain.cmake").write_text(prepared.toolchain_file)
    (work / cmake.PLAIN_FOLDERS_FILE).write_text(cmake.PLAIN_FOLDERS)
    program = unpacked["cmake"] / "cmake/data/bin" / host.program_name("cmake")
    ninja = next(unpacked["ninja"].glob(f"*.data/scripts/{host.program_name('ninja')}"))
    env = {"PATH": os.defpath, "HOME": str(work), **prepared.env,
           "ZIG_GLOBAL_CACHE_DIR": os.environ["QBUILD_TEST_ZIG_CACHE"],
           "ZIG_LOCAL_CACHE_DIR": os.environ["QBUILD_TEST_ZIG_CACHE"]}  # fmt: skip
    for command in (
        cmake.configure_command(program, ninja, work),
        [str(ninja), "-C", str(work / "build")],
    ):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for library in (folder / "openblas" / "bin").iterdir():
        shutil.copyfile(library, work / "build" / "bin" / library.name)
    return work / "build" / "bin"


@pytest.mark.skipif(host.system() != "linux", reason="runs a Linux program")
def test_a_linux_program_multiplies_with_the_wheels_openblas(
    user_store: Store, tmp_path: Path
) -> None:
    out = build("linux", user_store, tmp_path)
    done = subprocess.run([str(out / "t")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == PRODUCT


@pytest.mark.wine
def test_a_windows_program_multiplies_with_it_in_wine(user_store: Store, tmp_path: Path) -> None:
    if not (loader := wine.find_wine()):
        pytest.skip("wine is not installed (ci/apt.txt lists it)")
    out = build("windows", user_store, tmp_path)
    prefix = wine.wine_prefix(loader, tmp_path / "prefix", user_store.root / "cache")
    env = {**os.environ, **wine.ENV, "WINEPREFIX": str(prefix)}
    done = subprocess.run(
        [loader, str(out / "t.exe")], capture_output=True, text=True, env=env, check=False
    )
    assert done.stdout.strip() == PRODUCT, done.stderr
