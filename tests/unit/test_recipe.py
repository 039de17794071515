"""Recipes: loading, inheritance, overrides, and every kind of mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qbuild.errors import RecipeError, UsageError
from qbuild.recipe import isa
from qbuild.recipe.levels import LEVELS
from qbuild.recipe.load import as_dict, known_recipes, load_recipe
from qbuild.recipe.toml import locate

GOOD = """\
schema = 1
name = "mine"
summary = "A test machine"

[target]
os = "linux"
cpu = "x86-64-v3"
"""


def write(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", sorted(known_recipes()))
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_every_shipped_recipe_loads_for_each_system_it_supports(name: str, system: str) -> None:
    if system in load_recipe(name).supports:
        assert load_recipe(name, os=system).target.os == system


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, GOOD))
    assert recipe.toolchain.name == "zig"
    assert recipe.build.targets == ("llama-cli", "llama-server", "llama-bench")
    assert recipe.target.glibc == "2.28"


def test_extends_merges_tables_and_replaces_values(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "[build.options]\nGGML_LLAMAFILE = true\nGGML_RPC = false\n", "mine")
    child = write(
        tmp_path,
        'name = "child"\nextends = "mine"\n[build.options]\nGGML_RPC = true\n',
        "child",
    )
    recipe = load_recipe(child)
    assert recipe.summary == "A test machine"
    assert recipe.build.options == {"GGML_LLAMAFILE": True, "GGML_RPC": True}


def test_a_table_per_system_applies_to_that_system_only(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + '[os.windows.build]\nlinkage = "static"\n')
    assert load_recipe(path).build.linkage == "shared"
    assert load_recipe(path, os="windows").build.linkage == "static"


def test_the_command_line_wins_over_the_table_per_system(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + '[os.windows.build]\nlinkage = "static"\n')
    recipe = load_recipe(path, os="windows", overrides=["build.linkage=shared"])
    assert recipe.build.linkage == "shared"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("build.linkage=static", ("build", "linkage", "static")),
        ('build.linkage="static"', ("build", "linkage", "static")),
        ("checks.run=false", ("checks", "run", False)),
        ('build.targets=["llama-cli"]', ("build", "targets", ["llama-cli"])),
    ],
)
def test_set_takes_toml_values_and_bare_words(
    tmp_path: Path, override: str, expected: tuple[str, str, object]
) -> None:
    table, key, value = expected
    recipe = load_recipe(write(tmp_path, GOOD), overrides=[override])
    assert as_dict(recipe)[table][key] == value


BAD = [
    # what the file says, what the message must say, where, what to do
    ("nmae = 'x'\n" + GOOD, "`nmae` is not a key", "mine.toml:1", "did you mean `name`"),
    (GOOD + "cpuu = 'x'\n", "`target.cpuu` is not a key", "mine.toml:8", "did you mean `cpu`"),
    (GOOD.replace('"x86-64-v3"', '"x86-64-v5"'), "must be", "mine.toml:7", "x86-64-v4"),
    (GOOD.replace('"x86-64-v3"', "3"), "not 3", "mine.toml:7", ""),
    (GOOD.replace('"linux"', '"linus"'), "not 'linus'", "mine.toml:6", "did you mean `linux`"),
    (GOOD.replace('os = "linux"\n', ""), "`target.os` is required", "mine.toml", ""),
    (GOOD.replace('summary = "A test machine"\n', ""), "`summary` is required", "mine.toml", ""),
    (GOOD.replace("schema = 1", "schema = 2"), "`schema` is 2", "mine.toml:1", "update qbuild"),
    (GOOD.replace("schema = 1", "schema = true"), "must be integer", "mine.toml:1", ""),
    (GOOD.replace("schema = 1", "schema = 1.0"), "not float", "mine.toml:1", ""),
    (GOOD.replace('"mine"', '"other"'), "but the file is `mine.toml`", "mine.toml:2", "equal"),
    (GOOD.replace('"mine"', '"Mi ne"'), "lower-case", "mine.toml:2", ""),
    (GOOD.replace('"A test machine"', '""'), "one line of text", "mine.toml:3", ""),
    (GOOD.replace('"A test machine"', '"a\\nb"'), "one line of text", "mine.toml:3", ""),
    (GOOD + 'isa = ["avx512"]\n', "", "", None),
    (GOOD + 'isa = ["avx9"]\n', "`avx9`, which ggml has no switch for", "mine.toml:8", ""),
    (GOOD + 'isa = ["avx2"]\n', "x86-64-v3 already has", "mine.toml:8", "leave it out"),
    (GOOD + 'isa = ["avx512-bf16"]\n', "builds on avx512", "mine.toml:8", "add it"),
    (GOOD + 'isa = "avx512"\n', "must be a list of string", "mine.toml:8", ""),
    (GOOD + "isa = [1]\n", "`target.isa[0]` must be string", "mine.toml:8", ""),
    (GOOD + 'isa = ["avx512", "avx512"]\n', "the same value twice", "mine.toml:8", ""),
    (GOOD + 'glibc = "latest"\n', "must look like `2.28`", "mine.toml:8", ""),
    (GOOD + 'arch = "arm64"\n', 'must be "x86_64"', "mine.toml:8", ""),
    (GOOD + '[toolchain]\nname = "zigg"\n', "must be", "mine.toml:9", "did you mean `zig`"),
    (GOOD + '[toolchain]\nruntime = "MT"\n', "must be", "mine.toml:9", ""),
    (GOOD + "[build]\ntargets = []\n", "at least one CMake target", "mine.toml:9", ""),
    (GOOD + '[build]\ntargets = ["a b"]\n', "is not a target name", "mine.toml:9", ""),
    (GOOD + '[build]\ntargets = ["--help"]\n', "is not a target name", "mine.toml:9", ""),
    (GOOD + '[build]\nlinkage = "dynamic"\n', "must be", "mine.toml:9", ""),
    (GOOD + '[build]\ntype = "Debug"\n', "must be", "mine.toml:9", ""),
    (GOOD + "[build.options]\nGGML_AVX2 = true\n", "instruction-set switch", "mine.toml:9",
     "target.cpu"),
    (GOOD + "[build.options]\nGGML_NATIVE = true\n", "decided by qbuild", "mine.toml:9", "never"),
    (GOOD + "[build.options]\nBUILD_SHARED_LIBS = true\n", "decided by qbuild", "mine.toml:9",
     "build.linkage"),
    (GOOD + "[build.options]\nlower = true\n", "not a CMake option name", "mine.toml:9", ""),
    (GOOD + '[build.options]\nA_B = "x;y"\n', "CMake would interpret", "mine.toml:9", ""),
    (GOOD + "[build.options]\nA_B = '$ENV{HOME}'\n", "CMake would interpret", "mine.toml:9", ""),
    (GOOD + "[build.options]\nA_B = [1]\n", "not list", "mine.toml:9", ""),
    (GOOD + "[build.options]\nA_B = 1.5\n", "not float", "mine.toml:9", ""),
    (GOOD + '[patches]\nseries = ["../x"]\n', "is not a series name", "mine.toml:9", ""),
    (GOOD + '[patches]\nserie = ["x"]\n', "not a key", "mine.toml:9", "did you mean `series`"),
    (GOOD + "[bundle]\nreadme = 1\n", "must be true or false", "mine.toml:9", ""),
    (GOOD + "checks = 1\n", "`target.checks` is not a key", "mine.toml:8", ""),
    (GOOD.replace("[target]", "checks = 1\n[target]"), "must be a table", "mine.toml:5", ""),
    (GOOD.replace("[target]", "supports = []\n[target]"), "at least one", "mine.toml:5", ""),
    (GOOD.replace("[target]", 'supports = ["windows"]\n[target]'), "does not support",
     "mine.toml:7", "supported: windows"),
    (GOOD + "[os.macos.build]\nui = true\n", "not an operating system", "mine.toml", ""),
    (GOOD + "[os]\nwindows = 1\n", "must be a table", "mine.toml:9", ""),
    (GOOD + "extends = 'avx2'\n", "`target.extends` is not a key", "mine.toml:8", ""),
    ("extends = 3\n" + GOOD, "must be the name of a recipe", "mine.toml:1", ""),
    ("extends = 'nothing'\n" + GOOD, "no recipe `nothing`", "", "one of"),
    pytest.param(
        f"extends = '{'a' * 300}'\n" + GOOD, "`extends` cannot be used: File name too", ":1", "",
        marks=pytest.mark.skipif(os.name == "nt", reason="Windows only says that it is not there"),
    ),
    ("extends = 'mine'\n" + GOOD, "goes in a circle", "mine", ""),
    ("= = =", "not valid TOML", "mine.toml", ""),
    ("name = 'a'\nname = 'b'\n", "not valid TOML", "mine.toml", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what", "where", "fix"), BAD)
def test_a_bad_recipe_names_key_file_line_and_remedy(
    tmp_path: Path, text: str, what: str, where: str, fix: str | None
) -> None:
    path = write(tmp_path, text)
    if fix is None:  # the control: a line of this table that is right
        load_recipe(path)
        return
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert caught.value.exit_code == 3
    assert what in caught.value.what
    assert where in (caught.value.where or "")
    assert fix in (caught.value.fix or "")


def test_a_recipe_that_is_not_utf8_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("avx", "there is no recipe `avx`"),
        ("", "there is no recipe ``"),
        ("dist/llama-avx2-linux.ZIP", "a finished bundle is no recipe"),
        ("./nothing.toml", "recipe file not found"),
        ("nothing.toml", "recipe file not found"),
    ],
)
def test_a_missing_recipe_says_so(name: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(name)
    assert message in caught.value.what


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("avx-2")
    assert caught.value.fix == "did you mean `avx2`?"


@pytest.mark.parametrize("item", ["novalue", "=x", "a..b=1", ".a=1", "build.targets.x=1=2="])
def test_a_bad_override_is_refused(tmp_path: Path, item: str) -> None:
    with pytest.raises((UsageError, RecipeError)) as caught:
        load_recipe(write(tmp_path, GOOD), overrides=[item])
    assert caught.value.exit_code in (2, 3)


def test_an_override_of_a_value_as_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set to a value before"):
        load_recipe(write(tmp_path, GOOD), overrides=["build=1", "build.ui=true"])


def test_an_unsupported_system_names_what_is_supported(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("[target]", 'supports = ["linux"]\n[target]'))
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, os="windows")
    assert caught.value.where == "--set/--os"
    assert caught.value.fix == "supported: linux"


def test_every_switch_is_spelled_out_for_every_level() -> None:
    for level in LEVELS:
        values = isa.switches(level, ())
        assert set(values) == set(isa.GGML_SWITCHES)
    v3 = isa.switches("x86-64-v3", ())
    assert v3["GGML_AVX2"] and v3["GGML_F16C"] and not v3["GGML_AVX512"]
    assert not any(isa.switches("x86-64", ()).values())


def test_locate_finds_the_line_of_a_key_in_dotted_and_quoted_forms() -> None:
    text = 'a = 1\n[b.c]\nd = 2\n"e f" = 3\n[b]\nx.y = 4\n'
    assert locate(text, ("b", "c", "d")) == 3
    assert locate(text, ("b", "c", "e f")) == 4
    assert locate(text, ("b", "x", "y")) == 6
    assert locate(text, ("b", "c", "missing")) == 2
    assert locate(text, ("zzz",)) is None
