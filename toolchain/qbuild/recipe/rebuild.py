"""The command line that names a recipe again, with what was changed for one build."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qbuild.errors import QbuildError
from qbuild.recipe import gpu
from qbuild.recipe.load import as_dict, known_recipes, load_recipe
from qbuild.recipe.model import Recipe


def recipe_words(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words that select a recipe: its name, its system, ``--set`` for each change.

    Args:
        recipe: The resolved recipe as plain data, e.g. out of a provenance statement.

    A recipe that is none of this qbuild's with changes that ``--set`` can say is its maker's file.
    Keys that the papers of an older qbuild do not have are no change.
    """
    name, system = str(recipe.get("name", "")), _system(recipe)
    on = ("--os", system) if system else ()
    own_file = ("--recipe", f"./{name}.toml", *on)
    start = _start(recipe)
    if start is None:
        return own_file
    words, known, given = start
    try:
        changes = tuple(_changes(_plain(recipe), known))
        again = load_recipe(_base(words), os=system or None, overrides=(*given, *changes))
    except QbuildError:
        return own_file
    if any(_changes(_plain(recipe), _plain(as_dict(again)))):
        return own_file
    return (*words, *on, *(word for each in changes for word in ("--set", each)))


def label(recipe: Recipe) -> str:
    """Return the recipe's name in file names; one that was changed for a build is called so.

    The unchanged recipe has its name alone. With changes a digest of them follows, so that two
    zips of one name have one recipe. A recipe of the user's own is whatever its file says.
    """
    made = _plain(as_dict(recipe))
    start = _start(made)
    if start is None:
        return recipe.name
    changes = sorted(_changes(made, start[1]))
    if not changes:
        return recipe.name
    digest = hashlib.sha256("\n".join(changes).encode()).hexdigest()[:6]
    return f"{recipe.name}-{digest}"


def _system(recipe: Mapping[str, Any]) -> str:
    target = recipe.get("target")
    return str(target.get("os", "")) if isinstance(target, Mapping) else ""


def _base(words: Sequence[str]) -> str:
    """Return the recipe's file or name that words select."""
    if words[0] == "--recipe":
        return words[1]
    return gpu.base_of(words[1])


def _start(
    recipe: Mapping[str, Any],
) -> tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]] | None:
    """Return what the recipe was changed from: words, plain data, overrides; none: a user's own."""
    name, system = str(recipe.get("name", "")), _system(recipe) or None
    try:
        if name in known_recipes():
            return ("--recipe", name), _plain(as_dict(load_recipe(name, os=system))), ()
        cuda = recipe.get("cuda")
        card = cuda.get("gpu") if isinstance(cuda, Mapping) else None
        if not isinstance(card, str) or not card or gpu.slug(card) != name:
            return None
        given = (f"cuda.gpu={json.dumps(card)}",)
        known = load_recipe(gpu.base_of(card), os=system, overrides=given)
        return ("--gpu", name), _plain(as_dict(known)), given
    except QbuildError:
        return None


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data as JSON would hold it, so that tuples and lists are one."""
    plain: dict[str, Any] = json.loads(json.dumps(data))
    return plain


def _changes(
    made: Mapping[str, Any], known: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[str]:
    for key, value in made.items():
        before = known.get(key)
        if value == before:
            continue
        if isinstance(value, Mapping):
            yield from _changes(value, before if isinstance(before, Mapping) else {}, (*path, key))
        else:
            # JSON's spelling of text, numbers, truth values and lists is TOML's as well.
            yield f"{'.'.join((*path, key))}={json.dumps(value, ensure_ascii=False)}"
