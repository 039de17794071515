"""Works through the nested lists that ``ci/gguf_loader.py`` made of llama.cpp's functions.

A small machine for what those functions are written in: whole numbers as C++ has them, names,
loops, lambdas, parameters by reference. What it is asked about the world (keys, tensors) comes from
the class above it. It never guesses: what it does not know is :class:`UnsureError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Node = Any
Scope = dict[str, Any]

_STEPS: Final = 4_000_000
"""Enough for the largest models there are (some 100,000), too few to hang on a made-up one."""


class RefusedError(Exception):
    """llama.cpp would stop here; the text is its own."""


class UnsureError(Exception):
    """The table asks for something that is not known here."""


class _BreakError(Exception):
    pass


class _ContinueError(Exception):
    pass


class _ReturnError(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Ref:
    """A place that a function is given by reference."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], None], kind: str) -> None:
        self.get = get
        self.put = put
        self.kind = kind


class Lambda:
    """A function within a function, with the names around it."""

    def __init__(self, parameters: list[str], body: list[Node], scope: Scope) -> None:
        self.parameters = parameters
        self.body = body
        self.scope = scope


class Record(dict[str, Any]):
    """A layer: what was never set is null."""

    def __missing__(self, key: str) -> Any:
        return None


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
_UNSET: Final = object()
_KINDS: Final = "\0kinds"
_OUTER: Final = "\0outer"


