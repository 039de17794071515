"""Visual Studio from captured facts: what is chosen, what is refused, what is called."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qbuild import resources
from qbuild.cli.main import run
from qbuild.errors import BundleError, RecipeError, ToolchainError, UsageError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import Lock, load_lock
from qbuild.recipe.model import Recipe
from qbuild.steps.captured import capture as capture_for
from qbuild.steps.plan import Plan, make_plan
from qbuild.steps.script import render
from qbuild.toolchains.visual_studio import vcvars
from qbuild.toolchains.visual_studio.choose import Choice, choose
from qbuild.toolchains.visual_studio.installed import MsvcFacts, capture, load_facts, parse_facts

DATA = Path(__file__).parents[1] / "data" / "msvc"
STATIC = "toolchain.runtime=static"


def facts(name: str, **changes: Any) -> MsvcFacts:
    data = json.loads((DATA / f"{name}.json").read_text())
    return parse_facts({**data, **changes}, where=name)


def recipe(*more: str, name: str = "openblas", toolchain: str = "msvc") -> Recipe:
    return load_recipe(name, os="windows", overrides=[f"toolchain.name={toolchain}", STATIC, *more])


def pascal(*more: str) -> Recipe:
    return recipe(*more, name="gtx1060", toolchain="nvcc")


@pytest.fixture(scope="module")
def lock() -> Lock:
    return load_lock(resources.lockfile())


def plan(lock: Lock, wanted: Recipe, machine: str = "vs2022") -> Plan:
    return make_plan(
        wanted, lock, host="windows-x86_64", captured=capture_for(wanted, facts(machine))
    )


# -- facts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "name", "generator", "toolset", "sdk"),
    [
        ("vs2019", "Visual Studio 2019 Community", "Visual Studio 16 2019", "14.29.30133",
         "10.0.19041.0"),
        ("vs2022", "Visual Studio 2022 Community", "Visual Studio 17 2022", "14.44.35207",
         "10.0.26100.0"),
        ("vs2026", "Visual Studio 2026 Community", "Visual Studio 18 2026", "14.50.35717",
         "10.0.26100.0"),
        ("buildtools2022", "Visual Studio 2022 Build Tools", "Visual Studio 17 2022",
         "14.44.35207", "10.0.22621.0"),
    ],
)  # fmt: skip
def test_the_newest_of_each_machine(
    machine: str, name: str, generator: str, toolset: str, sdk: str
) -> None:
    made = choose(facts(machine), recipe())
    assert (made.studio.name, made.studio.generator) == (name, generator)
    assert (made.toolset, made.sdk, made.cuda) == (toolset, sdk, "")
    assert made.vcvars[0].endswith("\\VC\\Auxiliary\\Build\\vcvarsall.bat")
    assert made.vcvars[1:] == ("x64", sdk, f"-vcvars_ver={toolset}")
    assert made.cl.endswith(f"/MSVC/{toolset}/bin/Hostx64/x64/cl.exe")


def test_a_broken_installation_is_passed_over_and_named() -> None:
    assert facts("buildtools2022").incomplete == ("Visual Studio 2019 Community",)
    broken = json.loads((DATA / "vs2019.json").read_text())
    broken["vswhere"][0]["isComplete"] = False
    with pytest.raises(ToolchainError, match=r"2019 Community lacks the C\+\+ tools") as caught:
        choose(parse_facts(broken, where="x"), recipe())
    assert "zig" in (caught.value.fix or "")


def test_a_preview_comes_after_what_is_released() -> None:
    both = json.loads((DATA / "vs2022.json").read_text())
    newer = json.loads((DATA / "vs2026.json").read_text())
    newer["vswhere"][0]["isPrerelease"] = True
    both["vswhere"] += newer["vswhere"]
    both["toolsets"] |= newer["toolsets"]
    assert choose(parse_facts(both, where="x"), recipe()).studio.major == 17
    newer["vswhere"][0]["isPrerelease"] = False
    assert choose(parse_facts(both, where="x"), recipe()).studio.major == 18


@pytest.mark.parametrize(
    "data", [[], {}, {"schema": 2}, {"schema": 1, "vswhere": [{}], "toolsets": {}, "sdks": []},
             {"schema": 1, "vswhere": 3, "toolsets": {}, "sdks": [], "cuda": {}}],
)  # fmt: skip
def test_other_files_are_refused(data: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file of facts"):
        parse_facts(data, where="x")
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        load_facts(path)


class Windows:
    """A machine made of dictionaries, as far as the capture asks."""

    def __init__(self, vswhere: str, folders: Mapping[str, list[str]]) -> None:
        self.vswhere, self.folders = vswhere, folders

    def output(self, command: tuple[str, ...]) -> str | None:
        return self.vswhere if command[0].endswith("vswhere.exe") else None

    def listing(self, path: str) -> tuple[str, ...]:
        return tuple(self.folders.get(path, ()))

    def registry_keys(self, key: str) -> tuple[str, ...]:
        return ("10.0.22621.0",) if "Windows Kits" in key else ()


def test_a_capture_reads_back_and_holds_nothing_else() -> None:
    data = json.loads((DATA / "vs2022.json").read_text())
    rows = copy.deepcopy(data["vswhere"])
    rows[0] |= {"instanceId": "deadbeef", "description": "of somebody", "properties": {"a": 1}}
    ((path, toolsets),) = data["toolsets"].items()
    root = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA"
    machine = Windows(
        json.dumps(rows), {f"{path}\\VC\\Tools\\MSVC": toolsets, root: ["v12.9", "readme"]}
    )
    found = capture(machine)  # type: ignore[arg-type]
    assert "somebody" not in json.dumps(found)
    read = parse_facts(found, where="x")
    assert read.studios == facts("vs2022").studios
    assert (read.sdks, read.cuda) == (("10.0.22621.0",), {"12.9": f"{root}\\v12.9"})
    assert parse_facts(capture(Windows("no JSON", {})), where="x").studios == ()  # type: ignore[arg-type]


# -- choices -----------------------------------------------------------------------------------


def test_what_the_recipe_names_is_taken_or_missed() -> None:
    made = choose(
        facts("vs2022"), recipe('toolchain.toolset="14.38"', "toolchain.sdk=10.0.22621.0")
    )
    assert (made.toolset, made.sdk) == ("14.38.33130", "10.0.22621.0")
    with pytest.raises(ToolchainError, match=r"toolset 14\.39 is not installed") as caught:
        choose(facts("vs2022"), recipe('toolchain.toolset="14.39"'))
    assert "14.44.35207, 14.38.33130" in (caught.value.fix or "")
    with pytest.raises(ToolchainError, match=r"SDK 10\.0\.20348\.0 is not installed"):
        choose(facts("vs2022"), recipe("toolchain.sdk=10.0.20348.0"))
    with pytest.raises(ToolchainError, match="there is no Windows SDK"):
        choose(facts("vs2022", sdks=["wdf"]), recipe())
    with pytest.raises(ToolchainError, match=r"CUDA 12\.6 is not installed"):
        choose(facts("vs2022"), pascal('toolchain.cuda="12.6"'))
    with pytest.raises(ToolchainError, match="no CUDA toolkit") as caught:
        choose(facts("vs2022", cuda={}), pascal())
    assert "clang-cuda" in (caught.value.fix or "")


def test_the_newest_cuda_that_still_has_the_gpu() -> None:
    assert choose(facts("vs2022"), pascal()).cuda == "12.9"
    with pytest.raises(ToolchainError, match=r"CUDA 13\.0 no longer compiles for .* 61"):
        choose(facts("vs2022"), pascal('toolchain.cuda="13.0"'))
    turing = pascal('cuda.architectures=["75-real"]')
    assert choose(facts("vs2022"), turing).cuda == "13.0"


def test_an_older_toolset_beside_a_newer_one_serves_nvcc() -> None:
    made = choose(facts("vs2026-v143"), pascal())
    assert (made.toolset, made.platform_toolset) == ("14.44.35207", "v143")
    assert choose(facts("vs2026-v143"), recipe()).toolset == "14.50.35717"
    for cuda in ("12.4", "12.9"):
        with pytest.raises(ToolchainError, match=r"does not accept MSVC 19\.50") as caught:
            choose(facts("vs2026"), pascal(f'toolchain.cuda="{cuda}"'))
        assert "v143" in (caught.value.fix or "")
        assert "or a CUDA" not in (caught.value.fix or ""), "none of them compiles for Pascal"
    with pytest.raises(ToolchainError, match=r"does not accept MSVC 19\.50") as caught:
        choose(facts("vs2026"), pascal('cuda.architectures=["89-real"]'))
    assert "or a CUDA after 13.0" in (caught.value.fix or "")


def test_one_of_two_toolsets_of_a_generation_is_named_in_full() -> None:
    """A short name would stand for the newest of them, another compiler than CMake is given."""
    data = json.loads((DATA / "vs2026-v143.json").read_text())
    for listed in data["toolsets"].values():
        listed.append("14.44.34918")
    older = choose(parse_facts(data, where="x"), pascal('toolchain.toolset="14.44.34918"'))
    assert older.vcvars[-1] == "-vcvars_ver=14.44.34918"
    assert "/14.44.34918/" in older.cl


# -- recipe keys -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["toolchain.name=msvc", STATIC, "bundle.vc_runtime=app-local"], "bundle.vc_runtime"),
        (["bundle.vc_runtime=installed"], "bundle.vc_runtime"),
        (["toolchain.toolset=v143"], "toolchain.toolset"),
        (["toolchain.sdk=11"], "toolchain.sdk"),
        (["toolchain.cuda=v12"], "toolchain.cuda"),
    ],
)
def test_keys_that_make_no_sense(overrides: list[str], key: str) -> None:
    with pytest.raises(RecipeError, match=f"`{key}`"):
        load_recipe("openblas", os="windows", overrides=overrides)


def test_it_builds_for_windows_and_on_windows_only(lock: Lock) -> None:
    with pytest.raises(ToolchainError, match="builds for Windows only"):
        make_plan(load_recipe("avx2", overrides=["toolchain.name=msvc"]), lock, host="linux-x86_64")
    with pytest.raises(ToolchainError, match="runs on Windows only") as caught:
        make_plan(recipe(), lock, host="linux-x86_64")
    assert "qbuild plan --facts" in (caught.value.fix or "")
    with pytest.raises(ToolchainError, match="needs Microsoft's runtime DLLs") as caught:
        plan(lock, recipe("toolchain.runtime=dynamic"))
    assert "app-local" in (caught.value.fix or "")
    with pytest.raises(UsageError, match="runs on Windows only"):
        render(plan(lock, recipe()), "sh")


# -- what is called ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "value"), [("static", "MultiThreaded"), ("dynamic", "MultiThreadedDLL")]
)
@pytest.mark.parametrize("toolchain", ["msvc", "nvcc"])
def test_the_runtime_reaches_cmake_once_for_all_languages(
    lock: Lock, runtime: str, value: str, toolchain: str
) -> None:
    more = [f"toolchain.runtime={runtime}"]
    more += ["bundle.vc_runtime=installed"] if runtime == "dynamic" else []
    wanted = recipe(*more) if toolchain == "msvc" else pascal(*more)
    made = plan(lock, wanted)
    assert made["configure"].inputs["cache"]["CMAKE_MSVC_RUNTIME_LIBRARY"] == value
    text = render(made, "cmd")
    assert "/MD" not in text
    assert "/MT" not in text
    assert "CMAKE_POLICY_DEFAULT_CMP0091 NEW" in text


def test_determinism_flags_of_compiler_and_linkers(lock: Lock) -> None:
    lines = plan(lock, pascal())["configure"].inputs["layout"]["toolchain_file"].splitlines()
    for language in ("C", "CXX"):
        (flags,) = (line for line in lines if f"CMAKE_{language}_FLAGS_INIT" in line)
        for word in ("/Brepro", "/experimental:deterministic", "/pathmap:${_work}\\\\src=."):
            assert word in flags
    for kind in ("EXE", "SHARED", "MODULE"):
        assert f'set(CMAKE_{kind}_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")' in lines
    (cuda,) = (line for line in lines if "CMAKE_CUDA_FLAGS_INIT" in line)
    assert "--frandom-seed" in cuda
    older = plan(lock, pascal('toolchain.cuda="12.4"'))["configure"].inputs["layout"]
    assert "--frandom-seed" not in older["toolchain_file"]


def test_folders_are_no_part_of_a_key_but_versions_are(lock: Lock) -> None:
    one = plan(lock, recipe())["configure"].inputs["toolchain"]
    assert (one["version"], one["sdk"]) == ("14.44.35207", "10.0.26100.0")
    assert "Program Files" not in json.dumps(one)
    other = plan(lock, recipe('toolchain.toolset="14.38"'))
    assert other["configure"].key != plan(lock, recipe())["configure"].key
    assert other["compile"].key != plan(lock, recipe())["compile"].key


def test_msbuild_is_a_choice(lock: Lock) -> None:
    text = render(plan(lock, pascal("toolchain.generator=visual-studio"), "vs2026-v143"), "cmd")
    assert '-G "Visual Studio 18 2026" -A "x64,version=10.0.26100.0"' in text
    assert '-T "v143,version=14.44.35207,host=x64,cuda=C:\\Program Files\\NVIDIA' in text
    assert "--build build --config Release" in text
    assert "CMAKE_MAKE_PROGRAM" not in text


@pytest.mark.parametrize(
    ("shell", "clears"), [("cmd", 'do set "%%v="'), ("ps1", 'Remove-Item "env:$_"')]
)
def test_a_persons_compiler_flags_stay_out(lock: Lock, shell: str, clears: str) -> None:
    (line,) = (line for line in render(plan(lock, pascal()), shell).splitlines() if clears in line)
    for name in ("CL", "_LINK_", "INCLUDE", "NVCC_APPEND_FLAGS", "CMAKE_GENERATOR_PLATFORM"):
        assert re.search(rf"[ ('\"]{name}[ )'\"]", line), name
    assert "VSINSTALLDIR" not in line
    unix = render(make_plan(load_recipe("avx2"), lock, host="linux-x86_64"), "sh")
    (line,) = (line for line in unix.splitlines() if line.startswith("unset "))
    assert {"CFLAGS", "CPATH", "SOURCE_DATE_EPOCH"} <= set(line.split())


def test_the_script_puts_libraries_beside_the_programs(lock: Lock) -> None:
    text = render(plan(lock, recipe()), "cmd")
    library = "tools\\scipy-openblas32\\scipy_openblas32\\lib\\libscipy_openblas.dll"
    assert f'copy /y "{library}" "build\\bin\\" >nul' in text
    dynamic = ["toolchain.runtime=dynamic", "bundle.vc_runtime=app-local"]
    text = render(plan(lock, recipe(*dynamic)), "ps1")
    assert 'Copy-Item -Force "tools/msvc-runtime/Scripts/vcruntime140.dll" build/bin' in text
    text = render(plan(lock, pascal()), "cmd")
    assert "it lies in C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.9\\bin" in text
    assert "copy /y" not in text


def test_a_person_may_name_the_patches_by_a_relative_folder(lock: Lock) -> None:
    """git runs in src: the folder must be a full path there, and it may be the environment's."""
    lines = render(plan(lock, recipe()), "ps1").splitlines()
    start = lines.index("if (-not $PATCHES) { $PATCHES = $env:PATCHES }")
    assert lines[start + 2] == "$PATCHES = (Resolve-Path $PATCHES).Path"


