"""Servers side by side: counted as `qbuild model` counts, refused when they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.errors import ModelError, UsageError
from qbuild.extras.together import check_together, lines, profiles_together, shares
from qbuild.modelfile.fit import demand, place
from qbuild.modelfile.machine import Budget
from qbuild.modelfile.memory import GIB, Context
from qbuild.modelfile.summary import summarise
from qbuild.recipe.load import load_recipe
from support import gguf_files as g

MIB = 1 << 20


def bundle(folder: Path, profile: str = "trio") -> Path:
    """The three models of the trio, small ones under their names."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    recipe = load_recipe("gtx1060")
    for name, base in zip(
        profiles_together(recipe, profile).values(), (g.qwen3moe, g.qwen35, g.qwen3), strict=True
    ):
        g.write(folder / name.model, *base())
    return folder


def test_given_flags_take_what_placing_finds(tmp_path: Path) -> None:
    found = summarise(g.write(tmp_path / "m.gguf", *g.qwen3moe()))
    assert found.shape and found.weights
    context = Context(tokens=8192)
    whole = place(found.shape, found.weights, context, Budget(gpus=(8 * GIB,), ram=8 * GIB))
    assert whole.where == "gpu"
    gpu, ram = demand(found.shape, found.weights, context, gpu_layers=None, cpu_moe=0)
    assert (gpu, ram) == (whole.gpu, whole.ram)
    experts, more_ram = demand(found.shape, found.weights, context, gpu_layers=None, cpu_moe=99)
    assert experts < gpu and more_ram == ram + sum(found.weights.experts)
    none, all_ram = demand(found.shape, found.weights, context, gpu_layers=0, cpu_moe=0)
    assert none == 0 and all_ram > more_ram
    half, _ = demand(found.shape, found.weights, context, gpu_layers=4, cpu_moe=0)
    assert half > 0


def test_the_trio_is_counted(tmp_path: Path) -> None:
    recipe = load_recipe("gtx1060")
    folder = bundle(tmp_path)
    budget = Budget(gpus=(5 * GIB,), ram=30 * GIB)
    found = shares(profiles_together(recipe, "trio"), folder, budget)
    assert [each.name for each in found] == ["mxfp4", "q4km", "small"]
    assert found[2].gpu == 0 and found[0].gpu > 0
    check_together(found, budget)
    shown = "\n".join(lines(found, budget))
    assert "together" in shown and "5.00 GiB" in shown
    small = Budget(gpus=(sum(each.gpu for each in found) - 1,), ram=30 * GIB)
    with pytest.raises(UsageError, match="3 servers do not fit together") as caught:
        check_together(found, small)
    assert "n-gpu-layers = 0" in str(caught.value.fix)
    with pytest.raises(UsageError, match="of main memory"):
        check_together(found, Budget(gpus=(5 * GIB,), ram=10 * MIB))


def test_layers_on_auto_get_what_is_left(tmp_path: Path) -> None:
    recipe = load_recipe("gtx1060")
    folder = bundle(tmp_path, "services")
    profiles = profiles_together(recipe, "services")
    roomy = shares(profiles, folder, Budget(gpus=(5 * GIB,), ram=30 * GIB))
    fixed = roomy[0].gpu + roomy[2].gpu
    tight = shares(profiles, folder, Budget(gpus=(fixed + 1,), ram=30 * GIB))
    assert roomy[1].gpu > 0 and tight[1].gpu == 0
    assert tight[1].ram > roomy[1].ram


def test_a_missing_model_says_where_to_put_it(tmp_path: Path) -> None:
    recipe = load_recipe("gtx1060")
    with pytest.raises(ModelError, match="not there") as caught:
        shares(profiles_together(recipe, "trio"), tmp_path, Budget(gpus=(GIB,)))
    assert str(tmp_path / "models") in str(caught.value.where)
    with pytest.raises(UsageError, match="no launch profile"):
        profiles_together(recipe, "quartet")


def test_units_are_written_only_where_they_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundle(tmp_path / "llama")
    base = ["launch", "systemd", "gtx1060", "--os", "linux", "--profile", "trio", "--models",
            str(folder), "--gpu", "GTX 1060", "--vram", "6"]  # fmt: skip
    units = tmp_path / "units"
    assert main.run([*base, "--ram", "32", "-o", str(units)]) == 0
    names = ["llama-mxfp4.service", "llama-q4km.service", "llama-small.service"]
    assert sorted(each.name for each in units.iterdir()) == names
    assert main.run([*base, "--ram", "32"]) == 2
    other = tmp_path / "other"
    assert main.run([*base, "--ram", "0.05", "-o", str(other)]) == 2
    assert "do not fit together" in capsys.readouterr().err
    assert not other.exists()
    fit = ["launch", "fit", "gtx1060", "--profile", "trio", "--models", str(folder)]
    assert main.run([*fit, "--gpu", "GTX 1060", "--ram", "32"]) == 0
    assert "together" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--vram", "nan"], ["--vram=-3"], ["--ram", "0"], ["--ram", "x"]]
)
@pytest.mark.parametrize("verb", [["launch", "fit", "gtx1060", "trio"], ["model", "x.gguf"]])
def test_an_amount_of_memory_is_a_number_above_zero(
    verb: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*verb, *words]) == 2
    assert "a number of gigabytes above 0 is wanted" in capsys.readouterr().err
