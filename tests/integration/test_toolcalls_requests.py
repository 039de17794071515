"""What clients send: nothing kills or holds the server, null is not given, errors say where.

Real llama-server, scripted model, see ``support/scripted_server.py``.
"""

from __future__ import annotations

import concurrent.futures
import copy
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
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

SAYS = "Fine, thank you."
CHAT = "/v1/chat/completions"
SCHEMA_LIMIT = 1024 * 1024


@pytest.fixture(scope="module")
def server_bin() -> Path:
    """The patched llama-server."""
    return setting("QBUILD_TEST_SERVER")


@pytest.fixture(scope="module")
def templates() -> Path:
    """The source's chat templates."""
    return setting("QBUILD_TEST_TEMPLATES")


@pytest.fixture(scope="module", params=[XML, HERMES, "Qwen3-Coder.jinja"])
def server(
    request: pytest.FixtureRequest,
    server_bin: Path,
    templates: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server that says one sentence, whatever it is asked."""
    text = (templates / request.param).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path_factory.mktemp("requests"), SAYS, text) as running:
        yield running


def ask(**more: Any) -> dict[str, Any]:
    """Return a request that every server here answers."""
    return {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS,
        "max_tokens": 60,
        **NO_THINKING,
        **more,
    }


def content(answer: str) -> str:
    """Return the text of a chat completion."""
    return str(json.loads(answer)["choices"][0]["message"]["content"])


def tool(parameters: Any, name: str = "t") -> list[dict[str, Any]]:
    """Return a list of one tool."""
    return [{"type": "function", "function": {"name": name, "parameters": parameters}}]


def cpu_seconds(server: Server) -> float:
    """Return what a server has worked: what is not exponential stays so on a busy machine."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def nested(depth: int) -> str:
    """Return JSON that is nested that deep."""
    return "[" * depth + "]" * depth


# --- bounds


@pytest.mark.parametrize("depth", [600, 50_000, 500_000])
def test_deep_request(server: Server, depth: int) -> None:
    """A request that is nested too deep is refused by every endpoint, with the place."""
    deep = nested(depth)
    body = json.dumps(ask())[:-1] + f', "x": {deep}}}'
    for path in (CHAT, "/completion", "/v1/responses", "/v1/messages", "/tokenize"):
        status, text = post(server, path, body.encode())
        assert status == 400
        assert "nested deeper than 512" in text
        assert "x[0]" in text
    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "function": {"name": "read", "arguments": f'{{"a":{deep}}}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    status, text = post(server, CHAT, ask(messages=messages))
    assert status == 400
    assert "messages[1].tool_calls[0].function.arguments: nested deeper" in text
    assert post(server, CHAT, ask())[0] == 200


def test_a_request_as_deep_as_allowed(server: Server) -> None:
    """What is just within the bounds is answered."""
    body = json.dumps(ask())[:-1] + f', "x": {nested(511)}}}'
    assert post(server, CHAT, body.encode())[0] == 200


def cycles(n: int) -> dict[str, Any]:
    """Return a schema of which each type is any of all of them."""
    refs = [{"$ref": f"#/$defs/a{k}"} for k in range(n)]
    return {
        "type": "object",
        "properties": {"x": refs[0], "y": {"allOf": refs}},
        "$defs": {f"a{k}": {"anyOf": refs} for k in range(n)},
    }


def test_cycles_in_a_schema(server: Server) -> None:
    """$ref cycles neither hold nor kill a worker."""
    for n in (2, 6, 12):
        start = cpu_seconds(server)
        status, _ = post(server, CHAT, ask(tools=tool(cycles(n))))
        assert status in (200, 400)
        assert cpu_seconds(server) - start < 10


A = {"$ref": "#/$defs/a"}
ENDLESS: dict[str, dict[str, Any]] = {
    "a reference to itself": {"x": {"allOf": [A]}, "$defs": {"a": A}},
    "two": {"x": {"allOf": [A]}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": A}},
    "itself": {"x": {"allOf": [A]}, "$defs": {"a": {"allOf": [A]}}},
    "a property that is itself": {
        "x": {"allOf": [A]},
        "$defs": {"a": {"type": "object", "properties": {"k": {"allOf": [A]}}}},
    },
    "many properties that are itself": {
        "x": {"allOf": [A]},
        "$defs": {
            "a": {"type": "object", "properties": {f"k{n}": {"allOf": [A]} for n in range(12)}}
        },
    },
}


@pytest.mark.parametrize("what", ENDLESS)
def test_all_of_that_has_no_end(server: Server, what: str) -> None:
    """The parts of an allOf are put together, however they lead back to it."""
    schema = {"type": "object", "properties": {"x": ENDLESS[what]["x"]}}
    schema["$defs"] = ENDLESS[what]["$defs"]
    assert post(server, CHAT, ask(tools=tool(schema)))[0] in (200, 400)
    assert post(server, CHAT, ask())[0] == 200


def test_a_refused_grammar_holds_nobody(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Two wait for the only slot: that the first one's grammar is refused must wake the second."""
    text = (templates / XML).read_text(encoding="utf-8")
    says = "".join(f"{n:05d} " for n in range(2000))
    with (
        serving(server_bin, tmp_path, says, text) as running,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        pool.submit(post, running, CHAT, ask(max_tokens=3000))
        wait_until(running, "processing task")
        refused = pool.submit(post, running, CHAT, ask(tools=tool(cycles(2)), max_tokens=4))
        time.sleep(0.5)
        waiting = pool.submit(post, running, CHAT, ask(max_tokens=4), 60)
        assert refused.result()[0] == 400
        assert waiting.result()[0] == 200


def wait_until(server: Server, said: str) -> None:
    """Wait until the server's log has a text."""
    deadline = time.monotonic() + 30
    while said not in server.log.read_text(errors="replace"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_types_in_a_schema(server: Server) -> None:
    """Lists of types, nested, are not exponential."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        schema = {"type": ["object", "object", "array"], "properties": {"a": schema}}
    start = cpu_seconds(server)
    status, _ = post(server, CHAT, ask(tools=tool(schema)))
    assert status in (200, 400)
    assert cpu_seconds(server) - start < 10


def test_large_schemas(server: Server) -> None:
    """Depth, size, names: beyond the bound it is 400, with the path."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(130):
        deep = {"type": "object", "properties": {"a": deep}}
    large = {"type": "object", "properties": {"a": {"enum": ["x" * 1000] * 1100}}}
    name = {"type": "object", "properties": {"_" * 2000: {"type": "string"}}}
    for schema, what in (
        (deep, "nested deeper than 256"),
        (large, f"more than {SCHEMA_LIMIT} bytes"),
        (name, "a name of more than 1024 bytes"),
    ):
        status, text = post(server, CHAT, ask(tools=tool(schema)))
        assert status == 400
        assert "tools[0].function.parameters" in text
        assert what in text
    # refused in time: the prompt is too long, or the grammar has too many ways
    many = {"type": "object", "properties": {f"p{k}": {"type": "string"} for k in range(1500)}}
    start = cpu_seconds(server)
    assert post(server, CHAT, ask(tools=tool(many)))[0] == 400
    assert cpu_seconds(server) - start < 20


def chain(length: int, per_object: int = 1000) -> dict[str, Any]:
    """Return a schema of a property whose type leads through that many ``$ref``s to an integer."""
    groups: dict[str, dict[str, Any]] = {}
    for n in range(length + 1):
        following = {"$ref": f"#/$defs/d{(n + 1) // per_object}/t{n + 1}"}
        group = groups.setdefault(f"d{n // per_object}", {})
        group[f"t{n}"] = following if n < length else {"type": "integer"}
    first = {"$ref": "#/$defs/d0/t0"}
    return {"type": "object", "properties": {"n": first}, "$defs": groups}


MANY_OBJECTS: dict[str, Any] = {
    f"o{m}": {"properties": {f"p{n}": {} for n in range(1000)}} for m in range(5)
}


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (chain(20_000), "more than 8192 values"),
        (chain(20_000, 10_000), "more than 2048 members"),
        (chain(3000), "nested deeper than 1024"),
        ({"type": "object", "properties": {"a": {"enum": list(range(9000))}}}, "8192 values"),
        ({"type": "object", "properties": {"a": {"default": [0] * 9000}}}, "8192 values"),
        ({"type": "object", "properties": MANY_OBJECTS}, "more than 4096 objects"),
    ],
    ids=["chain", "members", "deep chain", "enum", "default", "objects"],
)
def test_schemas_beyond_the_bounds(server: Server, schema: dict[str, Any], what: str) -> None:
    """Whatever costs much is refused, and no chain of types ends the server."""
    status, text = post(server, CHAT, ask(tools=tool(schema)))
    assert (status, what in text) == (400, True), text[:300]
    assert post(server, CHAT, ask())[0] == 200


@pytest.mark.parametrize(
    "schema",
    [
        chain(1000),
        {"type": "object", "properties": {"a": {"enum": [f"value {n}" for n in range(5000)]}}},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}},
    ],
    ids=["chain", "enum", "properties"],
)
def test_schemas_within_the_bounds(server: Server, schema: dict[str, Any]) -> None:
    """What people may send is taken; a prompt can be too long for the context."""
    status, text = post(server, CHAT, ask(tools=tool(schema)))
    assert status == 200 or "exceed" in text, text[:300]


def test_types_behind_references(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """The type of a value is found through references, whatever comes first, and several share."""
    says = (
        "<tool_call>\n<function=t>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n"
        "</parameter>\n<parameter=m>\n12\n</parameter>\n</function>\n</tool_call>"
    )
    definitions = {
        "z": {"$ref": "#/$defs/y"},
        "y": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}]},
        "x": {"type": "integer"},
        "text": {"allOf": [{"$ref": "#/$defs/word"}]},
        "word": {"type": "string"},
    }
    properties = {"n": "z", "s": "text", "m": "y"}
    schema = {
        "type": "object",
        "properties": {name: {"$ref": f"#/$defs/{to}"} for name, to in properties.items()},
        "$defs": definitions,
    }
    text = (templates / XML).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, says, text) as running:
        status, answer = post(running, CHAT, ask(tools=tool(schema), max_tokens=300))
    assert status == 200
    call = json.loads(answer)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"n": 12, "s": "12", "m": 12}


