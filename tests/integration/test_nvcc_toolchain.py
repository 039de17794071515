"""The nvcc toolchain with this machine's own toolkit, where it has one (CI's has none)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cuda import table, toolkit
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.toolkit import HostCompiler, Toolkit
from qbuild.errors import ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.toolchains.base import Context, Place, write_layout
from qbuild.toolchains.nvcc import SEED_SINCE, Nvcc

pytestmark = pytest.mark.integration

KERNELS = """
#include <cstdio>
static __device__ int counter;
namespace { __global__ void hidden(int * p) { *p = counter++; } }
template <typename T> static __global__ void shown(T * p) { *p = T(counter); }
void run(int * p, float * f) { hidden<<<1, 1>>>(p); shown<<<1, 1>>>(f); puts(__FILE__); }
"""
PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(small CXX CUDA)
add_library(small OBJECT sub/kernels.cu)
target_compile_options(small PRIVATE -use_fast_math -extended-lambda)
"""


def test_this_machine_is_told_as_it_is() -> None:
    machine = toolkit.capture()
    program = shutil.which("nvcc")
    if program is None and not machine.toolkits:
        with pytest.raises(ToolchainError, match=r"no CUDA toolkit|which holds no|names"):
            toolkit.choose(machine, parse_archs(["80-real"]))
        return
    assert machine.toolkits, machine.problems
    for kit in machine.toolkits:
        nvcc = Path(kit.root, "bin", "nvcc")
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
        assert f"V{kit.version}" in said.stdout
        assert [name for name, _, _ in kit.stamp]
    for compiler in machine.compilers:
        assert compiler.version.split(".")[0].isdigit()


def _usable() -> tuple[Toolkit, HostCompiler] | None:
    """Return a toolkit and a compiler that it takes; cuBLAS is not needed here."""
    machine = toolkit.capture()
    for kit in machine.toolkits:
        for compiler in machine.compilers:
            try:
                table.check_host_compiler(kit.version, compiler.kind, compiler.version)
            except ToolchainError:
                continue
            return kit, compiler
    return None


def _build(
    work: Path, kit: Toolkit, compiler: HostCompiler, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    recipe = load_recipe("a100", overrides=["toolchain.name=nvcc", "bundle.cuda_runtime=separate"])
    monkeypatch.setattr(Nvcc, "_chosen", lambda self: (kit, compiler))
    programs = {"cc": compiler.cc, "c++": compiler.cxx, "cuda-root": kit.root}
    lock = load_lock(resources.lockfile())
    nvcc = Nvcc(Context(recipe=recipe, lock=lock, host="linux-x86_64"))
    layout = nvcc.layout(Place(programs=programs, work=work.as_posix(), cache_dir=""))
    (work / "src" / "sub").mkdir(parents=True)
    (work / "src" / "sub" / "kernels.cu").write_text(KERNELS, encoding="utf-8")
    (work / "src" / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    (work / "toolchain.cmake").write_text(layout.toolchain_file, encoding="utf-8")
    write_layout(layout, work)
    env = {"PATH": os.defpath, "HOME": str(work), "LC_ALL": "C"}
    cmake, ninja = shutil.which("cmake"), shutil.which("ninja")
    assert cmake
    assert ninja
    subprocess.run(
        [cmake, "-S", "src", "-B", "build", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}",
         f"-DCMAKE_TOOLCHAIN_FILE={work / 'toolchain.cmake'}", "-DCMAKE_CUDA_ARCHITECTURES=80-real",
         "-DCMAKE_BUILD_TYPE=Release"],
        cwd=work, env=env, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run([cmake, "--build", "build"], cwd=work, env=env, check=True, capture_output=True)
    return (work / "build/CMakeFiles/small.dir/sub/kernels.cu.o").read_bytes()


def test_cmake_compiles_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through CMake's CUDA language: an object without the build folder's name, with its seed."""
    usable = _usable()
    if usable is None:
        test_this_machine_is_told_as_it_is()
        return
    kit, compiler = usable
    built = _build(tmp_path / "one", kit, compiler, monkeypatch)
    assert b"hidden" in built
    assert str(tmp_path).encode() not in built
    ninja = (tmp_path / "one" / "build" / "build.ninja").read_text(encoding="utf-8")
    rules = (tmp_path / "one" / "build" / "CMakeFiles" / "rules.ninja").read_text(encoding="utf-8")
    seeded = table.parse_version(kit.version)[:2] >= SEED_SINCE
    assert ("--frandom-seed=" in ninja + rules) is seeded
