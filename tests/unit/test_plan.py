"""The plan: which change reaches which step, and the script forms of it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.errors import (
    ConfigureError,
    LockError,
    PatchError,
    RecipeError,
    ToolchainError,
    UsageError,
)
from qbuild.recipe.load import known_recipes, load_recipe
from qbuild.recipe.lock import Lock, load_lock
from qbuild.steps import cmake
from qbuild.steps.captured import Captured, capture
from qbuild.steps.plan import Plan, make_plan
from qbuild.steps.script import render
from qbuild.toolchains.base import Layout, tool_lines, write_layout

HOST = "linux-x86_64"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return load_lock(resources.lockfile())


def plan(lock: Lock, *overrides: str, name: str = "avx2", os: str | None = None) -> Plan:
    recipe = load_recipe(name, os=os, overrides=overrides)
    return make_plan(recipe, lock, host=HOST, captured=capture(recipe))


def keys(p: Plan) -> dict[str, str]:
    return {s.label: s.key for s in p.steps}


def changed(a: Plan, b: Plan) -> set[str]:
    one, two = keys(a), keys(b)
    return {label for label in one if one[label] != two.get(label)}


LATE = {"configure", "compile", "stage", "bundle"}


@pytest.mark.parametrize(
    ("override", "steps"),
    [
        ('build.targets=["llama-server"]', {"compile", "stage", "bundle"}),
        ("build.linkage=static", LATE),
        ("build.type=RelWithDebInfo", LATE),
        ("target.cpu=x86-64-v2", LATE),
        ('target.glibc="2.31"', LATE),
        ("target.os=windows", LATE),
        ("build.options.GGML_LLAMAFILE=false", LATE),
        ("patches.series=[]", {"patch"} | LATE),
        ("summary=another", {"bundle"}),
        ("checks.qemu_cpu=Haswell", {"bundle"}),
    ],
)
def test_a_change_reaches_the_steps_it_can_change_and_no_other(
    lock: Lock, override: str, steps: set[str]
) -> None:
    assert changed(plan(lock), plan(lock, override)) == steps


def test_the_same_inputs_give_the_same_keys(lock: Lock) -> None:
    assert keys(plan(lock)) == keys(plan(lock))


def test_one_changed_patch_changes_the_patch_step_and_what_follows(
    lock: Lock, tmp_path: Path
) -> None:
    shutil.copytree(resources.patches_dir(), tmp_path / "p")
    recipe = load_recipe("avx2")
    before = make_plan(recipe, lock, host=HOST, patches_root=tmp_path / "p")
    victim = sorted((tmp_path / "p" / recipe.patches.series[0]).glob("*.patch"))[0]
    victim.write_bytes(victim.read_bytes().replace(b"Subject: ", b"Subject: Re ", 1))
    after = make_plan(recipe, lock, host=HOST, patches_root=tmp_path / "p")
    assert changed(before, after) == {"patch"} | LATE


def test_a_new_compiler_changes_configure_and_what_follows(lock: Lock) -> None:
    wheels = tuple(
        dataclasses.replace(w, sha256="0" * 64) if w.project == "ziglang" else w
        for w in lock.wheels
    )
    after = plan(dataclasses.replace(lock, wheels=wheels))
    assert changed(plan(lock), after) == {"wheel ziglang"} | LATE


def test_a_missing_pin_is_named(lock: Lock) -> None:
    bare = dataclasses.replace(lock, wheels=())
    with pytest.raises(LockError, match="cmake"):
        plan(bare)
    with pytest.raises(LockError, match=r"llama\.cp"):
        plan(lock, "source.pin=llama.cp")


def test_a_missing_series_is_named(lock: Lock) -> None:
    with pytest.raises(PatchError, match="windows-gn"):
        plan(lock, 'patches.series=["windows-gn"]')


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_system_compilers_refuse_windows_targets(lock: Lock, name: str) -> None:
    with pytest.raises(ToolchainError, match="builds for Linux only"):
        plan(lock, f"toolchain.name={name}", os="windows")


def test_a_compiler_that_is_not_there_is_named(
    lock: Lock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        plan(lock, "toolchain.name=clang")
    assert "`clang` is not on PATH" in caught.value.what
    assert "zig" in (caught.value.fix or "")


def test_the_zips_name_says_commit_recipe_and_target(lock: Lock) -> None:
    assert plan(lock, os="windows").zip_name == "llama-g0c1e57098-avx2-windows-x86_64.zip"
    pins = [dataclasses.replace(pin, build_number=7000) for pin in lock.sources]
    numbered = plan(dataclasses.replace(lock, sources=tuple(pins)))
    assert numbered.zip_name.startswith("llama-b7000-avx2-")


@pytest.mark.parametrize("name", sorted(known_recipes()))
def test_every_download_of_upstreams_build_is_off(lock: Lock, name: str) -> None:
    entries = plan(lock, name=name)["configure"].inputs["cache"]
    for option in (
        "GGML_CCACHE", "GGML_NATIVE", "GGML_OPENMP_FETCH", "LLAMA_BUILD_BORINGSSL",
        "LLAMA_BUILD_LIBRESSL", "LLAMA_LLGUIDANCE", "LLAMA_OPENSSL", "LLAMA_USE_PREBUILT_UI",
    ):  # fmt: skip
        assert entries[option] is False, option
    assert entries["FETCHCONTENT_FULLY_DISCONNECTED"] is True
    assert entries["LLAMA_BUILD_COMMIT"] == "0c1e57098"


def test_the_init_cache_quotes_for_cmake() -> None:
    text = cmake.init_cache({"A": True, "B": 3, "C": "$ORIGIN"})
    assert 'set(A "ON" CACHE BOOL "" FORCE)' in text
    assert 'set(B "3" CACHE STRING "" FORCE)' in text
    assert 'set(C "\\$ORIGIN" CACHE STRING "" FORCE)' in text


def test_an_option_that_llama_cpp_lacks_is_refused(tmp_path: Path) -> None:
    recipe = load_recipe("avx2", overrides=["build.options.GGML_LLAMAFIEL=true"])
    text = "//No help, variable specified on the command line.\nGGML_LLAMAFIEL:BOOL=ON\n"
    text += "//ggml: use LLAMAFILE\nGGML_LLAMAFILE:BOOL=ON\n"
    with pytest.raises(ConfigureError) as caught:
        cmake.check_options_known({"GGML_LLAMAFIEL": True}, text, recipe)
    assert caught.value.fix == "did you mean `GGML_LLAMAFILE`?"
    good = load_recipe("avx2", overrides=["build.options.GGML_LLAMAFILE=true"])
    cmake.check_options_known({"GGML_LLAMAFILE": True}, text, good)


def test_cmakes_first_error_is_found() -> None:
    log = "-- a\nCMake Error at CMakeLists.txt:3 (foo):\n  Unknown command\n\n-- b\nCMake Error x\n"
    assert "Unknown command" in cmake.first_error(log)
    assert cmake.first_error("one\ntwo\n") == "one\ntwo"


@pytest.mark.parametrize("shell", ["sh", "cmd", "ps1"])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_script_names_pin_patches_tools_and_targets(lock: Lock, shell: str, system: str) -> None:
    text = render(plan(lock, os=system), shell)
    for word in ("0c1e57098bba43ac29e6e3b677cdceebdd22334f", "windows-gnu", "ziglang==", "cmake",
                 "ninja", "llama-server", "GGML_AVX2"):  # fmt: skip
        assert word in text, word
    assert str(Path.home()) not in text
    assert str(resources.data_root()) not in text


@pytest.mark.parametrize(
    ("shell", "compiler", "copies"),
    [
        ("sh", "${CMAKE_CURRENT_LIST_DIR}/tools/clang-cuda", "cp -R "),
        ("cmd", "tools/clang-cuda.cmd", "xcopy /e"),
        ("ps1", "${CMAKE_CURRENT_LIST_DIR}/tools/clang-cuda.cmd", "Copy-Item -Recurse"),
    ],
)
def test_a_script_puts_the_cuda_folder_together(
    lock: Lock, shell: str, compiler: str, copies: str
) -> None:
    text = render(plan(lock, "bundle.cublas=bundled", name="gtx1060"), shell).replace("\\", "/")
    for word in (compiler, copies, "clang/22/include", "fatbinary.c", "cublasGemmEx", "dlltool",
                 "GGML_CUDA_CLANG_LIBRARIES", "win_amd64", "61-real"):  # fmt: skip
        assert word in text, word
    assert "cuda-tree" not in text
    linux = render(plan(lock, "bundle.cublas=bundled", name="a100"), shell)
    assert "dlltool" not in linux
    assert "libcublas.so.12" in linux


def test_an_unknown_shell_is_refused(lock: Lock) -> None:
    with pytest.raises(UsageError, match="fish"):
        render(plan(lock), "fish")


def test_every_kind_of_step_can_be_pruned(lock: Lock) -> None:
    from qbuild.cli.cache import prunable

    plans = [make_plan(load_recipe(name), lock, host=HOST) for name in known_recipes()]
    kinds = {step.kind for each in plans for step in each.steps}
    assert {"cuda-tree", "openblas", "npm", "web-ui"} < kinds
    assert kinds <= set(prunable(everything=True))
    assert kinds - set(prunable(everything=False)) == {"source", "wheel", "npm"}


def test_below_avx2_no_code_tests_the_processor_for_more(lock: Lock) -> None:
    """miniaudio has LZCNT behind a CPUID test: the bundle of `baseline` was refused for it."""
    entries = plan(lock, name="baseline")["configure"].inputs["cache"]
    assert entries["QBUILD_DEFINITIONS"] == "MA_DR_FLAC_NO_CPUID;MA_DR_FLAC_NO_SIMD"
    assert "QBUILD_DEFINITIONS" not in plan(lock)["configure"].inputs["cache"]


@pytest.mark.parametrize("part", ["wrappers", "toolchain_file", "cache"])
def test_whatever_calls_the_compiler_is_in_the_key(
    lock: Lock, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag in a wrapper changes every object, and no recipe or pin says so."""
    from qbuild.toolchains.zig import Zig

    before = plan(lock)
    real = Zig.layout

    def other(*args: object, **kwargs: object) -> object:
        layout = real(*args, **kwargs)  # type: ignore[arg-type]
        value = getattr(layout, part)
        more = value + "#" if isinstance(value, str) else {**value, "x": ["-O0"]}
        return dataclasses.replace(layout, **{part: more})

    monkeypatch.setattr(Zig, "layout", other)
    assert changed(before, plan(lock)) == LATE


