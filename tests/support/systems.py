"""What a test takes for granted and Windows does not have; each skip says what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WINDOWS = sys.platform == "win32"

can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"),  # Wine shows the /proc of the system below it
    reason="needs Linux",
)
lists_open_files = pytest.mark.skipif(
    WINDOWS or not Path("/proc/self/fd").is_dir(),  # Wine shows that of the system below it
    reason="this system does not list a process's open files",
)
sends_signals = pytest.mark.skipif(
    WINDOWS, reason="Windows has no signals: a job object ends a run's children there"
)
keeps_modes = pytest.mark.skipif(WINDOWS, reason="Windows keeps no permission bits")


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a program that a test started in a session of its own, and what it started."""
    if WINDOWS:
        import psutil

        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def kept(mode: int) -> int:
    """Return what this system makes of permission bits.

    Windows only keeps whether a file may be written; whether it can be run is in its name.
    """
    if not WINDOWS:
        return mode
    return 0o666 if mode & 0o200 else 0o444
