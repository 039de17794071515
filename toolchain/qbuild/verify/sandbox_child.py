"""The helper process of :mod:`qbuild.verify.sandbox`: reads a JSON order, runs it, reports.

Runs as a script in isolated mode, so it uses the standard library only. It stays between qbuild
and the program because a process that has called unshare() cannot go back, and because a child
subreaper must outlive what it reaps.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Linux ABI: sched.h, sys/prctl.h, net/if.h, bits/ioctls.h.
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40

SIGKILL = 9  # Windows' signal module lacks the name; there a job object ends what is left

PROC = Path("/proc")


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def cut_network() -> str:
    """Move this process to a network of its own; return ``loopback`` or why not.

    A child tries first: where a system lets a namespace be made but not be set up (Ubuntu's
    AppArmor rules), this process would be left without even a loopback, and a server that cannot
    be reached would be blamed for it.
    """
    if not hasattr(os, "fork"):
        return "this system has no network namespaces"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, _enter_namespace().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    if answer != "loopback":
        return answer or "the attempt to make a network namespace failed"
    return _enter_namespace()


def _enter_namespace() -> str:
    """Make user and network namespaces; return ``loopback`` or what went wrong."""
    try:
        libc = _libc()
        unshare = libc.unshare
    except (OSError, TypeError, AttributeError):
        return "this system has no network namespaces"
    uid, gid = os.getuid(), os.getgid()
    if unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0:
        try:
            # The same ids inside as outside: Wine refuses a prefix that another user owns.
            with contextlib.suppress(OSError):
                (PROC / "self/setgroups").write_text("deny")
            (PROC / "self/uid_map").write_text(f"{uid} {uid} 1")
            (PROC / "self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as error:
            return f"user namespaces cannot be set up here ({error.strerror})"
    elif unshare(CLONE_NEWNET) != 0:
        return f"network namespaces are not allowed here ({os.strerror(ctypes.get_errno())})"
    return _loopback_up()


def _loopback_up() -> str:
    import fcntl
    import socket

    request = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)
    except OSError as error:
        return f"the loopback interface cannot be brought up ({error.strerror})"
    return "loopback"


def become_reaper() -> None:
    """Make orphans of the program children of this process, and end with the parent."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        prctl = _libc().prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def limit(file_size: int) -> None:
    """Limit files and core dumps, and volunteer as the kernel's first victim."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        (PROC / "self/oom_score_adj").write_text("1000")


def descendants() -> dict[int, int]:
    """Return process id → resident pages of everything below this process; nothing on Windows."""
    if not hasattr(os, "fork"):  # in Wine /proc is there, with other numbers
        return {}
    parent: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            # The command name may hold blanks and brackets; the numbers follow its last bracket.
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        pid = int(entry.parent.name)
        parent[pid], pages[pid] = int(fields[1]), int(fields[21])
    below: dict[int, int] = {}
    frontier = {os.getpid()}
    while frontier:
        frontier = {pid for pid, ppid in parent.items() if ppid in frontier and pid not in below}
        below.update((pid, pages[pid]) for pid in frontier)
    return below


def reap_and_count() -> int:
    """Collect what has ended below this process and return how many are left."""
    with contextlib.suppress(ChildProcessError, AttributeError):  # Windows has nothing to collect
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return len(descendants())


def kill_all(child: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left until nothing is."""
    for _ in range(100):
        left = descendants()
        if not left and child.poll() is not None:
            break
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, SIGKILL)
        if child.poll() is None:
            child.kill()
            child.wait()
        reap_and_count()
        time.sleep(0.01)


def supervise(child: subprocess.Popen[bytes], order: dict[str, Any]) -> tuple[str, int]:
    """Wait for the program; return which limit it hit ("" for none) and its peak memory."""
    deadline = time.monotonic() + order["seconds"]
    page, peak = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096, 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
            return "", peak
        peak = max(peak, page * sum(descendants().values()))
        if peak > order["memory"]:
            return "memory", peak
        if time.monotonic() > deadline:
            return "time", peak


def main() -> int:
    """Read the order from standard input, obey, print the result; 1: it could not be started."""
    order = json.load(sys.stdin)
    become_reaper()
    network = cut_network()
    limit(order["file_size"])
    with Path(order["stdout"]).open("wb") as out, Path(order["stderr"]).open("wb") as err:
        try:
            child = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=order["cwd"],
                env=order["env"],
                start_new_session=True,
            )
        except OSError as error:
            print(error.strerror or error, file=sys.stderr)
            return 1

    def stop(_signal: int, _frame: object) -> None:
        kill_all(child)
        sys.exit(143)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the parent decides
    stopped, peak = supervise(child, order)
    returncode = child.returncode if not stopped else -SIGKILL
    patience = time.monotonic() + (0 if stopped else order["linger"])
    while time.monotonic() < patience and reap_and_count():
        time.sleep(0.05)
    kill_all(child)
    json.dump(
        {"returncode": returncode, "stopped": stopped, "peak_memory": peak, "network": network},
        sys.stdout,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
