"""Programs that a test needs beside Python and git: without them it is skipped by name.

In CI (``QBUILD_REQUIRE_TOOLS``) every skip is a failure.
"""

from __future__ import annotations

import shutil

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
