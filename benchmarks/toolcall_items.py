"""Faults of tool calls that were found once, on an older and a newer llama-server, as a table.

    python benchmarks/toolcall_items.py --source LLAMA_CPP --server NEW/llama-server \\
        --before OLD/llama-server [--only 1 4] [--tokens 8000]

Each row is one fault of a numbered kind (``docs/patches.md`` has the table): a real server with a
scripted model is asked, and the row says what came. Exit status 1: a row is wrong with the newer
server.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import toolcall_conformance as conformance

from integration import test_toolcalls_requests as requests
from integration import test_toolcalls_streams as streams
from support.scripted_server import (
    HERMES,
    NO_THINKING,
    TOOLS,
    XML,
    Answer,
    Server,
    awake,
    post,
    serving,
)

CHAT = requests.CHAT
RIGHT = "right"
HI = [{"role": "user", "content": "hi"}]
GEMMA = "google-gemma-4-31B-it.jinja"
OTHERS = dict(streams.OTHERS)
SILENCE = 2.0
"""Longest time without a byte that a stream may have, in seconds."""


@dataclass(frozen=True)
class Row:
    """One fault: how to see it, and what the model says."""

    item: int
    fault: str
    check: Callable[[Server], str]
    script: Any
    template: str = XML
    flags: tuple[str, ...] = ()
    context: int = 8192
    after: str = ""
    metadata: Any = None
    longest: int = 9


ROWS: list[Row] = []


def row(item: int, fault: str, script: Any, **settings: Any) -> Callable[[Any], Any]:
    """Add a fault. Its check returns what came: ``RIGHT`` when it is as it should be."""

    def add(check: Callable[[Server], str]) -> Callable[[Server], str]:
        ROWS.append(Row(item, fault, check, script, **settings))
        return check

    return add


def body(**more: Any) -> dict[str, Any]:
    """Return a chat request."""
    return {"messages": HI, "tools": TOOLS, "max_tokens": 600, **NO_THINKING, **more}


def short(value: Any) -> str:
    """Return the start of a value's JSON, for a cell of a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", "↵").replace("|", "\\|")
    return f"`{text[:70]}{'…' if len(text) > 70 else ''}`"


def asked(server: Server, **more: Any) -> Answer:
    """Ask whole and streamed, and return the answer; both must be the same."""
    whole, streamed = (server.ask(stream=stream, **more) for stream in (False, True))
    if whole != streamed:
        raise ValueError(f"streamed {short(streamed.calls or streamed.content)}")
    return whole


def compared(got: Any, wanted: Any) -> str:
    """Return ``RIGHT``, or what came instead."""
    return RIGHT if got == wanted else short(got)


def called(answer: Answer, *wanted: tuple[str, Any]) -> str:
    """Compare the calls of an answer with those that were said."""
    got = [(name, json.loads(arguments)) for name, arguments in answer.calls]
    return RIGHT if got == list(wanted) else f"calls {short(got)}"


def status(server: Server, path: str, request: Any, wanted: int = 400) -> str:
    """Post, and compare the HTTP status."""
    try:
        got, _ = post(server, path, request, timeout=20)
    except TimeoutError:
        return "no answer in 20 s"
    return RIGHT if got == wanted else f"HTTP {got}"


def each(outcomes: dict[str, str]) -> str:
    """Return ``RIGHT``, or how many are not, and the first of them."""
    wrong = {name: what for name, what in outcomes.items() if what != RIGHT}
    if not wrong:
        return RIGHT
    name, what = next(iter(wrong.items()))
    return f"{len(wrong)} of {len(outcomes)}: {name}: {what}"


XML_READ = requests.xml_call("read", path="a.txt")
READ = ("read", {"path": "a.txt"})

# --- 1: silence while a call is held back


def long_call(tokens: int) -> list[bytes]:
    """Return the pieces of a call whose value has that many tokens."""
    head, tail = XML_READ.split("a.txt")
    return [head.encode(), *(f"{n:05d} ".encode() for n in range(tokens)), tail.encode()]


