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

    A recipe that is none of qbuild's is its maker's file. What ``--set`` cannot say (a key that is
    gone, or that this qbuild does not know) gives the name and the system alone.
    """
    name = str(recipe.get("name", ""))
    target = recipe.get("target")
    system = str(target.get("os", "")) if isinstance(target, Mapping) else ""
    if name not in known_recipes():
        return ("--recipe", f"./{name}.toml", "--os", system)
    words = ("--recipe", name, "--os", system)
    try:
        known = _plain(as_dict(load_recipe(name, os=system)))
        changes = tuple(_changes(_plain(recipe), known))
        changed = load_recipe(name, os=system, overrides=changes) if changes else None
    except QbuildError:
        return words
    if changed is None or _plain(as_dict(changed)) != _plain(recipe):
        return words
    return (*words, *(word for change in changes for word in ("--set", change)))


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
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from _changes(value, before, (*path, key))
        elif not isinstance(value, Mapping):
            # JSON's spelling of text, numbers, truth values and lists is TOML's as well.
            yield f"{'.'.join((*path, key))}={json.dumps(value, ensure_ascii=False)}"
