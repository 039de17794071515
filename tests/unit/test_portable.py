"""What the package writes and reads is the same on every system: no line of it may leave that open.

Python's text mode makes two characters of each line end on Windows and reads in the system's code
page; a rename fails there while a virus scanner looks. Each of these was found in the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import qbuild

ROOT = Path(qbuild.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
LINUX_ONLY = {"cli/emulated_tests.py", "verify/sandbox_child.py", "verify/wine.py"}
PATIENT = {"held.py"}
"""Where patience is written; everybody else goes there."""


def calls(path: Path) -> Iterator[tuple[ast.Call, dict[str, ast.expr]]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, {each.arg: each.value for each in node.keywords if each.arg}


def faults(path: Path) -> Iterator[str]:
    for call, named in calls(path):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if name == "write_text" and not {"newline", "encoding"} <= set(named):
            yield f"{call.lineno}: write_text without encoding and newline"
        as_text = "text" in named and ast.unparse(named["text"]) == "True"
        if as_text and not {"encoding", "errors"} <= set(named):
            yield f"{call.lineno}: text=True without encoding and errors"
        if name == "rename" and owner != "held" and path.name not in PATIENT:
            yield f"{call.lineno}: {owner}.rename instead of held.rename"
        if name == "TemporaryDirectory":  # ignoring errors it calls itself for ever on Windows
            yield f"{call.lineno}: TemporaryDirectory instead of held.scratch"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_depends_on_the_systems_text_mode(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() not in LINUX_ONLY:
        assert list(faults(path)) == []


def test_the_faults_are_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "p.write_text('x', encoding='utf-8')\nrun(['a'], text=True)\na.rename(b)\n"
        "tempfile.TemporaryDirectory(ignore_cleanup_errors=True)\n"
        "p.write_text('x', encoding='utf-8', newline='')\nheld.rename(a, b)\n",
        encoding="utf-8",
    )
    assert [each.partition(":")[0] for each in faults(bad)] == ["1", "2", "3", "4"]
