"""OpenBLAS from a wheel, a folder or the system: what fits, what is refused and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild import resources
from qbuild.errors import LockError, RecipeError, ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import Lock, load_lock
from qbuild.recipe.model import Recipe
from qbuild.steps import blas_library, cmake
from qbuild.steps.captured import capture
from qbuild.steps.plan import Plan, make_plan
from support.tiny_coff import make_import, make_library, make_object
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe

NAMES = ("cblas_sgemm", "openblas_set_num_threads")
HEADER = "void {0}openblas_set_num_threads(int n);\nvoid {0}cblas_sgemm(int order);\n"
CONFIG = '#define OPENBLAS_VERSION " OpenBLAS 0.3.30 "\n'


def recipe(origin: str = "folder", os: str = "windows", *more: str) -> Recipe:
    return load_recipe("openblas", os=os, overrides=[f"openblas.origin={origin}", *more])


def folder(
    root: Path, os: str, *, prefix: str = "", exports: tuple[str, ...] | None = None,
    needs: tuple[str, ...] = (), machine: str = "x86_64",
) -> Path:  # fmt: skip
    """Write a prebuilt OpenBLAS that nothing is wrong with, unless asked for."""
    names = [f"{prefix}{name}" for name in NAMES] if exports is None else list(exports)
    for name in ("include", "lib", "bin"):
        (root / name).mkdir(parents=True)
    (root / "include" / "cblas.h").write_text(HEADER.format(prefix))
    (root / "include" / "openblas_config.h").write_text(CONFIG)
    (root / "LICENSE").write_text("A licence.\n")
    if os == "windows":
        stub = make_import(f"{prefix}cblas_sgemm", "libopenblas.dll")
        (root / "lib" / "libopenblas.lib").write_bytes(make_library({"libopenblas.dll": stub}))
        dll = make_pe(["KERNEL32.dll", *needs], exports=names, dll="x.dll", machine=machine)
        (root / "bin" / "libopenblas.dll").write_bytes(dll)
    else:
        elf = make_elf(
            ["libc.so.6", *needs], exports=names, soname="libopenblas.so.0", machine=machine,
            versions={"libc.so.6": ["GLIBC_2.27"]},
        )  # fmt: skip
        (root / "lib" / "libopenblas.so").write_bytes(elf)
    return root


def locate(root: Path, wanted: Recipe) -> blas_library.OpenBlas:
    return blas_library.locate(wanted, {"OpenBLAS_DIR": str(root)})


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("prefix", ["", "scipy_"])
def test_a_prebuilt_folder_that_fits(tmp_path: Path, os: str, prefix: str) -> None:
    found = locate(folder(tmp_path / "b", os, prefix=prefix), recipe(os=os))
    assert (found.prefix, found.suffix, found.version) == (prefix, "", "0.3.30")
    facts = blas_library.assemble(found, tmp_path / "tree")
    assert facts == {"version": "0.3.30", "library": found.link.name, "prefix": prefix}
    (shipped,) = (tmp_path / "tree" / "bin").iterdir()
    assert shipped.name == ("libopenblas.dll" if os == "windows" else "libopenblas.so.0")
    module = (tmp_path / "tree" / "cmake" / "FindBLAS.cmake").read_text()
    assert ("cblas_sgemm=scipy_cblas_sgemm" in module) == bool(prefix)
    assert str(tmp_path) not in module
    assert (tmp_path / "tree" / "LICENSE.txt").read_text() == "A licence.\n"


def test_cmakes_own_spelling_of_the_folder(tmp_path: Path) -> None:
    root = folder(tmp_path / "b", "windows")
    config = root / "lib" / "cmake" / "openblas"
    config.mkdir(parents=True)
    (config / "OpenBLASConfig.cmake").write_text("")
    assert locate(config, recipe()).link.name == "libopenblas.lib"


def test_names_with_64_behind(tmp_path: Path) -> None:
    names = tuple(f"{name}64_" for name in NAMES)
    root = folder(tmp_path / "b", "windows", exports=names)
    text = HEADER.format("").replace("threads(", "threads64_(").replace("sgemm(", "sgemm64_(")
    (root / "include" / "cblas.h").write_text(text)
    found = locate(root, recipe())
    module = blas_library.find_module("i", "l", prefix=found.prefix, suffix=found.suffix)
    assert "cblas_sgemm=cblas_sgemm64_" in module


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"exports": ("cblas_sgemm",)}, "does not export openblas_set_num_threads"),
        ({"machine": "aarch64"}, "is for aarch64, the recipe for x86_64"),
    ],
)
def test_libraries_that_do_not_fit(
    tmp_path: Path, os: str, options: dict[str, object], says: str
) -> None:
    root = folder(tmp_path / "b", os, **options)  # type: ignore[arg-type]
    with pytest.raises(ToolchainError, match=says):
        locate(root, recipe(os=os))


@pytest.mark.parametrize(
    ("os", "name"),
    [("linux", "libgomp.so.1"), ("linux", "libomp.so.5"), ("windows", "vcomp140.dll"),
     ("windows", "libomp140.x86_64.dll"), ("windows", "libgomp-1.dll")],
)  # fmt: skip
def test_a_build_with_openmp_threads_is_refused(tmp_path: Path, os: str, name: str) -> None:
    root = folder(tmp_path / "b", os, needs=(name,))
    with pytest.raises(ToolchainError, match="threads by OpenMP") as caught:
        locate(root, recipe(os=os))
    assert "USE_OPENMP=0" in (caught.value.fix or "")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="OpenBLAS_DIR is not set") as caught:
        blas_library.locate(recipe(), {})
    assert "wheel" in (caught.value.fix or "")
    with pytest.raises(ToolchainError, match="does not exist"):
        locate(tmp_path / "none", recipe())
    root = folder(tmp_path / "b", "windows")
    for part, says in (
        ("LICENSE", "without its licence text"),
        ("bin/libopenblas.dll", "import library of libopenblas.dll, which is not in"),
        ("lib/libopenblas.lib", "no OpenBLAS library for Windows"),
        ("include/cblas.h", "no cblas.h"),
    ):
        (root / part).unlink()
        with pytest.raises(ToolchainError, match=says):
            locate(root, recipe())


def test_headers_of_another_blas_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "b", "linux")
    (root / "include" / "cblas.h").write_text("void cblas_sgemm(int order);\n")
    with pytest.raises(ToolchainError, match="not OpenBLAS's"):
        locate(root, recipe(os="linux"))
    (root / "include" / "cblas.h").write_text("nothing\n")
    with pytest.raises(ToolchainError, match="declares no cblas_sgemm"):
        locate(root, recipe(os="linux"))


def test_a_library_for_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "b", "linux")
    with pytest.raises(ToolchainError, match=r"needs glibc 2\.27, the recipe promises 2\.17") as e:
        locate(root, recipe("folder", "linux", 'target.glibc="2.17"'))
    assert 'target.glibc = "2.27"' in (e.value.fix or "")


def static(root: Path, directives: str) -> Path:
    folder(root, "windows")
    library = make_library({"gemm.obj": make_object(directives)})
    (root / "lib" / "libopenblas.lib").write_bytes(library)
    return root


def test_a_static_library_must_have_the_recipes_runtime(tmp_path: Path) -> None:
    root = static(tmp_path / "b", "/DEFAULTLIB:LIBCMT")
    msvc = "toolchain.name=msvc"
    found = locate(root, recipe("folder", "windows", msvc, "toolchain.runtime=static"))
    assert found.shipped is None
    with pytest.raises(ToolchainError, match="compiled with /MT") as caught:
        locate(root, recipe("folder", "windows", msvc, "bundle.vc_runtime=installed"))
    assert 'toolchain.runtime = "static"' in (caught.value.fix or "")
    with pytest.raises(ToolchainError, match="compiled by MSVC with /MT"):
        locate(root, recipe())
    assert locate(static(tmp_path / "c", ""), recipe()).shipped is None


def test_the_systems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = recipe("system", "linux")
    monkeypatch.setattr(blas_library, "_SYSTEM_ROOTS", (str(tmp_path / "usr"),))
    with pytest.raises(ToolchainError, match="no OpenBLAS with its headers") as caught:
        blas_library.locate(wanted, {})
    assert "libopenblas-dev" in (caught.value.fix or "")
    # As Debian lays it out: a reference BLAS's header where one would look first.
    root = folder(tmp_path / "usr", "linux")
    triple = "x86_64-linux-gnu/openblas-pthread"
    for part, name in (("include", "cblas.h"), ("include", "openblas_config.h"),
                       ("lib", "libopenblas.so")):  # fmt: skip
        (root / part / triple).mkdir(parents=True, exist_ok=True)
        (root / part / name).rename(root / part / triple / name)
    (root / "include" / "cblas.h").write_text("void cblas_sgemm(int order);\n")
    found = blas_library.locate(wanted, {})
    assert (found.shipped, found.licence) == (None, None)
    assert "openblas-pthread" in str(found.include)
    with pytest.raises(ToolchainError, match="Windows brings no OpenBLAS"):
        blas_library.locate(recipe("system"), {})


# -- in the plan -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lock() -> Lock:
    return load_lock(resources.lockfile())


def plan(lock: Lock, os: str, host: str = "linux-x86_64") -> Plan:
    return make_plan(load_recipe("openblas", os=os), lock, host=host)


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("host", ["linux-x86_64", "windows-x86_64"])
def test_the_wheel_is_the_targets_whatever_the_host_is(lock: Lock, os: str, host: str) -> None:
    made = plan(lock, os, host)
    (wheel,) = (w for w in made.wheels if w.project == blas_library.PROJECT)
    assert wheel.platform == f"{os}-x86_64"
    assert made["openblas"].inputs["sha256"] == wheel.sha256
    assert made["configure"].inputs["openblas"] == made["openblas"].key
    cache = made["configure"].inputs["cache"]
    assert (cache["GGML_BLAS"], cache["GGML_BLAS_VENDOR"]) == (True, "OpenBLAS")


def test_other_recipes_know_nothing_of_it(lock: Lock) -> None:
    made = make_plan(load_recipe("avx2"), lock, host="linux-x86_64")
    assert made.find("openblas") is None
    assert "openblas" not in made["configure"].inputs
    assert not any("BLAS" in name for name in made["configure"].inputs["cache"])


def test_a_changed_folder_changes_the_build(
    lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(tmp_path / "b", "linux")
    monkeypatch.setenv("OpenBLAS_DIR", str(root))
    wanted = recipe(os="linux")

    def keys() -> set[str]:
        made = make_plan(wanted, lock, host="linux-x86_64", captured=capture(wanted))
        assert str(tmp_path) not in str(made["openblas"].inputs)
        return {made["openblas"].key, made["configure"].key}

    before = keys()
    assert keys() == before
    (root / "LICENSE").write_text("Another licence.\n")
    assert not keys() & before


def test_a_missing_pin_and_owned_options_are_named(lock: Lock) -> None:
    import dataclasses

    bare = dataclasses.replace(
        lock, wheels=tuple(w for w in lock.wheels if w.project != blas_library.PROJECT)
    )
    with pytest.raises(LockError, match="scipy-openblas32"):
        plan(bare, "linux")
    for name in ("GGML_BLAS", "BLAS_LIBRARIES"):
        with pytest.raises(RecipeError, match=name) as caught:
            load_recipe("avx2", overrides=[f"build.options.{name}=true"])
        assert caught.value.fix == "use `openblas.origin`"


def test_the_module_path_is_quoted_for_cmake() -> None:
    module = blas_library.find_module("a/include", "a/lib/x.lib", prefix="p_", suffix="")
    assert '"a/include"' in module
    assert '"cblas_sgemm=p_cblas_sgemm;openblas_set_num_threads=p_openblas_set_num_threads"' in (
        module
    )
    assert "set(BLAS_FOUND TRUE)" in module
    assert cmake.init_cache({"CMAKE_MODULE_PATH": "C:/a b"}).count('"C:/a b"') == 1
