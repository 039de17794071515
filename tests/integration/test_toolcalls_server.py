"""Tool calls end to end: a scripted model, the real llama-server, the official client.

``QBUILD_TEST_SERVER`` names the patched llama-server, ``QBUILD_TEST_CLI`` the llama-cli (default:
the one beside the server) and ``QBUILD_TEST_TEMPLATES`` the source's ``models/templates``.

While a call is written, the server's grammar forbids most malformed texts as soon as it sees the
*token* ``<tool_call>``. The scripts spell the tag with other tokens, as models do: so these cases
run with the grammar asleep. ``test_tool_choice`` and ``test_with_the_grammar_awake`` run with it.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support import scripted_gguf
from support.scripted_server import (
    DATA,
    HERMES,
    NO_THINKING,
    TAGS,
    TOOLS,
    XML,
    Answer,
    Message,
    Server,
    serving,
    setting,
)

pytestmark = pytest.mark.server

openai = pytest.importorskip("openai")


@pytest.fixture(scope="session")
def server_bin() -> Path:
    """The patched llama-server."""
    return setting("QBUILD_TEST_SERVER")


@pytest.fixture(scope="session")
def templates() -> Path:
    """The source's chat templates."""
    return setting("QBUILD_TEST_TEMPLATES")


def template_of(case: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the template of a case's format, and flags.

    JSON cases run with the XML template and ``--tool-call-format hermes``: upstream wakes the
    grammar of the JSON template by the text of the tag, so a malformed text could not be said.
    """
    if case["format"] == "qwen3-xml":
        return XML, ()
    if case["format"] == "hermes":
        return XML, ("--tool-call-format", "hermes")
    return XML, ("--tool-call-format", "mtp")


def check(case: dict[str, Any], answer: Answer) -> None:
    """Compare an answer with what the case expects."""
    parsed = answer.parsed()  # raises when arguments are no JSON
    if case["calls"] is not None:
        assert parsed == case["calls"]
    if case["content"] is not None:
        assert answer.content == case["content"]
    if case.get("reason") is not None and parsed:
        assert answer.reasons[0] == case["reason"]
    if case["finish"] == "length":
        assert answer.finish == "length"
    else:
        assert answer.finish == ("tool_calls" if parsed else "stop")


def limit(case: dict[str, Any], model: Path) -> dict[str, Any]:
    """Return the token limit that cuts a case where it ends."""
    if case["finish"] != "length":
        return {}
    import gguf

    tokens = gguf.GGUFReader(model).fields["tokenizer.ggml.tokens"].contents()
    return {"max_tokens": len(tokens) - 256 - 1 - 3 - len(TAGS)}


@pytest.mark.parametrize("case", DATA["cases"], ids=[c["id"] for c in DATA["cases"]])
def test_case(case: dict[str, Any], server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Every case comes out as it should, streaming and not, and both are the same."""
    template, flags = template_of(case)
    text = (templates / template).read_text(encoding="utf-8")
    script = case["text"]
    thinks = script.startswith("<think>\n")
    script = script.removeprefix("<think>\n")  # the prompt of a thinking model ends with it
    with serving(server_bin, tmp_path, script, text, *flags) as server:
        more = limit(case, tmp_path / "scripted.gguf")
        more["extra_body"] = {"chat_template_kwargs": {"enable_thinking": thinks}}
        whole = server.ask(stream=False, **more)
        streamed = server.ask(stream=True, **more)
        assert (whole.content, whole.reasoning, whole.calls, whole.finish) == (
            streamed.content,
            streamed.reasoning,
            streamed.calls,
            streamed.finish,
        )
        check(case, whole)
        # the conversation goes on, whatever the answer was
        message: Message = {"role": "assistant", "content": whole.content}
        results: list[Message] = []
        if whole.calls:
            message["tool_calls"] = [
                {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}}
                for i, (n, a) in enumerate(whole.calls)
            ]
            results = [
                {"role": "tool", "tool_call_id": f"c{i}", "content": "done"}
                for i in range(len(whole.calls))
            ]
        server.ask(
            stream=False,
            messages=[
                {"role": "user", "content": "hi"},
                message,
                *results,
                {"role": "user", "content": "go on"},
            ],
            max_tokens=2,
        )


