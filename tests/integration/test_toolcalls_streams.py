"""Streams: never silent, nothing lost, and what the official clients make of them.

Real llama-server, scripted model, see ``support/scripted_server.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.scripted_server import (
    HERMES,
    NO_THINKING,
    TOOLS,
    XML,
    Server,
    awake,
    post,
    serving,
    setting,
)

pytestmark = pytest.mark.server

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

CALL = (
    "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
)
DEVSTRAL = "unsloth-mistral-Devstral-Small-2507.jinja"
MINISTRAL = "mistralai-Ministral-3-14B-Reasoning-2512.jinja"
FLAT = [{"type": "function", "strict": False, **t["function"]} for t in TOOLS]
ANTHROPIC_TOOLS = [
    {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS
]


@pytest.fixture(scope="module")
def server_bin() -> Path:
    """The patched llama-server."""
    return setting("QBUILD_TEST_SERVER")


@pytest.fixture(scope="module")
def templates() -> Path:
    """The source's chat templates."""
    return setting("QBUILD_TEST_TEMPLATES")


def arrivals(server: Server, body: dict[str, Any]) -> Iterator[tuple[float, bytes]]:
    """Stream a chat completion over a bare socket: when each piece came, and what it was."""
    data = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port))) as sock:
        sock.sendall(head.encode() + b"Connection: close\r\n\r\n" + data)
        start = time.monotonic()
        while piece := sock.recv(65536):
            yield time.monotonic() - start, piece


@pytest.mark.parametrize("grammar", ["asleep", "awake"])
def test_never_silent(grammar: str, server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """While a long call is held back a comment line goes out in time."""
    text = (templates / XML).read_text(encoding="utf-8")
    value = "".join(f"{n:05d} " for n in range(1500))
    says = CALL.replace("a.txt", value.strip())
    script: Any = {"\n": awake(says)} if grammar == "awake" else says
    flags = ("--sse-ping-interval", "30", "-c", "16384")
    with serving(server_bin, tmp_path, script, text, *flags, context=16384) as server:
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "tools": TOOLS,
            "max_tokens": 8000,
            **NO_THINKING,
        }
        times = [0.0]
        everything = b""
        for when, piece in arrivals(server, body):
            times.append(when)
            everything += piece
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert max(gaps) < 2.5
        if times[-1] > 3:
            assert everything.count(b"\n:\n") + everything.count(b"\r\n:\n") >= int(times[-1]) // 3
        assert b'"finish_reason":"tool_calls"' in everything


def test_no_comments_when_they_are_off(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """An interval of 0 or less means none."""
    text = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, CALL, text, "--sse-ping-interval", "-1") as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, **NO_THINKING}
        assert b"\n:\n" not in b"".join(piece for _, piece in arrivals(server, body))


# --- Responses API


def responses_client(server: Server) -> Any:
    """Return the official client."""
    return openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0, timeout=120)


SAID = {
    "call": (CALL, "", [("read", {"path": "a.txt"})]),
    "text": ("Hello there.", "Hello there.", []),
    "text and call": ("Let me look.\n\n" + CALL, "Let me look.\n\n", [("read", {"path": "a.txt"})]),
    "two calls": (
        CALL + "\n" + CALL.replace("a.txt", "bb.txt").replace("read", "read"),
        "",
        [("read", {"path": "a.txt"}), ("read", {"path": "bb.txt"})],
    ),
    "no such tool": (CALL.replace("read", "nope"), CALL.replace("read", "nope"), []),
}


@pytest.mark.parametrize("what", SAID)
def test_responses_stream(what: str, server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """OpenAI's client puts the stream together; each call is added, grows and is done."""
    says, text, calls = SAID[what]
    template = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, says, template, longest=14) as server:
        client = responses_client(server)
        more = {"model": "m", "input": "hi", "tools": FLAT, "extra_body": NO_THINKING}
        events = []
        with client.responses.stream(**more) as stream:
            for event in stream:
                events.append(event)
            final = stream.get_final_response()
        check_response(final, text, calls)
        check_events(events, text, calls)
        check_response(client.responses.create(**more), text, calls)


