"""Services for real: nginx checks its site and serves it once, systemd reads the unit."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qbuild.bundle.launch.scripts import extra_files
from qbuild.extras.services import nginx_site, systemd_unit
from qbuild.recipe.load import load_recipe
from qbuild.verify import tiny_gguf
from support.services import free_port, healthy

fcntl = pytest.importorskip("fcntl", reason="systemd, nginx and namespaces: needs Linux")
pytestmark = pytest.mark.integration


BOOT = """\
set -e
mount --make-rprivate /
mount -o remount,bind,ro /
for folder in /run /tmp /var; do mount -t tmpfs tmpfs $folder; done
mount -t proc proc /proc
mkdir -p /run/units /run/lock
for target in sysinit basic network shutdown; do
    printf '[Unit]\\nDescription=%s\\nDefaultDependencies=no\\n' $target >/run/units/$target.target
done
printf '%s' "$UNIT" >/run/units/llama-server.service
# its own units and nothing of the machine's: no tmpfiles, no generators, nothing that writes
export SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/run/none container=qbuild-test
export SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec /lib/systemd/systemd --system --unit=llama-server.service --log-target=console --show-status=no
"""
"""A systemd of our own as process 1 of a process namespace: the machine's files are read-only."""

NAMESPACE = (
    "unshare", "--pid", "--fork", "--mount", "--ipc", "--uts", "--kill-child=KILL",
    "bash", "-c", BOOT,
)  # fmt: skip

BOOTED = 77
ENDS_AT_ONCE = f"""\
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
SuccessActionExitStatus={BOOTED}
[Service]
Type=oneshot
ExecStart=/bin/true
"""


@contextmanager
def one_systemd() -> Iterator[None]:
    """Hold the machine's control groups for one systemd of ours, and skip where none can start.

    Two of them at once take each other's groups away. A container may forbid mounts or groups: then
    no unit can be started in it, whatever is in the unit.
    """
    with Path("/run/lock/qbuild-test-systemd").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        seen = subprocess.run(
            NAMESPACE, env={**os.environ, "UNIT": ENDS_AT_ONCE}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if seen.returncode != BOOTED:
            pytest.skip(f"no systemd starts in a namespace here: {seen.stderr[-300:]}")
        yield


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
def nginx(servers: list[Server], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    listen = free_port()
    upstreams = [f"127.0.0.1:{server.server_port}" for server in servers]
    queue = getattr(request, "param", 32)
    (tmp_path / "site.conf").write_text(nginx_site(upstreams, listen=listen, queue=queue))
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


@pytest.mark.parametrize("nginx", [40], indirect=True)
def test_fifty_clients_meet_a_queue_of_forty(nginx: int, servers: list[Server]) -> None:
    answers: list[tuple[int, str | None, bytes]] = []
    lock = threading.Lock()

    def ask() -> None:
        response = post(nginx, "/slow")
        row = (response.status, response.headers["Retry-After"], response.read())
        with lock:
            answers.append(row)

    clients = [threading.Thread(target=ask) for _ in range(50)]
    for each in clients:
        each.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (
        len(answers) < 10 or servers[0].asked + servers[1].asked < 40
    ):
        time.sleep(0.05)
    assert sorted(status for status, _, _ in answers) == [429] * 10
    assert all(after == "5" for _, after, _ in answers)
    assert all(b"40 requests are being answered" in body for _, _, body in answers)
    assert servers[0].asked + servers[1].asked == 40  # the rest waits with the servers
    assert abs(servers[0].asked - servers[1].asked) <= 2
    for server in servers:
        server.go_on.set()
    for each in clients:
        each.join(20)
    assert sorted(status for status, _, _ in answers) == [200] * 40 + [429] * 10
    assert post(nginx).status == 200  # and it is empty again


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
    gpu = recipe == "a100"
    # Ubuntu 22.04 has systemd 249, where ProtectClock= hides every device but the clock
    assert ("\nProtectClock=yes" in text) is not gpu
    assert ("ExecStartPre=-+/usr/bin/nvidia-modprobe" in text) is gpu
    assert "\nLimitMEMLOCK=infinity" in text
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
    # "Overall exposure level for x.service: 1.2 OK" and a smiley, which without TERM has a colon.
    exposure = float(re.findall(r": ([0-9.]+) [A-Z]+", done.stdout)[-1])
    assert exposure <= limit, done.stdout


@pytest.mark.server
def test_a_real_systemd_starts_the_unit_and_the_server_answers(tmp_path: Path) -> None:
    """``QBUILD_TEST_SERVER`` names llama-server in an unpacked avx2 bundle for Linux."""
    server = os.environ.get("QBUILD_TEST_SERVER")
    systemd = Path("/lib/systemd/systemd")
    if not server or not systemd.exists() or os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("it needs QBUILD_TEST_SERVER, systemd, unshare, and to be root")
    folder, port = Path("/opt") / f"qbuild-test-{os.getpid()}", free_port()
    # a person's bundle: without the models that may lie there
    shutil.copytree(Path(server).parent, folder, ignore=shutil.ignore_patterns("models", "slots"))
    folder.chmod(0o755)  # unpacked by `mktemp -d` it is its owner's alone: the unit runs as nobody
    try:
        recipe = load_recipe("avx2", os="linux")
        for file in extra_files(recipe):
            (folder / file.name).write_bytes(file.content)
            (folder / file.name).chmod(0o755 if file.executable else 0o644)
        config = folder / "config-server.txt"
        config.write_text(config.read_text().replace("port = 8080", f"port = {port}"))
        (folder / "models").mkdir()
        tiny_gguf.write(folder / "models" / "model.gguf")
        unit = systemd_unit(recipe, "server", folder=str(folder), user="nobody", memory="2G")
        log = tmp_path / "log"
        with one_systemd(), log.open("wb") as stream:
            process = subprocess.Popen(
                NAMESPACE, env={**os.environ, "UNIT": unit},
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                assert healthy(port, process, 60), log.read_text(errors="replace")
                assert tiny_gguf.SENTENCE in completion(port)
            finally:
                process.kill()
                process.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def completion(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = b'{"prompt": "\\n", "n_predict": 12, "temperature": 0}'
    with contextlib.closing(connection):
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        return connection.getresponse().read().decode()
