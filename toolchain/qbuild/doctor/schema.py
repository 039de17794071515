"""Published forms of the doctor's knowledge: the schema of facts, and the list of all checks."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from qbuild.doctor.diagnosis import UNTESTED
from qbuild.doctor.findings import findings
from qbuild.doctor.machine_facts import Facts

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _schema_of(kind: Any) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        (inner,) = [each for each in get_args(kind) if each is not type(None)]
        return {"anyOf": [_schema_of(inner), {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        return _table(typing.cast("type[Any]", kind))
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(get_args(kind)[0])}
    if origin is not None:
        return {"type": "object", "additionalProperties": _schema_of(get_args(kind)[1])}
    if kind in (int, float):
        return {"type": "integer" if kind is int else "number", "minimum": 0}
    return {"type": {str: "string", bool: "boolean"}[kind]}


def _table(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": {
            each.name: {"description": each.metadata["doc"], **_schema_of(hints[each.name])}
            for each in dataclasses.fields(cls)
        },
    }


def facts_schema_text() -> str:
    """Return the JSON schema of facts as the committed file holds it."""
    schema = {"$schema": _DRAFT, "title": "qbuild facts", **_table(Facts)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def reference_page() -> str:
    """Return the page that lists every diagnosis (Markdown)."""
    lines = [
        "<!-- Generated from toolchain/data/doctor/: run python ci/generate.py -->",
        "# What the doctor knows",
        "",
        "Every diagnosis of `qbuild doctor` by its id. An error stops a build or its result, a",
        "warning may, a hint does not. How to use it: `docs/how-to/doctor.md`.",
        "",
        f"¹ {UNTESTED[0].upper()}{UNTESTED[1:]}.",
        "",
        "| id | severity | told from | why it matters | how to mend it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in sorted(findings().values(), key=lambda finding: finding.id):
        told = " and ".join(
            name for name, there in (("a log", each.patterns), ("facts", each.facts)) if there
        )
        mark = "¹" if each.windows else ""
        why, mend = (text.replace("|", "\\|") for text in (each.why, each.mend))
        lines.append(f"| `{each.id}`{mark} | {each.severity} | {told} | {why} | {mend} |")
    return "\n".join([*lines, ""])