def test_internal_fields(server: Server) -> None:
    """A client cannot set how its answer is read."""
    config = json.dumps({"format": "mtp", "tools": [cycles(12)]})
    fields = {"tool_call_parser": config, "chat_parser": "{", "chat_format": 3}
    status, text = post(server, CHAT, ask(**fields))
    assert (status, content(text)) == (200, SAYS)
    for path in ("/completion", "/v1/completions"):
        status, text = post(
            server, path, {"prompt": "x\n", "n_predict": 4, "tool_call_parser": config}
        )
        assert status == 400
        assert "tool_call_parser" in text


def test_deep_grammar(server: Server) -> None:
    """A grammar of a client is bounded, too."""
    grammar = "root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000
    for path, body in ((CHAT, ask(tools=[])), ("/completion", {"prompt": "x\n", "n_predict": 4})):
        status, text = post(server, path, {**body, "grammar": grammar})
        assert status == 400
        assert "grammar" in text


@pytest.mark.parametrize("limit", [1998, 1999, 2000, 2001, 2002, 10_000])
def test_max_items(server: Server, limit: int) -> None:
    """No limit of a list is one that the grammar cannot have."""
    for least in (0, 1):
        items = {"type": "array", "items": {"type": "string"}, "minItems": least, "maxItems": limit}
        schema = {"type": "object", "properties": {"a": items}, "required": ["a"]}
        assert post(server, CHAT, ask(tools=tool(schema)))[0] == 200


