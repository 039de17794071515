"""Run a child that cannot outlive qbuild, without network where the system allows it.

On Linux a process namespace, on Windows a job object ends every compiler with qbuild, however it
ends. Windows has nothing that takes the network from a program without an administrator's rights:
there a build is never called hermetic.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any

from qbuild import host, job

_GRACE_S = 5.0
_LOOK_UP_S = 0.2  # seconds after which a stop is noticed on Windows when a child says nothing


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


class Stopped(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP arrived.

    No ``Exception``: whoever reads a damaged file catches those, and would take being stopped for
    damage of what it reads. Its text, if any, says where the run stood.
    """


_stop_asked = False
_starting = False
"""Whether a child is being started: an exception raised there would be lost in fork callbacks."""


def stop_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP (on Windows Ctrl-Break) unwind the stack, once and reliably.

    An exception raised by a signal handler is lost when the signal lands in a destructor, in a
    fork callback or in a library's bare ``except``, so the handler also leaves a mark that
    :func:`check_stop` looks at.
    """

    def handler(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        global _stop_asked  # noqa: PLW0603 - signals are process-wide
        _stop_asked = True
        if not _starting:
            raise Stopped

    with contextlib.suppress(ValueError):  # not the main thread: whoever runs us decides
        for number in _stop_signals():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)
    sys.unraisablehook = _quiet_about_stopping


def _stop_signals() -> list[signal.Signals]:
    # The third is unknown to Windows, the last (Ctrl-Break) to other systems.
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def _quiet_about_stopping(lost: sys.UnraisableHookArgs) -> None:
    """Say nothing of a :class:`Stopped` that was lost in a destructor: its mark is still there."""
    if not issubclass(lost.exc_type, Stopped):
        sys.__unraisablehook__(lost)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Let signals that ask to stop pass while the last words of a run are said."""
    before: dict[signal.Signals, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in _stop_signals():
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_asked() -> bool:
    """Return whether a signal asked to stop, even if its exception was lost on the way."""
    return _stop_asked


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
        Stopped: A signal asked to; the child and its children were stopped first.
    """
    prefix = isolation() if cut_network else isolation(network=True) if bind_lives else ()
    with log.open("a", buffering=1, encoding="utf-8", errors="replace") as out:
        process, bound = _start([*prefix, *command], cwd=cwd, env=env)
        try:
            check_stop()
            for line in _lines(process):
                out.write(line)
                on_line(line.rstrip("\n"))
                check_stop()
            return process.wait()
        except KeyboardInterrupt:
            _stop(process, bound)
            raise Stopped(str(log)) from None
        except BaseException:
            _stop(process, bound)
            raise
        finally:
            if bound is not None:
                bound.end()


def run_another(command: Sequence[str], *, env: Mapping[str, str], out: IO[str]) -> int:
    """Run a qbuild whose messages people see, and return its exit status.

    A signal may have come to us alone: it is passed on and the other's end is waited for, or what
    it still writes would lie in folders that we have removed.

    Args:
        command: Program and arguments.
        env: Its whole environment.
        out: Where its standard output goes; its messages go where ours do.

    Raises:
        Stopped: A signal asked to; the other has ended.
    """
    bind = die_with_parent if host.system() == "linux" else None
    with subprocess.Popen(command, env=env, stdout=out, preexec_fn=bind) as process:  # noqa: PLW1509
        try:
            check_stop()
            return process.wait()
        except KeyboardInterrupt:
            with signals_ignored():
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=4 * _GRACE_S)
                process.kill()
                process.wait()
            raise


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield a child's output line by line, and look up now and then.

    A read from a pipe cannot be interrupted on Windows, and on no system where another thread than
    the main one reads, since signals come to that one alone: Ctrl-C would wait for the next line,
    which is minutes away while the C runtime is built. There a thread of its own reads.
    """
    assert process.stdout is not None
    main = threading.current_thread() is threading.main_thread()
    if main and host.system() != "windows":
        with process.stdout:
            yield from process.stdout
        return
    import queue  # seldom needed

    stream = process.stdout
    heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def listen() -> None:
        with (
            contextlib.suppress(ValueError, OSError),  # closed while it was read
            contextlib.closing(stream),
        ):
            for line in stream:
                heard.put(line)
        heard.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            line = heard.get(timeout=_LOOK_UP_S)
        except queue.Empty:
            check_stop()
            continue
        if line is None:
            return
        yield line


def _start(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> tuple[subprocess.Popen[str], job.Job | None]:
    """Start a child whose life is bound to ours."""
    global _starting  # noqa: PLW0603 - read by the signal handler
    _starting = True
    windows = host.system() == "windows"
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "PATH": env.get("PATH", host.search_path())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent if host.system() == "linux" else None,  # noqa: PLW1509
            # Windows: it waits until it is in the job, or its first child would not be.
            creationflags=job.SUSPENDED_GROUP if windows else 0,
        )
        return process, job.bind(process.pid) if windows else None
    finally:
        _starting = False


def _stop(process: subprocess.Popen[str], bound: job.Job | None) -> None:
    """End the child's whole group: politely, then for certain; on Windows at once."""
    if bound is not None:
        bound.end()
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
