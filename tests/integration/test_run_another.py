"""A qbuild below ours gets the signal that we got, and its end is waited for.

It was killed instead, and its compilers wrote on into a folder that `reproduce` was removing: of a
stopped run 200 MB stayed in the store.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.systems import sends_signals

pytestmark = pytest.mark.integration

OURS = """
import os, sys
from qbuild import process
process.stop_on_signals()
try:
    sys.exit(process.run_another([sys.executable, "-c", sys.argv[1], sys.argv[2]], env=os.environ,
                                 out=sys.stderr))
except process.Stopped:
    sys.exit(130)
"""

OTHER = """
import signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(0.5)
    Path(sys.argv[1], "cleaned").touch()
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""


@sends_signals
def test_a_signal_is_passed_on_and_the_end_waited_for(tmp_path: Path) -> None:
    ours = subprocess.Popen(
        [sys.executable, "-c", OURS, OTHER, str(tmp_path)],
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline and ours.poll() is None
        time.sleep(0.01)
    ours.terminate()
    assert ours.wait(timeout=60) == 130
    assert (tmp_path / "cleaned").exists()


def test_the_others_exit_code_is_returned(tmp_path: Path) -> None:
    other = "import sys; sys.exit(11)"
    ours = subprocess.run(
        [sys.executable, "-c", OURS, other, str(tmp_path)], check=False, timeout=60
    )
    assert ours.returncode == 11
