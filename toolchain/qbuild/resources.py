"""Where qbuild's own data lives: the checkout when there is one, else the installed package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def data_root() -> Path:
    """Return the folder that holds ``recipes/``, ``patches/``, ``toolchain/`` and ``qbuild.lock``.

    In a checkout (also after ``pip install -e``) this is the repository's root, so that edits
    take effect at once; in an installed wheel it is ``qbuild/_data``.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "recipes").is_dir():
        return checkout
    return package / "_data"


def recipes_dir() -> Path:
    """Return the folder of the recipes that come with qbuild."""
    return data_root() / "recipes"


def patches_dir() -> Path:
    """Return the folder of the patch series that come with qbuild."""
    return data_root() / "patches"


def lockfile() -> Path:
    """Return the lockfile that comes with qbuild."""
    return data_root() / "qbuild.lock"


def data_dir() -> Path:
    """Return the folder of the committed tables."""
    return data_root() / "toolchain" / "data"


def read_table(name: str) -> dict[str, Any]:
    """Return one of the committed TOML tables.

    Args:
        name: File below ``toolchain/data``.
    """
    return tomllib.loads((data_dir() / name).read_text(encoding="utf-8"))
