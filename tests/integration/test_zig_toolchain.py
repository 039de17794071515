"""The zig toolchain on programs of a few lines: what llama.cpp needs from it and once lacked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbuild import host, resources
from qbuild.console import Plain
from qbuild.errors import ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.pinned import fetch_wheel
from qbuild.store import Store
from qbuild.toolchains import zig
from qbuild.toolchains.base import Context, WorkTree
from support.systems import on_linux

pytestmark = [
    pytest.mark.integration,
    on_linux,  # it runs what it compiles for Linux; windows_host small builds by Windows' wrappers
]

THROWS = """\
#include <stdexcept>
#include <string>
extern "C" __attribute__((visibility("default"))) void boom(int kind) {
    if (kind) throw std::runtime_error("thrown in the library");
    throw std::invalid_argument("thrown in the library");
}
"""
CATCHES = """\
#include <cstdio>
#include <stdexcept>
extern "C" void boom(int);
int main() {
    for (int kind = 0; kind < 2; kind++) {
        try { boom(kind); }
        catch (const std::invalid_argument &) { puts("invalid_argument"); }
        catch (const std::exception &) { puts("exception"); }
        catch (...) { puts("type not recognised"); }
    }
}
"""


@pytest.fixture(scope="module")
def tools(
    user_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    wheel = load_lock(resources.lockfile()).wheel("ziglang", host.platform_key())
    files = fetch_wheel(wheel, user_store, Plain(), offline=False).path / "files"
    work = tmp_path_factory.mktemp("zig")
    recipe, lock = load_recipe("avx2", os="linux"), load_lock(resources.lockfile())
    tree = WorkTree(unpacked={"ziglang": files}, work=work, cache_dir=user_store.root / "cache")
    context = Context(recipe=recipe, lock=lock, host=host.platform_key())
    prepared = zig.Zig(context).prepare(tree)
    return work / "tools", {"PATH": "/usr/bin:/bin", "HOME": str(work), **prepared.env}


def test_an_exception_crosses_from_one_library_to_another(
    tools: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, env = tools
    (tmp_path / "a.cpp").write_text(THROWS)
    (tmp_path / "m.cpp").write_text(CATCHES)
    cxx = str(folder / "c++")
    for command in (
        [cxx, "-O2", "-fPIC", "-shared", "-s", "a.cpp", "-o", "liba.so"],
        [cxx, "-O2", "-s", "m.cpp", "-L.", "-la", "-Wl,-rpath,$ORIGIN", "-o", "m"],
    ):
        subprocess.run(command, cwd=tmp_path, env=env, check=True)
    done = subprocess.run([str(tmp_path / "m")], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["invalid_argument", "exception"]


def test_the_build_folder_does_not_reach_the_binary(
    tools: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, env = tools
    src = folder.parent / "src"
    src.mkdir(exist_ok=True)
    (src / "f.c").write_text("const char * where(void) { return __FILE__; }\n")
    out = tmp_path / "f.o"
    subprocess.run(
        [str(folder / "cc"), "-O2", "-c", str(src / "f.c"), "-o", str(out)], env=env, check=True
    )
    assert b"f.c\0" in out.read_bytes()
    assert str(src).encode() not in out.read_bytes()


def test_an_unexpected_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / zig.ADJUSTMENTS[0][0]
    path.parent.mkdir(parents=True)
    path.write_text("another version")
    with pytest.raises(ToolchainError, match="not the one that was reviewed"):
        zig.adjust(tmp_path)
