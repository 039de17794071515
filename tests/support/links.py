"""Symbolic links, where a system and its user can make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def make_link(path: Path, target: Path) -> None:
    """Make a link to something that is there, or skip the test.

    Windows gives them to privileged users only; Wine makes some that lead nowhere.
    """
    try:
        path.symlink_to(target)
    except OSError as error:
        pytest.skip(f"no links here: {error}")
    if os.path.realpath(path) != os.path.realpath(target) or not path.is_symlink():
        pytest.skip("links lead nowhere here")


def need_links(folder: Path) -> None:
    """Skip the test where there are none."""
    make_link(folder / "is-there-a-link", folder)
    (folder / "is-there-a-link").unlink()
