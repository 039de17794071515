"""``qbuild show RECIPE``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from qbuild.cli.common import add_recipe, load, print_json
from qbuild.console import Reporter


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe options."""
    add_recipe(parser)


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print the resolved recipe as TOML, defaults included."""
    from qbuild.recipe.load import as_dict

    data = as_dict(load(args))
    if args.json:
        print_json(data)
        return 0
    import tomlkit

    document = tomlkit.document()
    for key, value in data.items():
        if not isinstance(value, Mapping):
            document.add(key, tomlkit.item(value))
    for key, value in data.items():
        if isinstance(value, Mapping):
            document.add(key, _table(value))
    print(tomlkit.dumps(document).strip())
    return 0


def _table(data: Mapping[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.table()
    for key, value in data.items():
        table.add(key, _table(value) if isinstance(value, Mapping) else tomlkit.item(value))
    return table
