"""The templates of our Modelfiles, read and filled in by Ollama's own packages.

``QBUILD_TEST_OLLAMA`` names a program (``tests/support/ollama_template.go`` says how it is built),
``QBUILD_TEST_TEMPLATES`` the patched source's ``models/templates``. Run by ``pytest -m ollama``; CI
does not, because Go's modules come from their proxy alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qbuild.extras import ollama, ollama_tools

pytestmark = pytest.mark.ollama
WITH_TOOLS = (
    "MiMo-VL",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
    "unsloth-mistral-Devstral-Small-2507",
)


def setting(name: str) -> Path:
    value = os.environ.get(name)
    assert value, f"{name} is not set"
    return Path(value)


def ask(template: str, messages: object, tools: object, answer: str = "") -> dict[str, Any]:
    question = {"template": template, "messages": messages, "tools": tools, "answer": answer}
    done = subprocess.run(
        [setting("QBUILD_TEST_OLLAMA")], input=json.dumps(question), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def in_one_way(text: str) -> str:
    """Return a text with each JSON object in it written in one way."""
    decoder, parts, at = json.JSONDecoder(), [], 0
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at) if text[at] == "{" else (None, at)
        except ValueError:
            value, end = None, at
        parts.append(text[at] if value is None else json.dumps(value, sort_keys=True))
        at = at + 1 if value is None else end
    return "".join(parts)


def turns_of(template: str) -> ollama.Turns | None:
    header = ollama.Header(name="m", context=512, template=template, bos="", stops=("</s>",))
    return ollama.turns_of(header)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_tools_calls_and_results_are_written_as_by_the_models_template(name: str) -> None:
    path = setting("QBUILD_TEST_TEMPLATES") / f"{name}.jinja"
    turns = turns_of(path.read_text(encoding="utf-8"))
    assert turns is not None
    assert turns.tools is not None
    for messages, tools in ollama_tools.conversations(with_system="system" in turns.around):
        want = turns.tools.render(turns.around, messages, tools) + turns.prompt
        told = ask(turns.go(), messages, tools)
        assert in_one_way(told["text"]) == in_one_way(want)
    # What makes Ollama offer tools at all, and what it finds in an answer.
    assert {"tools", "toolcalls"} <= set(told["vars"])
    called = turns.tools.opening[1] + "tool0" + turns.tools.middle + '{"key": "Paris"}'
    answer = "Let me see." + called + turns.tools.closing
    told = ask(turns.go(), [{"role": "user", "content": "1"}], tools, answer)
    assert [each["function"]["name"] for each in told["calls"]] == ["tool0"]
    assert told["calls"][0]["function"]["arguments"] == {"key": "Paris"}
    assert told["content"].strip().startswith("Let me see.")


def test_all_templates_of_the_source_are_read_and_give_their_text() -> None:
    seen = 0
    for path in sorted(setting("QBUILD_TEST_TEMPLATES").glob("*.jinja")):
        turns = turns_of(path.read_text(encoding="utf-8"))
        if turns is None:
            continue
        seen += 1
        messages = [
            {"role": role, "content": text}
            for role, text in (("system", "s"), ("user", "1"), ("assistant", "2"), ("user", "3"))
            if role in turns.around
        ]
        assert ask(turns.go(), messages, [])["text"] == turns.render(messages), path.name
    assert seen >= 53
