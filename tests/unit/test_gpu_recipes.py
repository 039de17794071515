"""A recipe for one GPU by its name, and the names of zips whose recipe was changed."""

from __future__ import annotations

import argparse

import pytest

from qbuild import resources
from qbuild.cli import common
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.table import check_target
from qbuild.errors import RecipeError, UsageError
from qbuild.recipe.gpu import base_of, slug
from qbuild.recipe.load import as_dict, load_recipe
from qbuild.recipe.model import Recipe
from qbuild.recipe.rebuild import label, recipe_words

EVERY = [
    (name, row)
    for row in resources.read_table("gpus.toml")["family"]
    if float(row["cc"]) >= 5.0
    for name in row["gpus"]
    if name not in row.get("arm", ())
]


ONE_OF_EACH = list({row["cc"]: (name, row) for name, row in reversed(EVERY)}.values())


def recipe(*words: str) -> Recipe:
    parser = argparse.ArgumentParser()
    common.add_recipe(parser)
    return common.load(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "name", "archs", "family"),
    [
        (("--gpu", "RTX 3060"), "rtx3060", "86-real", "RTX 3060 and other Ampere GPUs"),
        (("--cuda-arch", "RTX 3060"), "rtx3060", "86-real", "RTX 3060 and other Ampere GPUs"),
        (("--gpu", "geforce gtx 970"), "gtx970", "52-real", "GTX 970 and other Maxwell GPUs"),
        (("--gpu", "Tesla V100"), "v100", "70-real", "V100 and other Volta GPUs"),
        (("--gpu", "P100"), "p100", "60-real", "P100 and other Pascal GPUs"),
        (("--gpu", "rtx4070-ti-super"), "rtx4070-ti-super", "89-real", "RTX 4070 Ti SUPER and"),
        (("--gpu", "RTX 5090"), "rtx5090", "120a-real", "RTX 5090 and other Blackwell GPUs"),
        (("--gpu", "6.0"), "sm60", "60-real", "compute capability 6.0"),
    ],
)
def test_everything_speaks_of_that_gpu(
    words: tuple[str, ...], name: str, archs: str, family: str
) -> None:
    made = recipe(*words)
    assert made.name == label(made) == name
    assert made.cuda.architectures == (archs,)
    assert made.summary.startswith(family)
    assert "1060" not in made.summary
    assert "6.1" not in made.summary
    notes = [text for profile in made.launch.values() for text in profile.notes.values()]
    assert not [text for text in notes if "1060" in text or "6 GB" in text]


def test_the_gpu_of_a_recipe_is_that_recipe() -> None:
    assert recipe("--gpu", "GTX 1060") == recipe("gtx1060")
    assert recipe("--gpu", "A100") == recipe("a100")


@pytest.mark.parametrize(("name", "row"), ONE_OF_EACH, ids=[name for name, _ in ONE_OF_EACH])
def test_every_generation_of_the_table_has_a_recipe_that_comes_back(
    name: str, row: dict[str, str]
) -> None:
    made = recipe("--gpu", name, "--os", "linux")
    number = row["cc"].replace(".", "")
    assert made.cuda.architectures[0].removesuffix("-real").rstrip("a") == number
    check_target("clang-cuda", "linux", "linux", parse_archs(made.cuda.architectures), where="")
    words = recipe_words(as_dict(made))
    assert recipe(*words) == made
    assert not [word for word in words if " " in word], "no shell has to be told of blanks"
    assert label(made) == made.name


def test_names_are_one_to_one() -> None:
    assert len({slug(name) for name, _ in EVERY}) == len(EVERY)


def test_servers_start_from_the_servers_recipe() -> None:
    assert base_of("H100") == base_of("a100") == "a100"
    assert base_of("RTX 3060") == "gtx1060"
    assert recipe("--gpu", "H100").target.os == "linux"


def test_changes_are_kept_and_named() -> None:
    words = ("--gpu", "RTX 3060", "--os", "windows", "--set", "build.ui=false")
    made = recipe(*words)
    assert label(made).startswith("rtx3060-")
    assert recipe(*recipe_words(as_dict(made))) == made
    assert recipe_words(as_dict(made))[:2] == ("--gpu", "rtx3060")


@pytest.mark.parametrize(
    "change", ["build.ui=false", "cuda.architectures=['75-real']", "summary=x"]
)
def test_a_changed_recipe_s_zip_has_another_name(change: str) -> None:
    plain, changed = load_recipe("gtx1060"), load_recipe("gtx1060", overrides=[change])
    assert label(plain) == "gtx1060"
    assert label(changed).startswith("gtx1060-")
    assert label(changed) == label(load_recipe("gtx1060", overrides=[change]))
    assert label(load_recipe("gtx1060", os="linux")) == "gtx1060", "the system is in the name"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "RTX 9999"), "no GPU called"),
        (("--gpu", "Jetson AGX Orin"), "ARM processor"),
        (("--gpu", "Tesla K80"), "no CUDA architecture 37"),
        (("avx2", "--gpu", "RTX 3060"), "the zig toolchain does not compile"),
    ],
)
def test_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        recipe(*words)


def test_two_ways_at_once() -> None:
    with pytest.raises(UsageError, match="contradict"):
        recipe("--gpu", "RTX 3060", "--cuda-arch", "61")