# --- null


def with_value(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy in which the value at the path is another one."""
    changed = copy.deepcopy(body)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


HISTORY = ask(
    messages=[
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "user", "content": "go"},
    ],
    tools=tool({"type": "object", "properties": {"q": {"type": "string"}}}),
)
CALL = ("messages", 1, "tool_calls", 0)
FUNCTION = ("tools", 0, "function")

NULL = [
    (*FUNCTION, "description"),
    (*FUNCTION, "parameters"),
    (*FUNCTION, "strict"),
    (*FUNCTION, "parameters", "required"),
    (*FUNCTION, "parameters", "properties", "q", "enum"),
    (*FUNCTION, "parameters", "properties", "q", "description"),
    (*FUNCTION, "parameters", "properties", "q", "items"),
    (*FUNCTION, "parameters", "properties", "q", "default"),
    ("messages", 0, "name"),
    ("messages", 1, "content"),
    ("messages", 1, "reasoning_content"),
    ("messages", 1, "name"),
    ("messages", 3, "tool_calls"),
    ("messages", 3, "tool_call_id"),
    (*CALL, "id"),
    (*CALL, "type"),
    (*CALL, "function", "arguments"),
    ("tool_choice",),
    ("parallel_tool_calls",),
    ("response_format",),
    ("stop",),
    ("temperature",),
    ("stream",),
    ("logprobs",),
    ("top_logprobs",),
    ("grammar",),
    ("json_schema",),
]


@pytest.mark.parametrize("path", NULL, ids=lambda path: ".".join(map(str, path)))
def test_null_is_not_given(server: Server, path: tuple[Any, ...]) -> None:
    """A field that is null is as one that is absent."""
    status, text = post(server, CHAT, with_value(HISTORY, path, None))
    assert status == 200, text
    assert content(text) == SAYS


def test_a_call_without_type_and_id(server: Server) -> None:
    """Neither is needed to read a conversation."""
    body = copy.deepcopy(HISTORY)
    call = body["messages"][1]["tool_calls"][0]
    del call["type"], call["id"], call["function"]["arguments"]
    status, text = post(server, CHAT, body)
    assert (status, content(text)) == (200, SAYS)


def test_arguments_null_are_none(server: Server) -> None:
    """Null arguments of an earlier call are an empty object for the template."""
    for value in (None, "null", ""):
        body = with_value(HISTORY, (*CALL, "function", "arguments"), value)
        status, text = post(server, "/apply-template", body)
        assert status == 200
        assert "raw_arguments" not in json.loads(text)["prompt"]


BAD: list[tuple[tuple[Any, ...], Any, str]] = [
    (("messages",), "hi", "messages"),
    (("messages", 0), "hi", "messages[0]"),
    (("messages", 0, "role"), 3, "messages[0].role"),
    (("messages", 0, "role"), None, "messages[0].role"),
    (("messages", 0, "content"), 3, "messages[0].content"),
    (("messages", 0, "content"), ["hi"], "messages[0].content[0]"),
    (("messages", 0, "content"), [{"type": "text", "text": None}], "messages[0].content[0].text"),
    (("messages", 0, "name"), {}, "messages[0].name"),
    (("messages", 1, "reasoning_content"), [], "messages[1].reasoning_content"),
    (("messages", 1, "tool_calls"), {}, "messages[1].tool_calls"),
    ((*CALL,), 3, "messages[1].tool_calls[0]"),
    ((*CALL, "id"), 3, "messages[1].tool_calls[0].id"),
    ((*CALL, "type"), "custom", "messages[1].tool_calls[0].type"),
    ((*CALL, "function"), None, "messages[1].tool_calls[0].function"),
    ((*CALL, "function", "name"), None, "messages[1].tool_calls[0].function.name"),
    ((*CALL, "function", "name"), 7, "messages[1].tool_calls[0].function.name"),
    (("messages", 2, "tool_call_id"), 3, "messages[2].tool_call_id"),
    (("tools",), {}, "tools"),
    (("tools", 0), 3, "tools[0]"),
    (("tools", 0, "type"), "retrieval", "tools[0].type"),
    ((*FUNCTION,), None, "tools[0].function"),
    ((*FUNCTION, "name"), None, "tools[0].function.name"),
    ((*FUNCTION, "name"), "", "tools[0].function.name"),
    ((*FUNCTION, "description"), [], "tools[0].function.description"),
    ((*FUNCTION, "parameters"), "x", "tools[0].function.parameters"),
    ((*FUNCTION, "parameters", "properties", "q", "type"), "text", "#/properties/q"),
    ((*FUNCTION, "parameters", "properties", "q"), {"$ref": "#/$defs/no"}, "#/properties/q"),
    (("tool_choice",), 3, "tool_choice"),
    (("tool_choice",), "sometimes", "tool_choice"),
    (("tool_choice",), {"type": "function"}, "tool_choice.function.name"),
    (("tool_choice",), {"type": "function", "function": {"name": "no"}}, "tool_choice"),
    (("response_format",), "json", "response_format"),
    (("response_format",), {"type": "json_schema", "json_schema": {"schema": 3}}, "schema"),
]


@pytest.mark.parametrize(("path", "value", "where"), BAD, ids=lambda v: str(v)[:48])
def test_what_cannot_be_used_is_400(
    server: Server, path: tuple[Any, ...], value: Any, where: str
) -> None:
    """The error names the field."""
    status, text = post(server, CHAT, with_value(HISTORY, path, value))
    assert status == 400, text
    error = json.loads(text)["error"]
    assert error["type"] == "invalid_request_error"
    assert where in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"messages": [}',
        b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e400}',
        b"[]",
        b"3",
    ],
    ids=lambda b: repr(b)[2:30],
)
def test_a_body_that_is_no_request(server: Server, body: bytes) -> None:
    """Invalid JSON, and JSON that is no object, is the client's fault."""
    for path in (CHAT, "/v1/responses", "/v1/messages", "/completion"):
        status, text = post(server, path, body)
        assert status == 400, (path, text)
        assert "error" in json.loads(text)


def test_a_conversation_that_the_template_refuses(server: Server) -> None:
    """Two system messages and the like: 400 when the template refuses them, never 500."""
    for roles in (["system", "system", "user"], ["user", "system"], ["assistant"], ["tool"], []):
        messages = [{"role": role, "content": "x"} for role in roles]
        status, text = post(server, CHAT, ask(messages=messages, tools=[]))
        assert status in (200, 400), text
        for character in ("\x00", "\ud800"):
            messages = [{"role": "user", "content": f"a{character}b"}]
            assert post(server, CHAT, ask(messages=messages))[0] in (200, 400)


def test_null_in_the_other_apis(server: Server) -> None:
    """Fields that are null count as not given in the Responses and the Anthropic API."""
    flat = [{"type": "function", **t["function"]} for t in TOOLS]
    body: dict[str, Any] = {"input": "hi", "tools": flat, "max_output_tokens": 40, **NO_THINKING}
    for key in (
        "instructions",
        "tools",
        "tool_choice",
        "reasoning",
        "previous_response_id",
        "text",
    ):
        status, text = post(server, "/v1/responses", {**body, key: None})
        assert status == 200, (key, text)
    body = {"max_tokens": 40, "messages": [{"role": "user", "content": "hi"}], **NO_THINKING}
    for key in ("system", "tools", "tool_choice", "stop_sequences", "thinking", "metadata"):
        status, text = post(server, "/v1/messages", {**body, key: None})
        assert status == 200, (key, text)


# --- which tool


def called(answer: str) -> list[tuple[str, Any]]:
    """Return name and arguments of the calls."""
    message = json.loads(answer)["choices"][0]["message"]
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]


