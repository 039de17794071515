"""An Ollama Modelfile for a GGUF, with the model's own chat template.

A GGUF carries its template in Jinja, Ollama's Modelfile wants Go's. Translating programs is not
attempted: the Jinja template is rendered (in a sandbox) for a few short conversations, what stands
around each message is read off, and the Go template made from that has to give the very same text
for longer ones. A template that decides more than that is left to Ollama, and the file says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild.errors import UsageError
from qbuild.extras.ollama_tools import ToolTurns, go_text, tools_of

_MARK: Final = "qBuIlD{}mArK"
_ROLES: Final = ("system", "user", "assistant")
_LONG: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a Modelfile needs of a GGUF."""

    name: str  # the model's name, or ""
    context: int  # tokens it was trained with; 0: not said
    template: str  # its chat template, or ""
    bos: str  # text of the token it begins with, or "" when it adds none
    stops: tuple[str, ...]  # texts that end an answer


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What a template writes around messages: role → text before and after the content.

    ``start`` stands before all of them; where ``default`` is set, only where there is no system
    message: it is one of the template's own. ``tools`` is what it writes for tools; None: nothing
    that can be said in Go's language.
    """

    start: str
    around: Mapping[str, tuple[str, str]]
    prompt: str
    default: bool = False
    tools: ToolTurns | None = None

    def render(self, messages: Sequence[Mapping[str, str]], *, prompt: bool = True) -> str:
        """Return the text of a conversation."""
        told = any(message["role"] == "system" for message in messages)
        text = "" if self.default and told else self.start
        for message in messages:
            before, after = self.around[message["role"]]
            text += before + message["content"] + after
        return text + (self.prompt if prompt else "")

    def go(self) -> str:
        """Return the same as a Go template of Ollama's."""
        start = go_text(self.start)
        if self.default:
            start = f"{{{{ if not .System }}}}{start}{{{{ end }}}}"
        if self.tools is not None:
            head = self.tools.go_head(start)
            return head + self.tools.go_messages(self.around) + go_text(self.prompt)
        branches: list[str] = []
        for role in _ROLES:
            if role in self.around:
                before, after = (go_text(part) for part in self.around[role])
                word = "if" if not branches else "else if"
                branches.append(
                    f'{{{{ {word} eq .Role "{role}" }}}}{before}{{{{ .Content }}}}{after}'
                )
        body = "".join(branches) + "{{ end }}"
        return f"{start}{{{{ range .Messages }}}}{body}{{{{ end }}}}{go_text(self.prompt)}"