def never_silent(server: Server) -> str:
    """Stream a long call; bytes must come at least every ``SILENCE`` seconds."""
    times, everything = [0.0], b""
    request = body(max_tokens=30000, stream_options={"include_usage": True})
    for when, piece in streams.arrivals(server, request):
        times.append(when)
        everything += piece
    silence = max(b - a for a, b in itertools.pairwise(times))
    tokens = re.findall(rb'"completion_tokens":(\d+)', everything)
    pings = len(re.findall(rb"(?m)^:\r?$", everything))
    said = f"{int(tokens[-1]) if tokens else '?'} tokens in {times[-1]:.1f} s, longest silence "
    said += f"{silence:.2f} s, {pings} comments"
    whole = b'"finish_reason":"tool_calls"' in everything
    return f"{RIGHT}: {said}" if silence <= SILENCE and whole else said


# --- 2: a write whose content was cut

OPEN = (
    "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
)


@row(2, "an answer ends in `…<p>hello</p`: no call", OPEN + "<html><p>hello</p")
def _(server: Server) -> str:
    return called(asked(server))


# --- 3: a client that pins a core


@row(3, "12 types that are each any of all: an answer within 5 s", "Hello there.")
def _(server: Server) -> str:
    start = time.monotonic()
    request = body(tools=requests.tool(requests.cycles(12)))
    came = {status(server, CHAT, request, wanted) for wanted in (200, 400)}
    return RIGHT if RIGHT in came and time.monotonic() - start < 10 else min(came)


@row(3, "a client's `tool_call_parser` has no effect", requests.json_call("read", path="a.txt"))
def _(server: Server) -> str:
    config = {"format": "qwen3-xml", "tools": [], "content": "mine", "reasoning": "", "think": 0}
    config |= {"trim": [-1, -1, -1], "call_ends_think": True, "bare_calls": True, "max_calls": 0}
    fields = {"tool_call_parser": json.dumps(config), "tools": []}
    answer = json.loads(post(server, CHAT, body(**fields))[1])
    content = answer["choices"][0]["message"]["content"]
    return RIGHT if not content.startswith("mine") else f"content {short(content)}"


# --- 4: each byte once, and none lost

BROKEN = '{"имя": read}\n</tool_call>'


@row(
    4,
    "a broken second call with a name in Cyrillic keeps each byte",
    '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}' + BROKEN,
    flags=("--tool-call-format", "hermes"),
)
def _(server: Server) -> str:
    answer = asked(server)
    return each({"calls": called(answer, READ), "content": compared(answer.content, BROKEN)})


# --- 5: numbers

LONG = 123456789012345678901234567890


@row(
    5,
    "an integer of 30 digits, grammar awake",
    {"\n": awake(requests.xml_call("read", limit=LONG))},
)
def _(server: Server) -> str:
    one = requests.tool({"properties": {"limit": {"type": "integer"}}, "type": "object"}, "read")
    return called(asked(server, tools=one), ("read", {"limit": LONG}))


@row(
    5,
    "the same with a JSON template",
    {"\n": awake(requests.json_call("read", limit=LONG))},
    template=HERMES,
)
def _(server: Server) -> str:
    one = requests.tool({"properties": {"limit": {"type": "integer"}}, "type": "object"}, "read")
    return called(asked(server, tools=one), ("read", {"limit": LONG}))


# --- 6: tool_choice

TALK = "Paris is the capital of France."
NAMED = {"type": "function", "function": {"name": "noargs"}}


def begins_a_call(server: Server, choice: Any) -> str:
    """Ask a model that would rather talk."""
    answer = server.ask(stream=False, tool_choice=choice)
    begun = answer.calls or "<tool_call>" in answer.content
    others = [name for name, _ in answer.calls if choice == NAMED and name != "noargs"]
    return RIGHT if begun and not others else f"content {short(answer.content)}, {answer.finish}"


@row(6, "`required`: prose ends, a call begins", TALK)
def _(server: Server) -> str:
    return begins_a_call(server, "required")


@row(6, "a named function is the one that is called", TALK)
def _(server: Server) -> str:
    return begins_a_call(server, NAMED)


TWO = XML_READ + "\n" + XML_READ.replace("a.txt", "bb.txt")


