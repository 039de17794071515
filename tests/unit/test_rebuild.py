"""The command in a zip's papers makes that zip, also when the recipe was changed for one build."""

from __future__ import annotations

import pytest

from qbuild.recipe.load import as_dict, known_recipes, load_recipe
from qbuild.recipe.rebuild import recipe_words


@pytest.mark.parametrize("name", known_recipes())
def test_an_unchanged_recipe_is_its_name(name: str) -> None:
    recipe = load_recipe(name, os="linux")
    assert recipe_words(as_dict(recipe)) == ("--recipe", name, "--os", "linux")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("avx2", ["build.ui=false"]),
        ("gtx1060", ['cuda.architectures=["86-real", "90-virtual"]']),
        ("laptop", ['build.linkage="shared"', "build.options.GGML_LLAMAFILE=false"]),
        ("avx2", ["launch.server.flags.ctx-size=4096"]),
        ("avx2", ['summary="für 模型"']),
    ],
)
def test_changes_come_back(name: str, overrides: list[str]) -> None:
    recipe = load_recipe(name, os="windows", overrides=overrides)
    words = recipe_words(as_dict(recipe))
    assert words[:4] == ("--recipe", name, "--os", "windows")
    given = [word for word in words[4:] if word != "--set"]
    assert load_recipe(words[1], os=words[3], overrides=given) == recipe
    assert sorted(given) == sorted(overrides)


def test_somebody_s_own_recipe_is_a_file() -> None:
    recipe = {"name": "mine", "target": {"os": "linux"}}
    assert recipe_words(recipe) == ("--recipe", "./mine.toml", "--os", "linux")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({}, ("--recipe", "./.toml")),
        ({"name": "avx2"}, ("--recipe", "avx2")),
        ({"name": "avx2", "no": {"such": [1, None]}}, ("--recipe", "./avx2.toml")),
        ({"name": "avx2", "build": {"ui": {"a": 1}}}, ("--recipe", "./avx2.toml")),
    ],
)
def test_what_set_cannot_say_is_no_recipe_of_ours(
    recipe: dict[str, object], words: tuple[str, ...]
) -> None:
    """An older qbuild's papers lack keys; others hold what this one does not know."""
    assert recipe_words(recipe) == words