def test_what_cmake_includes_is_in_the_key(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides what ggml writes of git, and how files are grouped, in every binary."""
    before = plan(lock)
    monkeypatch.setattr(cmake, "PLAIN_FOLDERS", cmake.PLAIN_FOLDERS + "#")
    assert changed(before, plan(lock)) == LATE


def test_a_script_names_the_command_with_every_change(lock: Lock) -> None:
    made = plan(lock, "build.linkage=static", 'build.targets=["llama-server"]')
    sh = render(made, "sh").splitlines()[1]
    assert "`qbuild --recipe avx2 --os linux --set 'build.linkage=\"static\"' --set " in sh
    assert "'build.targets=[\"llama-server\"]'`" in sh
    ps1 = next(line for line in render(made, "ps1").splitlines() if "compiles" in line)
    assert "--set 'build.linkage=\"static\"'" in ps1
    assert "`qbuild --recipe avx2 --os linux` compiles" in render(plan(lock), "sh")
    fat = plan(lock, 'cuda.architectures=["86-real"]', name="gtx1060")
    assert "--set 'cuda.architectures=[\"86-real\"]'" in render(fat, "sh").splitlines()[1]


def test_what_a_plan_tells_of_itself(lock: Lock) -> None:
    found = plan(lock)
    assert (found.lock, found.host, found.recipe.name) == (lock, HOST, "avx2")
    assert found.pin.name == "llama.cpp" and found["compile"] is found.find("compile")
    assert found.wheel("cmake").project == "cmake"
    assert found.find("nothing") is None
    with pytest.raises(KeyError, match="nothing"):
        found["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        found.wheel("nothing")
    assert "openblas" not in {kind.kind for kind in found.bundled()}
    blas = plan(lock, name="openblas")
    assert {kind.kind for kind in blas.bundled()} >= {"openblas"}
    assert {kind.kind for kind in blas.feeding()} >= {"openblas"}


def test_what_was_captured_is_what_is_planned_with(lock: Lock) -> None:
    seen = Captured()
    found = make_plan(load_recipe("avx2"), lock, host=HOST, captured=seen)
    assert found.captured is seen


def test_a_profile_with_an_option_that_no_program_has_is_refused(lock: Lock) -> None:
    with pytest.raises(RecipeError, match="no-such-option"):
        plan(lock, 'launch.server.flags.no-such-option="1"')


def test_the_command_lines_of_cmake(tmp_path: Path) -> None:
    cmake_path, ninja, work = Path("/t/cmake"), Path("/t/ninja"), Path("/w")
    assert cmake.configure_command(cmake_path, ninja, work) == [
        str(cmake_path), "-S", str(work / "src"), "-B", str(work / "build"), "-G", "Ninja",
        "-C", str(work / "cache.cmake"),
        "-DCMAKE_TOOLCHAIN_FILE=/w/toolchain.cmake",
        "-DCMAKE_PROJECT_INCLUDE=/w/plain-folders.cmake",
        "-DCMAKE_MAKE_PROGRAM=/t/ninja", "-DCMAKE_SUPPRESS_REGENERATION=ON", "-Wno-author",
    ]  # fmt: skip
    studio = cmake.configure_command(
        cmake_path, ninja, work, ["-G", "Visual Studio 17 2022", "-A", "x64"]
    )
    assert studio[5:9] == ["-G", "Visual Studio 17 2022", "-A", "x64"]
    assert not [word for word in studio if "MAKE_PROGRAM" in word]
    assert cmake.build_command("cmake", "/w/build", ["a", "b"], config="Release", jobs=3) == [
        "cmake", "--build", "/w/build", "--config", "Release", "--parallel", "3", "--target",
        "a", "b",
    ]  # fmt: skip


def test_a_log_without_an_error_gives_its_end() -> None:
    log = "".join(f"line {n}\n" for n in range(20))
    assert cmake.first_error(log + "\n") == "\n".join(f"line {n}" for n in range(12, 20))
    error = "CMake Error at x:1:\n" + "".join(f"  {n}\n" for n in range(12))
    assert cmake.first_error(log + error).splitlines() == [
        "CMake Error at x:1:", *(f"  {n}" for n in range(8)),
    ]  # fmt: skip


def test_what_cmake_left_unwritten_is_noticed(tmp_path: Path) -> None:
    """It ends with 0 on a full disk; the tree would be taken for a configured one for ever."""
    ninja = ["-G", "Ninja"]
    assert cmake.unwritten(tmp_path, ninja) == ["build.ninja", "CMakeFiles/rules.ninja"]
    (tmp_path / "CMakeFiles").mkdir()
    (tmp_path / "CMakeFiles" / "rules.ninja").write_text("")
    assert cmake.unwritten(tmp_path, ninja) == ["build.ninja"]
    (tmp_path / "build.ninja").write_text("")
    assert cmake.unwritten(tmp_path, ninja) == []
    assert cmake.unwritten(tmp_path / "gone", ["-G", "Visual Studio 17 2022"]) == []


@pytest.mark.parametrize("shell", ["sh", "cmd", "ps1"])
@pytest.mark.parametrize("recipe", ["avx2", "gtx1060"])
def test_a_script_does_not_depend_on_the_system_it_is_written_on(
    lock: Lock, recipe: str, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {}
    for system in ("linux", "windows"):
        monkeypatch.setattr("qbuild.host.system", lambda system=system: system)
        made = plan(lock, name=recipe, os="windows")
        written[system] = render(made, shell)
    assert written["windows"] == written["linux"]
    assert ("/tools/cc.cmd" in written["linux"]) == (shell != "sh")
    assert ("/tools/clang-cuda.cmd" in written["linux"]) == (shell != "sh" and recipe == "gtx1060")


def test_a_build_names_wrappers_as_the_files_are_called_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(
        wrappers={"cc": ["zig", "cc"], "clang-cuda": ["clang"]},
        toolchain_file="\n".join(tool_lines({"CMAKE_C_COMPILER": "cc"})) + "\n",
        cache={"GGML_CUDA_CLANG": f"{tmp_path}/tools/clang-cuda", "ON": True},
    )
    for system, ending in (("linux", ""), ("windows", ".cmd")):
        monkeypatch.setattr("qbuild.host.system", lambda system=system: system)
        prepared = write_layout(layout, tmp_path / system)
        assert f'/tools/cc{ending}" CACHE' in prepared.toolchain_file
        assert prepared.cache["GGML_CUDA_CLANG"] == f"{tmp_path}/tools/clang-cuda{ending}"
        assert prepared.cache["ON"] is True
        names = {path.name for path in (tmp_path / system / "tools").iterdir()}
        assert {f"cc{ending}", f"clang-cuda{ending}"} <= names
