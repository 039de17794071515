"""A recipe for one GPU by its name: what changes in the recipe that it starts from.

``--gpu "RTX 3060"`` sets ``cuda.gpu``. From that follow the architecture, and, unless a recipe's
own file says ``cuda.gpu``, the name and the summary: the zip, its papers and its scripts then speak
of that GPU and not of the one that the recipe underneath was written for.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from qbuild.cuda.arch import architectures, find_gpu
from qbuild.errors import RecipeError
from qbuild.recipe.convert import KeyProblem
from qbuild.recipe.levels import LEVELS
from qbuild.recipe.model import Recipe

BASE: Final = "gtx1060"
"""The recipe that a GPU's starts from, unless the table of GPUs says another."""


def slug(name: str) -> str:
    """Return a GPU's name as recipes and files spell it: ``RTX 4070 Ti`` → ``rtx4070-ti``.

    One that is known by its compute capability alone (6.1) is ``sm61``.
    """
    if match := re.fullmatch(r"compute capability ([0-9]+)\.([0-9])", name):
        return f"sm{match[1]}{match[2]}"
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return re.sub(r"^([a-z]+)-(?=[0-9])", r"\1", plain)


def architecture(capability: str) -> str:
    """Return the architecture of one GPU: machine code alone, for nothing else (``86-real``).

    Args:
        capability: Without its dot. ggml's FP4 kernels need 12X as 12Xa.
    """
    return f"{capability}a-real" if capability.startswith("12") else f"{capability}-real"


def base_of(gpu: str) -> str:
    """Return the recipe that this GPU's recipe starts from.

    Raises:
        RecipeError: It is not in the table.
    """
    return find_gpu(gpu).base


def resolve(merged: dict[str, Any], command_line: Mapping[str, Any]) -> None:
    """Fill in what ``cuda.gpu`` stands for; the recipe's own name and summary stay.

    Raises:
        KeyProblem: It is no GPU that a bundle can be made for.
    """
    cuda = merged.get("cuda")
    if not isinstance(cuda, dict) or not isinstance(cuda.get("gpu"), str) or not cuda["gpu"]:
        return
    where = ("cuda", "gpu")
    try:
        gpu = find_gpu(cuda["gpu"])
    except RecipeError as error:
        raise KeyProblem(where, f"is not known: {error.what}", error.fix) from error
    if gpu.arm:
        raise KeyProblem(
            where,
            f"is {gpu.name}, which sits beside an ARM processor; bundles are for x86-64",
            "build llama.cpp on that machine itself",
        )
    named = command_line.get("cuda", {})
    if slug(gpu.name) == merged.get("name") and "architectures" not in named:
        cuda["gpu"] = ""  # the recipe is for this GPU: it is that recipe, unchanged
        return
    cuda["gpu"] = gpu.name
    if ("gpu" in named and "architectures" not in named) or "architectures" not in cuda:
        cuda["architectures"] = [architecture(gpu.cmake)]


def named(recipe: Recipe, command_line: Mapping[str, Any]) -> Recipe:
    """Return a recipe with name and summary of the GPU that the command line named.

    Args:
        recipe: The resolved recipe.
        command_line: What ``--set`` and its like said; what is said there stays.
    """
    if not recipe.cuda.gpu or "gpu" not in command_line.get("cuda", {}):
        return recipe
    gpu = find_gpu(recipe.cuda.gpu)
    family = architectures()[int(gpu.cmake)].family
    cpu = LEVELS[recipe.target.cpu].short
    summary = (
        f"{gpu.name} and other {family} GPUs of compute capability {gpu.capability}, "
        f"{cpu}, CUDA inside"
    )
    return dataclasses.replace(
        recipe,
        name=recipe.name if "name" in command_line else slug(gpu.name),
        summary=recipe.summary if "summary" in command_line else summary,
    )
