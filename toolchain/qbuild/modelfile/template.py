"""Whether a chat template can be read at all: its syntax, never what it would write.

llama.cpp has a Jinja of its own (``common/jinja``); its statements are Jinja's, with `break` and
`continue`, and `generation`, which marks what a model said. Unlike Jinja's it has no `include`,
`import`, `extends`, `block`, `with`, `autoescape`, `trans`, `do`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from qbuild.modelfile.loader import program
from qbuild.modelfile.remembered import remembered

_NOT_THERE: Final = ("include", "import", "from", "extends", "block", "with", "autoescape", "do")
_STATEMENT: Final = re.compile(r"\{%[-+]?\s*(\w+)")


def template_problem(source: str) -> str:
    """Return why a template cannot be read, with the line it happens in, or "".

    The answer is remembered: loading jinja2 takes a fifth of all that `qbuild model` does.
    """
    known = json.dumps(program()["templates"])
    depends = (source, known, Path(__file__).read_text(encoding="utf-8"), _release("jinja2"))
    return remembered(depends, lambda: _problem(source))


def _release(library: str) -> str:
    """Return what tells an installed library from another release, without loading it."""
    found = find_spec(library)
    if found is None or found.origin is None:
        return ""
    file = Path(found.origin).stat()
    return f"{found.origin} {file.st_size} {file.st_mtime_ns}"


def _problem(source: str) -> str:
    from jinja2 import Environment, TemplateSyntaxError, nodes
    from jinja2.ext import Extension, loopcontrols

    class Generation(Extension):
        """`{% generation %}…{% endgeneration %}`."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = Environment(extensions=[Generation, loopcontrols], autoescape=True)
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except RecursionError:
        return "it is nested too deeply"
    for match in _STATEMENT.finditer(source):
        if match[1] in _NOT_THERE:
            line = source.count("\n", 0, match.start()) + 1
            return f"line {line}: llama.cpp's templates have no `{match[1]}`"
    return next(_unknown(tree), "")


def _unknown(node: Any) -> Iterator[str]:
    """Yield filters and tests that llama.cpp does not have, where every conversation meets them."""
    from jinja2 import nodes

    known = program()["templates"]
    if isinstance(node, nodes.Filter) and node.name and node.name not in known["filters"]:
        yield f"line {node.lineno}: llama.cpp's templates have no filter `{node.name}`"
    if isinstance(node, nodes.Test) and node.name not in known["tests"]:
        yield f"line {node.lineno}: llama.cpp's templates have no test `{node.name}`"
    if isinstance(node, (nodes.Macro, nodes.CondExpr, nodes.CallBlock)):
        return
    if isinstance(node, nodes.If):
        yield from _unknown(node.test)  # what stands inside may never be met
        return
    for child in node.iter_child_nodes():
        yield from _unknown(child)