class Machine:
    """Evaluates. A subclass supplies :meth:`call`, :meth:`name` and :meth:`store`."""

    def __init__(self) -> None:
        self.steps = 0

    # What a subclass knows

    def name(self, name: str) -> Any:
        """Return what a name stands for that is no local variable."""
        raise UnsureError(name)

    def store(self, name: str, value: Any) -> None:  # noqa: ARG002
        """Set what is no local variable."""
        raise UnsureError(name)

    def kind(self, name: str) -> str:
        """Return the C++ type of what is no local variable."""
        raise UnsureError(name)

    def call(self, name: str, arguments: list[Node], scope: Scope) -> Any:  # noqa: ARG002
        """Call a function that is no lambda."""
        raise UnsureError(name)

    def begin(self, kind: str) -> Any:
        """Return what a local variable of a type holds before it is set."""
        return _begin(kind)

    def macro(self, name: str, scope: Scope) -> None:  # noqa: ARG002
        """Do what a name means that stands alone."""
        raise UnsureError(name)

    # Statements

    def run(self, body: list[Node], scope: Scope) -> None:
        """Work through statements."""
        for node in body:
            self.steps += 1
            if self.steps > _STEPS:
                raise UnsureError("it takes too long")
            handler = getattr(self, f"_s_{node[0]}", None) if isinstance(node, list) else None
            if isinstance(node, str):
                self.macro(node, scope)
            elif handler is None:
                self.value(node, scope)
            else:
                handler(node, scope)

    def invoke(
        self, parameters: list[str], body: list[Node], given: list[Any], scope: Scope
    ) -> Any:
        """Run a function's body with its arguments; one that is left out is 0."""
        inner: Scope = {_KINDS: {}, _OUTER: scope}
        for number, parameter in enumerate(parameters):
            inner[parameter.lstrip("&").partition("=")[0]] = (
                given[number] if number < len(given) else 0
            )
        try:
            self.run(body, inner)
        except _ReturnError as result:
            return result.value
        return None

    def _s_let(self, node: Node, scope: Scope) -> None:
        _, kind, name, begin = node
        if begin is None or begin == ["{}"]:
            value: Any = self.begin(kind)
        elif kind.endswith("&") and isinstance(begin, (list, str)) and kind != "auto&":
            value = self.ref(begin, scope)
        else:
            value = self.value(begin, scope)
        if isinstance(value, float) and kind.startswith(("int", "uint")):
            value = int(value)
        scope[name] = list(value) if isinstance(value, list) else value
        scope[_KINDS][name] = kind

    def _s_if(self, node: Node, scope: Scope) -> None:
        self.run(node[2] if self.value(node[1], scope) else node[3], scope)

    def _s_do(self, node: Node, scope: Scope) -> None:
        self.run(node[1], {_KINDS: {}, _OUTER: scope})

    def _s_for(self, node: Node, scope: Scope) -> None:
        _, first, test, step, body = node
        outer: Scope = {_KINDS: {}, _OUTER: scope}
        self.run(first, outer)
        while self.value(test, outer):
            try:
                self.run(body, {_KINDS: {}, _OUTER: outer})
            except _BreakError:
                break
            except _ContinueError:
                pass
            self.value(step, outer)

    def _s_each(self, node: Node, scope: Scope) -> None:
        _, name, items, body = node
        for item in self.value(items, scope):
            try:
                self.run(body, {_KINDS: {}, _OUTER: scope, name: item})
            except _BreakError:
                break
            except _ContinueError:
                continue

    def _s_switch(self, node: Node, scope: Scope) -> None:
        value = self.value(node[1], scope)
        labels = [[None if x is None else self.value(x, scope) for x in row] for row, _ in node[2]]
        at = next(
            (i for i, row in enumerate(labels) if value in [x for x in row if x is not None]), -1
        )
        if at < 0:
            at = next((i for i, row in enumerate(labels) if None in row), len(labels))
        try:
            for _, body in node[2][at:]:
                self.run(body, scope)
        except _BreakError:
            return

    def _s_throw(self, node: Node, scope: Scope) -> None:
        raise RefusedError(str(self.value(node[1], scope)))

    def _s_return(self, node: Node, scope: Scope) -> None:
        raise _ReturnError(None if node[1] is None else self.value(node[1], scope))

    def _s_break(self, node: Node, scope: Scope) -> None:  # noqa: ARG002
        raise _BreakError

    def _s_continue(self, node: Node, scope: Scope) -> None:  # noqa: ARG002
        raise _ContinueError

    def _s_try(self, node: Node, scope: Scope) -> None:
        try:
            self.run(node[1], scope)
        except RefusedError:
            self.run(node[2], scope)

    # Expressions

    def value(self, node: Node, scope: Scope) -> Any:
        """Return an expression's value."""
        if isinstance(node, str):
            return self._named(node, scope)
        if not isinstance(node, list):
            return node
        word = node[0]
        if word in _ARITHMETIC:
            return _ARITHMETIC[word](self.value(node[1], scope), self.value(node[2], scope))
        handler = getattr(self, _EXPRESSIONS.get(word, "?"), None)
        if handler is None:
            raise UnsureError(f"`{word}`")
        return handler(node, scope)

    def _text(self, node: Node, scope: Scope) -> Any:  # noqa: ARG002
        return node[1]

    def _and(self, node: Node, scope: Scope) -> Any:
        left = self.value(node[1], scope)
        return self.value(node[2], scope) if left else left

    def _or(self, node: Node, scope: Scope) -> Any:
        return self.value(node[1], scope) or self.value(node[2], scope)

    def _divide(self, node: Node, scope: Scope) -> Any:
        a, b = self.value(node[1], scope), self.value(node[2], scope)
        if not b and not isinstance(a, float) and not isinstance(b, float):
            raise RefusedError("division by zero")
        if node[0] == "%":
            return int(math.fmod(a, b))
        if isinstance(a, float) or isinstance(b, float):
            return a / b if b else math.inf
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def _unary(self, node: Node, scope: Scope) -> Any:
        value = self.value(node[1], scope)
        if node[0] == "u!":
            return not value
        return -value if node[0] == "u-" else ~value

    def _choice(self, node: Node, scope: Scope) -> Any:
        return self.value(node[2] if self.value(node[1], scope) else node[3], scope)

    def _items(self, node: Node, scope: Scope) -> Any:
        return [self.value(each, scope) for each in node[1:]]

    def _index(self, node: Node, scope: Scope) -> Any:
        items, index = self.value(node[1], scope), self.value(node[2], scope)
        try:
            return items[index]
        except (IndexError, KeyError, TypeError):
            raise UnsureError(f"{node[1]}[{index}]") from None

    def _member(self, node: Node, scope: Scope) -> Any:
        return self.member(self.value(node[1], scope), node[2])

    def member(self, value: Any, path: str) -> Any:
        """Return a value's member."""
        if isinstance(value, Record):
            return self._of_record(value, path)
        if isinstance(value, Mapping):
            return value.get(path)
        for part in path.split("."):
            value = getattr(value, part, _UNSET)
            if value is _UNSET:
                raise UnsureError(path)
        return value

    def _of_record(self, record: Record, path: str) -> Any:
        if path in ("posnet", "convnext"):  # records within a layer
            return record.setdefault(path, Record())
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            head = ".".join(parts[:end])
            if record.get(head) is not None:
                rest = ".".join(parts[end:])
                return self.member(record[head], rest) if rest else record[head]
        return None

    def _cast(self, node: Node, scope: Scope) -> Any:
        value = self.value(node[2], scope)
        if isinstance(value, float) and not node[1].startswith(("float", "double")):
            return int(value)
        return float(value) if node[1].startswith(("float", "double")) else value

    def _lambda(self, node: Node, scope: Scope) -> Any:
        return Lambda(node[1], node[2], scope)

    def _step(self, node: Node, scope: Scope) -> Any:
        place = self.ref(node[1], scope)
        place.put(place.get() + (1 if node[0] == "++" else -1))

    def _assign(self, node: Node, scope: Scope) -> Any:
        place = self.ref(node[1], scope)
        value = self.value(node[2], scope)
        if node[0] != "=":
            old, word = place.get(), node[0][:-1]
            if word == "/":
                value = (
                    old / value
                    if isinstance(old, float) or isinstance(value, float)
                    else old // value
                )
            else:
                value = _ARITHMETIC[word](old, value)
        place.put(list(value) if isinstance(value, list) else value)
        return value

    def _call(self, node: Node, scope: Scope) -> Any:
        target = node[1]
        if isinstance(target, str):
            found = _find(scope, target)
            if isinstance(found, Lambda):
                given = [self.value(each, scope) for each in node[2:]]
                return self.invoke(found.parameters, found.body, given, found.scope)
            return self.call(target, node[2:], scope)
        if target[0] == ".":
            return self.method(self.value(target[1], scope), target[2], node[2:], scope)
        raise UnsureError("a call")

    def method(self, value: Any, name: str, arguments: list[Node], scope: Scope) -> Any:
        """Call a method of a value: those of C++'s texts and lists."""
        if name in ("c_str", "str", "data"):
            return value
        if name in ("size", "length"):
            return len(value)
        if name == "empty":
            return not value
        if name in ("begin", "end"):
            return value
        if name in ("reserve", "shrink_to_fit"):
            return None
        given = [self.value(each, scope) for each in arguments]
        if name in ("push_back", "emplace_back"):
            value.append(given[0])
        elif name == "insert":
            value.add(given[0])
        elif name == "clear":
            value.clear()
        elif name == "resize":
            del value[given[0] :]
            value.extend([given[1] if len(given) > 1 else 0] * (given[0] - len(value)))
        elif name in ("set", "reset"):
            for index in given or range(len(value)):
                value[index] = int(name == "set")
        elif name in ("find", "count"):
            return given[0] in value
        else:
            raise UnsureError(f".{name}()")
        return None

    # Names and places

    def _named(self, name: str, scope: Scope) -> Any:
        value = _find(scope, name)
        if value is _UNSET:
            head, dot, rest = name.partition(".")
            inner = _find(scope, head) if dot else _UNSET
            if inner is _UNSET:
                return self.name(name)
            value = self.member(inner.get() if isinstance(inner, Ref) else inner, rest)
        return value.get() if isinstance(value, Ref) else value

    def ref(self, node: Node, scope: Scope) -> Ref:
        """Return the place that an expression names."""
        if isinstance(node, list) and node[0] == "[]":
            items, index = self.value(node[1], scope), self.value(node[2], scope)
            inner = self.ref(node[1], scope).kind if isinstance(node[1], str) else ""
            match = re.search(r"<(\w[\w:]*)", inner)

            def put(value: Any) -> None:
                try:
                    items[index] = value
                except (IndexError, TypeError):
                    raise UnsureError(f"{node[1]}[{index}]") from None

            return Ref(lambda: items[index], put, match[1] if match else "")
        if isinstance(node, list) and node[0] == ".":
            record = self.value(node[1], scope)
            return Ref(lambda: record[node[2]], lambda v: record.__setitem__(node[2], v), "")
        if not isinstance(node, str):
            raise UnsureError("a place")
        where: Scope | None = scope
        head, dot, rest = node.partition(".")
        while where is not None:
            if node in where:
                return self._local(where, node)
            if dot and head in where:
                return _field(where[head], rest)
            where = where.get(_OUTER)
        return Ref(lambda: self.name(node), lambda v: self.store(node, v), self.kind(node))

    @staticmethod
    def _local(where: Scope, name: str) -> Ref:
        value = where[name]
        if isinstance(value, Ref):
            return value
        kind = where[_KINDS].get(name, "")
        return Ref(lambda: where[name], lambda v: where.__setitem__(name, v), kind)


