"""Toolkit x architecture x host compiler x system: each bad combination and its way out."""

from __future__ import annotations

import pytest

from qbuild.cuda.arch import architectures, parse_archs
from qbuild.cuda.table import (
    check_archs,
    check_driver,
    check_host_compiler,
    check_target,
    driver_floor,
    find_toolkit,
    parse_version,
    toolkits,
)
from qbuild.errors import ToolchainError, VerifyError


@pytest.mark.parametrize(
    ("archs", "toolkit", "what", "fix"),
    [
        (
            ["61-real"],
            "13.0",
            "CUDA 13.0 no longer compiles for architecture 61 (Pascal)",
            "use CUDA 12.9",
        ),
        (["61-real"], "13.0.88", "no longer compiles for architecture 61", "use CUDA 12.9"),
        (["50-real"], "13.0", "no longer compiles for architecture 50 (Maxwell)", "12.9"),
        (["70-real", "80-real"], "13.0", "architecture 70 (Volta)", "or drop 70-real"),
        (["101-real"], "13.0", "architecture 101 (Blackwell (Thor))", "12.9"),
        (
            ["120a-real"],
            "12.4",
            "does not compile for architecture 120a (Blackwell) yet",
            "use CUDA 12.8",
        ),
        (["120f-real"], "12.8", "does not compile for architecture 120f", "use CUDA 12.9"),
        (["121-real"], "12.8", "does not compile for architecture 121", "use CUDA 12.9"),
        (["90a-real"], "11.8", "architecture 90a (Hopper) yet", "90 without 'a' needs 11.8"),
        (["110-real"], "12.9", "architecture 110 (Blackwell (Thor)) yet", "use CUDA 13.0"),
        (["61-real"], "10.2", "CUDA 10.2 is older than the toolkits in the table", "11.8"),
        (["61-real"], "14.0", "CUDA 14.0 is newer than the toolkits in the table", "12.9"),
        (["61-real"], "twelve", "'twelve' is not a version", "write it like 12.9"),
    ],
)
def test_toolkit_and_architecture(archs: list[str], toolkit: str, what: str, fix: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        check_archs(parse_archs(archs), toolkit, where="toolchain.cuda")
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")
    assert caught.value.where == "toolchain.cuda"


@pytest.mark.parametrize(
    ("archs", "toolkit"),
    [
        (["61-real"], "12.9"),
        (["61-real"], "12.9.86"),
        (["80-real"], "13.0"),
        (["61-real", "120a-real"], "12.9"),
        (["75", "90a"], "12.5"),
    ],
)
def test_good_pairs(archs: list[str], toolkit: str) -> None:
    check_archs(parse_archs(archs), toolkit)


@pytest.mark.parametrize(
    ("toolkit", "compiler", "release", "what", "fix"),
    [
        (
            "12.4",
            "gcc",
            "14.2.0",
            "does not accept gcc 14.2.0: 13 is its newest",
            "CUDA 12.8 or newer",
        ),
        (
            "12.9",
            "gcc",
            "15.1.0",
            "does not accept gcc 15.1.0: 14 is its newest",
            "CUDA 13.0 or newer",
        ),
        ("13.0", "gcc", "16", "does not accept gcc 16: 15 is its newest", "use gcc 15 or older"),
        ("12.4", "clang", "18.1.8", "does not accept clang 18.1.8", "CUDA 12.6 or newer"),
        (
            "12.9",
            "clang",
            "22.1.8",
            "does not accept clang 22.1.8: 19 is its newest",
            "use clang 19 or older",
        ),
        (
            "12.1",
            "msvc",
            "19.44",
            "does not accept MSVC 19.44 (_MSC_VER 1944): it takes 1910",
            "or CUDA 12.4",
        ),
        ("12.9", "msvc", "19.50", "_MSC_VER 1950", "Visual Studio 2022"),
        (
            "13.0",
            "msvc",
            "19.16",
            "does not accept MSVC 19.16 (_MSC_VER 1916): it takes 1920",
            "Visual Studio 2022",
        ),
        (
            "12.9",
            "zig",
            "0.17.1",
            "nvcc does not work with zig as host compiler",
            "clang-cuda toolchain",
        ),
        ("12.9", "mingw", "14", "nvcc does not work with mingw as host compiler", "msvc on"),
        ("12.9", "gcc", "fourteen", "'fourteen' is not a version", "write it like"),
    ],
)
def test_host_compilers(toolkit: str, compiler: str, release: str, what: str, fix: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        check_host_compiler(toolkit, compiler, release, where="toolchain.name")
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("toolkit", "compiler", "release"),
    [
        ("12.4", "gcc", "13.3"),
        ("12.9", "gcc", "9.4"),
        ("12.5", "gcc", "13"),
        ("12.9", "msvc", "19.44"),
        ("12.9", "msvc", "1944"),
        ("12.9", "clang", "19.1"),
    ],
)
def test_good_host_compilers(toolkit: str, compiler: str, release: str) -> None:
    check_host_compiler(toolkit, compiler, release)


@pytest.mark.parametrize(
    ("toolchain", "host", "target", "archs", "what", "fix"),
    [
        (
            "nvcc",
            "linux",
            "windows",
            ["61-real"],
            "nvcc on linux cannot build for windows",
            '"clang-cuda"',
        ),
        (
            "nvcc",
            "windows",
            "linux",
            ["61-real"],
            "nvcc on windows cannot build for linux",
            '"clang-cuda"',
        ),
        (
            "clang-cuda",
            "darwin",
            "windows",
            ["61-real"],
            "cannot be compiled on darwin",
            "build on Linux or Windows",
        ),
        (
            "clang-cuda",
            "linux",
            "darwin",
            ["61-real"],
            "there is no CUDA for darwin",
            "linux or windows",
        ),
        ("clang-cuda", "linux", "windows", ["110-real"], "architecture 110", "CUDA 13.0"),
        ("clang-cuda", "linux", "linux", ["120f-real"], "family architecture 120f", "use 120a"),
        (
            "zig",
            "linux",
            "linux",
            ["61-real"],
            "the zig toolchain does not compile CUDA code",
            '"clang-cuda" or "nvcc"',
        ),
        ("gcc", "linux", "linux", ["61-real"], "the gcc toolchain does not compile", "nvcc"),
    ],
)
def test_targets(
    toolchain: str, host: str, target: str, archs: list[str], what: str, fix: str
) -> None:
    with pytest.raises(ToolchainError) as caught:
        check_target(toolchain, host, target, parse_archs(archs))
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


def test_good_targets() -> None:
    for host in ("linux", "windows"):
        for target in ("linux", "windows"):
            check_target("clang-cuda", host, target, parse_archs(["61-real", "120a"]))
    check_target("nvcc", "linux", "linux", parse_archs(["80-real"]))


@pytest.mark.parametrize(
    ("driver", "runtime", "target", "compression", "what"),
    [
        (
            "516.94",
            "12.9.79",
            "windows",
            "none",
            "driver 516.94 is too old for CUDA 12.9.79: it needs 528.33 on windows",
        ),
        (
            "535.104",
            "12.9.79",
            "linux",
            "zstd",
            "too old for CUDA 12.9.79 with zstd-compressed kernels: it needs 550.54.14",
        ),
        ("570.10", "13.0", "linux", "none", "it needs 580.65.06 on linux"),
    ],
)
def test_drivers(driver: str, runtime: str, target: str, compression: str, what: str) -> None:
    with pytest.raises(VerifyError) as caught:
        check_driver(driver, runtime, target, compression)
    assert what in caught.value.what


def test_driver_floor() -> None:
    assert driver_floor("12.4.5.8", "windows", "lz4") == "528.33"
    assert driver_floor("12.9.1.4", "windows", "zstd") == "551.61"
    check_driver("576.02", "12.9", "windows", "zstd")
    with pytest.raises(ToolchainError, match="is not in the table"):
        driver_floor("9.2", "linux")


def test_the_table_is_consistent() -> None:
    versions = list(toolkits())
    assert versions == sorted(versions, key=parse_version)
    for arch in architectures().values():
        assert arch.first in toolkits()
        assert arch.last is None or arch.last in toolkits()
        assert all(version in toolkits() for version in arch.variants.values())
    assert find_toolkit("12.5").version == "12.4"
