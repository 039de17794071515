"""What the three APIs of llama-server do, unpatched and patched, as a Markdown table.

    python benchmarks/toolcall_conformance.py --source LLAMA_CPP \\
        --server PATCHED/llama-server --unpatched UNPATCHED/llama-server

The official clients of OpenAI and Anthropic drive a real server with a scripted model; what a
client cannot send (nulls that it leaves out, invalid JSON) is posted as it is. Each row is one
check. Exit status 1: a row is right unpatched and wrong patched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.scripted_server import (
    NO_THINKING,
    TOOLS,
    XML,
    Server,
    awake,
    post,
    serving,
)

CALL = (
    "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
)
TEXT = "Hello there, you."
PROSE = "Let me look.\n\n"
SCRIPTS: dict[str, Any] = {
    "text": TEXT,
    "call": CALL,
    "awake call": {"\n": awake(CALL)},
    "text and call": PROSE + CALL,
    "two calls": CALL + "\n" + CALL.replace("a.txt", "bb.txt"),
    "malformed call": CALL.replace("\n</parameter>", "</parameter>"),
    "no such tool": CALL.replace("read", "nope"),
    "large number": CALL.replace("path", "limit").replace("a.txt", str(10**20 + 7)),
    "thought": "I think.\n</think>\n\n" + TEXT,
}
FLAT = [{"type": "function", "strict": False, **t["function"]} for t in TOOLS]
ANTHROPIC_TOOLS = [
    {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS
]
READ = ("read", {"path": "a.txt"})
HI = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Row:
    """One check of the table."""

    api: str
    feature: str
    script: str
    check: Callable[[Server], bool]


ROWS: list[Row] = []


def row(api: str, feature: str, script: str) -> Callable[[Callable[[Server], bool]], Any]:
    """Add a check to the table; it is given a server whose model says the script."""

    def add(check: Callable[[Server], bool]) -> Callable[[Server], bool]:
        ROWS.append(Row(api, feature, script, check))
        return check

    return add


def refused(call: Callable[[], Any]) -> bool:
    """Return whether the client raises its error for HTTP 400."""
    try:
        call()
    except (openai.BadRequestError, anthropic.BadRequestError):
        return True
    return False


# --- OpenAI chat completions


def chat(server: Server, **more: Any) -> Any:
    """Ask with OpenAI's client."""
    request: dict[str, Any] = {
        "model": "m",
        "messages": HI,
        "tools": TOOLS,
        "max_tokens": 400,
        "extra_body": NO_THINKING,
        **more,
    }
    return server.client().chat.completions.create(**request)


def chat_calls(message: Any) -> list[tuple[str, Any]]:
    """Return name and arguments of each call."""
    calls = message.tool_calls or []
    return [(c.function.name, json.loads(c.function.arguments)) for c in calls]


def chat_streamed(server: Server, **more: Any) -> Any:
    """Let OpenAI's client put a stream together; return its completion."""
    request: dict[str, Any] = {
        "model": "m",
        "messages": HI,
        "tools": TOOLS,
        "max_tokens": 400,
        "extra_body": NO_THINKING,
        **more,
    }
    with server.client().chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


CHAT = "chat completions"


@row(CHAT, "tools: a call, whole", "call")
def _(server: Server) -> bool:
    choice = chat(server).choices[0]
    return chat_calls(choice.message) == [READ] and choice.finish_reason == "tool_calls"


@row(CHAT, "tools: a call, streamed, put together by the client", "call")
def _(server: Server) -> bool:
    choice = chat_streamed(server).choices[0]
    return chat_calls(choice.message) == [READ] and choice.finish_reason == "tool_calls"


@row(CHAT, "tools: text before a call, both arrive", "text and call")
def _(server: Server) -> bool:
    whole = chat(server).choices[0].message
    streamed = chat_streamed(server).choices[0].message
    same = whole.content == streamed.content
    return same and whole.content.strip() == PROSE.strip() and chat_calls(streamed) == [READ]