def read_header(path: Path) -> Header:
    """Read what is needed from a GGUF's header.

    Raises:
        UsageError: The file is none, or damaged.
    """
    import gguf

    if not path.is_file():
        raise UsageError("there is no such model file", where=str(path), fix="check the path")
    try:
        reader = gguf.GGUFReader(path)
        values = reader.fields
        context = next(
            (int(f.contents()) for n, f in values.items() if n.endswith(".context_length")), 0
        )

        def get(name: str) -> Any:
            field = values.get(name)
            return field.contents() if field is not None else None

        def token(number: object) -> str:
            tokens = values.get("tokenizer.ggml.tokens")
            if not isinstance(number, int) or tokens is None:
                return ""
            return str(tokens.contents(number)) if 0 <= number < len(tokens.data) else ""

        ends = [get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
        begins = get("tokenizer.ggml.add_bos_token") is not False
        return Header(
            name=str(get("general.name") or ""),
            context=context,
            template=str(get("tokenizer.chat_template") or ""),
            bos=token(get("tokenizer.ggml.bos_token_id")) if begins else "",
            stops=tuple(dict.fromkeys(text for end in ends if (text := token(end)))),
        )
    except (ValueError, IndexError, KeyError, OSError, TypeError) as error:
        raise UsageError(
            f"this is no GGUF that can be read: {error}",
            where=str(path),
            fix="is the download complete? `qbuild model FILE` says what is wrong with it",
        ) from None


def turns_of(header: Header) -> Turns | None:
    """Return what a model's template writes around messages; None: it decides more than that."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> str:
        raise TemplateError(message)

    if not header.template or len(header.template) > _LONG:
        return None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    try:
        template = environment.from_string(header.template)

        def render(
            messages: Sequence[Mapping[str, Any]], *, prompt: bool = True, **more: object
        ) -> str:
            return template.render(
                messages=messages,
                add_generation_prompt=prompt,
                bos_token=header.bos,
                eos_token=header.stops[0] if header.stops else "",
                raise_exception=refuse,
                **more,
            )

        turns = _read_off(render, header.bos)
        longer = (
            [("user", "a b")],
            [("system", "Be kind."), ("user", "hello")],
            [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5")],
            [("system", "s"), ("user", "1"), ("assistant", "2\n3"), ("user", "4")],
        )
        for pairs in longer:
            messages = [{"role": role, "content": text} for role, text in pairs]
            if all(m["role"] in turns.around for m in messages) and (
                render(messages) != turns.render(messages)
            ):
                return None
    except Exception:
        return None

    def with_tools(messages: Sequence[Mapping[str, Any]], tools: object, prompt: bool) -> str:
        # Ollama and llama.cpp put the first token in front themselves.
        return render(messages, prompt=prompt, tools=tools).removeprefix(header.bos)

    return Turns(
        start=turns.start.removeprefix(header.bos),
        around=turns.around,
        prompt=turns.prompt,
        default=turns.default,
        tools=tools_of(with_tools, turns.around, turns.prompt),
    )


def _read_off(render: Any, bos: str) -> Turns:
    """Return what stands around marked messages.

    Raises:
        ValueError: The marks do not come out once each and in order.
    """
    mark = [_MARK.format(number) for number in range(5)]
    conversation = [
        {"role": role, "content": mark[number]}
        for number, role in enumerate(("user", "assistant", "user", "assistant", "user"))
    ]
    text = render(conversation)
    parts = re.split("|".join(mark), text)
    if len(parts) != 6:
        raise ValueError("messages are left out or repeated")
    closed = render(conversation, prompt=False)
    prompt = text.removeprefix(closed)
    if closed + prompt != text:
        raise ValueError("the prompt for an answer is no suffix")
    after_user = parts[5].removesuffix(prompt)
    assistant_before = _shared_tail(parts[1], after_user)
    user_between = parts[2]
    single = render([{"role": "user", "content": mark[0]}], prompt=False)
    begin = single.split(mark[0])[0]
    # Between an answer and the next question: an answer ends as a question does, if it may.
    user_before = user_between.removeprefix(after_user)
    if not begin.removeprefix(bos).endswith(user_before):
        user_before = begin.removeprefix(bos)
    while user_before and not user_between.endswith(user_before):
        user_before = user_before[1:]
    start = begin[: len(begin) - len(user_before)]
    around = {
        "user": (user_before, after_user),
        "assistant": (assistant_before, user_between.removesuffix(user_before)),
    }
    pair = [{"role": "system", "content": mark[1]}, {"role": "user", "content": mark[0]}]
    try:
        with_system = render(pair, prompt=False)
    except Exception:  # a template may refuse a system message; then there is none to write
        return Turns(start=start, around=around, prompt=prompt)
    head, tail = with_system.split(mark[1])
    middle, _ = tail.split(mark[0])
    if not middle.endswith(user_before):
        raise ValueError("a system message changes what else is written")
    default = not head.startswith(start)
    around["system"] = (head.removeprefix(start), middle.removesuffix(user_before))
    return Turns(start=start, around=around, prompt=prompt, default=default)


def _shared_tail(text: str, head: str) -> str:
    """Return ``text`` without ``head`` in front.

    Raises:
        ValueError: It does not begin with it.
    """
    if not text.startswith(head):
        raise ValueError("a message ends differently in the middle of a conversation")
    return text.removeprefix(head)


def _about(turns: Turns) -> list[str]:
    if turns.tools is None:
        return [
            "# The model's own chat template, in Go's language: it gives the same text for",
            "# system, user and assistant messages. Tool calls are not part of it: the model's",
            "# template has none, or writes them in a way that Go's language cannot say.",
        ]
    return [
        "# The model's own chat template, in Go's language: it gives the same text for",
        "# system, user and assistant messages, and for tools, their calls and results (but for",
        "# blanks and the order of keys in JSON, which Ollama writes in a way of its own).",
    ]


def modelfile(path: str, header: Header, *, context: int | None) -> str:
    """Return the Modelfile.

    Args:
        path: The model as the Modelfile is to name it.
        header: Of that model.
        context: Tokens of context; None: Ollama's default.

    Raises:
        UsageError: The path or the context cannot stand in it.
    """
    if any(char in path for char in '\n\r"'):
        raise UsageError("a Modelfile cannot name this path", where=path, fix="rename the file")
    if context is not None and not 1 <= context <= (header.context or context):
        raise UsageError(
            f"--ctx-size {context} is more than the {header.context} tokens the model knows"
            if context > 0
            else f"--ctx-size takes a number from 1 on, not {context}"
        )
    lines = [
        f"# Ollama Modelfile for {header.name or Path(path).name}, made by qbuild.",
        "#   ollama create NAME -f Modelfile && ollama run NAME",
        f"FROM {path}",
    ]
    turns = turns_of(header)
    if turns is not None and '"""' not in turns.go():
        lines += ["", *_about(turns), f'TEMPLATE """{turns.go()}"""']
    elif header.template:
        lines += [
            "",
            "# The model's own chat template decides more than a Go template could say in its",
            "# place, so none is written here: Ollama picks one of its own that resembles it.",
        ]
    else:
        lines += ["", "# The model carries no chat template: it continues text, it does not chat."]
    lines += [f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in header.stops]
    if context is not None:
        lines.append(f"PARAMETER num_ctx {context}")
    return "\n".join(lines) + "\n"
