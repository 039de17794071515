#!/usr/bin/env python3
"""A small agent: a model behind llama-server that may use two tools until it has an answer.

    llama-server -m model.gguf --jinja --port 8080
    python agent.py --folder ./notes "What do the numbers in budget.txt add up to?"

The tools: ``calculate`` (arithmetic, worked out by walking the syntax tree; nothing is ever
evaluated as code) and ``read_file`` (text files below one folder, read only). Everything the model
says is checked before it is used: names, arguments, paths, sizes. What is wrong goes back to the
model as the tool's result, so that it can try again.

Needs: pip install openai
"""

from __future__ import annotations

import argparse
import ast
import json
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

MAX_ROUNDS = 8
MAX_FILE = 20_000  # characters of a file that go to the model
MAX_DIGITS = 1000
SYSTEM = (
    "You answer questions. Use the tools when they help; never guess what a file holds or what a "
    "calculation gives. Answer in the language of the question."
)


class ToolError(Exception):
    """What the model did wrong, in words for the model."""


# -- tools -----------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> str:
    """Work out an arithmetic expression of numbers, + - * / // % ** and parentheses."""
    if len(expression) > 500:
        raise ToolError("the expression is longer than 500 characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return str(_value(tree.body))
    except SyntaxError:
        raise ToolError(f"{expression!r} is not an arithmetic expression") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (OverflowError, ValueError, RecursionError, MemoryError):
        raise ToolError("the numbers are too large") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and _digits(left) * abs(right) > MAX_DIGITS:
            raise OverflowError  # 9**9**9 would keep the machine busy for hours
        result = _BINARY[type(node.op)](left, right)
        if isinstance(result, complex) or _digits(result) > MAX_DIGITS:
            raise OverflowError
        return result
    raise ToolError("only numbers, + - * / // % ** and parentheses are allowed")


def _digits(number: Any) -> int:
    return number.bit_length() // 3 if isinstance(number, int) else 20


def read_file(path: str, *, folder: Path) -> str:
    """Return a text file below the folder."""
    root = folder.resolve()
    try:
        target = (root / path).resolve()  # follows links: what counts is where it ends
        if not target.is_relative_to(root):
            raise ToolError(f"{path!r} is outside the folder")
        if not target.is_file():
            names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
            raise ToolError(f"there is no file {path!r}; there are: {', '.join(names[:50])}")
        with target.open(encoding="utf-8") as stream:
            text = stream.read(MAX_FILE + 1)
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not a text file") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"{path!r} cannot be read: {error}") from None
    return text if len(text) <= MAX_FILE else text[:MAX_FILE] + "\n[cut here]"


@dataclass(frozen=True)
class Tool:
    """One tool: what the model is told, and what is done."""

    description: str
    parameters: Mapping[str, str]  # name → what it means; all are strings and required
    run: Callable[..., str]

    def schema(self, name: str) -> dict[str, Any]:
        """Return the tool as the API wants it."""
        properties = {key: {"type": "string", "description": d} for key, d in
                      self.parameters.items()}  # fmt: skip
        return {
            "type": "function",
            "function": {
                "name": name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(self.parameters),
                    "additionalProperties": False,
                },
            },
        }


def tools_for(folder: Path) -> dict[str, Tool]:
    """Return the tools; files are read below this folder only."""

    def read(path: str) -> str:
        return read_file(path, folder=folder)

    return {
        "calculate": Tool(
            "Work out an arithmetic expression exactly.",
            {"expression": "numbers with + - * / // % ** and parentheses, e.g. (2+3)*4"},
            calculate,
        ),
        "read_file": Tool(
            "Read a text file of the user's folder.",
            {"path": "the file, relative to the folder, e.g. notes.txt"},
            read,
        ),
    }


def use_tool(tools: Mapping[str, Tool], name: str, arguments: str) -> str:
    """Run one call and return what goes back to the model; never raises for what a model wrote."""
    try:
        tool = tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {name!r}; there are: {', '.join(tools)}")
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise ToolError("the arguments are not JSON") from None
        if not isinstance(given, dict):
            raise ToolError("the arguments are not an object")
        if set(given) != set(tool.parameters):
            raise ToolError(f"the arguments must be exactly: {', '.join(tool.parameters)}")
        if wrong := [key for key, value in given.items() if not isinstance(value, str)]:
            raise ToolError(f"{', '.join(wrong)} must be a string")
        return tool.run(**given)
    except ToolError as error:
        return f"error: {error}"


