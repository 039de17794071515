"""Runs a program that is being checked: no network but loopback, scratch home, bounded, reaped.

The program is started by :mod:`qbuild.verify.sandbox_child`, a small helper process that enters a
network namespace of its own, watches time and memory, and at the end kills everything that the
program left behind, daemons included; on Windows a job object does that, and nobody watches memory.
What the operating system does not offer (a namespace where they are forbidden, or another system
than Linux) is reported in the result, not passed over.

This keeps an honest but broken program from doing harm. It is no jail for a hostile one: the file
system stays visible, and files that the user may change can be changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from qbuild import host, job
from qbuild.errors import VerifyError

Stopped = Literal["", "time", "memory"]

_HELPER: Final = Path(__file__).with_name("sandbox_child.py")
_OUTPUT: Final = 1 << 20
_GRACE: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a program may use."""

    seconds: float = 120.0  # wall time until everything is killed
    # Resident bytes of all its processes together, looked at ten times a second. (A limit on
    # address space would be stricter, but Wine and qemu reserve far more of it than they use and
    # would not start.)
    memory: int = 4 << 30
    file_size: int = 1 << 30  # bytes of the largest file it may write
    # seconds that daemons it left behind get to end by themselves before they are killed, e.g. for
    # Wine's server to save the registry
    linger: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run ended."""

    returncode: int  # exit status; negative: the signal that ended it
    stdout: str  # standard output (the last MiB), undecodable bytes replaced
    stderr: str  # standard error, likewise
    seconds: float  # wall time
    peak_memory: int  # largest resident memory seen, bytes
    stopped: Stopped  # which limit it hit, if any
    network: str  # ``loopback``, or why the network could not be cut

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.returncode == 0 and not self.stopped

    def how(self) -> str:
        """Say how it ended, with the last line it printed to standard error."""
        if self.stopped == "time":
            ended = f"was stopped after {self.seconds:.0f} s"
        elif self.stopped == "memory":
            ended = f"was stopped at {self.peak_memory >> 20} MiB of memory"
        elif self.returncode < 0:
            ended = f"was ended by {_signal_name(-self.returncode)}"
        else:
            ended = f"ended with status {self.returncode}"
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return f"{ended} ({lines[-1][:200]})" if lines else ended


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run(
    argv: Sequence[str],
    *,
    scratch: Path,
    env: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Ran:
    """Run a program with nothing of the user's around it and wait until it is gone.

    Args:
        argv: Program (absolute path) and arguments.
        scratch: Existing folder for its home, working and temporary files; the caller deletes it.
        env: Variables besides HOME, TMPDIR, PATH and LANG, the only others it sees.
        limits: How much it may use.

    Raises:
        VerifyError: The program or the helper could not be started at all.
    """
    limits = limits or Limits()
    scratch = scratch.resolve()
    home, temp, io = (scratch / name for name in ("home", "tmp", "io"))
    for folder in (home, temp, io):
        folder.mkdir(exist_ok=True)
    spec = {
        "argv": list(argv),
        "cwd": str(home),
        "env": {
            "HOME": str(home),
            "TMPDIR": str(temp),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **(env or {}),
        },
        "seconds": limits.seconds,
        "memory": limits.memory,
        "file_size": limits.file_size,
        "linger": limits.linger,
        "stdout": str(io / "stdout"),
        "stderr": str(io / "stderr"),
    }
    started = time.monotonic()
    result = _ask_helper(spec, argv[0], limits.seconds + limits.linger + _GRACE)
    return Ran(
        returncode=result["returncode"],
        stdout=_tail(io / "stdout"),
        stderr=_tail(io / "stderr"),
        seconds=time.monotonic() - started,
        peak_memory=result["peak_memory"],
        stopped=result["stopped"],
        network=result["network"],
    )


def _ask_helper(spec: Mapping[str, Any], program: str, patience: float) -> dict[str, Any]:
    """Let the helper process run the program; return what it says of how that ended.

    Raises:
        VerifyError: The program or the helper could not be started at all.
    """
    windows = host.system() == "windows"
    helper = subprocess.Popen(
        [sys.executable, "-I", str(_HELPER)],
        creationflags=job.SUSPENDED_GROUP if windows else 0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    bound = job.bind(helper.pid) if windows else None
    try:
        answer, trouble = helper.communicate(json.dumps(spec), patience)
    except subprocess.TimeoutExpired:
        raise VerifyError(
            "the sandbox helper does not answer", where=program, fix="report this as a bug"
        ) from None
    finally:
        # Also on Ctrl-C: SIGTERM makes the helper kill whatever it started before it ends.
        if helper.poll() is None:
            helper.terminate()
            try:
                helper.wait(_GRACE)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()
        if bound is not None:
            bound.end()  # a script's program outlives the script there, and holds its files
    if helper.returncode != 0:
        reason = trouble.strip().splitlines()[-1] if trouble.strip() else "no reason given"
        raise VerifyError(f"{Path(program).name} could not be started: {reason}", where=program)
    result: dict[str, Any] = json.loads(answer)
    return result


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _OUTPUT))
        return stream.read().decode("utf-8", "replace").replace("\r\n", "\n")
