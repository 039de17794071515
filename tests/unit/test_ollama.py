"""Modelfiles: the model's own template in Go's language, or an honest word that it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild.cli.main import run
from qbuild.errors import UsageError
from qbuild.extras.ollama import Header, modelfile, read_header, turns_of
from qbuild.extras.ollama_tools import conversations, go_text
from qbuild.verify import tiny_gguf

CHATML = tiny_gguf.CHAT_TEMPLATE
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
    "'<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}<start_of_turn>"
    "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
BRACES = CHATML.replace("<|im_start|>", "{{ '{{' }}")
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    + CHATML
)
TOOLS = (
    "{% if tools %}<|im_start|>system\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}Tools:"
    "{% for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}<|im_end|>\n"
    "{% elif messages[0].role == 'system' %}"
    "<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
    "{% endif %}{% for m in messages %}"
    "{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}"
    "{% for c in m.tool_calls %}"
    "{% if m.content or not loop.first %}{{ '\n' }}{% endif %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% elif m.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n' }}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BY_PARAMETER = TOOLS.replace(
    "{{ c.function.arguments | tojson }}",
    "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}",
)
LAST_ONLY = (
    "{% for m in messages %}{% if loop.last %}LAST {% endif %}{{ m['role'] }}: {{ m['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def header(template: str, bos: str = "", **more: object) -> Header:
    values = {"name": "m", "context": 512, "stops": ("<|im_end|>",), **more}
    return Header(template=template, bos=bos, **values)  # type: ignore[arg-type]


def test_chatml_becomes_a_go_template() -> None:
    turns = turns_of(header(CHATML))
    assert turns is not None
    assert turns.go() == (
        '{{ range .Messages }}{{ if eq .Role "system" }}<|im_start|>system\n'
        '{{ .Content }}<|im_end|>\n{{ else if eq .Role "user" }}<|im_start|>user\n'
        '{{ .Content }}<|im_end|>\n{{ else if eq .Role "assistant" }}<|im_start|>assistant\n'
        "{{ .Content }}<|im_end|>\n{{ end }}{{ end }}<|im_start|>assistant\n"
    )


def test_the_first_token_is_left_to_the_program() -> None:
    turns = turns_of(header(LLAMA3, bos="<|begin_of_text|>"))
    assert turns is not None and turns.start == ""
    assert "<|begin_of_text|>" not in turns.go()
    assert turns.prompt == "<|start_header_id|>assistant<|end_header_id|>\n\n"


def test_a_system_message_of_the_templates_own_gives_way() -> None:
    turns = turns_of(header(DEFAULT_SYSTEM))
    assert turns is not None
    assert turns.go().startswith(
        "{{ if not .System }}<|im_start|>system\nBe kind.<|im_end|>\n{{ end }}{{ range .Messages }}"
    )
    said = turns.render([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    assert "Be kind." not in said
    assert said.startswith("<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n")


def test_tools_their_calls_and_results_are_part_of_it() -> None:
    turns = turns_of(header(TOOLS))
    assert turns is not None
    assert turns.tools is not None
    go = turns.go()
    assert go.startswith(
        "{{ if .Tools }}{{ if .System }}<|im_start|>system\n{{ .System }}\n\nTools:"
    )
    assert "{{ range $i, $tool := .Tools }}{{ if $i }}\n{{ end }}{{ json $tool }}{{ end }}" in go
    # Ollama finds calls by the first text within this, up to the brace.
    assert '{{ if .ToolCalls }}{{ if .Content }}\n<tool_call>\n{"name": "{{ else }}' in go
    assert '{{ $call.Function.Name }}", "arguments": {{ $call.Function.Arguments }}{{ end }}' in go
    results = turns.tools.results
    assert results[0] == "<|im_start|>user\n<tool_response>\n"
    assert results[1] == "\n</tool_response>\n<tool_response>\n"
    assert results[2] == "\n</tool_response><|im_end|>\n"
    text = modelfile("./m.gguf", header(TOOLS), context=None)
    assert "and for tools, their calls and results" in text


def test_conversations_with_tools_give_the_templates_own_text() -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    turns = turns_of(header(TOOLS))
    assert turns is not None
    assert turns.tools is not None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(TOOLS)
    for messages, tools in conversations(with_system=True):
        want = template.render(messages=messages, tools=tools, add_generation_prompt=False)
        assert turns.tools.render(turns.around, messages, tools) == want


@pytest.mark.parametrize("template", [CHATML, BY_PARAMETER, LLAMA3])
def test_tools_that_go_cannot_say_are_left_out_and_that_is_said(template: str) -> None:
    turns = turns_of(header(template))
    assert turns is not None
    assert turns.tools is None
    text = modelfile("./m.gguf", header(template), context=None)
    assert "Tool calls are not part of it" in text
    assert ".Tools" not in text


def test_a_brace_before_an_action_is_text() -> None:
    assert go_text('[{"name": "') == '[{"name": "'
    assert go_text("a {") + "{{ .Content }}" == 'a {{ "{" }}{{ .Content }}'
    assert go_text("{{x") == '{{ "{{" }}x'


def test_a_template_without_a_system_role_has_none() -> None:
    turns = turns_of(header(GEMMA, bos="<bos>"))
    assert turns is not None and set(turns.around) == {"user", "assistant"}
    assert "<start_of_turn>model\n{{ .Content }}<end_of_turn>\n" in turns.go()


def test_braces_of_the_template_stay_text() -> None:
    turns = turns_of(header(BRACES))
    assert turns is not None and '{{ "{{" }}user' in turns.go()


@pytest.mark.parametrize(
    "template",
    [
        LAST_ONLY,
        "",
        "{% for m in messages %}{% endfor %}",
        "{{ messages[-1].content }}",
        "{% for",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for i in range(1000000000) %}{{ messages[0].content }}{% endfor %}",
        "{{ raise_exception('no') }}",
        CHATML + " " * 100_000,
    ],
)
def test_a_template_that_decides_more_or_is_no_template_is_not_translated(template: str) -> None:
    assert turns_of(header(template)) is None
    text = modelfile("./m.gguf", header(template), context=None)
    assert "TEMPLATE" not in text
    assert ("own chat template decides more" if template else "carries no chat template") in text


def test_a_modelfile_for_a_real_gguf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_gguf.write(tmp_path / "tiny 模型.gguf")
    out = tmp_path / "sub" / "Modelfile"
    assert run(["launch", "ollama", str(model), "--ctx-size", "256", "-q", "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "FROM ../tiny 模型.gguf\n" in text and "<|im_start|>user\n{{ .Content }}" in text
    assert 'PARAMETER stop "<|im_end|>"' in text and "PARAMETER num_ctx 256" in text
    assert run(["launch", "ollama", str(model), "--ctx-size", "100000"]) == 2
    assert "512 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("cut", [0, 3, 4, 24, 100, 2000])
def test_a_damaged_model_is_an_error_that_says_so(tmp_path: Path, cut: int) -> None:
    whole = tiny_gguf.write(tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:cut])
    with pytest.raises(UsageError, match="no GGUF"):
        read_header(tmp_path / "cut.gguf")
    with pytest.raises(UsageError, match="no such model"):
        read_header(tmp_path / "none.gguf")
