"""The part of an Ollama template that is about tools, read off a model's own template.

As in :mod:`qbuild.extras.ollama`: the Jinja template is rendered for conversations with marked
tools, calls and results, what stands around the marks is kept, and the outcome has to give the very
same text for longer conversations. What the template writes as JSON (``tojson``) Ollama writes in
its own way: without blanks, a call's arguments in alphabetical order, a tool's keys in a fixed one.

Which values a template of Ollama's has, and how Ollama finds calls in an answer, is from its source
(v0.17.4, ``template/template.go``, ``tools/template.go``): the first text inside
``{{ if .ToolCalls }}``, up to a brace, is what begins a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Message = Mapping[str, Any]
Tool = Mapping[str, Any]
Render = Callable[[Sequence[Message], Sequence[Tool], bool], str]
"""Messages, tools and whether an answer is to follow → the text that the model reads."""
Around = Mapping[str, tuple[str, str]]  # role → text before and after a message without tools

_MARK: Final = "qBuIlD{}mArK"


@dataclass(frozen=True, kw_only=True)
class ToolTurns:
    """What a template writes around tools, their calls and their results."""

    head: tuple[str, str]  # around the list of tools, without a system message
    # around the two of system message and list; None: there is no system role
    head_system: tuple[str, str, str] | None
    system_first: bool  # whether the system message stands before the list
    whole: bool  # whether a tool is listed with its ``type``, or its ``function`` alone
    separator: str  # between two tools
    # before the first call of an answer without text, and of one with text
    opening: tuple[str, str]
    middle: str  # between a call's name and its arguments
    between: str  # between two calls
    closing: str  # after the last call
    results: tuple[str, str, str]  # before the first result, between two in a row, after the last

    def _listed(self, tools: Sequence[Tool]) -> str:
        return self.separator.join(_json(t if self.whole else t["function"]) for t in tools)

    def _begin(self, system: str, tools: Sequence[Tool]) -> str:
        listed = self._listed(tools)
        if not system or self.head_system is None:
            return listed.join(self.head)
        before, between, after = self.head_system
        pair = (system, listed) if self.system_first else (listed, system)
        return before + pair[0] + between + pair[1] + after

    def render(self, around: Around, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """Return the text of a conversation with tools, without the prompt for an answer."""
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        text, last = self._begin(system, tools), ""
        for message in messages:
            role, content = message["role"], message["content"]
            if last == "tool" != role:
                text += self.results[2]
            if role == "tool":
                text += self.results[1 if last == "tool" else 0] + content
            elif role != "system":
                before, after = around[role]
                text += before + content
                text += self._calls(content, message) if message.get("tool_calls") else after
            last = role
        return text + (self.results[2] if last == "tool" else "")

    def _calls(self, content: str, message: Message) -> str:
        functions = [each["function"] for each in message["tool_calls"]]
        calls = [each["name"] + self.middle + _json(each["arguments"]) for each in functions]
        return self.opening[bool(content)] + self.between.join(calls) + self.closing

    def go_head(self, start: str) -> str:
        """Return what a Go template writes before the first message.

        Args:
            start: The same for a conversation without tools.
        """
        # Not `{{ $tool.Function }}` alone, which Ollama 0.17.4 shows as Go shows a struct.
        listed = (
            "{{ range $i, $tool := .Tools }}"
            + (f"{{{{ if $i }}}}{go_text(self.separator)}{{{{ end }}}}" if self.separator else "")
            + ("{{ json $tool }}" if self.whole else "{{ json $tool.Function }}")
            + "{{ end }}"
        )
        plain = listed.join(go_text(part) for part in self.head)
        both = plain
        if self.head_system is not None:
            before, between, after = (go_text(part) for part in self.head_system)
            pair = ("{{ .System }}", listed) if self.system_first else (listed, "{{ .System }}")
            with_system = before + pair[0] + between + pair[1] + after
            both = f"{{{{ if .System }}}}{with_system}{{{{ else }}}}{plain}{{{{ end }}}}"
        otherwise = f"{{{{ else }}}}{start}" if start else ""
        return f"{{{{ if .Tools }}}}{both}{otherwise}{{{{ end }}}}"

    def go_messages(self, around: Around) -> str:
        """Return what a Go template writes for the messages."""
        branches = []
        for role in ("system", "user", "assistant"):
            if role in around:
                before, after = (go_text(part) for part in around[role])
                body = f"{before}{{{{ .Content }}}}"
                if role == "assistant":
                    body += self._go_calls(after)
                elif role == "system":
                    body = f"{{{{ if not $.Tools }}}}{body}{after}{{{{ end }}}}"
                else:
                    body += after
                branches.append(f'if eq .Role "{role}" }}}}{body}')
        first, between, last = (go_text(part) for part in self.results)
        close = f'{{{{ if eq $last "tool" }}}}{last}{{{{ end }}}}'
        branches.append(
            'if eq .Role "tool" }}{{ if eq $last "tool" }}'
            f"{between}{{{{ else }}}}{first}{{{{ end }}}}{{{{ .Content }}}}"
        )
        return (
            '{{ $last := "" }}{{ range .Messages }}'
            f'{{{{ if ne .Role "tool" }}}}{close}{{{{ end }}}}'
            f"{{{{ {'{{ else '.join(branches)}{{{{ end }}}}"
            f"{{{{ $last = .Role }}}}{{{{ end }}}}{close}"
        )

    def _go_calls(self, after: str) -> str:
        without, with_text = (go_text(part) for part in self.opening)
        opening = f"{{{{ if .Content }}}}{with_text}{{{{ else }}}}{without}{{{{ end }}}}"
        between = f"{{{{ if $i }}}}{go_text(self.between)}{{{{ end }}}}" if self.between else ""
        return (
            f"{{{{ if .ToolCalls }}}}{without if without == with_text else opening}"
            f"{{{{ range $i, $call := .ToolCalls }}}}{between}{{{{ $call.Function.Name }}}}"
            f"{go_text(self.middle)}{{{{ $call.Function.Arguments }}}}{{{{ end }}}}"
            f"{go_text(self.closing)}{{{{ else }}}}{after}{{{{ end }}}}"
        )


def go_text(text: str) -> str:
    """Return literal text for a Go template, where two braces begin an action."""
    return re.sub(r"\{\{+|\{\Z", lambda match: '{{ "' + match[0] + '" }}', text)


def tools_of(render: Render, around: Around, prompt: str) -> ToolTurns | None:
    """Return what a template writes for tools; None: it has none, or decides more than that.

    Args:
        render: The model's own template.
        around: What it writes around messages without tools.
        prompt: What it writes where an answer is to begin.
    """
    try:
        turns = _read_off(render, around, prompt)
        for messages, tools in conversations(with_system="system" in around):
            if turns.render(around, messages, tools) + prompt != render(messages, tools, True):
                return None
    except Exception:  # whatever a stranger's template does is no error of ours
        return None
    return turns


def _read_off(render: Render, around: Around, prompt: str) -> ToolTurns:
    """Return what stands around marked tools, calls and results.

    Raises:
        ValueError: The marks do not come out once each and in order.
    """
    one, both = [_tool(0)], [_tool(0), _tool(1)]
    ask, again = _said("user", 0), _said("user", 3)

    def text(message: Message) -> str:
        before, after = around[message["role"]]
        return str(before + message["content"] + after)

    head = _without(render([ask], one, True), "", text(ask) + prompt)
    whole = _json(one[0]) in head
    shown = [_json(tool if whole else tool["function"]) for tool in both]
    first, rest = _split(head, shown[0])
    two = _without(render([ask], both, True), "", text(ask) + prompt)
    _, separator, _ = _split(two, *shown)

    head_system, system_first = None, True
    if "system" in around:
        system = _said("system", 2)
        full = _without(render([system, ask], one, True), "", text(ask) + prompt)
        system_first = full.find(system["content"]) < full.find(shown[0])
        pair = (system["content"], shown[0])
        before, between, after = _split(full, *(pair if system_first else pair[::-1]))
        head_system = (before, between, after)

    def calls(content: str, *numbers: int) -> str:
        messages = [ask, _calling(content, *numbers), again]
        return _without(render(messages, one, True), head + text(ask), text(again) + prompt)

    answer = around["assistant"][0]
    (opening, middle, closing) = _split(calls("", 0), *_call_marks(0))
    _, _, between, _, _ = _split(calls("", 0, 1), *_call_marks(0, 1))
    said = _MARK.format(4)
    _, opening_after, _, _ = _split(calls(said, 0), said, *_call_marks(0))

    def results(*numbers: int) -> str:
        messages = [ask, _calling("", 0), *(_said("tool", n) for n in numbers), again]
        before = head + text(ask) + calls("", 0)
        return _without(render(messages, one, True), before, text(again) + prompt)

    alone = _split(results(5), _MARK.format(5))
    _, in_a_row, _ = _split(results(5, 6), _MARK.format(5), _MARK.format(6))
    return ToolTurns(
        head=(first, rest), head_system=head_system, system_first=system_first, whole=whole,
        separator=separator, opening=(_without(opening, answer, ""), opening_after),
        middle=middle, between=between, closing=closing,
        results=(alone[0], in_a_row, alone[1]),
    )  # fmt: skip


def conversations(*, with_system: bool) -> list[tuple[list[Message], list[Tool]]]:
    """Return conversations that what was read off has to give again."""
    one, both = [_tool(0)], [_tool(0), _tool(1)]
    user, answer = {"role": "user", "content": "1"}, {"role": "assistant", "content": "2\n3"}
    found: list[tuple[list[Message], list[Tool]]] = [
        ([user], both),
        ([user, answer, _said("user", 1)], one),
        ([user, _calling("", 0), _said("tool", 2), answer, _said("user", 1)], both),
        ([user, _calling("a", 0, 1), _said("tool", 2), _said("tool", 3), answer, user], both),
        ([user, _calling("", 1), _said("tool", 3)], both),
        ([user, _calling("", 1), _said("tool", 3), _calling("", 0), _said("tool", 4)], one),
    ]
    if with_system:
        system = {"role": "system", "content": "Be kind."}
        found += [([system, *messages], tools) for messages, tools in found]
    return found


def _tool(number: int) -> Tool:
    properties = {"key": {"type": "string", "description": "what to look up"}}
    parameters = {"type": "object", "properties": properties, "required": ["key"]}
    function = {"name": f"tool{number}", "description": "Does it.", "parameters": parameters}
    return {"type": "function", "function": function}


def _said(role: str, number: int) -> dict[str, Any]:
    named = {"name": "tool0", "tool_call_id": "call000000"} if role == "tool" else {}
    return {"role": role, "content": _MARK.format(number), **named}


def _calling(content: str, *numbers: int) -> Message:
    calls = [
        {"id": "call000000", "type": "function",
         "function": {"name": f"qBuIlDcAlL{n}", "arguments": {"key": f"value {n}"}}}
        for n in numbers
    ]  # fmt: skip
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _call_marks(*numbers: int) -> list[str]:
    return [
        mark for n in numbers for mark in (f"qBuIlDcAlL{n}", _json({"key": f"value {n}"}))
    ]  # fmt: skip


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _without(text: str, head: str, tail: str) -> str:
    """Return what stands between a beginning and an end.

    Raises:
        ValueError: The text does not begin and end so.
    """
    inner = len(text) - len(head) - len(tail)
    if inner < 0 or not (text.startswith(head) and text.endswith(tail)):
        raise ValueError("with tools something else is written differently, too")
    return text[len(head) : len(head) + inner]


def _split(text: str, *marks: str) -> tuple[str, ...]:
    """Return what stands around marks that come once each, in this order.

    Raises:
        ValueError: They do not.
    """
    parts = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found or mark in text:
            raise ValueError("what was marked is left out, repeated or in another order")
        parts.append(before)
    return (*parts, text)
