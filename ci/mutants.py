"""The changes that ``ci/mutate.py`` makes to a module: one node of its syntax tree each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change.

    ``function`` is the outermost function it lies in, as its code object names it (``Class.name``),
    and ``first_line`` where that begins (1-based, decorators included); empty and 0 for what runs
    when the module is imported. ``number`` counts the changes of a module.
    """

    module: str
    function: str
    first_line: int
    line: int
    what: str
    number: int


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (what, replacement) for a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        new = copy.deepcopy(node)
        new.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        yield f"{ast.unparse(node)}  →  {ast.unparse(new)}", new
    elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.BinOp) and type(node.op) in SWAPS):
        joined = copy.deepcopy(node)
        joined.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield f"{ast.unparse(node)}  →  {ast.unparse(joined)}", joined
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)}  →  {ast.unparse(node.operand)}", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):  # True and False are, too
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield f"{node.value}  →  {value}", ast.Constant(value)
    elif isinstance(node, ast.If | ast.While):
        turned = copy.deepcopy(node)
        turned.test = ast.UnaryOp(ast.Not(), turned.test)
        yield f"{ast.unparse(node.test)}  →  not", turned
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield f"left out: {ast.unparse(node)[:70]}", ast.Pass()
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield f"{ast.unparse(node)[:70]}  →  return None", ast.Return(ast.Constant(None))


class Rewrite(ast.NodeTransformer):
    """Counts possible changes; makes the one with the wanted number."""

    def __init__(self, module: str, wanted: int = -1) -> None:
        self.module, self.wanted, self.found = module, wanted, list[Mutant]()
        self._classes: list[str] = []
        self._function, self._first_line = "", 0

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the node, changed if its turn has come."""
        if isinstance(node, ast.AnnAssign):  # an annotation is no code
            if node.value is not None:
                node.value = self.visit(node.value)  # type: ignore[assignment]
            return node
        if isinstance(node, ast.ClassDef) and not self._function:
            self._classes.append(node.name)
            node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
            self._classes.pop()
            return node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self._definition(node)
        replacement = None
        for what, new in changes(node):
            if len(self.found) == self.wanted:
                replacement = ast.copy_location(new, node)
            self.found.append(
                Mutant(
                    self.module, self._function, self._first_line,
                    node.lineno, what, len(self.found),  # type: ignore[attr-defined]
                )
            )  # fmt: skip
        if replacement is not None:
            return ast.fix_missing_locations(replacement)
        return self.generic_visit(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        outermost = not self._function
        if outermost:
            self._function = ".".join([*self._classes, node.name])
            self._first_line = min(each.lineno for each in (*node.decorator_list, node))
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        if outermost:
            self._function, self._first_line = "", 0
        return node


def mutants(module: str, path: Path) -> list[Mutant]:
    """Return every mutant of a module."""
    rewrite = Rewrite(module)
    rewrite.visit(ast.parse(path.read_text(encoding="utf-8")))
    return rewrite.found


def mutated(mutant: Mutant, path: Path) -> ast.Module:
    """Return the changed module's syntax tree."""
    tree = Rewrite(mutant.module, mutant.number).visit(ast.parse(path.read_text(encoding="utf-8")))
    assert isinstance(tree, ast.Module)
    return ast.fix_missing_locations(tree)
