"""Recipes: the model, the loader, the schema."""

from qbuild.recipe.model import Recipe

__all__ = ["Recipe"]
