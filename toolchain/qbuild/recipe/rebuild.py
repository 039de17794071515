"""The command line that names a recipe again, with what was changed for one build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from qbuild.errors import QbuildError
from qbuild.recipe.load import as_dict, known_recipes, load_recipe


def recipe_words(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words that select a recipe: its name, its system, ``--set`` for each change.

    Args:
        recipe: The resolved recipe as plain data, e.g. out of a provenance statement.

    A recipe that is none of this qbuild's with changes that ``--set`` can say is its maker's file.
    Keys that the papers of an older qbuild do not have are no change.
    """
    name = str(recipe.get("name", ""))
    target = recipe.get("target")
    system = str(target.get("os", "")) if isinstance(target, Mapping) else ""
    on = ("--os", system) if system else ()
    own_file = ("--recipe", f"./{name}.toml", *on)
    if name not in known_recipes():
        return own_file
    try:
        known = _plain(as_dict(load_recipe(name, os=system or None)))
        changes = tuple(_changes(_plain(recipe), known))
        again = load_recipe(name, os=system or None, overrides=changes)
    except QbuildError:
        return own_file
    if any(_changes(_plain(recipe), _plain(as_dict(again)))):
        return own_file
    return ("--recipe", name, *on, *(word for each in changes for word in ("--set", each)))


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