def _field(value: Any, name: str) -> Ref:
    """Return a record's field as a place."""
    record = value.get() if isinstance(value, Ref) else value
    return Ref(lambda: record[name], lambda new: record.__setitem__(name, new), "")


_EXPRESSIONS: Final[Mapping[str, str]] = {
    "s": "_text", "&&": "_and", "||": "_or", "/": "_divide", "%": "_divide", "u!": "_unary",
    "u-": "_unary", "u~": "_unary", "?": "_choice", "{}": "_items", "[]": "_index", ".": "_member",
    "cast": "_cast", "fn": "_lambda", "++": "_step", "--": "_step", "=": "_assign",
    "+=": "_assign", "-=": "_assign", "*=": "_assign", "/=": "_assign", "|=": "_assign",
    "&=": "_assign", "call": "_call", "tensor": "tensor",
}  # fmt: skip


def _find(scope: Scope, name: str) -> Any:
    where: Scope | None = scope
    while where is not None:
        if name in where:
            return where[name]
        where = where.get(_OUTER)
    return _UNSET


def _begin(kind: str) -> Any:
    """Return what a variable of a type holds before it is set."""
    if "set<" in kind:
        return set()
    if "vector" in kind:
        return []
    if kind.startswith("std::string"):
        return ""
    return 0
