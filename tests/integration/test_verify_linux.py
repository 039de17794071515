"""Linux programs as a linker makes them: glibc floor, library folders, missing libraries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.verify_zips import COMMIT, Made, check, findings

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig"),
]

PROGRAM = f"""
#include <stdio.h>
int other(void);
const char *volatile commit = "{COMMIT[:9]}";
int main(void) {{ puts(commit); return other(); }}
"""


@pytest.fixture(scope="module")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get("QBUILD_TEST_ZIG_CACHE")
    return given or str(tmp_path_factory.mktemp("zig-cache"))


def zig(folder: Path, cache: str, *arguments: str, glibc: str = "2.28") -> None:
    subprocess.run(
        [ZIG, "cc", "-target", f"x86_64-linux-gnu.{glibc}", "-mcpu=x86_64_v3", "-O1", "-g0", "-s",
         *arguments],
        check=True, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder),
                                     "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )  # fmt: skip


def program_and_library(
    folder: Path, cache: str, *, glibc: str = "2.28", rpath: str = "$ORIGIN"
) -> dict[str, bytes]:
    (folder / "other.c").write_text("int other(void) { return 0; }")
    (folder / "main.c").write_text(PROGRAM)
    zig(folder, cache, "-shared", "-fPIC", "-Wl,-soname,libother.so", "-o", "libother.so",
        "other.c", glibc=glibc)  # fmt: skip
    zig(folder, cache, "-o", "llama-cli", "main.c", "libother.so", f"-Wl,-rpath,{rpath}",
        glibc=glibc)  # fmt: skip
    return {name: (folder / name).read_bytes() for name in ("llama-cli", "libother.so")}


def bundle(files: dict[str, bytes], glibc: str = "2.28") -> Made:
    return Made(os="linux", recipe="test", glibc=glibc, files=files)


def test_what_the_linker_made_is_accepted(tmp_path: Path, zig_cache: str) -> None:
    verdict = bundle(program_and_library(tmp_path, zig_cache)).verify(tmp_path)
    assert verdict.ok, verdict.render()
    assert check(verdict, "glibc").status == "passed"


def test_a_missing_library_is_named(tmp_path: Path, zig_cache: str) -> None:
    files = program_and_library(tmp_path, zig_cache)
    del files["libother.so"]
    verdict = bundle(files).verify(tmp_path)
    assert "libother.so" in "\n".join(check(verdict, "closure").details)
    assert "llama-cli" in findings(verdict)


def test_a_newer_glibc_than_promised_is_named(tmp_path: Path, zig_cache: str) -> None:
    files = program_and_library(tmp_path, zig_cache, glibc="2.38")
    verdict = bundle(files).verify(tmp_path)
    assert check(verdict, "glibc").details == (
        "llama-cli: needs glibc 2.34, the bundle promises 2.28",
    )


def test_a_library_folder_outside_the_bundle_is_named(tmp_path: Path, zig_cache: str) -> None:
    files = program_and_library(tmp_path, zig_cache, rpath="/some/build/lib")
    verdict = bundle(files).verify(tmp_path)
    assert "llama-cli: its runpath names /some/build/lib" in findings(verdict)
