"""What a test takes for granted and Windows does not have; each skip says what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

WINDOWS = sys.platform == "win32"

can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
lists_open_files = pytest.mark.skipif(
    WINDOWS or not Path("/proc/self/fd").is_dir(),  # Wine shows that of the system below it
    reason="this system does not list a process's open files",
)
keeps_modes = pytest.mark.skipif(WINDOWS, reason="Windows keeps no permission bits")


def kept(mode: int) -> int:
    """Return what this system makes of permission bits.

    Windows only keeps whether a file may be written; whether it can be run is in its name.
    """
    if not WINDOWS:
        return mode
    return 0o666 if mode & 0o200 else 0o444
