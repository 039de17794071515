"""Real services on loopback for tests: Redis, an HTTP store, distcc daemons."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Return a program of ci/apt.txt; without it the test is skipped (CI forbids skips)."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    for _ in range(300):
        if process and process.poll() is not None:
            raise AssertionError(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


def healthy(port: int, process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a llama-server says that it is ready; false: it ended, or did not in that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return True
        time.sleep(0.1)
    return False


class Redis:
    """A Redis server that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1",
             "--save", "", "--appendonly", "no", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(self.port)

    def keys(self) -> int:
        """Return how many objects it holds."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as link:
            link.sendall(b"DBSIZE\r\n")
            return int(link.recv(64).decode().strip().removeprefix(":"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Redis]:
    server = Redis(folder)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def http_store() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the URL and the content of a server that does GET, PUT, HEAD and DELETE."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, code: int, body: bytes = b"") -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            found = kept.get(self.path)
            self._answer(404 if found is None else 200, found or b"")

        do_HEAD = do_GET

        def do_PUT(self) -> None:
            kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(201)

        def do_DELETE(self) -> None:
            kept.pop(self.path, None)
            self._answer(204)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/objects", kept
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def distcc_host(folder: Path, zig: Path, version: str) -> Iterator[tuple[str, Path]]:
    """Yield name and log of a distcc daemon that offers the pinned compiler from ``folder``.

    The daemon gives root's rights up, so it cannot look into a home folder: the compiler's files
    are linked to where everybody may read.
    """
    from qbuild.toolchains.spread import make_host

    tool = program("distccd")
    make_host(folder, zig, version)
    log = folder / "log"
    log.touch()
    log.chmod(0o666)
    for parent in [folder, *folder.parents]:  # pytest's folders are the user's own
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    port = free_port()
    process = subprocess.Popen(
        [tool, "--no-detach", "--daemon", "--port", str(port), "--listen", "127.0.0.1",
         "--allow", "127.0.0.1", "--jobs", "2", "--verbose", "--log-file", str(log)],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "DISTCC_CMDLIST": str(folder / "allowed"),
             "TMPDIR": "/tmp"},
        start_new_session=True,  # what it says before it has its log stands in the test's output
    )  # fmt: skip
    try:
        wait_for(port, process)
        yield f"127.0.0.1:{port}", log
    finally:
        # The daemon forks its workers beforehand; they would outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
