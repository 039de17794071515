"""JSON schema and reference page of the recipe format, generated from the dataclasses."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from qbuild import errors
from qbuild.recipe import isa
from qbuild.recipe.convert import type_name
from qbuild.recipe.levels import LEVELS
from qbuild.recipe.model import Recipe

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return dataclasses.MISSING


def _schema_of(kind: Any) -> dict[str, Any]:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _table(typing.cast("type[Any]", kind))
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(get_args(kind)[0]), "uniqueItems": True}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(arg) for arg in get_args(kind)]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(get_args(kind)[1])}
    return {"type": {str: "string", bool: "boolean", int: "integer", float: "number"}[kind]}


def _table(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    required = []
    for field in dataclasses.fields(cls):
        entry = {"description": field.metadata.get("doc", ""), **_schema_of(hints[field.name])}
        default = _default(field)
        if default is dataclasses.MISSING and not dataclasses.is_dataclass(hints[field.name]):
            required.append(field.name)
        elif isinstance(default, str | bool | int):
            entry["default"] = default
        elif isinstance(default, tuple):
            entry["default"] = list(default)
        properties[field.name] = entry
    table = {"type": "object", "additionalProperties": False, "properties": properties}
    return table | ({"required": required} if required else {})


def json_schema() -> dict[str, Any]:
    """Return the JSON schema that editors use to complete and check recipe files.

    Required keys are not marked: a recipe that ``extends`` another one gets them from there.
    """
    table = _table(Recipe)

    def relax(node: dict[str, Any]) -> None:
        node.pop("required", None)
        for child in node.get("properties", {}).values():
            relax(child)
        if isinstance(node.get("additionalProperties"), dict):
            relax(node["additionalProperties"])

    relax(table)
    properties = table["properties"]
    properties["target"]["properties"]["isa"]["items"] = {"enum": sorted(isa.EXTENSIONS)}
    overridable = {name: node for name, node in properties.items() if node.get("type") == "object"}
    per_os = {"type": "object", "additionalProperties": False, "properties": overridable}
    properties["extends"] = {
        "type": "string",
        "description": "Name of a recipe whose keys this one starts from.",
    }
    properties["os"] = {
        "type": "object",
        "additionalProperties": False,
        "description": "Keys that differ for one operating system: `[os.windows.build]` …",
        "properties": {"linux": per_os, "windows": per_os},
    }
    return {"$schema": _DRAFT, "title": "qbuild recipe", **table}


def json_schema_text() -> str:
    """Return the schema as the committed file holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _rows(cls: type[Any], prefix: str) -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            continue
        default = _default(field)
        if default is dataclasses.MISSING:
            shown = "required"
        elif isinstance(default, tuple):
            shown = f"`{json.dumps(list(default))}`"
        elif isinstance(default, Mapping):
            shown = "empty"
        else:
            shown = f"`{json.dumps(default)}`"
        types_text = type_name(kind).replace("|", "\\|")
        yield f"| `{prefix}{field.name}` | {types_text} | {shown} | {field.metadata['doc']} |"


def reference_page() -> str:
    """Return the reference page of the recipe format (Markdown)."""
    lines = [
        "<!-- Generated from the model: edit toolchain/qbuild/recipe/model.py, then run",
        "     python ci/generate.py -->",
        "# Recipe reference",
        "",
        "A recipe is a TOML file that describes one target machine. Those that come with qbuild",
        "lie in `recipes/`; your own can lie anywhere: `qbuild --recipe ./mine.toml`.",
        "",
        '`extends = "avx2"` starts from another recipe. `[os.windows.build]` (or any other',
        "table below `[os.linux]`, `[os.windows]`) holds what differs for one operating system.",
        "`--os` and `--set key.path=value` on the command line win over the file.",
        "",
    ]
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += ["## Top level", "", *head, *_rows(Recipe, ""), ""]
    hints = typing.get_type_hints(Recipe)
    for field in dataclasses.fields(Recipe):
        cls = hints[field.name]
        if dataclasses.is_dataclass(cls):
            kind = typing.cast("type[Any]", cls)
            summary = (kind.__doc__ or "").strip().splitlines()[0]
            lines += [f"## `[{field.name}]`", "", summary, "", *head, *_rows(kind, ""), ""]
        elif get_origin(cls) is not None and dataclasses.is_dataclass(get_args(cls)[-1]):
            kind = get_args(cls)[-1]
            summary = (kind.__doc__ or "").strip().splitlines()[0]
            lines += [f"## `[{field.name}.NAME]`", "", summary, "", *head, *_rows(kind, ""), ""]
    lines += [
        "## Processor levels and extensions",
        "",
        "| `target.cpu` | extensions that ggml uses | oldest processors |",
        "| --- | --- | --- |",
    ]
    for name, level in LEVELS.items():
        extensions = ", ".join(level.extensions) or "none"
        lines.append(f"| `{name}` | {extensions} | {level.oldest} |")
    lines += ["", f"`target.isa` may add: {', '.join(f'`{e}`' for e in isa.EXTENSIONS)}.", ""]
    return "\n".join(lines)


def exit_codes_page() -> str:
    """Return the page of exit codes (Markdown), generated from the error classes."""
    classes = [
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.QbuildError)
    ]
    lines = [
        "<!-- Generated from toolchain/qbuild/errors.py: run python ci/generate.py -->",
        "# Exit codes",
        "",
        "With `--json` the error is an object with `error`, `exit_code`, `what`, `where`, `fix`.",
        "",
        "| code | `error` | meaning |",
        "| --- | --- | --- |",
        "| 0 | | everything asked for was done |",
    ]
    for cls in sorted(classes, key=lambda c: c.exit_code):
        text = (cls.__doc__ or "").strip().splitlines()[0]
        if cls is errors.QbuildError:
            text = "A fault in qbuild itself."
        lines.append(f"| {cls.exit_code} | `{cls.kind}` | {text} |")
    return "\n".join([*lines, ""])
