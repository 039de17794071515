"""Recipes: the model, the loader, the schema; the lockfile; a user's settings.

Belongs here: what people write, how it is read and checked, and the tables that say what may be
written (CPU levels, toolchains). Not: what is made of it (``steps``).
"""

from qbuild.recipe.model import Recipe

__all__ = ["Recipe"]
