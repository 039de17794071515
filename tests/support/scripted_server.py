"""A real llama-server with a scripted model, and what a client gets from it.

``QBUILD_TEST_SERVER`` names the patched llama-server, ``QBUILD_TEST_TEMPLATES`` the source's
``models/templates``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import scripted_gguf

CASES = Path(__file__).parent.parent / "data" / "toolcalls" / "cases.json"
DATA = json.loads(CASES.read_text(encoding="utf-8"))
TOOLS = DATA["tools"]
TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<think>",
    "</think>",
)
XML, HERMES = "Qwen3.5-4B.jinja", "Qwen-Qwen3-0.6B.jinja"
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
Message = dict[str, Any]


def setting(name: str) -> Path:
    """Return the path that an environment variable names, or skip."""
    value = os.environ.get(name)
    if not value or not Path(value).exists():
        pytest.skip(f"{name} names no file")
    return Path(value)


@dataclass
class Answer:
    """What a client has at the end, streaming or not."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    finish: str = ""

    def parsed(self) -> list[dict[str, Any]]:
        """Return the calls with their arguments as objects."""
        return [{"name": n, "arguments": json.loads(a)} for n, a in self.calls]


class Server:
    """A running llama-server with a scripted model."""

    strict = True

    def __init__(self, binary: Path, model: Path, log: Path, *flags: str) -> None:
        """Start it and wait until it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.base = f"http://127.0.0.1:{self.port}"
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    str(binary),
                    "-m",
                    str(model),
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(self.port),
                    "-c",
                    "8192",
                    "-np",
                    "1",
                    "--no-warmup",
                    "-t",
                    "1",
                    "--temp",
                    "0.8",
                    *flags,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self.process.poll() is None, log.read_text(errors="replace")[-2000:]
            with contextlib.suppress(OSError), urllib.request.urlopen(self.base + "/health") as r:
                if r.status == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(
            "the server did not come up: " + log.read_text(errors="replace")[-2000:]
        )

    def stop(self) -> None:
        """Stop it; it must still have been alive."""
        alive = self.process.poll() is None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert alive, "the server died: " + self.log.read_text(errors="replace")[-2000:]

    def client(self) -> Any:
        """Return the official client."""
        import openai

        return openai.OpenAI(base_url=self.base + "/v1", api_key="none", max_retries=0, timeout=120)

    def ask(self, *, stream: bool, messages: list[Message] | None = None, **more: Any) -> Answer:
        """Ask once and put the answer together."""
        request: dict[str, Any] = {
            "model": "scripted",
            "messages": messages or [{"role": "user", "content": "hi"}],
            "tools": TOOLS,
            "max_tokens": 600,
            **more,
        }
        request.setdefault("extra_body", NO_THINKING)
        answer = Answer()
        if not stream:
            choice = self.client().chat.completions.create(**request).choices[0]
            message = choice.message
            answer.content = message.content or ""
            answer.reasoning = getattr(message, "reasoning_content", None) or ""
            for call in message.tool_calls or []:
                answer.calls.append((call.function.name, call.function.arguments))
                answer.reasons.append(getattr(call, "reason", None) or "")
            answer.finish = choice.finish_reason
            return answer
        calls: dict[int, list[str]] = {}
        for chunk in self.client().chat.completions.create(stream=True, **request):
            if not chunk.choices:
                continue
            choice = chunk.choices[0]
            answer.content += choice.delta.content or ""
            answer.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                slot = calls.setdefault(call.index, ["", "", ""])
                slot[0] += call.function.name or ""
                slot[1] += call.function.arguments or ""
                slot[2] += getattr(call, "reason", None) or ""
            # nothing that a client could act on may be half a call, at any moment
            for _, arguments, _ in calls.values() if self.strict else ():
                assert isinstance(json.loads(arguments), dict)
            answer.finish = choice.finish_reason or answer.finish
        answer.calls = [(n, a) for n, a, _ in calls.values()]
        answer.reasons = [r for _, _, r in calls.values()]
        return answer


@contextlib.contextmanager
def serving(
    binary: Path, tmp_path: Path, script: Any, template: str, *flags: str, **more: Any
) -> Iterator[Server]:
    """Run a server whose model says the script."""
    model = tmp_path / "scripted.gguf"
    more.setdefault("specials", TAGS)
    more.setdefault("context", 8192)
    scripted_gguf.write(model, script, template, **more)
    server = Server(binary, model, tmp_path / "server.log", *flags)
    try:
        yield server
    finally:
        server.stop()


def post(server: Server, path: str, body: Any, timeout: float = 120) -> tuple[int, str]:
    """Send JSON, or bytes as they are; return status and text, whatever the status is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.base + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return int(response.status), response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code), error.read().decode()


def awake(text: str, seed: int = 3) -> list[bytes]:
    """Return the pieces of a script whose tags are the tokens that wake the grammar."""
    pieces: list[bytes] = []
    taken: set[bytes] = set()
    rng = random.Random(seed)
    rest = text
    while rest:
        at, tag = min(
            ((rest.find(t), t) for t in ("<tool_call>", "</tool_call>") if t in rest),
            default=(len(rest), ""),
        )
        if at:
            pieces += scripted_gguf.split(rest[:at].encode(), rng, taken)
        if tag:
            pieces.append(tag.encode())
        rest = rest[at + len(tag) :]
    return pieces
