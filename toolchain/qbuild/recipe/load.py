"""Find a recipe, follow ``extends`` and apply overrides."""

from __future__ import annotations

import copy
import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from qbuild import resources
from qbuild.errors import QbuildError, RecipeError, UsageError
from qbuild.recipe import gpu, toml
from qbuild.recipe.check import check
from qbuild.recipe.convert import KeyProblem, build, suggest
from qbuild.recipe.model import Recipe
from qbuild.recipe.written import Form

RECIPE: Final = Form(called="recipe", error=RecipeError)

_MAX_EXTENDS = 8


def known_recipes() -> dict[str, Path]:
    """Return name → file of the recipes that come with qbuild."""
    return {p.stem: p for p in sorted(resources.recipes_dir().glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe given by name or by path.

    Raises:
        RecipeError: There is no such recipe.
    """
    if name.lower().endswith((".zip", ".whl")):
        raise RecipeError(
            "a finished bundle is no recipe",
            where=name,
            fix="give the recipe that it was made from (its README.txt says which); "
            "`qbuild verify` takes the file",
        )
    if name.endswith(".toml") or "/" in name or "\\" in name:
        path = Path(name)
        if not path.is_file():
            ours = path.name == name and path.stem in known_recipes()
            raise RecipeError(
                "recipe file not found",
                where=name,
                fix=f"did you mean `{path.stem}`, qbuild's own recipe?"
                if ours
                else "check the path, or run `qbuild list`",
            )
        return path
    known = known_recipes()
    if name not in known:
        raise RecipeError(
            f"there is no recipe `{name}`",
            where=str(resources.recipes_dir()),
            fix=suggest(name, known) or f"one of: {', '.join(known)}; or a path to a .toml file",
        )
    return known[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Layer:
    """One file (or the command line) that contributed keys."""

    label: str
    text: str
    data: Mapping[str, Any]


def load_recipe(name: str, *, os: str | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """Return the resolved recipe.

    Args:
        name: A recipe that comes with qbuild, or a path to a file.
        os: What ``--os`` said; wins over the recipe's ``target.os``.
        overrides: ``key.path=value`` as ``--set`` takes them; values are TOML, bare words strings.

    Raises:
        RecipeError: Unknown, malformed or impossible recipe; names file, line and key path.
        UsageError: An override cannot be read.
    """
    path = find_recipe(name)
    layers = _layers(path)
    command_line: dict[str, Any] = {}
    for item in overrides:
        _set_override(command_line, item)
    if os is not None:
        command_line.setdefault("target", {})["os"] = os
    layers.append(_Layer(label="--set/--os", text="", data=command_line))

    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer.data)
    merged.pop("extends", None)
    per_os = merged.pop("os", {})
    if not isinstance(per_os, Mapping):
        raise _error(
            layers, KeyProblem(("os",), "must be a table of tables, e.g. `[os.windows.…]`")
        )
    for system in per_os:
        if system not in ("linux", "windows"):
            raise _error(
                layers,
                KeyProblem(
                    ("os", system),
                    "is not an operating system qbuild builds for",
                    suggest(system, ("linux", "windows")),
                ),
            )
        if not isinstance(per_os[system], Mapping):
            raise _error(layers, KeyProblem(("os", system), "must be a table"))
    target = merged.get("target")
    chosen = target.get("os") if isinstance(target, Mapping) else None
    if isinstance(chosen, str) and chosen in per_os:
        _merge(merged, per_os[chosen])
        _merge(merged, command_line)
    _follow_runtime(merged, command_line)
    try:
        gpu.resolve(merged, command_line)
        recipe: Recipe = build(Recipe, merged)
        check(recipe, path)
    except KeyProblem as problem:
        raise _error(layers, problem) from None
    return gpu.named(recipe, command_line)


def _follow_runtime(merged: Mapping[str, Any], command_line: Mapping[str, Any]) -> None:
    """Leave cuBLAS out where NVIDIA's runtime is left out and only that is named.

    On the command line it is as well: whoever leaves the runtime out of a recipe that bundles both
    means both.
    """
    bundle, named = merged.get("bundle"), command_line.get("bundle", {})
    if not isinstance(bundle, dict) or bundle.get("cuda_runtime") != "separate":
        return
    bundle.setdefault("cublas", "separate")
    if isinstance(named, Mapping) and "cuda_runtime" in named and "cublas" not in named:
        bundle["cublas"] = "separate" if bundle["cublas"] == "bundled" else bundle["cublas"]


def as_dict(recipe: Recipe) -> dict[str, Any]:
    """Return the resolved recipe as plain JSON-able data (it becomes part of step keys)."""
    data = dataclasses.asdict(recipe)

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [plain(v) for v in value]
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in sorted(value.items())}
        return value

    result: dict[str, Any] = plain(data)
    return result


def _layers(path: Path) -> list[_Layer]:
    """Return the file and what it extends, the base first."""
    layers: list[_Layer] = []
    seen: list[Path] = []
    current: Path | None = path
    while current is not None:
        resolved = current.resolve()
        if resolved in seen or len(seen) >= _MAX_EXTENDS:
            chain = " → ".join(p.stem for p in [*seen, resolved])
            raise RecipeError("`extends` goes in a circle", where=f"{path}: {chain}")
        seen.append(resolved)
        text = RECIPE.read(current)
        data = RECIPE.parse(text, str(current))
        layers.insert(0, _Layer(label=str(current), text=text, data=data))
        parent = data.get("extends")
        if parent is None:
            break
        if not isinstance(parent, str):
            raise _error(layers, KeyProblem(("extends",), "must be the name of a recipe"))
        sibling = current.parent / f"{parent}.toml"
        try:
            current = sibling if sibling.is_file() else find_recipe(parent)
        except OSError as error:  # no disk could hold such a name
            problem = KeyProblem(("extends",), f"cannot be used: {error.strerror or error}")
            raise _error(layers, problem) from None
    return layers


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Lay ``extra`` over ``base``: tables merge, everything else replaces."""
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = copy.deepcopy(value)


def _set_override(data: dict[str, Any], item: str) -> None:
    key, equals, raw = item.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UsageError(
            f"--set takes key.path=value, not `{item}`", fix="e.g. --set build.linkage=static"
        )
    try:
        value = toml.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw  # a bare word: what a person means is the string
    table = data
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {item}: `{part}` was set to a value before")
    table[parts[-1]] = value


def _error(layers: Sequence[_Layer], problem: KeyProblem) -> QbuildError:
    """Return the problem as an error that names the file and line the key stands in."""
    for layer in reversed(layers):
        if _has(layer.data, problem.path):
            return RECIPE.wrong(problem, layer.text, layer.label)
    files = layers[:-1] or layers  # the last layer is the command line; an empty file counts
    return RECIPE.wrong(problem, "", files[-1].label)


def _has(data: object, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, Mapping) and part in data:
            data = data[part]
        else:
            return False
    return True
