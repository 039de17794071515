"""Generated files are committed and must not go stale."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from qbuild.recipe import schema
from qbuild.recipe.load import known_recipes

ROOT = Path(__file__).resolve().parents[2]


def _generator():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("generate", ROOT / "ci" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_fresh() -> None:
    assert _generator().stale() == [], "run python ci/generate.py"


def test_a_stale_file_is_noticed(tmp_path: Path) -> None:
    assert set(_generator().stale(tmp_path)) == set(_generator().generated())


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.json_schema())


@pytest.mark.parametrize("name", sorted(known_recipes()))
def test_shipped_recipes_satisfy_the_schema(name: str) -> None:
    data = tomllib.loads(known_recipes()[name].read_text(encoding="utf-8"))
    jsonschema.validate(data, schema.json_schema())


@pytest.mark.parametrize(
    "text", ['{"nmae": 1}', '{"target": {"cpu": "v5"}}', '{"build": {"targets": "x"}}']
)
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(text), schema.json_schema())