@pytest.mark.parametrize(
    "template",
    ["Qwen3-Coder.jinja", XML, HERMES, "Qwen-Qwen2.5-7B-Instruct.jinja", "Qwen-QwQ-32B.jinja"],
)
def test_history(template: str, server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Malformed arguments of an earlier call do not make a request fail."""
    text = (templates / template).read_text(encoding="utf-8")
    with serving(server_bin, tmp_path, "Fine, thank you.", text) as server:
        for case in DATA["history"]:
            call = {"name": "read", "arguments": case["arguments"]}
            messages: list[Message] = [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "c1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
                {"role": "user", "content": "go on"},
            ]
            for stream in (False, True):
                answer = server.ask(stream=stream, messages=messages)
                assert answer.finish in ("stop", "length")
            prompt = apply_template(server, messages)
            assert "read" in prompt and "done" in prompt and "go on" in prompt
            if "<parameter=" in text:
                for key, value in case["object"].items():
                    assert f"<parameter={key}>\n{value}\n</parameter>" in prompt


def apply_template(server: Server, messages: list[Message]) -> str:
    """Return the prompt that the server makes."""
    body = json.dumps({"messages": messages, "tools": TOOLS, **NO_THINKING}).encode()
    request = urllib.request.Request(
        server.base + "/apply-template", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["prompt"])


CALL_XML = (
    "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
)
CALL_JSON = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("template", "call"), [(XML, CALL_XML), ("Qwen3-Coder.jinja", CALL_XML), (HERMES, CALL_JSON)]
)
@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_tool_choice(
    template: str, call: str, choice: str, server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """All three ways to choose, with the grammar awake, with and without the flag."""
    wanted: Any = choice
    if choice == "named":
        wanted = {"type": "function", "function": {"name": "read"}}
    text = (templates / template).read_text(encoding="utf-8")
    script = [
        b"<tool_call>",
        *scripted_gguf.split(
            call.removeprefix("<tool_call>").removesuffix("</tool_call>").encode(),
            random.Random(3),
            set(),
        ),
        b"</tool_call>",
    ]
    for flags in ((), ("--tool-call-parser",)):
        with serving(server_bin, tmp_path, {"\n": script}, text, *flags) as server:
            for stream in (False, True):
                answer = server.ask(stream=stream, tool_choice=wanted)
                assert answer.parsed() == [{"name": "read", "arguments": {"path": "a.txt"}}]
                assert answer.finish == "tool_calls"
                assert answer.content == ""


def test_tool_choice_none(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """With tool_choice none a call stays text."""
    with serving(
        server_bin, tmp_path, CALL_XML, (templates / XML).read_text(encoding="utf-8")
    ) as server:
        for stream in (False, True):
            answer = server.ask(stream=stream, tool_choice="none")
            assert answer.calls == []
            assert answer.content.strip() == CALL_XML


def test_second_turn_with_the_result(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Call, result, answer. The template ends the prompt of a turn after a result with a blank."""
    template = (templates / "Qwen3-Coder.jinja").read_text(encoding="utf-8")
    end = "{{- '<|im_start|>assistant\\n' }}"
    assert end in template
    template = template.replace(
        end, end + "{%- if messages[-1].role == 'tool' %}{{- ' ' }}{%- endif %}"
    )
    scripts = {"\n": CALL_XML, " ": "It holds one line."}
    with serving(server_bin, tmp_path, scripts, template) as server:
        for stream in (False, True):
            first = server.ask(stream=stream)
            assert first.parsed() == [{"name": "read", "arguments": {"path": "a.txt"}}]
            name, arguments = first.calls[0]
            messages: list[Message] = [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": name, "arguments": arguments},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "one line"},
            ]
            second = server.ask(stream=stream, messages=messages)
            assert second.calls == []
            assert second.content.strip() == "It holds one line."
            assert second.finish == "stop"


def test_parallel_calls(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Four calls in one answer, three of them malformed in different ways."""
    text = (
        "Now.\n"
        + CALL_XML.replace("\n</parameter>", "</parameter>")
        + "\n"
        + CALL_XML.replace("a.txt", "b.txt").replace("</function>\n", "")
        + "\n"
        + CALL_XML.replace("a.txt", "c.txt")
        + "\n"
        + CALL_JSON.replace("a.txt", "d.txt").replace("}}", "},}")
    )
    with serving(
        server_bin, tmp_path, text, (templates / XML).read_text(encoding="utf-8"), longest=14
    ) as server:
        for stream in (False, True):
            answer = server.ask(stream=stream, parallel_tool_calls=True)
            assert [c["arguments"]["path"] for c in answer.parsed()] == [
                "a.txt",
                "b.txt",
                "c.txt",
                "d.txt",
            ]
            assert answer.content == "Now.\n"


def test_twenty_clients(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Twenty at once, half of them streaming, all get the same."""
    case = next(c for c in DATA["cases"] if c["id"] == "xml-close-without-newline-two-calls")
    with serving(
        server_bin,
        tmp_path,
        case["text"],
        (templates / XML).read_text(encoding="utf-8"),
        "-np",
        "4",
        "-c",
        "32768",
    ) as server:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda k: server.ask(stream=k % 2 == 0), range(20)))
        for answer in answers:
            check(case, answer)


