"""The definitions that clang-cuda repeats are the ones that zig gives; our fatbinary's messages."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cuda import flags, tree
from support.systems import on_linux

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = os.environ.get("QBUILD_TEST_ZIG_CACHE") or str(tmp_path_factory.mktemp("zig-cache"))
    return dict(os.environ, ZIG_GLOBAL_CACHE_DIR=cache, ZIG_LOCAL_CACHE_DIR=cache)


def zig(
    environment: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ZIG, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@on_linux
@pytest.mark.parametrize(
    ("target", "triple"),
    [("windows", "x86_64-windows-gnu"), ("linux", "x86_64-linux-gnu.2.28")],
)
def test_definitions_and_folders_are_zigs(
    environment: dict[str, str], tmp_path: Path, target: str, triple: str
) -> None:
    (tmp_path / "empty.cpp").write_text("int x;\n", encoding="ascii")
    done = zig(
        environment, tmp_path, "c++", "-O2", "-target", triple, "--verbose", "-c", "empty.cpp"
    )
    (line,) = [text for text in done.stderr.splitlines() if " -cc1 -triple" in text]
    theirs = {f"-D{name}" for name in re.findall(r" -D (\S+)", line)} - {"-DNDEBUG"}
    lib = (Path(ZIG).resolve().parent / "lib").as_posix()
    ours = flags.compiler_command(flags.Paths(zig=ZIG, zig_lib=lib, tree="/tree"), target)
    assert {part for part in ours if part.startswith("-D")} - {flags.ALLOW_LIBCXX} == theirs
    folders = [name for name in re.findall(r" -isystem (\S+)", line) if Path(name).is_dir()]
    mine = [
        name
        for name in flags.include_folders(flags.Paths(zig=ZIG, zig_lib=lib, tree="/tree"), target)
        if name.startswith(lib)
    ]
    own_headers = [name for name in folders if name.endswith("/lib/include")]
    assert [name for name in folders if name not in own_headers] == mine


@on_linux  # it is a Linux program
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no --create OUT was given"),
        (["--create", "out"], "no --image3=kind=…,sm=…,file=… was given"),
        (["--create", "out", "--image3=kind=elf,sm=61"], "cannot read this image"),
        (["--create", "out", "--image3=kind=exe,sm=61,file=x"], "cannot read this image"),
        (["--create", "out", "--frobnicate"], "this argument is not known: --frobnicate"),
        (
            ["--create", "out", "--image3=kind=elf,sm=61,file=x"],
            "cannot load libnvfatbin.so.12 from the folder of this program",
        ),
    ],
)
def test_fatbinary_says_what_is_wrong(
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    arguments: list[str],
    message: str,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fatbinary tool"
    command = tree.fatbinary_command(Path(ZIG), folder, host="linux")
    if not command.makes.is_file():
        command.makes.parent.mkdir(parents=True)
        subprocess.run(command.argv, env=environment, check=True)
    done = subprocess.run(
        [command.makes, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_our_files_are_there() -> None:
    folder = resources.data_root() / "toolchain" / "cuda"
    for name in ("fatbinary.c", "overlay/crt/math_functions.hpp", "overlay/qbuild_cuda_prelude.h"):
        assert (folder / name).is_file()
