"""Typed conversion from TOML data to the recipe's dataclasses, with errors that name the key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin


class KeyProblem(Exception):  # noqa: N818 - turned into a RecipeError by the loader
    """A key is unknown, missing, or holds a value of the wrong type.

    Args:
        path: The key path, outermost first.
        message: What is wrong with it.
        fix: What would be right.
    """

    def __init__(self, path: tuple[str, ...], message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.fix = fix


def suggest(word: str, known: typing.Iterable[str]) -> str | None:
    """Return ``did you mean …`` for the nearest known word, or nothing."""
    words = list(known)
    # `arch` for `architectures` is nearer than what only looks alike
    near = [each for each in words if len(word) > 2 and each.startswith(word)]
    if not near:
        import difflib  # only who misspells a word waits for it

        near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else None


def _near_key(key: str, hints: Mapping[str, Any]) -> str | None:
    """Return the key that is meant: the same one, one table further down, or a similar one."""
    for table, kind in hints.items():
        if dataclasses.is_dataclass(kind) and key in {f.name for f in dataclasses.fields(kind)}:
            return f"did you mean `{table}.{key}`?"
    return suggest(key, hints)


def type_name(kind: Any) -> str:
    """Return how a person writes this type in TOML."""
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in get_args(kind))
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(arg) for arg in get_args(kind) if arg is not type(None))
    if origin is tuple:
        return f"list of {type_name(get_args(kind)[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return f"table of {type_name(get_args(kind)[1])}"
    if dataclasses.is_dataclass(kind):
        return "table"
    names = {str: "string", bool: "true or false", int: "integer", float: "number"}
    return names.get(kind, str(kind))


def toml_kind(value: object) -> str:
    """Return the TOML name of a value's type."""
    names: dict[type, str] = {
        bool: "boolean",
        int: "integer",
        float: "float",
        str: "string",
        list: "list",
        dict: "table",
    }
    return names.get(type(value), type(value).__name__)


def convert(value: object, kind: Any, path: tuple[str, ...]) -> Any:
    """Return ``value`` as ``kind``.

    Raises:
        KeyProblem: The value does not fit.
    """
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise KeyProblem(path, f"must be a table, not {toml_kind(value)}")
        return build(typing.cast("type[Any]", kind), value, path)
    if origin is Literal:
        if value not in get_args(kind) or isinstance(value, bool):
            fix = suggest(str(value), [str(a) for a in get_args(kind)])
            raise KeyProblem(path, f"must be {type_name(kind)}, not {value!r}", fix)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise KeyProblem(path, f"must be a {type_name(kind)}, not {toml_kind(value)}")
        item = get_args(kind)[0]
        items = tuple(convert(v, item, (*path, str(i))) for i, v in enumerate(value))
        if len(set(items)) != len(items):
            raise KeyProblem(path, "lists the same value twice")
        return items
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise KeyProblem(path, f"must be a table, not {toml_kind(value)}")
        item = get_args(kind)[1]
        return {str(k): convert(v, item, (*path, str(k))) for k, v in value.items()}
    if origin in (Union, types.UnionType):
        if any(type(value) is arg for arg in get_args(kind)):
            return value
        for arg in get_args(kind):
            if dataclasses.is_dataclass(arg) and isinstance(value, Mapping):
                return convert(value, arg, path)
        raise KeyProblem(path, f"must be {type_name(kind)}, not {toml_kind(value)}")
    # bool is an int in Python, never in TOML
    if type(value) is not kind:
        raise KeyProblem(path, f"must be {type_name(kind)}, not {toml_kind(value)}")
    return value


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields; Python compiles each of them anew when asked."""
    return typing.get_type_hints(cls)


def build(cls: type[Any], data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
    """Return an instance of the dataclass ``cls`` made from a TOML table.

    Raises:
        KeyProblem: A key is unknown, missing or ill-typed.
    """
    hints = _hints(cls)  # type: ignore[arg-type]  # classes are hashable
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in data:
        if key not in fields:
            raise KeyProblem((*path, key), "is not a key of this table", _near_key(key, hints))
    values = {
        name: convert(data[name], hints[name], (*path, name)) for name in fields if name in data
    }
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise KeyProblem((*path, name), "is required and missing")
    return cls(**values)