@row(CHAT, "tools: a malformed call is still one", "malformed call")
def _(server: Server) -> bool:
    return chat_calls(chat(server).choices[0].message) == [READ]


@row(CHAT, "tools: a malformed call, streamed", "malformed call")
def _(server: Server) -> bool:
    return chat_calls(chat_streamed(server).choices[0].message) == [READ]


@row(CHAT, "tools: a tool that was not offered is not called, its text not lost", "no such tool")
def _(server: Server) -> bool:
    answers = [chat(server), chat_streamed(server)]
    messages = [answer.choices[0].message for answer in answers]
    return all(not m.tool_calls and "nope" in (m.content or "") for m in messages)


@row(CHAT, "tools: every digit of a number", "large number")
def _(server: Server) -> bool:
    return chat_calls(chat(server).choices[0].message) == [("read", {"limit": 10**20 + 7})]


@row(CHAT, "tool_choice none: no call", "call")
def _(server: Server) -> bool:
    return not chat(server, tool_choice="none").choices[0].message.tool_calls


@row(CHAT, "tool_choice required: a call", "awake call")
def _(server: Server) -> bool:
    return chat_calls(chat(server, tool_choice="required").choices[0].message) == [READ]


def begins_a_call(answer: Any, content: str | None) -> bool:
    """Return whether there is a call, or at least the start of one."""
    return bool(answer) or "<tool_call>" in (content or "")


@row(CHAT, "tool_choice required: a model that would rather talk begins a call", "text")
def _(server: Server) -> bool:
    message = chat(server, tool_choice="required").choices[0].message
    return begins_a_call(message.tool_calls, message.content)


@row(CHAT, "tool_choice names a tool: only that one", "text")
def _(server: Server) -> bool:
    named = {"type": "function", "function": {"name": "noargs"}}
    message = chat(server, tool_choice=named).choices[0].message
    names = {call.function.name for call in message.tool_calls or []}
    return begins_a_call(message.tool_calls, message.content) and names <= {"noargs"}


@row(CHAT, "tool_choice names a tool that is not there: 400", "text")
def _(server: Server) -> bool:
    named = {"type": "function", "function": {"name": "nope"}}
    return refused(lambda: chat(server, tool_choice=named))


@row(CHAT, "parallel_tool_calls: two", "two calls")
def _(server: Server) -> bool:
    answers = [chat(server), chat_streamed(server)]
    return all(len(a.choices[0].message.tool_calls or []) == 2 for a in answers)


@row(CHAT, "parallel_tool_calls false: one", "two calls")
def _(server: Server) -> bool:
    answers = [f(server, parallel_tool_calls=False) for f in (chat, chat_streamed)]
    return all(len(a.choices[0].message.tool_calls or []) == 1 for a in answers)


@row(CHAT, "stream: id, type and name come first, arguments after, index in each", "two calls")
def _(server: Server) -> bool:
    seen: dict[int, str] = {}
    for chunk in chat(server, stream=True):
        for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            if call.index not in seen and not (call.id and call.type and call.function.name):
                return False
            seen[call.index] = seen.get(call.index, "") + (call.function.arguments or "")
    return [json.loads(a)["path"] for a in seen.values()] == ["a.txt", "bb.txt"]


@row(CHAT, "stream: usage on request, in a last chunk without choices", "text")
def _(server: Server) -> bool:
    chunks = list(chat(server, stream=True, stream_options={"include_usage": True}))
    return bool(chunks[-1].usage and chunks[-1].usage.total_tokens and not chunks[-1].choices)


@row(CHAT, "ids of calls: there, and all different", "two calls")
def _(server: Server) -> bool:
    ids = [c.id for c in chat(server).choices[0].message.tool_calls or []]
    return len(ids) == 2 and all(ids) and ids[0] != ids[1]


