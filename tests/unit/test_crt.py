"""One C runtime: which libraries a recipe takes, and what finished files may import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild.binary.coff import read_coff
from qbuild.binary.pe import PeImage, read_pe
from qbuild.cli.main import run
from qbuild.errors import BundleError, ToolchainError
from qbuild.recipe.model import Runtime
from qbuild.toolchains import crt
from support.tiny_coff import make_import, make_library, make_object, make_private_object
from support.tiny_pe import make_pe

C_CODE = {flag: f'/DEFAULTLIB:"{name}" /DEFAULTLIB:"OLDNAMES"' for flag, name in (
    ("/MT", "LIBCMT"), ("/MTd", "LIBCMTD"), ("/MD", "MSVCRT"), ("/MDd", "MSVCRTD"),
)}  # fmt: skip
KEYS = {"/MT": "MT_StaticRelease", "/MTd": "MTd_StaticDebug", "/MD": "MD_DynamicRelease",
        "/MDd": "MDd_DynamicDebug"}  # fmt: skip


def cxx(flag: str) -> str:
    level = 2 if flag.endswith("d") else 0
    return (
        f'{C_CODE[flag]} /FAILIFMISMATCH:"_MSC_VER=1900" '
        f'/FAILIFMISMATCH:"_ITERATOR_DEBUG_LEVEL={level}" '
        f'/FAILIFMISMATCH:"RuntimeLibrary={KEYS[flag]}"'
    )


def problems(directives: str, runtime: Runtime) -> tuple[crt.Problem, ...]:
    return crt.library_problems(read_coff(make_object(directives), "x.obj"), runtime)


@pytest.mark.parametrize("runtime", ["dynamic", "static"])
@pytest.mark.parametrize("flag", list(KEYS))
@pytest.mark.parametrize("language", ["c", "c++"])
def test_every_runtime_against_both_of_a_recipe(runtime: Runtime, flag: str, language: str) -> None:
    found = problems(C_CODE[flag] if language == "c" else cxx(flag), runtime)
    ours = crt.FLAGS[runtime]
    if flag == ours:
        assert not found
        return
    (problem,) = found
    assert f"x.obj was compiled with {flag} (" in problem.message
    assert f"the recipe links {ours}: " in problem.message
    assert "LNK2038" in problem.message
    assert (language == "c++") == (f"RuntimeLibrary={KEYS[flag]}" in problem.message)
    first, second = problem.ways
    assert f"rebuild the library with {ours}" in second
    if flag.endswith("d"):
        assert "Release build" in first
    else:
        other = "static" if runtime == "dynamic" else "dynamic"
        assert f'toolchain.runtime = "{other}"' in first


@pytest.mark.parametrize(
    "directives",
    ["", "/DEFAULTLIB:OLDNAMES", "-export:f -exclude-symbols:g", "/DEFAULTLIB:C:\\x\\mylib.lib"],
)
def test_a_library_that_names_no_runtime_fits_both(directives: str) -> None:
    assert not problems(directives, "static")
    assert not problems(directives, "dynamic")


def test_an_import_library_fits_both() -> None:
    library = make_library({"f.dll": make_import("f", "F.dll")})
    assert not crt.library_problems(read_coff(library, "f.lib"), "static")


def test_a_library_whose_members_disagree_fits_none() -> None:
    members = {"a.obj": make_object(cxx("/MT")), "b.obj": make_object(C_CODE["/MD"])}
    found = read_coff(make_library(members), "mixed.lib")
    (static,) = crt.library_problems(found, "static")
    assert "/MD (it asks for MSVCRT in b.obj)" in static.message
    (dynamic,) = crt.library_problems(found, "dynamic")
    assert "/MT (RuntimeLibrary=MT_StaticRelease in a.obj)" in dynamic.message
    assert all("members disagree" in way for p in (static, dynamic) for way in p.ways)


def test_many_members_are_counted_not_listed() -> None:
    members = {f"m{i}.obj": make_object(C_CODE["/MT"]) for i in range(9)}
    members["z.obj"] = make_object()
    (problem,) = crt.library_problems(read_coff(make_library(members), "x.lib"), "dynamic")
    assert "in m0.obj, m1.obj, m2.obj and 6 more" in problem.message


def test_other_keys_that_the_linker_compares() -> None:
    (level,) = problems('/FAILIFMISMATCH:"_ITERATOR_DEBUG_LEVEL=2"', "dynamic")
    assert "_ITERATOR_DEBUG_LEVEL=2" in level.message
    (old,) = problems('/FAILIFMISMATCH:"_MSC_VER=1800"', "dynamic")
    assert "_MSC_VER=1800" in old.message
    (hidden,) = crt.library_problems(read_coff(make_private_object(), "x.obj"), "dynamic")
    assert "/GL" in hidden.message


def test_the_preflight_names_all_libraries_and_ways(tmp_path: Path) -> None:
    for name, flag in (("a.lib", "/MT"), ("b.lib", "/MDd"), ("good.lib", "/MD")):
        (tmp_path / name).write_bytes(make_library({"x.obj": make_object(cxx(flag))}))
    with pytest.raises(ToolchainError) as caught:
        crt.check_libraries(sorted(tmp_path.iterdir()), "dynamic", where="recipe x")
    assert "a.lib" in caught.value.what
    assert "b.lib" in caught.value.what
    assert "good.lib" not in caught.value.what
    assert 'toolchain.runtime = "static"' in (caught.value.fix or "")
    crt.check_libraries([tmp_path / "good.lib"], "dynamic", where="recipe x")


# -- finished files ----------------------------------------------------------------------------

UCRT = "api-ms-win-crt-heap-l1-1-0.dll"


def image(*dlls: str, linker: tuple[int, int] = (14, 44)) -> PeImage:
    return read_pe(make_pe(["KERNEL32.dll", *dlls], linker=linker))


def test_a_static_build_imports_no_runtime() -> None:
    good, bad = image(), image("VCRUNTIME140.dll", UCRT)
    assert not crt.import_problems({"a.exe": good}, "static")
    (problem,) = crt.import_problems({"a.exe": good, "b.dll": bad}, "static")
    assert problem.startswith("b.dll: was to be linked with /MT but imports VCRUNTIME140.dll")
    with pytest.raises(BundleError, match="another C runtime"):
        crt.check_imports({"b.dll": bad}, "static", where="x")


def test_a_dynamic_build_names_dlls_and_the_newest_toolset() -> None:
    images = {
        "a.exe": image("VCRUNTIME140.dll", "VCRUNTIME140_1.dll", UCRT, linker=(14, 38)),
        "b.dll": image("MSVCP140.dll", "vcruntime140.dll", UCRT, linker=(14, 44)),
        "MSVCP140.dll": image("VCRUNTIME140.dll", linker=(14, 51)),
        "other.dll": image(linker=(14, 60)),
    }
    need = crt.needed_redistributable(images)
    assert need is not None
    assert [dll.lower() for dll in need.dlls] == [
        "msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll"
    ]  # fmt: skip
    assert need.version == "14.44"
    assert crt.import_problems({"c.exe": image()}, "dynamic") == (
        "c.exe: was to be linked with /MD but imports no C runtime",
    )
    assert crt.needed_redistributable({"c.exe": image(UCRT)}) is None


# -- the command -------------------------------------------------------------------------------


def test_the_command_reads_folders_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.lib").write_bytes(make_library({"x.obj": make_object(cxx("/MTd"))}))
    assert run(["crt", str(tmp_path)]) == 0
    assert "a.lib: /MTd (1 objects)" in capsys.readouterr().out
    assert run(["crt", "--runtime", "static", str(tmp_path)]) == ToolchainError.exit_code
    assert "way out: take the library's Release build" in capsys.readouterr().out
    assert run(["crt", "--json", "--runtime", "static", str(tmp_path)]) == 7
    data = json.loads(capsys.readouterr().out)
    assert data["files"][0]["runtimes"] == ["/MTd"]
    assert len(data["problems"]) == 1


def test_the_command_says_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["crt", str(tmp_path / "none.lib")]) == 2
    assert run(["crt", str(tmp_path)]) == 2
    assert "holds no object file" in capsys.readouterr().err