@row(6, "`parallel_tool_calls` false: one call, the rest is text", TWO, longest=14)
def _(server: Server) -> str:
    return called(asked(server, parallel_tool_calls=False), READ)


# --- 7: null


@row(7, f"{len(requests.NULL)} fields that are null count as absent", requests.SAYS)
def _(server: Server) -> str:
    paths = {".".join(map(str, path)): path for path in requests.NULL}
    request = requests.with_value
    return each(
        {n: status(server, CHAT, request(requests.HISTORY, p, None), 200) for n, p in paths.items()}
    )


@row(7, f"{len(requests.BAD)} fields that cannot be used: 400 with their path", requests.SAYS)
def _(server: Server) -> str:
    outcomes = {}
    for path, value, where in requests.BAD:
        got, text = post(server, CHAT, requests.with_value(requests.HISTORY, path, value))
        fine = got == 400 and where in text
        name = f"{'.'.join(map(str, path))} = {json.dumps(value)[:40]}"
        outcomes[name] = RIGHT if fine else f"HTTP {got}"
    return each(outcomes)


# --- 8: literals


@row(8, "`TRUE` where the schema says boolean", requests.xml_call("setx", flag="TRUE"))
def _(server: Server) -> str:
    return called(asked(server), ("setx", {"flag": True}))


@row(8, "`NONE` where the schema says integer or null", requests.xml_call("setx", flag="NONE"))
def _(server: Server) -> str:
    flag = {"type": ["integer", "null"]}
    one = requests.tool({"type": "object", "properties": {"flag": flag}}, "setx")
    return called(asked(server, tools=one), ("setx", {"flag": None}))


# --- 9: a grammar's dead end


@row(9, "an answer that cannot be of its schema is an error, the next one is of it", TALK)
def _(server: Server) -> str:
    request = {"prompt": "x\n", "n_predict": 8, "json_schema": {"const": 1}}
    one = json.loads(post(server, "/tokenize", {"content": "1"})[1])["tokens"][0]
    got, text = post(server, "/completion", {**request, "logit_bias": [[one, False]]})
    if got == 200:
        return f"HTTP 200, content {short(json.loads(text)['content'])}"
    return compared(json.loads(post(server, "/completion", request)[1])["content"], "1")


# --- 10: control tokens, stop words


@row(
    10,
    "control tokens of the file do not hide those of the vocabulary",
    TALK,
    flags=("--tool-call-parser",),
    metadata={"qwen3.control_token_ids": [257]},
)
def _(server: Server) -> str:
    said = re.findall(r"initialized with (\d+) control", server.log.read_text(errors="replace"))
    return compared(said, ["7"])


# --- 11: a value that ends like its end tag

INNER = {"path": "a", "content": '<parameter name="S">a.B</parameter>'}


@row(11, "a value whose last line ends in `</parameter>`", requests.xml_call("write_file", **INNER))
def _(server: Server) -> str:
    return called(asked(server), ("write_file", INNER))


# --- 12: the Responses API


def responses(template: str) -> Callable[[Server], str]:
    """Return a check of a call that is streamed over the Responses API."""

    def check(server: Server) -> str:
        got = streams.calls_of(server, "responses", True)
        return RIGHT if got == [READ] else f"calls {short(got)}"

    row(
        12,
        f"Responses, streamed: a single call of {template.split('.')[0]}",
        OTHERS[template],
        template=template,
        after=streams.ENDS,
    )(check)
    return check


for family in ("openai-gpt-oss-120b.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja", GEMMA):
    responses(family)


@row(12, "Responses: OpenAI's client reads text before a call", conformance.PROSE + XML_READ)
def _(server: Server) -> str:
    response = conformance.respond_streamed(server)
    text = compared(response.output_text.strip(), conformance.PROSE.strip())
    return each({"text": text, "call": compared(conformance.response_calls(response), [READ])})


# --- 13: keys said twice

TWICE = (
    '<tool_call>\n{"name": "read", "arguments": {"path": "b", "p\\u0061th": "a.txt"}}\n</tool_call>'
)


@row(13, "a key said twice, once escaped", TWICE, flags=("--tool-call-format", "hermes"))
def _(server: Server) -> str:
    return compared([a.replace(" ", "") for _, a in asked(server).calls], ['{"path":"a.txt"}'])


