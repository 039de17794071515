"""Modelfiles: the model's own template in Go's language, or an honest word that it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.cli.main import run
from qbuild.errors import UsageError
from qbuild.extras.ollama import Header, modelfile, read_header, turns_of
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
        DEFAULT_SYSTEM,
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
    text = out.read_text()
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
