"""Services for real: nginx checks its site and serves it once, systemd reads the unit."""

from __future__ import annotations

import http.client
import http.server
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbuild.extras.services import nginx_site, systemd_unit
from qbuild.recipe.load import load_recipe

pytestmark = pytest.mark.integration


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server(http.server.ThreadingHTTPServer):
    """A stand-in for llama-server: names itself, or answers 503 while it "loads"."""

    loading = False
    asked = 0
    go_on = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        if self.server.loading:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.flush()
        if self.path == "/slow":
            self.server.go_on.wait(20)
        self.wfile.write(b"data: last\n\n")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    both = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in both:
        server.go_on = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield both
    for server in both:
        server.go_on.set()
        server.shutdown()


@pytest.fixture
def nginx(servers: list[Server], tmp_path: Path) -> Iterator[int]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    listen = free_port()
    upstreams = [f"127.0.0.1:{server.server_port}" for server in servers]
    (tmp_path / "site.conf").write_text(nginx_site(upstreams, listen=listen))
    main = tmp_path / "nginx.conf"
    main.write_text(
        f"daemon off;\npid {tmp_path}/pid;\nerror_log stderr;\nworker_processes 1;\n"
        "events {}\nhttp {\naccess_log off;\n"
        + "".join(
            f"{kind}_temp_path {tmp_path}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + f"include {tmp_path}/site.conf;\n}}\n"
    )
    tested = subprocess.run(
        [program, "-t", "-c", str(main)], capture_output=True, text=True, timeout=30
    )
    assert tested.returncode == 0, tested.stderr
    process = subprocess.Popen([program, "-c", str(main)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", listen)) == 0:
                    break
            time.sleep(0.05)
        yield listen
    finally:
        process.terminate()
        process.wait(20)


def post(port: int, path: str = "/v1/chat/completions") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", path, b"{}")
    return connection.getresponse()


def test_nginx_shares_requests_between_two_servers(nginx: int, servers: list[Server]) -> None:
    slow = post(nginx, "/slow")
    # The first token is here while the server has not ended: nothing is held back.
    assert slow.readline() == b"data: first\n"
    for _ in range(3):
        assert post(nginx).read().endswith(b"data: last\n\n")
    busy = next(server for server in servers if server.asked == 1)
    idle = next(server for server in servers if server is not busy)
    assert (busy.asked, idle.asked) == (1, 3)
    busy.go_on.set()
    assert slow.read().endswith(b"data: last\n\n")


def test_nginx_asks_the_other_server_while_one_loads_or_is_gone(
    nginx: int, servers: list[Server]
) -> None:
    servers[0].loading = True
    assert [post(nginx).status for _ in range(3)] == [200, 200, 200]
    servers[0].shutdown()
    servers[0].server_close()
    assert [post(nginx).status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize(("recipe", "limit"), [("avx2", 2.0), ("a100", 3.0)])
def test_systemd_reads_the_unit_and_finds_it_hardened(
    tmp_path: Path, recipe: str, limit: float
) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed (Debian: apt-get install systemd)")
    folder = tmp_path / "my llama"
    folder.mkdir()
    script = folder / "run-server.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    unit = tmp_path / "llama-server.service"
    text = systemd_unit(
        load_recipe(recipe, os="linux"), "server", folder=str(folder), user="root", memory="2G"
    )
    unit.write_text(text)
    done = subprocess.run(
        [program, "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=strickt"))
    done = subprocess.run(
        [program, "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert "strickt" in done.stderr  # so an unknown value would have shown above
    unit.write_text(text)
    done = subprocess.run(
        [program, "security", "--offline=true", str(unit)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    exposure = float(done.stdout.rpartition(":")[2].split()[0])
    assert exposure <= limit, done.stdout
