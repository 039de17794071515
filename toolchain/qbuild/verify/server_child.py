"""Starts a server, asks it questions over loopback, prints the answers as JSON, stops it.

Runs as a script inside the sandbox, because only there is the server's loopback: standard
library only, order on the command line as JSON (``argv`` with ``{port}`` to be filled in,
``ready`` path, ``requests``, ``seconds`` to wait for readiness).
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from typing import Any

_SECONDS = 60.0


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(
    port: int, method: str, path: str, body: object = None, *, seconds: float = _SECONDS
) -> dict[str, Any]:
    """Send one request; return status and text, or the error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return {"status": response.status, "text": response.read().decode("utf-8", "replace")}
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "text": f"{type(error).__name__}: {error}"}
    finally:
        connection.close()


def wait_ready(server: subprocess.Popen[bytes], port: int, path: str, seconds: float) -> str:
    """Return "" when the server answers 200 in time, else what is wrong."""
    deadline = time.monotonic() + seconds
    last = "no answer"
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return f"the server ended with status {server.returncode} before it answered"
        answer = ask(port, "GET", path)
        if answer["status"] == 200:
            return ""
        last = f"{answer['status']} {answer['text'][:200]}"
        time.sleep(0.1)
    return f"{path} was not answered with 200 within {seconds:.0f} s (last: {last})"


def main() -> int:
    """Do what the order says; the result is the only thing on standard output."""
    order = json.loads(sys.argv[1])
    port = free_port()
    argv = [part.replace("{port}", str(port)) for part in order["argv"]]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
    answers: list[dict[str, Any]] = []
    try:
        problem = wait_ready(server, port, order["ready"], order["seconds"])
        if not problem:
            seconds = order.get("request_seconds", _SECONDS)
            answers = [ask(port, *request, seconds=seconds) for request in order["requests"]]
    finally:
        server.terminate()
    json.dump({"problem": problem, "answers": answers}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
