"""What the Python of Debian 12 (3.11.2) does wrong, and what it lacks that later ones have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qbuild
from qbuild.recipe import toml

PACKAGE = Path(qbuild.__file__).parent
FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "findall", "finditer", "split"}


def patterns() -> Iterator[tuple[str, str, int]]:
    """Yield (place, pattern, flags) of every regular expression in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in FUNCTIONS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                flags = re.VERBOSE if "VERBOSE" in ast.dump(node) else 0
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node.args[0].value, flags


def test_no_possessive_patterns() -> None:
    """In 3.11.2 `(?:ab|c)*+` can match what `(?:ab|c)*` does not (CPython issue 101955)."""
    found = list(patterns())
    assert len(found) > 100
    wrong = {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}
    for place, pattern, flags in found:
        parsed = str(re._parser.parse(pattern, flags))  # type: ignore[attr-defined]
        assert not wrong & set(re.findall(r"[A-Z_]{5,}", parsed)), place


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ('a = "x.y[{=,#"', "="),
        ("a = 'x.y[{=,#\\'.b", "=."),
        ('a = """x.y\n"" \\""" [."""""]', "=]"),
        ('a = """\\', "="),
        ("a = '''x.y\n'' [.''''']", "=]"),
        ("a # [.\n.", "\n."),
        ('a = "x\\"[".b', "=."),
        ('a = "open.\n[', "=\n["),
        ("a = 'open.\n[", "=\n["),
        ('a = "open\\\n[', "=\n["),
        ('["", "", , "a", \'b\']', "[,,,,]"),
        ("a.b = {c = 1}", ".={=}"),
        ('a = ""', "="),
        ("#", ""),
        ('"""', ""),
    ],
)
def test_what_lies_outside_of_texts(text: str, marks: str) -> None:
    assert "".join(mark for mark, _ in toml._marks(text)) == marks


def test_every_bracket_is_counted_once() -> None:
    deep = "a = " + "[" * 64 + "]" * 64
    assert toml.loads(deep + "\n" + deep.replace("a", "b"))
    for text, line in (("a = 1\nb = " + "[" * 65, 2), (".".join("a" * 66) + " = 1", 1)):
        with pytest.raises(toml.tomllib.TOMLDecodeError, match=rf"too deeply \(at line {line}\)"):
            toml.loads(text)
    assert toml.loads(".".join("a" * 64) + " = 1")
    text = "a = " + "[" * 60 + "[]," * 10 + "[" * 5  # a closed bracket takes back one, not two
    with pytest.raises(toml.tomllib.TOMLDecodeError, match=r"too deeply \(at line 1\)"):
        toml.loads(text)
    many = "".join(f"[t{n}]\n" + ".".join("a" * 33) + " = 1\n" for n in range(512))
    assert len(toml.loads(many)) == 512  # 16,384 dots
    with pytest.raises(toml.tomllib.TOMLDecodeError, match="far too many dotted keys"):
        toml.loads(many + "a.b = 1\n")