def check_response(response: Any, text: str, calls: list[Any]) -> None:
    """Compare a response with what was said."""
    assert response.status == "completed"
    assert response.output_text == text
    got = [(i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
    assert got == calls


def check_events(events: list[Any], text: str, calls: list[Any]) -> None:
    """Every item has its number, is added before it grows, and is done once."""
    numbers = [e.sequence_number for e in events if hasattr(e, "sequence_number")]
    assert numbers == sorted(set(numbers))
    added: dict[int, Any] = {}
    arguments: dict[int, str] = {}
    done = []
    for event in events:
        if event.type == "response.output_item.added":
            assert event.output_index == len(added)
            added[event.output_index] = event.item
        elif event.type == "response.function_call_arguments.delta":
            assert added[event.output_index].id == event.item_id
            arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
        elif event.type == "response.output_text.delta":
            assert added[event.output_index].type == "message"
            assert event.content_index == 0
        elif event.type == "response.output_item.done":
            done.append(event.output_index)
    assert done == sorted(added)
    names = [item.name for item in added.values() if item.type == "function_call"]
    assert names == [name for name, _ in calls]
    assert [json.loads(a) for a in arguments.values()] == [a for _, a in calls]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text


def test_responses_cut_at_a_limit(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """A response that is cut is incomplete, and says why."""
    template = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, "Hello there, and more.", template) as server:
        client = responses_client(server)
        more = {"model": "m", "input": "hi", "max_output_tokens": 2, "extra_body": NO_THINKING}
        whole = client.responses.create(**more)
        assert whole.status == "incomplete"
        assert whole.incomplete_details.reason == "max_output_tokens"
        last = list(client.responses.create(stream=True, **more))[-1]
        assert last.type == "response.incomplete"
        assert last.response.output_text == whole.output_text != ""


ENDS = "t>]l "
"""What the prompts of other families end with, beside a line break."""
OTHERS = [
    (
        "openai-gpt-oss-120b.jinja",
        '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a.txt"}',
    ),
    (
        "Kimi-K2-Instruct.jinja",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
        '{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    (
        "meta-llama-Llama-3.1-8B-Instruct.jinja",
        '{"name": "read", "parameters": {"path": "a.txt"}}',
    ),
    (DEVSTRAL, '[TOOL_CALLS]read[ARGS]{"path": "a.txt"}'),
    ("google-gemma-4-31B-it.jinja", '<|tool_call>call:read{path:<|"|>a.txt<|"|>}<tool_call|>'),
]


@pytest.mark.parametrize(("template", "says"), OTHERS, ids=[t for t, _ in OTHERS])
@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_calls_of_other_families(
    api: str, template: str, says: str, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """A single well-formed call of another family arrives, streamed and whole, in every API."""
    file = templates / template
    if not file.exists():
        pytest.skip("the source has no such template")
    text = file.read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, says, text, also_after=ENDS) as server:
        for stream in (False, True):
            assert calls_of(server, api, stream) == [("read", {"path": "a.txt"})]


def calls_of(server: Server, api: str, stream: bool) -> list[tuple[str, Any]]:
    """Ask over one of the APIs with its official client."""
    if api == "chat":
        answer = server.ask(stream=stream)
        return [(name, json.loads(arguments)) for name, arguments in answer.calls]
    if api == "responses":
        more: dict[str, Any] = {"model": "m", "input": "hi", "tools": FLAT}
        more["extra_body"] = NO_THINKING
        client = responses_client(server)
        if not stream:
            output = client.responses.create(**more).output
            calls = [i for i in output if i.type == "function_call"]
            return [(i.name, json.loads(i.arguments)) for i in calls]
        items: dict[int, list[str]] = {}
        for event in client.responses.create(stream=True, **more):
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                items[event.output_index] = [event.item.name, ""]
            elif event.type == "response.function_call_arguments.delta":
                items[event.output_index][1] += event.delta
        return [(name, json.loads(arguments)) for name, arguments in items.values()]
    message = anthropic_message(server, stream)
    return [(b.name, b.input) for b in message.content if b.type == "tool_use"]


def anthropic_message(server: Server, stream: bool, **more: Any) -> Any:
    """Ask with Anthropic's client and return the message."""
    client = anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0)
    request: dict[str, Any] = {
        "model": "m",
        "max_tokens": 600,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": ANTHROPIC_TOOLS,
        "extra_body": NO_THINKING,
        **more,
    }
    if not stream:
        return client.messages.create(**request)
    with client.messages.stream(**request) as running:
        return running.get_final_message()


@pytest.mark.parametrize(("template", "says"), OTHERS, ids=[t for t, _ in OTHERS])
def test_broken_calls_of_other_families(
    template: str, says: str, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """A call that is cut anywhere is text, in a stream as in a whole answer."""
    text = (templates / template).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, says, text, also_after=ENDS, longest=3) as server:
        for limit in (1, 2, 3, 5, 8, 11, 14):
            whole = server.ask(stream=False, max_tokens=limit)
            streamed = server.ask(stream=True, max_tokens=limit)
            assert streamed == whole
            assert whole.calls == []
        for stop in ("read", "path", "a.txt"):
            whole = server.ask(stream=False, stop=[stop])
            assert server.ask(stream=True, stop=[stop]) == whole
            assert whole.calls == []
            assert (template, whole.content) != (template, "")


# --- Anthropic API


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_numbers(stream: bool, server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """A number beyond 64 bits, or beyond any double, empties nothing and is not rounded."""
    text = (templates / HERMES).read_text(encoding="utf-8")
    for number, want in ((str(10**20 + 7), 10**20 + 7), ("1e400", float("inf"))):
        call = f'{{"name": "setx", "arguments": {{"flag": true, "n": {number}}}}}'
        says = f"<tool_call>\n{call}\n</tool_call>"
        with serving(server_bin, tmp_path, says, text) as server:
            message = anthropic_message(server, stream)
            assert message.stop_reason == "tool_use"
            assert message.content[-1].input == {"flag": True, "n": want}


def test_anthropic_choices(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """The tool that is named, none, and no more than one."""
    text = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, {"\n": awake(CALL)}, text) as server:
        for choice, want in (
            ({"type": "auto"}, 1),
            ({"type": "any"}, 1),
            ({"type": "tool", "name": "read"}, 1),
        ):
            for stream in (False, True):
                message = anthropic_message(server, stream, tool_choice=choice)
                assert len([b for b in message.content if b.type == "tool_use"]) == want
        status, _ = post(
            server,
            "/v1/messages",
            {
                "max_tokens": 20,
                "messages": [{"role": "user", "content": "hi"}],
                "tools": ANTHROPIC_TOOLS,
                "tool_choice": {"type": "tool", "name": "nope"},
                **NO_THINKING,
            },
        )
        assert status == 400
        message = anthropic_message(server, False, tool_choice={"type": "none"})
        assert [b.type for b in message.content] == ["text"]
    two = CALL + "\n" + CALL.replace("a.txt", "bb.txt")
    with serving(server_bin, tmp_path, two, text, longest=14) as server:
        one = {"type": "auto", "disable_parallel_tool_use": True}
        for stream in (False, True):
            message = anthropic_message(server, stream, tool_choice=one)
            assert len([b for b in message.content if b.type == "tool_use"]) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_stop_sequence(
    stream: bool, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """The client's stop sequence is the reason, and named; a call before it is still to be run."""
    text = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, "Hello there, you.", text) as server:
        message = anthropic_message(server, stream, stop_sequences=["none", "there"])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "there")
        assert message.content[0].text == "Hello "
        message = anthropic_message(server, stream, stop_sequences=["none"])
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    with serving(server_bin, tmp_path, CALL + "\nThat is every one.", text) as server:
        message = anthropic_message(server, stream, stop_sequences=["every"])
        assert (message.stop_reason, message.stop_sequence) == ("tool_use", "every")


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_of_the_template_is_the_model_s_end(
    stream: bool, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """Laguna's end of a turn, spelled as text, is no stop sequence of the client."""
    text = (templates / "poolside-Laguna-XS-2.1.jinja").read_text(encoding="utf-8")
    says = "Hello there.</assistant>"
    with serving(server_bin, tmp_path, says, text, also_after=">", specials=()) as server:
        message = anthropic_message(server, stream, stop_sequences=["none"])
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
        assert message.content[0].text == "Hello there."