def test_a_failing_vcvarsall_is_heard_in_powershell(lock: Lock) -> None:
    text = render(plan(lock, recipe()), "ps1")
    assert ">nul" not in text
    assert "else { Write-Host $_ }" in text


@pytest.mark.parametrize("shell", ["sh", "cmd", "ps1"])
def test_patches_are_not_signed(lock: Lock, shell: str) -> None:
    """A person who signs all commits has no key for the script's address: git am would fail."""
    made = make_plan(load_recipe("avx2"), lock, host="linux-x86_64")
    text = render(made, shell)
    assert text.count(" am --3way ") == text.count("-c commit.gpgsign=false am --3way ") > 5


def test_the_script_says_which_toolchain_it_is_for(lock: Lock) -> None:
    text = render(plan(lock, pascal()), "cmd")
    assert '--os windows --set "toolchain.name=' in text and '\\"nvcc\\""' in text


def test_the_runtime_beside_the_programs_is_pinned(lock: Lock) -> None:
    wanted = load_recipe(
        "openblas", os="windows",
        overrides=["toolchain.name=msvc", "bundle.vc_runtime=app-local"],
    )  # fmt: skip
    made = plan(lock, wanted)
    provided = made.toolchain.provides()
    assert provided["vcruntime140.dll"][0] == "msvc-runtime"
    (wheel,) = (w for w in made.wheels if w.project == "msvc-runtime")
    assert f"msvc_runtime-{wheel.version}.data" in provided["msvcp140.dll"][1]


