"""Load on a server: users who send prompts of mixed length and read the answers as they come.

Only the standard library's HTTP client: what is measured are the server's milliseconds, and an
event stream needs no more.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from qbuild.extras.bench.model import Loaded, Reply

ANSWER: Final = 32  # tokens that an answer may have

_SPARE: Final = 64  # tokens by which two requests of one length differ: their words are drawn

_LENGTHS: Final = (8, 48, 160)  # words of a prompt: a question, a paragraph, a page

_WORDS: Final = (
    "river",
    "green",
    "window",
    "seven",
    "carries",
    "under",
    "quick",
    "paper",
    "morning",
    "stone",
    "asks",
    "between",
    "narrow",
    "letters",
    "because",
    "harbour",
    "eleven",
    "turns",
    "slowly",
    "oak",
)
"""Ordinary words: what they mean is nothing to a server."""

_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a text file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    },
}


def prompts(seed: int) -> Iterator[str]:
    """Yield prompts without end: three lengths in turn, no two with the same beginning.

    A server keeps prompts that it has read; equal ones would measure its memory.
    """
    chance = random.Random(seed)  # noqa: S311 (no secret: the same load for everybody)
    for number, length in enumerate(itertools.cycle(_LENGTHS)):
        words = " ".join(chance.choice(_WORDS) for _ in range(length))
        yield f"{seed}-{number}: {words}"


def request_body(prompt: str, *, tools: bool) -> dict[str, Any]:
    """Return one request for a streamed answer."""
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": ANSWER,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"tools": [_TOOL]} if tools else {}),
    }


def room(port: int, *, tools: bool, timeout: float) -> int:
    """Return how many tokens the longest request of a load takes, its answer included.

    A page of words is 250 tokens for most models, and a thousand for one that spells. The server
    says it: its template, its tokenizer. 0 when it has neither to offer.

    Args:
        port: On loopback.
        tools: Whether a tool is offered.
        timeout: Seconds without a byte that end a question.
    """
    longest = max(itertools.islice(prompts(10**6), len(_LENGTHS)), key=len)
    try:
        said = _post(port, "/apply-template", request_body(longest, tools=tools), timeout)
        read = {"content": said["prompt"], "add_special": True, "parse_special": True}
        tokens = _post(port, "/tokenize", read, timeout)["tokens"]
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return 0
    return len(tokens) + ANSWER + _SPARE


def _post(port: int, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        found = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if not isinstance(found, dict):
        raise ValueError("the server's answer is no object")
    return found


def ask(port: int, body: dict[str, Any], *, timeout: float) -> Reply:
    """Send one request and read its stream to the end.

    Args:
        port: On loopback.
        body: See :func:`request_body`.
        timeout: Seconds without a byte that end it.
    """
    started = time.monotonic()
    first: float | None = None
    usage: dict[str, Any] = {}
    pieces = 0
    error = ""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            text = response.read(300).decode("utf-8", "replace")
            raise ValueError(f"HTTP {response.status}: {text[:120]}")
        for event in _events(response):
            if "error" in event:
                raise ValueError(str(event["error"])[:120])
            usage = event.get("usage") or usage
            if any(_says_something(choice) for choice in event.get("choices") or ()):
                pieces += 1
                first = first if first is not None else time.monotonic() - started
    except (OSError, http.client.HTTPException, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    finally:
        connection.close()
    return Reply(
        first=first,
        whole=time.monotonic() - started,
        prompt=int(usage.get("prompt_tokens", 0)),
        answer=int(usage.get("completion_tokens", pieces)),
        error=error,
    )


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: ") and (data := line[6:].strip()) != b"[DONE]":
            event = json.loads(data)
            if not isinstance(event, dict):
                raise ValueError("an event of the stream is no object")
            yield event


def _says_something(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and any(
        delta.get(key) for key in ("content", "reasoning_content", "tool_calls")
    )


def load(
    port: int, *, users: int, seconds: float, tools: bool, seed: int = 1, timeout: float = 120.0
) -> Loaded:
    """Let users ask, one request after the other each, and return what they met.

    No request begins after ``seconds``; those under way are read to their end, and the time they
    take counts. The clock stops with the last of them.

    Args:
        port: Of the server, on loopback.
        users: How many ask at the same time.
        seconds: How long requests are begun.
        tools: Whether they offer a tool.
        seed: Of the prompts.
        timeout: Seconds without a byte that make a request an error.
    """
    started = time.monotonic()
    replies: list[Reply] = []

    def one(user: int) -> None:
        for prompt in prompts(seed * 1000 + user):
            body = request_body(prompt, tools=tools)
            reply = ask(port, body, timeout=timeout)
            replies.append(reply)  # append is atomic
            if time.monotonic() - started >= seconds:
                return

    threads = [threading.Thread(target=one, args=(user,), daemon=True) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Loaded(
        users=users,
        tools=tools,
        seconds=time.monotonic() - started,
        replies=tuple(replies),
        memory=0,
    )