MANY = "".join(f"<parameter=p{n}>\n{n}\n</parameter>\n" for n in (*range(100, 170), 169))


@row(
    13,
    "an XML parameter said twice, the 71st",
    f"<tool_call>\n<function=many>\n{MANY}</function>\n</tool_call>",
    longest=24,
)
def _(server: Server) -> str:
    properties = {f"p{n}": {"type": "integer"} for n in range(100, 170)}
    many = requests.tool({"type": "object", "properties": properties}, "many")
    answer = asked(server, tools=many, max_tokens=2000)
    twice = [a.count('"p169"') for _, a in answer.calls]
    return RIGHT if twice == [1] else f"said {twice} times"


# --- 14: a broken call of another family


def broken(template: str) -> None:
    """Add a check of a call that is cut anywhere."""

    def check(server: Server) -> str:
        outcomes = {}
        for limit in (2, 3, 5, 8, 11):
            whole = server.ask(stream=False, max_tokens=limit)
            streamed = server.ask(stream=True, max_tokens=limit)
            same = streamed == whole and not whole.calls
            outcomes[f"after {limit} tokens"] = (
                RIGHT
                if same
                else f"whole {short(whole.content)}, streamed {short(streamed.content)}"
            )
        return each(outcomes)

    row(
        14,
        f"a cut call of {template.split('.')[0]} stays text, streamed as whole",
        OTHERS[template],
        template=template,
        after=streams.ENDS,
        longest=3,
    )(check)


for family in (streams.DEVSTRAL, GEMMA):
    broken(family)


# --- 15: names that look alike

ALIKE = ["get-user", "get_user", "get.user"]
KEYS = {"a-b": 2222, "a_b": 33333, "a.b": 444444}


def alike(name: str) -> None:
    """Add a check of one of the tools that differ by a sign."""

    def check(server: Server) -> str:
        tools = []
        for number, other in enumerate(ALIKE):
            own = {f"only-{number}": {"type": "integer"}}
            properties = {**{key: {"type": "integer"} for key in KEYS}, **own}
            schema = {"type": "object", "properties": properties, "required": list(properties)}
            tools += requests.tool(schema, other)
        wanted = {**KEYS, f"only-{ALIKE.index(name)}": 11}
        return called(asked(server, tools=tools), (name, wanted))

    arguments = {**KEYS, f"only-{ALIKE.index(name)}": 11}
    row(
        15,
        f"`{name}` beside {' and '.join(f'`{o}`' for o in ALIKE if o != name)}, grammar awake",
        {"\n": awake(requests.json_call(name, **arguments))},
        template=HERMES,
    )(check)


for similar in ALIKE:
    alike(similar)


# --- 16: depth


@row(16, "a request nested 500,000 deep is 400, and the server lives", requests.SAYS)
def _(server: Server) -> str:
    text = json.dumps(body())[:-1] + f', "x": {requests.nested(500_000)}}}'
    first = status(server, CHAT, text.encode())
    return each({"answer": first, "the next": status(server, CHAT, body(), 200)})


# --- 17: upstream's own


@row(17, "`maxItems` of 2000 and 2001", requests.SAYS)
def _(server: Server) -> str:
    outcomes = {}
    for most in (2000, 2001):
        items = {"type": "array", "items": {"type": "string"}, "maxItems": most}
        schema = {"type": "object", "properties": {"a": items}, "required": ["a"]}
        outcomes[str(most)] = status(server, CHAT, body(tools=requests.tool(schema)), 200)
    return each(outcomes)


@row(17, "`response_format` together with tools", '{"n": 7}')
def _(server: Server) -> str:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return status(server, CHAT, body(response_format=wanted), 200)


@row(17, "no JSON, a bad schema, a late system message: 400", requests.SAYS)
def _(server: Server) -> str:
    bad = requests.tool({"type": "object", "properties": {"q": {"type": "text"}}})
    late = [*HI, {"role": "system", "content": "x"}]
    return each(
        {
            "no JSON": status(server, CHAT, b'{"messages": [}'),
            "schema": status(server, CHAT, body(tools=bad)),
            "system": status(server, CHAT, body(messages=late)),
        }
    )


