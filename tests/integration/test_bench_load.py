"""The load of ``qbuild bench`` against servers of our own, good and bad; and a finished zip."""

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qbuild.console import Silent
from qbuild.extras.bench import busy, load
from qbuild.extras.bench.run import Wish, measure
from qbuild.verify import tiny_gguf

pytestmark = pytest.mark.integration

Write = Callable[[bytes], None]


@contextmanager
def server(answer: Callable[[dict, Write], int | None]) -> Iterator[int]:
    """Serve chat completions; ``answer`` gets the request and a function that sends events."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent: list[bytes] = []
            status = answer(body, sent.append)
            self.send_response(status or 200)
            self.end_headers()
            for each in sent:
                self.wfile.write(each)
                self.wfile.flush()

        def log_message(self, *args: object) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener.server_port
    finally:
        listener.shutdown()
        listener.server_close()


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def good(body: dict, write: Write) -> None:
    write(b": ping\n\n")
    write(event({"choices": [{"delta": {"role": "assistant"}}]}))
    kind = "tool_calls" if "tools" in body else "content"
    write(event({"choices": [{"delta": {kind: "hello"}}]}))
    write(event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}))
    write(event(b"[DONE]"))


@pytest.mark.parametrize("tools", [False, True])
def test_a_stream_is_read_to_its_end(tools: bool) -> None:
    with server(good) as port:
        reply = load.ask(port, load.request_body("hi", tools=tools), timeout=5)
    assert (reply.prompt, reply.answer, reply.error) == (5, 3, "")
    assert reply.first is not None
    assert 0 < reply.first <= reply.whole


def test_the_longest_request_is_counted_by_the_servers_own_tokenizer() -> None:
    seen = []

    def spells(body: dict, write: Write) -> None:
        seen.append(body)
        if "messages" in body:
            tools = json.dumps(body.get("tools", ""))
            write(json.dumps({"prompt": body["messages"][0]["content"] + tools}).encode())
        else:
            write(json.dumps({"tokens": list(range(len(body["content"])))}).encode())

    with server(spells) as port:
        plain = load.room(port, tools=False, timeout=5)
        tools = load.room(port, tools=True, timeout=5)
    letters = [len(body["content"]) for body in seen if "content" in body]
    assert letters[0] > 800  # a page of words
    assert plain == letters[0] + 32 + 64
    assert tools == letters[1] + 32 + 64 > plain + 100


@pytest.mark.parametrize("answer", [good, lambda body, write: 404])
def test_a_server_that_cannot_count_is_given_the_usual_room(
    answer: Callable[[dict, Write], int | None],
) -> None:
    with server(answer) as port:
        assert load.room(port, tools=False, timeout=5) == 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda body, write: 500, "HTTP 500"),
        (lambda body, write: write(event(b"{oops")), "JSONDecodeError"),
        (lambda body, write: write(event([1])), "no object"),
        (lambda body, write: write(event({"error": {"message": "full"}})), "full"),
    ],
)
def test_whatever_a_server_answers_is_an_error_of_that_request(
    answer: Callable[[dict, Write], int | None], says: str
) -> None:
    with server(answer) as port:
        reply = load.ask(port, load.request_body("hi", tools=False), timeout=5)
    assert says in reply.error


def test_nobody_listens() -> None:
    with server(good) as port:
        pass
    assert "refused" in load.ask(port, {}, timeout=5).error


def test_users_ask_at_the_same_time_and_the_load_ends() -> None:
    inside, most = [0], [0]
    lock = threading.Lock()

    def slow(body: dict, write: Write) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        with lock:
            inside[0] -= 1
        good(body, write)

    with server(slow) as port:
        loaded = load.load(port, users=4, seconds=0.4, tools=False)
    assert most[0] == 4
    assert loaded.users == 4
    assert len(loaded.replies) >= 4
    assert not [each.error for each in loaded.replies if each.error]
    assert 0.4 <= loaded.seconds < 5


def test_a_machine_made_busy_is_noticed() -> None:
    watch = busy.Watch()
    mine = time.monotonic() + 0.5
    while time.monotonic() < mine:  # our own work is not "others"
        pass
    own = watch.look()
    code = "print(flush=True)\nwhile True: pass"
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        for _ in range(os.cpu_count() or 1)
    ]
    for each in children:
        assert each.stdout is not None and each.stdout.readline()
    watch = busy.Watch()
    time.sleep(1.0)
    seen = watch.look()  # children that have not ended are not counted as ours yet
    for each in children:
        each.kill()
        each.communicate()
    assert seen.others > own.others
    assert seen.busy


@pytest.mark.server
def test_a_finished_zip_is_measured() -> None:
    path = Path(os.environ["QBUILD_TEST_ZIP_LINUX"])
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        model = tiny_gguf.write(Path(folder) / "tiny.gguf")
        wish = Wish(prompt=16, answer=4, rounds=2, users=(1, 2), seconds=0.5, patience=120)
        result = measure([path, path], model, wish, Silent(), cache_dir=None)
    data = result.as_json()
    first = data["zips"][0]
    assert first["alone"]["prompt"]["median"] > 0
    assert first["alone"]["memory"] > 10_000_000
    assert [(each["users"], each["tools"]) for each in first["loaded"]] == [
        (1, False), (1, True), (2, False), (2, True),
    ]  # fmt: skip
    assert all(each["tokens_per_second"] > 0 for each in first["loaded"])
    # The tiny model has 512 tokens of a character each: the longest prompts are refused, and told.
    told = [error for each in first["loaded"] for error in each["first_errors"]]
    assert all("exceeds the available context size" in error for error in told), told
    assert data["ratios"]["prompt"]["rounds"] == 2