def test_a_runtime_older_than_the_toolset_is_refused() -> None:
    from qbuild.toolchains import crt
    from qbuild.toolchains.crt import Redistributable

    need = Redistributable(dlls=("MSVCP140.dll",), version="14.52")
    with pytest.raises(BundleError, match=r"14\.51\.1 is older than the toolset 14\.52"):
        crt.check_version(need, "14.51.1", where="x")
    crt.check_version(need, "14.52.0", where="x")


# -- the environment ---------------------------------------------------------------------------


@pytest.fixture
def made() -> Choice:
    return choose(facts("vs2022"), recipe())


def printed(made: Choice, **changes: str) -> str:
    env = {"INCLUDE": "C:\\i", "LIB": "C:\\l", "Path": "C:\\p", "VCToolsVersion": made.toolset,
           "WindowsSDKVersion": f"{made.sdk}\\", "USERNAME": "somebody", **changes}  # fmt: skip
    body = "\r\n".join(f"{name}={value}" for name, value in env.items() if value)
    return f"[vcvarsall.bat] Environment initialized\r\n{vcvars.MARK}\r\n{body}\r\n"


def test_only_what_the_compiler_reads_is_kept(made: Choice) -> None:
    env = vcvars.parse(printed(made), made)
    assert (env["PATH"], env["INCLUDE"]) == ("C:\\p", "C:\\i")
    assert "USERNAME" not in env
    assert vcvars.capture_command(made).startswith('call "C:\\Program Files\\Microsoft Visual')


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"VCToolsVersion": "14.38.33130"}, r"sets up 14\.38\.33130"),
        ({"WindowsSDKVersion": "10.0.1\\"}, r"SDK 10\.0\.1"),
        ({"LIB": ""}, "sets no LIB"),
    ],
)
def test_another_environment_than_was_asked_for(
    made: Choice, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(ToolchainError, match=says):
        vcvars.parse(printed(made, **changes), made)


def test_a_failing_vcvarsall_is_quoted(made: Choice) -> None:
    with pytest.raises(ToolchainError, match="vcvarsall failed: ERROR: no such version"):
        vcvars.parse("banner\r\n[ERROR: no such version\r\nERROR: no such version\r\n", made)
    with pytest.raises(ToolchainError, match="it printed nothing"):
        vcvars.parse("", made)


# -- the command -------------------------------------------------------------------------------


def test_the_command_plans_for_a_captured_machine(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "openblas", "--os", "windows", "--set", "toolchain.name=msvc", "--set", STATIC,
             "--facts", str(DATA / "vs2019.json")]  # fmt: skip
    assert run(words) == 0
    assert "msvc, x86-64-v3" in capsys.readouterr().out
    assert run([*words, "--script", "ps1"]) == 0
    out = capsys.readouterr().out
    assert '2019\\Community\\VC\\Auxiliary\\Build\\vcvarsall.bat`" x64 10.0.19041.0' in out
    assert str(Path.home()) not in out
    assert str(resources.data_root()) not in out


SCRIPT = ["plan", "openblas", "--os", "windows", "--set", "toolchain.name=msvc", "--set", STATIC,
          "--facts", str(DATA / "vs2022.json"), "--script", "cmd"]  # fmt: skip


def test_line_ends_are_those_of_the_shell_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Windows' text files turn a line feed into two characters, and so a line end into three."""
    golden = (DATA / "golden" / "openblas-vs2022.cmd").read_bytes()
    windows = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\r\n")
    monkeypatch.setattr("sys.stdout", windows)
    assert run(SCRIPT) == 0
    windows.flush()
    assert windows.buffer.getvalue() == golden  # type: ignore[attr-defined]
    made = tmp_path / "build.cmd"
    assert run([*SCRIPT, "-o", str(made)]) == 0
    assert made.read_bytes() == golden


def test_a_script_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SCRIPT, "--output", str(tmp_path / "no" / "build.cmd")]) == UsageError.exit_code
    assert "cannot write the script" in capsys.readouterr().err
    assert run(["plan", "avx2", "--output", str(tmp_path / "x")]) == UsageError.exit_code
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_facts_as_a_shell_wrote_them(tmp_path: Path, encoding: str) -> None:
    """`qbuild plan --capture > facts.json` in PowerShell 5 makes UTF-16."""
    path = tmp_path / "facts.json"
    path.write_bytes((DATA / "vs2022.json").read_text().encode(encoding))
    assert load_facts(path) == facts("vs2022")


@pytest.mark.parametrize("path", sorted((DATA / "golden").iterdir()), ids=lambda p: p.name)
def test_no_golden_names_a_folder_of_this_machine(path: Path) -> None:
    text = path.read_text()
    for folder in (str(Path.home()), str(resources.data_root()), "/tmp"):
        assert folder not in text
