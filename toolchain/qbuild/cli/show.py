"""``qbuild show RECIPE``."""

from __future__ import annotations

import argparse

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
    from qbuild.recipe import toml

    print(toml.dumps(data).strip())
    return 0
