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
def isolation(*, network: bool = False) -> tuple[str, ...]:
    """Return the command prefix that cuts network and binds children's lives, or nothing.

    On Linux: a user, network and process namespace of its own. When qbuild dies, even by
    SIGKILL, the kernel ends every process in it, so no compiler keeps writing into a build tree
    that the next run resumes.

    Args:
        network: Leave the network there (a remote object cache, other machines' compilers).
    """
    if host.system() != "linux":
        return ()
    cut = () if network else ("--net",)
    for prefix in (
        ("unshare", "--map-root-user", *cut, "--pid", "--fork", "--kill-child"),
        ("unshare", "--map-root-user", *cut),
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
    """Ctrl-C or SIGTERM arrived."""


_stop_asked = False
_starting = False
"""Whether a child is being started: an exception raised there would be lost in fork callbacks."""


def stop_on_signals() -> None:
    """Make SIGINT and SIGTERM unwind the stack, once and reliably.

    An exception raised by a signal handler is lost when the signal lands in a destructor or a
    fork callback, so the handler also leaves a mark that :func:`check_stop` looks at.
    """

    def handler(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        global _stop_asked  # noqa: PLW0603 - signals are process-wide
        _stop_asked = True
        if not _starting:
            raise Stopped

    with contextlib.suppress(ValueError):  # not the main thread: whoever runs us decides
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


def check_stop() -> None:
    """Stop here if a signal asked for it.

    Raises:
        Stopped: It did.
    """
    if _stop_asked:
        raise Stopped


def run_logged(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None] = lambda _: None,
    cut_network: bool = True,
    bind_lives: bool = False,
) -> int:
    """Run a program, append its output to ``log``, and return its exit status.

    Args:
        command: Program and arguments.
        cwd: Folder it runs in.
        env: Its whole environment.
        log: File that gets every line of output.
        on_line: Called with each line as it comes.
        cut_network: Whether to use :func:`isolation`.
        bind_lives: Whether to use what it gives beside the cut when the network is left there.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the child and its children were stopped first.
    """
    prefix = isolation() if cut_network else isolation(network=True) if bind_lives else ()
    with log.open("a", buffering=1, encoding="utf-8", errors="replace") as out:
        process = _start([*prefix, *command], cwd=cwd, env=env)
        try:
            check_stop()
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                on_line(line.rstrip("\n"))
                check_stop()
            return process.wait()
        except (KeyboardInterrupt, Stopped):
            _stop(process)
            raise Interrupted(
                "stopped", where=str(log), fix="run the same command again: it carries on"
            ) from None
        except BaseException:
            _stop(process)
            raise


def _start(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    global _starting  # noqa: PLW0603 - read by the signal handler
    _starting = True
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "PATH": env.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent if host.system() == "linux" else None,  # noqa: PLW1509
        )
    finally:
        _starting = False


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
