"""Local servers that misbehave as networks do: proxies, login pages, broken certificates.

Each runs in a thread of its own and counts what it was asked.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.tools import require

PAGE = b"<!DOCTYPE html><html><head><title>Hotel Wi-Fi login</title></head><form></form></html>"


@dataclass
class Faulty:
    """A running server.

    Attributes:
        url: Its address, without a path.
        asked: The lines it was asked with; ``?`` where it did not read one.
    """

    url: str
    asked: list[str] = field(default_factory=list)


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def web(
    answer: Answer, certificate: Path | None = None, host: str = "127.0.0.1"
) -> Iterator[Faulty]:
    """Run a web server that answers everything (CONNECT, too) with one function."""
    faulty = Faulty(url="")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with contextlib.suppress(OSError):
                super().handle_one_request()

        def _any(self) -> None:
            faulty.asked.append(self.requestline)
            answer(self)

        do_GET = do_POST = do_HEAD = do_CONNECT = do_PUT = _any

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if certificate else "http"
    faulty.url = f"{scheme}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()


def status(code: int, body: bytes = b"no", kind: str = "text/plain", **headers: str) -> Answer:
    """Answer with one status."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Connection", "close")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
        handler.close_connection = True

    return answer


def portal() -> Answer:
    """Answer with a login page, as a hotel's network does."""
    return status(200, PAGE, "text/html")


def redirect() -> Answer:
    """Send everybody to the login page."""
    page, away = portal(), status(302, Location="/login")

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        (page if handler.path.startswith("/login") else away)(handler)

    return answer


def cut(kind: str = "application/octet-stream") -> Answer:
    """Promise more than is sent, and close."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        handler.wfile.write(b"001e# service=git-upload-pack\n0000" + b"x" * 500)
        handler.close_connection = True

    return answer


@contextlib.contextmanager
def raw(greet: Callable[[socket.socket], None]) -> Iterator[Faulty]:
    """Run a server that does one thing to each connection and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    faulty = Faulty(url=f"http://localhost:{listener.getsockname()[1]}")

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            faulty.asked.append("?")
            with contextlib.suppress(OSError), peer:
                greet(peer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield faulty
    finally:
        listener.close()


def reset(peer: socket.socket) -> None:
    """Read a little, then reset the connection."""
    peer.recv(100)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(peer: socket.socket) -> None:
    """Read the question and close without an answer."""
    peer.recv(65536)


def make_certificate(folder: Path, name: str, *, days: str = "30", host: str = "localhost") -> Path:
    """Write a certificate that nobody has signed but itself, with its key; return the file."""
    require("openssl")
    key, pem = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem,
         "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-days", days],
        check=True, capture_output=True,
    )  # fmt: skip
    both = folder / f"{name}.both.pem"
    both.write_bytes(key.read_bytes() + pem.read_bytes())
    return both
