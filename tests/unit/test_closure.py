"""Dependency closure: what a set of binaries needs, and what each problem says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from qbuild.binary.elf import read_elf
from qbuild.binary.pe import Forward, read_pe
from qbuild.bundle.closure import Closure, load_table, resolve
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe


def windows(
    files: Mapping[str, list[str]],
    exports: Mapping[str, list[str]] | None = None,
    runtime_loaded: tuple[str, ...] = (),
) -> Closure:
    """Resolve PE files given as name → DLLs (`dll!symbol` for one symbol)."""
    images = {}
    for name, wanted in files.items():
        imports = {w.partition("!")[0]: [w.partition("!")[2] or "f"] for w in wanted}
        offers = (exports or {}).get(name, ["f"])
        dll = name if name.endswith(".dll") else ""
        images[name] = read_pe(make_pe(imports, exports=offers, dll=dll))
    return resolve(
        images, target_os="windows", table=load_table("windows"), runtime_loaded=runtime_loaded
    )


def linux(files: Mapping[str, bytes]) -> Closure:
    images = {name: read_elf(data) for name, data in files.items()}
    return resolve(images, target_os="linux", table=load_table("linux"))


def kinds(closure: Closure) -> set[tuple[str, str, str]]:
    return {(p.kind, p.file, p.needs) for p in closure.problems}


BROKEN = {
    "a loader without its libraries": (
        {
            "llama-server.exe": ["llama-server-impl.dll", "KERNEL32.dll"],
            "llama-server-impl.dll": ["llama.dll", "llama-common.dll", "ggml.dll"],
        },
        {
            ("missing", "llama-server-impl.dll", "llama.dll"),
            ("missing", "llama-server-impl.dll", "llama-common.dll"),
            ("missing", "llama-server-impl.dll", "ggml.dll"),
        },
    ),
    "another CUDA major": (
        {"ggml-cuda.dll": ["cublas64_13.dll"]},
        {("missing", "ggml-cuda.dll", "cublas64_13.dll")},
    ),
    "cublasLt forgotten": (
        {
            "ggml-cuda.dll": ["cublas64_12.dll", "cudart64_12.dll"],
            "cublas64_12.dll": ["cublasLt64_12.dll"],
            "cudart64_12.dll": ["KERNEL32.dll"],
        },
        {("missing", "cublas64_12.dll", "cublasLt64_12.dll")},
    ),
    "OpenMP missing": (
        {"ggml-base.dll": ["libomp140.x86_64.dll"]},
        {("missing", "ggml-base.dll", "libomp140.x86_64.dll")},
    ),
    "debug runtime": (
        {"llama.dll": ["MSVCP140D.dll", "ucrtbased.dll"]},
        {
            ("debug-runtime", "llama.dll", "MSVCP140D.dll"),
            ("debug-runtime", "llama.dll", "ucrtbased.dll"),
        },
    ),
    "the driver is shipped": (
        {"ggml-cuda.dll": ["nvcuda.dll"], "nvcuda.dll": []},
        {("driver-inside", "nvcuda.dll", "")},
    ),
    "a backend that no import table reaches": (
        {"llama-cli.exe": ["ggml.dll"], "ggml.dll": [], "ggml-cpu-haswell.dll": ["libgomp-1.dll"]},
        {("missing", "ggml-cpu-haswell.dll", "libgomp-1.dll")},
    ),
    "Microsoft's runtime is not Windows": (
        {"llama.dll": ["VCRUNTIME140.dll", "MSVCP140.dll"]},
        {("missing", "llama.dll", "VCRUNTIME140.dll"), ("missing", "llama.dll", "MSVCP140.dll")},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_sets_for_windows(name: str) -> None:
    files, expected = BROKEN[name]
    closure = windows(files)
    assert kinds(closure) == expected
    for problem in closure.problems:
        assert problem.file in str(problem)
        assert problem.needs in str(problem)


def test_a_bundled_copy_that_is_too_old() -> None:
    closure = windows(
        {
            "ggml-base.dll": ["libomp140.x86_64.dll!__kmpc_dispatch_deinit"],
            "libomp140.x86_64.dll": [],
        },
        {"libomp140.x86_64.dll": ["__kmpc_fork_call"]},
    )
    (problem,) = closure.problems
    assert problem.kind == "symbol"
    for text in ("ggml-base.dll", "__kmpc_dispatch_deinit", "libomp140.x86_64.dll"):
        assert text in str(problem)


def test_a_whole_set_for_windows() -> None:
    closure = windows(
        {
            "llama-server.exe": ["GGML.dll", "KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll"],
            "ggml.dll": ["ucrtbase.dll"],
            "ggml-cuda.dll": ["nvcuda.dll", "ggml.dll"],
            "spare.dll": [],
        },
        runtime_loaded=("ggml-cuda.dll",),
    )
    assert not closure.problems
    needs = {n.name: n.where for n in closure.files["llama-server.exe"].needs}
    assert needs == {
        "GGML.dll": "bundle", "KERNEL32.dll": "system", "api-ms-win-crt-heap-l1-1-0.dll": "system",
    }  # fmt: skip
    assert {n.where for n in closure.files["ggml-cuda.dll"].needs} == {"driver", "bundle"}
    assert closure.files["ggml.dll"].needed_by == ("ggml-cuda.dll", "llama-server.exe")
    assert closure.superfluous == ("spare.dll",)


def test_a_forwarded_export_needs_the_other_dll() -> None:
    image = replace(
        read_pe(make_pe(exports=["f"], dll="a.dll")),
        forwards=(Forward(name="f", dll="other.dll", symbol="f"),),
    )
    closure = resolve({"a.dll": image}, target_os="windows", table=load_table("windows"))
    assert kinds(closure) == {("missing", "a.dll", "other.dll")}


def test_a_number_that_the_bundled_dll_does_not_export() -> None:
    user = read_pe(make_pe({"b.dll": ["f"]}))
    bent = replace(user, imports=(replace(user.imports[0], symbols=("#7",)),))
    closure = resolve(
        {"a.exe": bent, "b.dll": read_pe(make_pe(exports=["f"], dll="b.dll"))},
        target_os="windows",
        table=load_table("windows"),
    )
    assert kinds(closure) == {("symbol", "a.exe", "b.dll!#7")}


def test_a_whole_set_for_linux() -> None:
    closure = linux(
        {
            "llama-cli": make_elf(
                ["libggml.so.0", "libc.so.6", "libcuda.so.1"],
                imports=["ggml_init"],
                versions={"libc.so.6": ["GLIBC_2.28"]},
                runpath="$ORIGIN",
            ),
            "libggml.so.0": make_elf(exports=["ggml_init"], soname="libggml.so.0"),
        }
    )
    assert not closure.problems
    assert {n.name: n.where for n in closure.files["llama-cli"].needs} == {
        "libggml.so.0": "bundle", "libc.so.6": "system", "libcuda.so.1": "driver",
    }  # fmt: skip


@pytest.mark.parametrize("library", ["libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1"])
def test_compiler_runtimes_are_not_the_system(library: str) -> None:
    assert kinds(linux({"llama-cli": make_elf([library])})) == {("missing", "llama-cli", library)}


def test_where_linux_looks() -> None:
    library = make_elf(exports=["f"], soname="libggml.so.0")
    without = linux({"a": make_elf(["libggml.so.0"]), "libggml.so.0": library})
    assert kinds(without) == {("runpath", "a", "libggml.so.0")}
    absolute = linux({"a": make_elf(runpath="$ORIGIN:/home/me/build/bin")})
    (problem,) = absolute.problems
    assert problem.kind == "runpath"
    assert "/home/me/build/bin" in str(problem)


def test_a_symbol_that_no_bundled_library_exports() -> None:
    closure = linux(
        {
            "a": make_elf(
                ["libggml.so.0"], imports=["ggml_new"], weak=["maybe"], runpath="$ORIGIN"
            ),
            "libggml.so.0": make_elf(exports=["ggml_old"], soname="libggml.so.0"),
        }
    )
    assert kinds(closure) == {("symbol", "a", "ggml_new")}


def test_the_driver_is_never_shipped_on_linux() -> None:
    closure = linux({"libcuda.so.1": make_elf(soname="libcuda.so.1")})
    assert ("driver-inside", "libcuda.so.1", "") in kinds(closure)
