"""Programs that a test needs beside Python and git: without them it is skipped by name.

In CI (``QBUILD_REQUIRE_TOOLS``) every skip is a failure.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs these programs."""
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def require(*programs: str) -> None:
    """Skip the running test, by name, when one of these programs is not there."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@cache
def _allowed(*namespaces: str) -> bool:
    words = ["unshare", "--map-root-user", *namespaces, "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def require_namespaces(*namespaces: str) -> None:
    """Skip the running test where this user may make no namespaces, as in a ``chroot``.

    Args:
        namespaces: Options of ``unshare``, e.g. ``--mount``.
    """
    require("unshare")
    if not _allowed(*namespaces):
        pytest.skip(f"not allowed here: unshare {' '.join(namespaces)}")
