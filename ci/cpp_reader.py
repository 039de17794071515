"""Reads the plain C++ in which llama.cpp says what a model file must hold, as nested lists.

A subset: what ``load_arch_hparams``, ``load_arch_tensors`` and their helpers are written in.
Statements and expressions become JSON (names are texts, ``["s", …]`` is a text); what is outside of
the subset stops the reading with its line, so nothing is lost in silence.
"""

from __future__ import annotations

import re
from typing import Any, Final

Node = Any
"""A nested list: ``["+", "n_embd", 1]``."""

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|#[^\n]*(?:\\\n[^\n]*)*"
    r"|(?P<str>\"(?:[^\"\\]|\\.)*\")|(?P<num>(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e-?\d+)?)[a-zA-Z]*)"
    r"|(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_~]\w*)*)"
    r"|(?P<op><=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|\|=|&=|->|<<|>>|::|[-+*/%<>=!&|^~?:;,.(){}\[\]])",
    re.S,
)
_BINARY: Final = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
_ASSIGN: Final = {"=", "+=", "-=", "*=", "/=", "|=", "&="}
_TYPES: Final = frozenset(
    {
        *("auto", "bool", "int", "long", "int32_t", "int64_t", "uint16_t", "uint32_t", "uint64_t"),
        *("size_t", "float", "double", "char", "struct", "enum", "ggml_tensor", "llama_layer"),
        *("llama_model_loader", "llama_token", "gguf_type", "ggml_type", "llm_tensor"),
        *("std::string", "std::vector", "std::array", "std::set", "std::unordered_set"),
        *("std::map", "std::stringstream", "std::ostringstream", "llama_swa_type", "llm_arch"),
        "gguf_context_ptr",
    }
)
_QUALIFIERS: Final = frozenset({"const", "constexpr", "static", "struct", "enum", "unsigned"})
_NO_MEANING: Final = frozenset(
    ["LLAMA_LOG_INFO", "LLAMA_LOG_WARN", "LLAMA_LOG_DEBUG", "LLAMA_LOG_ERROR", "GGML_UNUSED"]
)


class UnreadableError(Exception):
    """The source uses what this reader does not know."""