def test_other_apis(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """The Responses and the Anthropic API get the calls, too, with the reason."""
    case = next(c for c in DATA["cases"] if c["id"] == "mtp-plain")
    text = (templates / XML).read_text(encoding="utf-8")

    def post(server: Server, path: str, body: dict[str, Any]) -> str:
        data = json.dumps({**body, **NO_THINKING}).encode()
        request = urllib.request.Request(
            server.base + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            return str(response.read().decode())

    with serving(server_bin, tmp_path, case["text"], text, "--tool-call-format", "mtp") as server:
        flat = [{"type": "function", **t["function"]} for t in TOOLS]
        body: dict[str, Any] = {"model": "m", "input": "hi", "tools": flat}
        output = json.loads(post(server, "/v1/responses", body))["output"]
        call = next(item for item in output if item["type"] == "function_call")
        assert (call["name"], json.loads(call["arguments"])) == ("read", {"path": "a.txt"})
        assert call["reason"] == case["reason"]
        events = post(server, "/v1/responses", {**body, "stream": True})
        assert "response.function_call_arguments.delta" in events
        assert "response.completed" in events

        tools = [
            {
                "name": t["function"]["name"],
                "description": "",
                "input_schema": t["function"]["parameters"],
            }
            for t in TOOLS
        ]
        body = {
            "model": "m",
            "max_tokens": 400,
            "messages": [{"role": "user", "content": "hi"}],
            "tools": tools,
        }
        message = json.loads(post(server, "/v1/messages", body))
        assert message["stop_reason"] == "tool_use"
        use = next(block for block in message["content"] if block["type"] == "tool_use")
        assert (use["name"], use["input"], use["reason"]) == (
            "read",
            {"path": "a.txt"},
            case["reason"],
        )
        events = post(server, "/v1/messages", {**body, "stream": True})
        assert '"stop_reason":"tool_use"' in events
        assert "input_json_delta" in events


def test_invalid_utf8(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, in a value and in prose, become U+FFFD and nothing fails."""
    script = b"caf\xc3\xa9 \xff!\n" + CALL_XML.encode().replace(
        b"a.txt", b"a\xf0\x9f\x98b\xc3\xa9.txt"
    )
    with serving(
        server_bin, tmp_path, script, (templates / XML).read_text(encoding="utf-8")
    ) as server:
        answers = [server.ask(stream=stream) for stream in (False, True)]
        for answer in answers:
            assert answer.parsed()[0]["name"] == "read"
            assert "�" in answer.parsed()[0]["arguments"]["path"]
            assert answer.content.startswith("café ")
        assert answers[0] == answers[1]


def test_with_the_grammar_awake(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """The grammar forbids the script's malformed call: something else is said, nothing fails."""
    for template in (XML, "Qwen3-Coder.jinja", HERMES):
        text = (templates / template).read_text(encoding="utf-8")
        call = CALL_JSON if template == HERMES else CALL_XML
        spoilt = call.removeprefix("<tool_call>").replace("read", "nope")
        script = [
            b"<tool_call>",
            *scripted_gguf.split(spoilt.encode(), random.Random(5), set()),
        ]
        with serving(server_bin, tmp_path, {"\n": script}, text) as server:
            for stream in (False, True):
                answer = server.ask(stream=stream, max_tokens=80)
                answer.parsed()


def test_start_up_line(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """The number of control tokens: of the vocabulary, and what the metadata lists beside them."""
    text = (templates / XML).read_text(encoding="utf-8")
    for metadata, count in (
        ({}, len(TAGS)),
        ({"qwen3.control_token_ids": [257, 258, 260]}, len(TAGS) + 2),
    ):
        with serving(
            server_bin, tmp_path, "Hello there.", text, "--tool-call-parser", metadata=metadata
        ) as server:
            log = server.log.read_text(errors="replace")
        assert f"tool-call parser (MTP) initialized with {count} control tokens" in log


def test_without_the_flag_no_line(server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Without the flag the parser says nothing."""
    with serving(
        server_bin, tmp_path, "Hello there.", (templates / XML).read_text(encoding="utf-8")
    ) as server:
        assert "tool-call parser (MTP)" not in server.log.read_text(errors="replace")


@pytest.fixture
def cli_bin(server_bin: Path) -> Path:
    """The llama-cli beside the server."""
    cli = Path(
        os.environ.get(
            "QBUILD_TEST_CLI", str(server_bin.with_name("llama-cli" + server_bin.suffix))
        )
    )
    if not cli.exists():
        pytest.skip("there is no llama-cli beside the server")
    return cli


def test_cli_prints_the_call(cli_bin: Path, templates: Path, tmp_path: Path) -> None:
    """llama-cli prints the block, with name, arguments and reason."""
    case = next(c for c in DATA["cases"] if c["id"] == "mtp-plain")
    model = scripted_gguf.write(
        tmp_path / "m.gguf",
        case["text"],
        (templates / XML).read_text(encoding="utf-8"),
        specials=TAGS,
    )
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS), encoding="utf-8")
    flags = [
        "-p",
        "hi",
        "-st",
        "--tool-call-format",
        "mtp",
        "--tool-call-tools",
        str(tools),
        "-c",
        "4096",
        "--no-warmup",
        "-rea",
        "off",
    ]
    done = subprocess.run(
        [str(cli_bin), "-m", str(model), *flags],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "TOOL CALL DETECTED" in said
    assert "Name:      read" in said
    assert 'Arguments: {"path": "a.txt"}' in said
    assert f"Reason:    {case['reason']}" in said
    assert "tool-call parser (MTP) initialized with" in said


def test_dump_metadata(cli_bin: Path, server_bin: Path, templates: Path, tmp_path: Path) -> None:
    """Every key, type and value; long arrays shortened, whole as JSON; no tensor is read."""
    import gguf

    model = scripted_gguf.write(
        tmp_path / "m.gguf", "Hello there.", (templates / XML).read_text(encoding="utf-8")
    )
    fields = [
        f for name, f in gguf.GGUFReader(model).fields.items() if not name.startswith("GGUF.")
    ]
    for binary in (cli_bin, server_bin):
        done = subprocess.run(
            [str(binary), "-m", str(model), "--dump-metadata"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line.split(" ")[0] for line in lines] == [f.name for f in fields]
        assert any(
            line.startswith("tokenizer.ggml.tokens str[") and line.endswith(", ...]")
            for line in lines
        )
        whole = subprocess.run(
            [str(binary), "-m", str(model), "--dump-metadata=json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        dumped = json.loads(whole.stdout)
        assert dumped["tokenizer.ggml.tokens"]["value"] == fields_value(
            fields, "tokenizer.ggml.tokens"
        )
        assert dumped["general.architecture"] == {"type": "str", "value": "qwen3"}
        missing = subprocess.run(
            [str(binary), "-m", str(tmp_path / "none.gguf"), "--dump-metadata"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert missing.returncode == 1
    # no tensor is read: the file may end where they start
    data = model.read_bytes()
    headless = tmp_path / "headless.gguf"
    headless.write_bytes(data[: len(data) - 4096])
    done = subprocess.run(
        [str(cli_bin), "-m", str(headless), "--dump-metadata"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "general.architecture str" in done.stdout


def fields_value(fields: list[Any], name: str) -> Any:
    """Return a key's value."""
    return next(f for f in fields if f.name == name).contents()


def test_text_behind_a_call_in_the_anthropic_api(
    server_bin: Path, templates: Path, tmp_path: Path
) -> None:
    """Blocks of a stream have their own numbers, in the order in which they come."""
    text = (templates / XML).read_text(encoding="utf-8")
    script = f"{CALL_XML}\nDone with a.\n{CALL_JSON.replace('a.txt', 'b.txt')}"
    tools = [
        {
            "name": tool["function"]["name"],
            "description": "",
            "input_schema": tool["function"]["parameters"],
        }
        for tool in TOOLS
    ]
    body = {
        "model": "m",
        "max_tokens": 400,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
        "stream": True,
        **NO_THINKING,
    }
    with serving(server_bin, tmp_path, script, text, longest=14) as server:
        request = urllib.request.Request(
            server.base + "/v1/messages",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            lines = response.read().decode().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    started: dict[int, str] = {}
    pieces: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] not in started
            started[event["index"]] = event["content_block"]["type"]
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            piece = delta.get("text", "") + delta.get("partial_json", "")
            pieces[event["index"]] = pieces.get(event["index"], "") + piece
    stopped = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert started == {0: "tool_use", 1: "text", 2: "tool_use"}
    assert sorted(stopped) == [0, 1, 2]
    assert json.loads(pieces[0]) == {"path": "a.txt"}
    assert json.loads(pieces[2]) == {"path": "b.txt"}
    assert pieces[1].strip() == "Done with a."
