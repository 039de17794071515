"""Run a child that cannot outlive qbuild, without network where the system allows it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType

from qbuild import host
from qbuild.errors import Interrupted

_GRACE_S = 5.0


@cache
def isolation() -> tuple[str, ...]:
    """Return the command prefix that cuts network and binds children's lives, or nothing.

    On Linux: a user, network and process namespace of its own. When qbuild dies, even by
    SIGKILL, the kernel ends every process in it, so no compiler keeps writing into a build tree
    that the next run resumes.
    """
    if host.system() != "linux":
        return ()
    for prefix in (
        ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"),
        ("unshare", "--map-root-user", "--net"),
    ):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False)
            if done.returncode == 0:
                return prefix
    return ()


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies (runs in the child before exec)."""
    import ctypes

    pr_set_pdeathsig = 1  # <sys/prctl.h>
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Stopped(Exception):  # noqa: N818 - a signal, not a fault
    """SIGTERM arrived; raised in the main thread so that ``finally`` blocks run."""


def raise_on_sigterm() -> None:
    """Make SIGTERM unwind the stack like Ctrl-C does."""

    def handler(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Stopped

    with contextlib.suppress(ValueError):  # not the main thread: whoever runs us decides
        signal.signal(signal.SIGTERM, handler)


def run_logged(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None] = lambda _: None,
    cut_network: bool = True,
) -> int:
    """Run a program, append its output to ``log``, and return its exit status.

    Args:
        command: Program and arguments.
        cwd: Folder it runs in.
        env: Its whole environment.
        log: File that gets every line of output.
        on_line: Called with each line as it comes.
        cut_network: Whether to use :func:`isolation`.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the child and its children were stopped first.
    """
    prefix = isolation() if cut_network else ()
    linux = host.system() == "linux"
    with log.open("a", buffering=1, encoding="utf-8", errors="replace") as out:
        process = subprocess.Popen(
            [*prefix, *command],
            cwd=cwd,
            env={**env, "PATH": env.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent if linux else None,  # noqa: PLW1509 - no threads here
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                on_line(line.rstrip("\n"))
            return process.wait()
        except (KeyboardInterrupt, Stopped):
            _stop(process)
            raise Interrupted(
                "stopped", where=str(log), fix="run the same command again: it carries on"
            ) from None
        except BaseException:
            _stop(process)
            raise


def _stop(process: subprocess.Popen[str]) -> None:
    """End the child's whole group: politely, then for certain."""
    if host.system() == "windows":
        process.kill()
        process.wait()
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
            if number == signal.SIGKILL:
                return
    process.wait()