def xml_call(name: str, **arguments: str) -> str:
    """Return a call as Qwen's XML templates have it."""
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def json_call(name: str, **arguments: Any) -> str:
    """Return a call as Qwen's JSON templates have it."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


FORMS = [(XML, xml_call), ("Qwen3-Coder.jinja", xml_call), (HERMES, json_call)]


@pytest.mark.parametrize("grammar", ["asleep", "awake"])
@pytest.mark.parametrize(("template", "form"), FORMS, ids=["3.5", "coder", "hermes"])
def test_names_that_look_alike(
    template: str, form: Any, grammar: str, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """Tools and parameters whose names differ by - _ . alone are kept apart."""
    names = ["get-user", "get_user", "get.user", "call", "calls", "get_user-schema"]
    properties = {k: {"type": "integer"} for k in ("a-b", "a_b", "a.b")}
    tools = []
    for name in names:
        own = {f"only-{names.index(name)}": {"type": "integer"}}
        schema = {
            "type": "object",
            "properties": {**properties, **own},
            "required": [*own, "a-b", "a_b", "a.b"],
            "additionalProperties": False,
        }
        tools += tool(schema, name)
    text = (templates / template).read_text(encoding="utf-8")
    for number, name in enumerate(names):
        arguments = {"a-b": 2222, "a_b": 33333, "a.b": 444444, f"only-{number}": 11}
        says = form(name, **arguments)
        script: Any = {"\n": awake(says)} if grammar == "awake" else says
        with serving(server_bin, tmp_path, script, text) as running:
            for stream in (False, True):
                answer = running.ask(stream=stream, tools=tools, max_tokens=200)
                assert answer.parsed() == [{"name": name, "arguments": arguments}]


@pytest.mark.parametrize("grammar", ["asleep", "awake"])
@pytest.mark.parametrize(("template", "form"), FORMS, ids=["3.5", "coder", "hermes"])
@pytest.mark.parametrize(
    "number", [7960607143101464576, 123456789012345678901234567890, -1764489600123456789]
)
def test_long_integers(
    number: int,
    template: str,
    form: Any,
    grammar: str,
    server_bin: Path,
    templates: Path,
    tmp_path: Path,
) -> None:
    """Every digit arrives, whatever the schema says about the range."""
    text = (templates / template).read_text(encoding="utf-8")
    schemas: list[dict[str, Any]] = [{"type": "integer"}, {"type": "number"}]
    if number > 0:
        schemas += [{"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}]
    says = form("ticket", id=number)
    script: Any = {"\n": awake(says)} if grammar == "awake" else says
    with serving(server_bin, tmp_path, script, text) as running:
        for schema in schemas:
            tools = tool(
                {"type": "object", "properties": {"id": schema}, "required": ["id"]}, "ticket"
            )
            for stream in (False, True):
                answer = running.ask(stream=stream, tools=tools, max_tokens=200)
                assert answer.parsed() == [{"name": "ticket", "arguments": {"id": number}}]


@pytest.mark.parametrize(
    "template, thinking",
    [
        (XML, False),
        (XML, True),
        ("Qwen3-Coder.jinja", False),  # this template does not think
        (HERMES, False),
        (HERMES, True),
    ],
)
@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_call_is_required(
    choice: str, template: str, thinking: bool, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """A model that would rather talk must begin a call, of the tool that was named."""
    text = (templates / template).read_text(encoding="utf-8")
    wanted: Any = choice
    if choice == "named":
        wanted = {"type": "function", "function": {"name": "noargs"}}
    more = {"chat_template_kwargs": {"enable_thinking": thinking}}
    prose = ("</think>\n\n" if thinking else "") + "Paris is the capital of France."
    with serving(server_bin, tmp_path, prose, text) as running:
        # Which blanks and names the grammar takes is chance: with the last seed a call comes and
        # then more prose, which `required` does not forbid.
        for seed in (0, 1, 2, 15):
            status, answer = post(
                running, CHAT, {**ask(tool_choice=wanted, max_tokens=400), **more, "seed": seed}
            )
            assert status == 200, answer
            calls = called(answer)
            # at most a line of prose, then the grammar leaves it only calls to talk in
            before, *begun = re.split("<tool_call>|<function=", content(answer), maxsplit=1)
            assert calls or len(before.rstrip()) <= 260
            assert thinking or calls or begun
            if choice == "named":
                assert {name for name, _ in calls} <= {"noargs"}


def test_a_named_tool_is_the_only_one(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """A call of another tool than the named one cannot come out."""
    text = (templates / XML).read_text(encoding="utf-8")
    says = xml_call("read", path="a.txt")
    with serving(server_bin, tmp_path, {"\n": awake(says)}, text) as running:
        for name in ("read", "noargs"):
            wanted = {"type": "function", "function": {"name": name}}
            answer = post(running, CHAT, ask(tool_choice=wanted))[1]
            assert {n for n, _ in called(answer)} <= {name}
            if name == "read":
                assert called(answer) == [("read", {"path": "a.txt"})]


@pytest.mark.parametrize("grammar", ["asleep", "awake"])
@pytest.mark.parametrize(("template", "form"), FORMS, ids=["3.5", "coder", "hermes"])
def test_one_call_at_most(
    template: str, form: Any, grammar: str, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """parallel_tool_calls false: one call; with the grammar asleep the second one stays text."""
    text = (templates / template).read_text(encoding="utf-8")
    says = form("read", path="a.txt") + "\n" + form("write_file", path="b", content="ccc")
    if grammar == "awake":
        says = form("read", path="a.txt")
    script: Any = {"\n": awake(says)} if grammar == "awake" else says
    asleep = grammar == "asleep" and template != "Qwen3-Coder.jinja"  # text wakes that one's
    with serving(server_bin, tmp_path, script, text, longest=14) as running:
        for stream in (False, True):
            answer = running.ask(stream=stream, parallel_tool_calls=False)
            assert answer.parsed() == [{"name": "read", "arguments": {"path": "a.txt"}}]
            if asleep:
                assert "write_file" in answer.content
        if asleep:
            assert len(running.ask(stream=False, parallel_tool_calls=True).calls) == 2


def test_format_and_tools(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """A response format together with tools: a call, or an answer in the format."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for template, form in FORMS:
        text = (templates / template).read_text(encoding="utf-8")
        with serving(server_bin, tmp_path, '{"n": 7}', text) as running:
            status, answer = post(running, CHAT, ask(response_format=format_))
            assert status == 200, answer
            assert json.loads(content(answer)) == {"n": 7}
        if form is xml_call:
            says = awake(form("read", path="a.txt"))
            with serving(server_bin, tmp_path, {"\n": says}, text) as running:
                answer = post(running, CHAT, ask(response_format=format_))[1]
                assert called(answer) == [("read", {"path": "a.txt"})]


@pytest.mark.parametrize(("template", "form"), FORMS, ids=["3.5", "coder", "hermes"])
def test_a_stop_word_is_not_the_end(
    template: str, form: Any, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """A client's stop word inside a call cuts it: it is not executed."""
    text = (templates / template).read_text(encoding="utf-8")
    says = form("write_file", path="a.txt", content="one STOP two")
    with serving(server_bin, tmp_path, says, text) as running:
        for stop in ("STOP", "</function>", "</tool_call>", "content"):
            for stream in (False, True):
                answer = running.ask(stream=stream, stop=[stop])
                whole = [{"path": "a.txt", "content": "one STOP two"}]
                if [c["arguments"] for c in answer.parsed()] != whole:
                    assert answer.calls == []
                    assert "a.txt" in answer.content or stop == "content"
