"""Run by the Windows Python: a child with a child of its own, and three ways in which they end.

children.py run     the child ends by itself: prints its exit status and output
children.py die     this process ends at once, as if by the task manager
children.py stop    a stop was asked for while the child is silent
children.py check   a program that is being checked leaves a child behind, as a start script does
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from qbuild import process
from qbuild.verify import sandbox

MARK = "qbuild-grandchild"
FAMILY = (
    "import subprocess, sys, time;"
    f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', '{MARK}']);"
    "print('up', flush=True); time.sleep(300)"
)


def main(how: str) -> None:
    """Start them and end them."""

    def heard(line: str) -> None:
        print(line, flush=True)
        if how == "die":
            os._exit(7)
        if how == "stop":
            threading.Timer(0.5, setattr, (process, "_stop_asked", True)).start()

    if how == "check":
        ran = sandbox.run(
            [sys.executable, "-c", FAMILY.rpartition(";")[0]],
            scratch=Path.cwd(),
            env=dict(os.environ),
        )
        print(ran.stdout.strip())
        return
    code = "print('hello'); raise SystemExit(3)" if how == "run" else FAMILY
    try:
        status = process.run_logged(
            [sys.executable, "-c", code],
            cwd=Path.cwd(),
            env=dict(os.environ),
            log=Path("children.log"),
            on_line=heard,
        )
        print("ended with", status)
    except process.Stopped:
        print("stopped")


if __name__ == "__main__":
    main(sys.argv[1])