def anthropic_number(spelling: str, wanted: float) -> None:
    """Add a check of a number in the input of a call."""

    def check(server: Server) -> str:
        uses = [b for b in streams.anthropic_message(server, False).content if b.type == "tool_use"]
        return compared([u.input for u in uses], [{"flag": True, "n": wanted}])

    arguments = f'{{"flag": true, "n": {spelling}}}'
    row(
        17,
        f"Anthropic, not streamed: {spelling} in the input",
        f'<tool_call>\n{{"name": "setx", "arguments": {arguments}}}\n</tool_call>',
        template=HERMES,
    )(check)


for digits, number in (("1e400", float("inf")), (str(10**20 + 7), 10**20 + 7)):
    anthropic_number(digits, number)


# --- 18: decided

FENCED = f"Like this:\n```xml\n{XML_READ}\n```\nDone."


@row(18, "a call in a code fence is text", FENCED)
def _(server: Server) -> str:
    answer = asked(server)
    return each({"calls": called(answer), "content": compared(answer.content, FENCED)})


@row(18, "`arguments: null` in the history is `{}`", requests.SAYS)
def _(server: Server) -> str:
    path = (*requests.CALL, "function", "arguments")
    request = requests.with_value(requests.HISTORY, path, None)
    got, text = post(server, "/apply-template", request)
    return (
        RIGHT if got == 200 and "raw_arguments" not in text else f"HTTP {got}, {short(text[-90:])}"
    )


# --- the table


def outcome(binary: Path, entry: Row, templates: Path) -> str:
    """Start the row's server, run its check, and name what became of it."""
    text = (templates / entry.template).read_text(encoding="utf-8")
    more: dict[str, Any] = {"context": entry.context, "longest": entry.longest}
    if entry.after:
        more["also_after"] = entry.after
    if entry.metadata:
        more["metadata"] = entry.metadata
    came = "the server does not start"
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.suppress(AssertionError),  # a check may have ended it
        serving(binary, Path(folder), entry.script, text, *entry.flags, **more) as server,
    ):
        server.strict = False
        came = checked(entry, server)
        if server.process.poll() is not None:
            came = "the server is gone"
    return came


def checked(entry: Row, server: Server) -> str:
    """Run a check; errors of clients and connections are outcomes, too."""
    try:
        return entry.check(server)
    except conformance.openai.APIStatusError as error:
        return f"HTTP {error.status_code}"
    except (conformance.openai.APIError, OSError) as error:
        return f"{type(error).__name__}"
    except ValueError as error:
        return str(error).split("\n")[0] if "streamed" in str(error) else "arguments are no JSON"
    except Exception as error:  # whatever a client makes of a stream that is not as it should be
        return f"client: {type(error).__name__}"


def main() -> int:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("--source", "--server", "--before"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--only", type=int, nargs="*", help="kinds, all when none is given")
    parser.add_argument("--tokens", type=int, default=8000, help="held back in row 1")
    options = parser.parse_args()
    templates = options.source / "models" / "templates"
    context = options.tokens + 4096
    flags = ("--sse-ping-interval", "1", "-c", str(context))
    script = {"\n": long_call(options.tokens)}
    fault = f"a byte every {SILENCE:.0f} s while {options.tokens} tokens are held back"
    silence = Row(1, fault, never_silent, script, flags=flags, context=context, longest=8)
    rows = [r for r in (silence, *ROWS) if not options.only or r.item in options.only]
    wrong = {"before": 0, "after": 0}
    print("| kind | fault | before | after |\n|---|---|---|---|")
    for entry in rows:
        before = outcome(options.before, entry, templates)
        after = outcome(options.server, entry, templates)
        wrong["before"] += not before.startswith(RIGHT)
        wrong["after"] += not after.startswith(RIGHT)
        print(f"| {entry.item} | {entry.fault} | {before} | {after} |", flush=True)
    print(f"\n{len(rows)} rows: {wrong['before']} wrong before, {wrong['after']} after.")
    return 1 if wrong["after"] else 0


if __name__ == "__main__":
    sys.exit(main())