# -- the loop --------------------------------------------------------------------------------


@dataclass
class Call:
    """A tool call as it comes in, piece by piece."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Answer:
    """One streamed answer, put together."""

    text: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    finish: str = ""

    def message(self) -> dict[str, Any]:
        """Return the answer as the next request must hold it."""
        made: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            made["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.in_order()
            ]
        return made

    def in_order(self) -> list[Call]:
        """Return the calls in the order in which the model made them."""
        return [self.calls[index] for index in sorted(self.calls)]


def stream_answer(chunks: Iterator[Any], show: Callable[[str], None]) -> Answer:
    """Show a streamed answer while it comes and return it whole."""
    answer = Answer()
    for chunk in chunks:
        if not chunk.choices:  # the last one may carry only counts
            continue
        choice = chunk.choices[0]
        if text := choice.delta.content:
            answer.text += text
            show(text)
        for piece in choice.delta.tool_calls or ():
            call = answer.calls.setdefault(piece.index, Call())
            call.id = piece.id or call.id
            if piece.function is not None:
                call.name += piece.function.name or ""
                call.arguments += piece.function.arguments or ""
        answer.finish = choice.finish_reason or answer.finish
    for index, call in answer.calls.items():
        call.id = call.id or f"call-{index}"
    return answer


def run_agent(
    client: openai.OpenAI,
    messages: list[dict[str, Any]],
    tools: Mapping[str, Tool],
    *,
    model: str,
    thinking: bool,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> str:
    """Ask, run the tools the model calls, and ask again, until it answers without a call."""
    schemas = [tool.schema(name) for name, tool in tools.items()]
    more = {} if thinking else {"chat_template_kwargs": {"enable_thinking": False}}
    for _ in range(MAX_ROUNDS):
        chunks = client.chat.completions.create(
            model=model, messages=messages, tools=schemas, stream=True, extra_body=more
        )  # type: ignore[call-overload]
        answer = stream_answer(chunks, show)
        messages.append(answer.message())
        if answer.text:
            show("\n")
        if answer.finish == "length":
            note("the answer was cut: the context or the token limit is used up")
        if not answer.calls:
            return answer.text
        for call in answer.in_order():
            result = use_tool(tools, call.name, call.arguments)
            first = result.splitlines()[0] if result else ""
            note(f"{call.name}({call.arguments}) -> {first[:100]}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    note(f"stopped: no answer after {MAX_ROUNDS} rounds of tool calls")
    return ""


def explain(error: openai.OpenAIError, url: str) -> str:
    """Return what a person can do about a failed request."""
    if isinstance(error, openai.APITimeoutError):
        return f"{url} did not answer in time; a smaller model or context answers faster"
    if isinstance(error, openai.APIConnectionError):
        return f"nothing answers at {url}; start llama-server first, or name another --url"
    if isinstance(error, openai.APIStatusError):
        return f"the server refused the request (HTTP {error.status_code}): {error.message}"
    return str(error)


def main(argv: list[str] | None = None) -> int:
    """Ask one question, or hold a conversation when none is given."""
    parser = argparse.ArgumentParser(description="Ask a model that may calculate and read files.")
    parser.add_argument("question", nargs="?", help="without one: a conversation, line by line")
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1", help="of llama-server's API")
    parser.add_argument("--folder", type=Path, default=Path(), help="what read_file may read")
    parser.add_argument("--model", default="default", help="name, where a server has several")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one answer")
    parser.add_argument("--think", action="store_true", help="let the model think first")
    args = parser.parse_args(argv)
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")

    def show(text: str) -> None:
        print(text, end="", flush=True)

    def note(text: str) -> None:
        print(f"[{text}]", file=sys.stderr, flush=True)

    client = openai.OpenAI(base_url=args.url, api_key="none", timeout=args.timeout, max_retries=1)
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    status = 0
    try:
        for question in [args.question] if args.question else iter_questions():
            messages.append({"role": "user", "content": question})
            try:
                answer = run_agent(
                    client, messages, tools_for(args.folder), model=args.model,
                    thinking=args.think, show=show, note=note,
                )  # fmt: skip
                status = 0 if answer else 1
            except openai.OpenAIError as error:
                note(explain(error, args.url))
                status = 1
    except KeyboardInterrupt:
        print()
        return 130
    return status


def iter_questions() -> Iterator[str]:
    """Yield what the user types, until an empty line or the end of input."""
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if not line:
            return
        yield line


if __name__ == "__main__":
    sys.exit(main())