@row(CHAT, "finish_reason: stop, length", "text")
def _(server: Server) -> bool:
    reasons = [chat(server, max_tokens=n).choices[0].finish_reason for n in (400, 2)]
    return reasons == ["stop", "length"]


@row(CHAT, "finish_reason length: half a call is not one", "call")
def _(server: Server) -> bool:
    for ask in (chat, chat_streamed):
        with contextlib.suppress(openai.LengthFinishReasonError):
            choice = ask(server, max_tokens=8).choices[0]
            if choice.finish_reason != "length" or choice.message.tool_calls:
                return False
    return True


@row(CHAT, "a second turn with the result of a call", "text")
def _(server: Server) -> bool:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    history = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    return bool(chat(server, messages=history).choices[0].finish_reason == "stop")


@row(CHAT, "a second turn after malformed arguments", "text")
def _(server: Server) -> bool:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{"}}
    history = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    return bool(chat(server, messages=history).choices[0].finish_reason == "stop")


def ok(server: Server, path: str, body: Any) -> bool:
    """Return whether a body is answered with 200."""
    return post(server, path, body)[0] == 200


def bad(server: Server, path: str, body: Any) -> bool:
    """Return whether a body is answered with 400 and an error object."""
    status, text = post(server, path, body)
    return status == 400 and "error" in json.loads(text)


PATH = "/v1/chat/completions"
BODY = {"messages": HI, "tools": TOOLS, "max_tokens": 4, **NO_THINKING}


@row(CHAT, "null: description of a tool, enum of a property", "text")
def _(server: Server) -> bool:
    schema = {"type": "object", "properties": {"q": {"type": "string", "enum": None}}}
    function = {"name": "f", "description": None, "parameters": schema}
    return ok(server, PATH, {**BODY, "tools": [{"type": "function", "function": function}]})


@row(CHAT, "null: reasoning_content, name, tool_calls in the history", "text")
def _(server: Server) -> bool:
    message = {"role": "assistant", "content": "x", "reasoning_content": None}
    message |= {"name": None, "tool_calls": None}
    return ok(server, PATH, {**BODY, "messages": [*HI, message, *HI]})


@row(CHAT, "null: tool_choice, response_format, stop, temperature", "text")
def _(server: Server) -> bool:
    keys = ("tool_choice", "response_format", "stop", "temperature", "parallel_tool_calls")
    return all(ok(server, PATH, {**BODY, key: None}) for key in keys)


@row(CHAT, "errors: a body that is no JSON is 400", "text")
def _(server: Server) -> bool:
    return bad(server, PATH, b"{") and bad(server, PATH, b"no")


@row(CHAT, "errors: a field of the wrong type is 400 and names it", "text")
def _(server: Server) -> bool:
    status, text = post(server, PATH, {**BODY, "messages": [{"role": 3, "content": "x"}]})
    return status == 400 and "messages[0].role" in text


@row(CHAT, "errors: a schema that cannot be used is 400", "text")
def _(server: Server) -> bool:
    schema = {"type": "object", "properties": {"q": {"$ref": "#/no"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    return bad(server, PATH, {**BODY, "tools": tools})


@row(CHAT, "errors: a conversation that the template refuses is 400", "text")
def _(server: Server) -> bool:
    system = {"role": "system", "content": "x"}
    return bad(server, PATH, {**BODY, "messages": [*HI, system]})


@row(CHAT, "errors: 50,000 levels of brackets are 400", "text")
def _(server: Server) -> bool:
    body = json.dumps(BODY)[:-1] + ', "x": ' + "[" * 50000 + "]" * 50000 + "}"
    return bad(server, PATH, body.encode()) and ok(server, PATH, BODY)


@row(CHAT, "response_format json_schema", "text")
def _(server: Server) -> bool:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = chat(server, response_format=wanted, tools=openai.omit).choices[0].message
    return json.loads(message.content) == {}


@row(CHAT, "response_format together with tools", "text")
def _(server: Server) -> bool:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    return ok(server, PATH, {**BODY, "response_format": wanted})


@row(CHAT, "reasoning apart from content, streamed and not", "thought")
def _(server: Server) -> bool:
    more = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
    messages = [f(server, **more).choices[0].message for f in (chat, chat_streamed)]
    return all(m.content == TEXT and m.reasoning_content.strip() == "I think." for m in messages)


# --- OpenAI Responses

RESPONSES = "Responses"


def respond(server: Server, **more: Any) -> Any:
    """Ask with OpenAI's client over the Responses API."""
    request: dict[str, Any] = {
        "model": "m",
        "input": "hi",
        "tools": FLAT,
        "extra_body": NO_THINKING,
        **more,
    }
    return server.client().responses.create(**request)


def respond_streamed(server: Server) -> Any:
    """Let OpenAI's client put a stream together; return its response."""
    more: dict[str, Any] = {"model": "m", "input": "hi", "tools": FLAT, "extra_body": NO_THINKING}
    with server.client().responses.stream(**more) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def response_calls(response: Any) -> list[tuple[str, Any]]:
    """Return name and arguments of each call."""
    items = [i for i in response.output if i.type == "function_call"]
    return [(i.name, json.loads(i.arguments)) for i in items]


@row(RESPONSES, "tools: a call, whole", "call")
def _(server: Server) -> bool:
    return response_calls(respond(server)) == [READ]


@row(RESPONSES, "tools: a call, streamed, put together by the client", "call")
def _(server: Server) -> bool:
    return response_calls(respond_streamed(server)) == [READ]


@row(RESPONSES, "text, streamed, put together by the client", "text")
def _(server: Server) -> bool:
    return bool(respond_streamed(server).output_text == TEXT)


@row(RESPONSES, "text before a call, streamed", "text and call")
def _(server: Server) -> bool:
    response = respond_streamed(server)
    same = response.output_text.strip() == PROSE.strip()
    return same and response_calls(response) == [READ]


@row(
    RESPONSES,
    "stream: each call has output_item.added, arguments.delta, output_item.done",
    "two calls",
)
def _(server: Server) -> bool:
    kinds = [e.type for e in respond(server, stream=True)]
    wanted = (
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.output_item.done",
    )
    return all(kinds.count(kind) == 2 for kind in wanted)


@row(
    RESPONSES, "stream: output_index and content_index in every event that has one", "text and call"
)
def _(server: Server) -> bool:
    events = list(respond(server, stream=True))
    text = [e for e in events if e.type.startswith("response.output_text")]
    items = [e for e in events if ".output_item." in e.type or ".function_call" in e.type]
    numbered = all(isinstance(getattr(e, "output_index", None), int) for e in [*text, *items])
    return bool(text) and numbered and all(isinstance(e.content_index, int) for e in text)


@row(RESPONSES, "stream: sequence_number counts up", "text and call")
def _(server: Server) -> bool:
    numbers = [getattr(e, "sequence_number", None) for e in respond(server, stream=True)]
    return numbers == list(range(len(numbers)))


@row(RESPONSES, "tool_choice names a tool: only that one", "text")
def _(server: Server) -> bool:
    named = {"type": "function", "name": "noargs"}
    response = respond(server, tool_choice=named, max_output_tokens=400)
    calls = response_calls(response)
    return begins_a_call(calls, response.output_text) and {n for n, _ in calls} <= {"noargs"}


@row(RESPONSES, "parallel_tool_calls false: one", "two calls")
def _(server: Server) -> bool:
    return len(response_calls(respond(server, parallel_tool_calls=False))) == 1


@row(RESPONSES, "status: completed", "text")
def _(server: Server) -> bool:
    return bool(respond(server).status == "completed")


@row(RESPONSES, "status: incomplete, with its reason, at a limit", "text")
def _(server: Server) -> bool:
    response = respond(server, max_output_tokens=2)
    details = response.incomplete_details
    return response.status == "incomplete" and details.reason == "max_output_tokens"


@row(RESPONSES, "ids: call_id there, and all different", "two calls")
def _(server: Server) -> bool:
    ids = [i.call_id for i in respond(server).output if i.type == "function_call"]
    return len(ids) == 2 and all(ids) and ids[0] != ids[1]


@row(RESPONSES, "a second turn with the result of a call", "text")
def _(server: Server) -> bool:
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [{"role": "user", "content": "hi"}, call, result]
    return bool(respond(server, input=items).output_text == TEXT)


@row(RESPONSES, "null: tools, tool_choice, instructions, reasoning", "text")
def _(server: Server) -> bool:
    body = {"input": "hi", "max_output_tokens": 4, **NO_THINKING}
    keys = ("tools", "tool_choice", "instructions", "reasoning")
    return all(ok(server, "/v1/responses", {**body, key: None}) for key in keys)


@row(RESPONSES, "errors: no JSON, no input: 400", "text")
def _(server: Server) -> bool:
    return bad(server, "/v1/responses", b"{") and bad(server, "/v1/responses", {})


# --- Anthropic messages

MESSAGES = "Anthropic messages"


def message(server: Server, **more: Any) -> Any:
    """Ask with Anthropic's client."""
    client = anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0, timeout=120)
    request: dict[str, Any] = {
        "model": "m",
        "max_tokens": 400,
        "messages": HI,
        "tools": ANTHROPIC_TOOLS,
        "extra_body": NO_THINKING,
        **more,
    }
    return client.messages.create(**request)


def message_streamed(server: Server, **more: Any) -> Any:
    """Let Anthropic's client put a stream together; return its message."""
    client = anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0, timeout=120)
    request: dict[str, Any] = {
        "model": "m",
        "max_tokens": 400,
        "messages": HI,
        "tools": ANTHROPIC_TOOLS,
        "extra_body": NO_THINKING,
        **more,
    }
    with client.messages.stream(**request) as stream:
        return stream.get_final_message()


def used(answer: Any) -> list[tuple[str, Any]]:
    """Return name and input of each tool_use block."""
    return [(b.name, b.input) for b in answer.content if b.type == "tool_use"]


@row(MESSAGES, "tools: a call, whole", "call")
def _(server: Server) -> bool:
    answer = message(server)
    return used(answer) == [READ] and answer.stop_reason == "tool_use"


@row(MESSAGES, "tools: a call, streamed, put together by the client", "call")
def _(server: Server) -> bool:
    answer = message_streamed(server)
    return used(answer) == [READ] and answer.stop_reason == "tool_use"


@row(MESSAGES, "text before a call, streamed", "text and call")
def _(server: Server) -> bool:
    answer = message_streamed(server)
    return [b.type for b in answer.content] == ["text", "tool_use"] and used(answer) == [READ]


@row(MESSAGES, "tools: every digit of a number", "large number")
def _(server: Server) -> bool:
    return used(message(server)) == [("read", {"limit": 10**20 + 7})]


@row(MESSAGES, "tool_choice any: a model that would rather talk begins a call", "text")
def _(server: Server) -> bool:
    answer = message(server, tool_choice={"type": "any"})
    text = "".join(b.text for b in answer.content if b.type == "text")
    return begins_a_call([b for b in answer.content if b.type == "tool_use"], text)


@row(MESSAGES, "tool_choice names a tool that is not there: 400", "text")
def _(server: Server) -> bool:
    return refused(lambda: message(server, tool_choice={"type": "tool", "name": "nope"}))


@row(MESSAGES, "tool_choice none: no call", "call")
def _(server: Server) -> bool:
    return used(message(server, tool_choice={"type": "none"})) == []


@row(MESSAGES, "disable_parallel_tool_use: one", "two calls")
def _(server: Server) -> bool:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    return len(used(message(server, tool_choice=choice))) == 1


@row(MESSAGES, "two calls, streamed", "two calls")
def _(server: Server) -> bool:
    return len(used(message_streamed(server))) == 2


@row(MESSAGES, "ids of tool_use: there, and all different", "two calls")
def _(server: Server) -> bool:
    ids = [b.id for b in message(server).content if b.type == "tool_use"]
    return len(ids) == 2 and all(ids) and ids[0] != ids[1]


@row(MESSAGES, "stop_reason: end_turn, max_tokens", "text")
def _(server: Server) -> bool:
    reasons = [message(server, max_tokens=n).stop_reason for n in (400, 2)]
    return reasons == ["end_turn", "max_tokens"]


@row(MESSAGES, "stop_reason: stop_sequence", "text")
def _(server: Server) -> bool:
    answer = message(server, stop_sequences=["there"])
    return answer.stop_reason == "stop_sequence" and answer.stop_sequence == "there"


@row(MESSAGES, "a second turn with the result of a call", "text")
def _(server: Server) -> bool:
    use = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    turns = [
        *HI,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    return bool(message(server, messages=turns).stop_reason == "end_turn")


@row(MESSAGES, "null: system, tools, tool_choice, stop_sequences", "text")
def _(server: Server) -> bool:
    body = {"messages": HI, "max_tokens": 4, **NO_THINKING}
    keys = ("system", "tools", "tool_choice", "stop_sequences")
    return all(ok(server, "/v1/messages", {**body, key: None}) for key in keys)


@row(MESSAGES, "errors: no JSON, no messages: 400", "text")
def _(server: Server) -> bool:
    return bad(server, "/v1/messages", b"{") and bad(server, "/v1/messages", {})


@contextlib.contextmanager
def running(binary: Path, script: str, template: str) -> Iterator[Server]:
    """Start a server that says the script."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.suppress(AssertionError),  # a check may have ended it
        serving(binary, Path(folder), SCRIPTS[script], template, longest=14) as server,
    ):
        server.strict = False
        yield server


def outcome(check: Callable[[Server], bool], server: Server) -> str:
    """Run one check; name what became of it."""
    try:
        return "right" if check(server) else "wrong"
    except openai.APIStatusError as error:
        return f"HTTP {error.status_code}"
    except anthropic.APIStatusError as error:
        return f"HTTP {error.status_code}"
    except (openai.APIConnectionError, anthropic.APIConnectionError, OSError):
        return "server gone"
    except Exception as error:  # whatever a client makes of a stream that is not as it should be
        return f"client: {type(error).__name__}"


def results(binary: Path, template: str) -> dict[Row, str]:
    """Run every check against one server."""
    found: dict[Row, str] = {}
    for script in SCRIPTS:
        pending = [r for r in ROWS if r.script == script]
        while pending:  # again after a check that ended the server
            with running(binary, script, template) as server:
                while pending:
                    check = pending.pop(0)
                    found[check] = outcome(check.check, server)
                    if server.process.poll() is not None:
                        break
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("--source", "--server", "--unpatched"):
        parser.add_argument(name, type=Path, required=True)
    options = parser.parse_args()
    template = (options.source / "models" / "templates" / XML).read_text(encoding="utf-8")
    unpatched = results(options.unpatched, template)
    patched = results(options.server, template)
    print("| API | feature | unpatched | patched |\n|---|---|---|---|")
    for r in ROWS:
        print(f"| {r.api} | {r.feature} | {unpatched[r]} | {patched[r]} |")
    worse = [r for r in ROWS if unpatched[r] == "right" != patched[r]]
    counts = [sum(v == "right" for v in found.values()) for found in (unpatched, patched)]
    print(f"\n{len(ROWS)} checks: {counts[0]} right unpatched, {counts[1]} patched.")
    for r in worse:
        print(f"worse: {r.api}, {r.feature}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