class Reader:
    """Reads one function's body, or one expression.

    Args:
        text: The source between the braces.
        where: File and function, for messages.
    """

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise UnreadableError(f"{where}: cannot read {text[at : at + 30]!r}")
            at = match.end()
            if match.lastgroup:
                self.tokens.append((match.lastgroup, match[0]))
        self.tokens.append(("end", ""))
        self.at = 0

    # Tokens

    def peek(self, ahead: int = 0) -> str:
        """Return a token's text without taking it."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def kind(self, ahead: int = 0) -> str:
        """Return what kind of token it is."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][0]

    def take(self) -> str:
        """Return the next token and go on."""
        self.at += 1
        return self.tokens[self.at - 1][1]

    def accept(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.peek() == text and self.kind() != "str":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if not self.accept(text):
            near = " ".join(each for _, each in self.tokens[max(self.at - 8, 0) : self.at + 6])
            raise UnreadableError(f"{self.where}: `{text}` expected near: {near}")

    # Statements

    def body(self) -> list[Node]:
        """Return all statements up to the end."""
        found: list[Node] = []
        while self.kind() != "end":
            found += self.statement()
        return found

    def block(self) -> list[Node]:
        """Return the statements of a block, or the one statement that stands for it."""
        if not self.accept("{"):
            return self.statement()
        found: list[Node] = []
        while not self.accept("}"):
            found += self.statement()
        return found

    def statement(self) -> list[Node]:
        """Return the next statement; a declaration of several names makes several."""
        word = self.peek()
        if word == ";":
            self.take()
            return []
        if word == "{":
            return [["do", self.block()]]
        read = getattr(self, f"_{word}", None) if self.kind() == "name" else None
        if word in ("if", "for", "switch", "throw", "return", "try", "using") and read:
            self.take()
            found: list[Node] = read()
            return found
        if word in ("break", "continue"):
            self.take()
            self.expect(";")
            return [[word]]
        if declared := self._declaration():
            return declared
        node = self.expression()
        self.expect(";")
        silent = node[0] == "call" and isinstance(node[1], str) and node[1] in _NO_MEANING
        return [] if silent else [node]

    def _if(self) -> list[Node]:
        self.accept("constexpr")
        self.expect("(")
        first = self._declaration(end=(")", ";"))
        if first is None:
            test = self.expression()
        else:
            test = self.expression() if self.peek() != ")" else first[0][2]
        self.expect(")")
        then = self.block()
        other = self.block() if self.accept("else") else []
        node: list[Node] = [["if", test, then, other]]
        return [["do", [*first, *node]]] if first else node

    def _for(self) -> list[Node]:
        self.expect("(")
        begin = self.at
        self._type()
        self.accept("&")
        name = self.take()
        if self.accept(":"):
            items = self.expression()
            self.expect(")")
            return [["each", name, items, self.block()]]
        self.at = begin
        first = self.statement()
        test = True if self.peek() == ";" else self.expression()
        self.expect(";")
        step = self.expression()
        self.expect(")")
        return [["for", first, test, step, self.block()]]

    def _switch(self) -> list[Node]:
        self.expect("(")
        value = self.expression()
        self.expect(")")
        self.expect("{")
        cases: list[Node] = []
        while not self.accept("}"):
            labels: list[Node] = []
            while self.peek() in ("case", "default"):
                if self.take() == "case":
                    labels.append(self.expression())
                else:
                    labels.append(None)
                self.expect(":")
            statements: list[Node] = []
            while self.peek() not in ("case", "default", "}"):
                statements += self.statement()
            cases.append([labels, statements])
        return [["switch", value, cases]]

    def _throw(self) -> list[Node]:
        if self.accept(";"):
            return [["throw", ["s", "again"]]]
        node = self.expression()
        self.expect(";")
        return [["throw", node]]

    def _return(self) -> list[Node]:
        node = None if self.peek() == ";" else self.expression()
        self.expect(";")
        return [["return", node]]

    def _try(self) -> list[Node]:
        body = self.block()
        self.expect("catch")
        while self.take() != ")":
            pass
        return [["try", body, self.block()]]

    def _using(self) -> list[Node]:
        while self.take() != ";":
            pass
        return []

    def _type(self) -> str | None:
        """Read a type and return its plain name; None, and nothing read, when there is none."""
        begin = self.at
        name = ""
        while self.peek() in _QUALIFIERS:
            self.take()
        if self.kind() == "name" and (self.peek() in _TYPES or name):
            name = self.take()
            while name == "long" and self.accept("long"):
                pass
            if self.accept("<"):
                depth = 1
                name += "<"
                while depth:
                    token = self.take()
                    depth += (token == "<") - (token == ">") - 2 * (token == ">>")
                    name += token
        if not name:
            self.at = begin
            return None
        while self.peek() in ("const", "*", "&"):
            name += "&" if self.take() == "&" else ""
        return name

    def _declaration(self, end: tuple[str, ...] = (";",)) -> list[Node] | None:
        begin = self.at
        kind = self._type()
        if kind is None and self.kind() == self.kind(1) == "name" and self.peek(2) in ("=", ";"):
            kind = self.take()  # a type of its own, whose name stands before another name
        if kind is None or self.kind() != "name" or self.peek(1) not in (
            "=", ";", ",", "{", "(", "[", *end
        ):  # fmt: skip
            self.at = begin
            return None
        found: list[Node] = []
        while True:
            name = self.take()
            value: Node = None
            if self.accept("["):
                value = ["call", "array", self.expression()]
                self.expect("]")
            if self.accept("="):
                value = self.expression()
            elif self.peek() in ("{", "("):
                closing = "}" if self.take() == "{" else ")"
                value = ["call", kind, *self._list(closing)]
            found.append(["let", kind, name, value])
            if not self.accept(","):
                break
            while self.accept("*"):
                pass
        if self.peek() == ")" and ")" in end:
            return found
        self.expect(";")
        return found

    # Expressions

    def expression(self) -> Node:
        """Return the next expression."""
        left = self._ternary()
        if self.peek() in _ASSIGN and self.kind() == "op":
            operator = self.take()
            return [operator, left, self.expression()]
        return left

    def _ternary(self) -> Node:
        test = self._binary(0)
        if not self.accept("?"):
            return test
        first = self.expression()
        self.expect(":")
        return ["?", test, first, self.expression()]

    def _binary(self, least: int) -> Node:
        left = self._unary()
        while self.kind() == "op" and _BINARY.get(self.peek(), 0) > least:
            operator = self.take()
            left = [operator, left, self._binary(_BINARY[operator])]
        return left

    def _unary(self) -> Node:
        word = self.peek()
        if self.kind() == "op":
            if word in ("!", "-", "*", "&", "~", "+"):
                self.take()
                inner = self._unary()
                return inner if word in ("*", "&", "+") else [f"u{word}", inner]
            if word in ("++", "--"):
                self.take()
                return [word, self._unary()]
            if word == "(":
                begin = self.at
                self.take()
                kind = self._type()
                if kind is not None and self.accept(")"):
                    return ["cast", kind, self._unary()]
                self.at = begin
        return self._postfix(self._primary())

    def _primary(self) -> Node:
        kind, word = self.kind(), self.peek()
        if kind == "num":
            self.take()
            return _number(word)
        if kind == "str":
            text = ""
            while self.kind() == "str" or self.peek().startswith("PRI"):
                part = self.take()
                text += part[1:-1] if part.startswith('"') else part[3]
            return ["s", text.replace('\\"', '"').replace("\\n", "\n")]
        if self.accept("("):
            node = self.expression()
            self.expect(")")
            return node
        if self.accept("{"):
            return ["{}", *self._list("}")]
        if word == "[":
            return self._lambda()
        if kind != "name":
            self.expect("an expression")
        self.take()
        if word in ("static_cast", "std::max", "std::min", "std::is_same", "std::vector",
                    "std::array") and self.peek() == "<":  # fmt: skip
            name = self._angle(word)
            if word == "static_cast":
                self.expect("(")
                node = ["cast", name[12:-1], self.expression()]
                self.expect(")")
                return node
            if word.startswith("std::m"):
                return word
            word = name
        return {"true": True, "false": False, "nullptr": None, "NULL": None}.get(word, word)

    def _angle(self, word: str) -> str:
        """Return a template's name with its arguments."""
        depth = 0
        while True:
            token = self.take()
            depth += (token == "<") - (token == ">") - 2 * (token == ">>")
            word += token
            if depth <= 0:
                return word

    def _lambda(self) -> Node:
        self.expect("[")
        while self.take() != "]":
            pass
        parameters: list[str] = []
        if self.accept("("):
            while not self.accept(")"):
                kind = self._type() or ""
                parameters.append(("&" if kind.endswith("&") else "") + self.take())
                self.accept(",")
        if self.accept("->"):
            self._type()
        self.expect("{")
        found: list[Node] = []
        while not self.accept("}"):
            found += self.statement()
        return ["fn", parameters, found]

    def _postfix(self, node: Node) -> Node:
        while True:
            if self.accept(".") or self.accept("->"):
                node = [".", node, self.take()]
            elif self.accept("["):
                node = ["[]", node, self.expression()]
                self.expect("]")
            elif self.accept("("):
                node = ["call", node, *self._list(")")]
            elif self.peek() in ("++", "--"):
                node = [self.take(), node]
            else:
                return node

    def _list(self, closing: str) -> list[Node]:
        found: list[Node] = []
        while not self.accept(closing):
            found.append(self.expression())
            self.accept(",")
        return found


def _number(word: str) -> int | float:
    plain = re.sub(r"(?<=[\d.])[uUlLfF]+$", "", word) if not word.startswith("0x") else word
    if plain.startswith("0x"):
        return int(re.sub(r"[uUlL]+$", "", plain), 16)
    return float(plain) if re.search(r"[.e]", plain) else int(plain)


def parameters(text: str) -> list[str]:
    """Return the names of a function's parameters, those by reference with ``&`` in front.

    A default stands behind ``=``.
    """
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.search(r"(&?)\s*(\w+)\s*(?:=\s*(\S+))?$", part)
        if match is None:  # it has no name
            found.append("_")
            continue
        default = f"={match[3]}" if match[3] else ""
        found.append(f"{match[1]}{match[2]}{default}")
    return found
