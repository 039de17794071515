"""``qbuild list``."""

from __future__ import annotations

import argparse

from qbuild.cli.common import print_json
from qbuild.console import Reporter


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options of its own."""


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print each recipe with what it is for."""
    from qbuild.recipe.load import known_recipes, load_recipe

    recipes = [load_recipe(name) for name in known_recipes()]
    if args.json:
        print_json(
            [
                {
                    "name": r.name,
                    "summary": r.summary,
                    "default_os": r.target.os,
                    "supports": list(r.supports),
                    "cpu": r.target.cpu,
                }
                for r in recipes
            ]
        )
        return 0
    width = max(len(r.name) for r in recipes)
    for r in recipes:
        systems = ", ".join(f"{s}*" if s == r.target.os else s for s in r.supports)
        print(f"{r.name:<{width}}  {r.summary}  [{systems}]")
    print("\n* is the default; another one with --os. Build one: qbuild --recipe NAME")
    return 0
