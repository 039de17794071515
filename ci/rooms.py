"""How the package is built: files, rooms, circles, imports inside functions, sizes.

    python ci/rooms.py [--list] [--sizes] [PACKAGE]

The order of the rooms is written in ``pyproject.toml`` (import-linter's contract). Here all is
counted by the syntax tree, imports inside functions included; those under ``TYPE_CHECKING`` not.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {
    "files at the top of the package": 12,
    "circles between rooms": 0,
    "circles of files": 0,
    "imports inside functions outside cli/": 25,
    "lines of the largest function": 60,
}
FEATURES = {
    "software GPU": ("emulator", "steps.emulator", "verify.emulate", "verify.tokens",
                     "cli.emulated_tests", "binary.cubin"),
    "model loader of the pin": ("modelfile.loader", "modelfile.functions",
                                "modelfile.program", "modelfile.demands",
                                "modelfile.sight", "modelfile.projector_traps", "modelfile.pair",
                                "modelfile.vocabulary", "modelfile.template", "modelfile.promises",
                                "modelfile.trap", "extras.together"),
    "bench": ("extras.bench", "cli.bench", "extras.report.speed"),
    "variants of one CPU zip, GPUs by name": ("recipe.variants", "recipe.gpu", "cuda.gpu_names",
                                              "bundle.launch.source_options"),
    "builds without git": ("source.gitless", "patches.gitless"),
    "doctor: run time, languages, networks": ("doctor.checks_log", "doctor.codes",
                                              "doctor.encodings", "doctor.errorlines",
                                              "source.causes"),
    "a Windows host": ("job", "held", "toolchains.batch"),
    "hostile files and folders": ("bounds", "verify.folder", "verify.habits", "verify.remedies"),
}  # fmt: skip
"""What the package could not do before it was sorted into rooms (36,900 lines then) → its modules.
What grew inside of older modules is not among them."""


@dataclass
class Module:
    """One file: what it imports, and where; its functions' sizes."""

    name: str
    lines: int
    imports: list[tuple[str, int, bool]] = field(default_factory=list)
    """(module of the package, line, inside a function)"""
    functions: list[tuple[int, str]] = field(default_factory=list)

    @property
    def room(self) -> str:
        """Name of its folder below the package; "" at the top."""
        return room_of(self.name)


def room_of(name: str) -> str:
    """Return the room of a module named with all its parts, ``__init__`` included."""
    parts = name.split(".")
    return parts[1] if len(parts) > 2 else ""


def read(package: Path) -> list[Module]:
    """Return every module of a package."""
    names = {_name(path, package): path for path in sorted(package.rglob("*.py"))}
    return [_module(name, path, set(names)) for name, path in names.items()]


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts)


def _module(name: str, path: Path, known: set[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    module = Module(name=name, lines=len(text.splitlines()))
    for node, inside in _nodes(ast.parse(text), inside=False):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            module.functions.append((size, f"{name}.{node.name}"))
        for target in _targets(node, known):
            module.imports.append((target, node.lineno, inside))  # type: ignore[attr-defined]
    return module


def _nodes(node: ast.AST, *, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child, inside
        function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _nodes(child, inside=inside or function)


def _targets(node: ast.AST, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        named = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        named = [f"{node.module}.{each.name}" for each in node.names]
    else:
        return
    for name in named:
        if not name.startswith("qbuild"):
            continue
        for candidate in (name, f"{name}.__init__", name.rpartition(".")[0]):
            if candidate in known:
                yield candidate
                break
        else:
            yield f"{name.rpartition('.')[0]}.__init__"


def circles(edges: list[tuple[str, str]]) -> list[list[str]]:
    """Return the groups that can reach one another (strongly connected components)."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        if source != target:
            graph.setdefault(source, set()).add(target)
    reach = {name: _reach(name, graph) for name in graph}
    groups = {
        tuple(sorted({name} | {other for other in found if name in reach.get(other, ())}))
        for name, found in reach.items()
    }
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reach(room: str, graph: dict[str, set[str]]) -> set[str]:
    todo, seen = [room], set()
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def sizes(modules: list[Module]) -> Iterator[tuple[str, int]]:
    """Yield the lines of each room, of each newer feature, and of what is left without those."""
    for room in sorted({m.room for m in modules}):
        yield room or "(top)", sum(m.lines for m in modules if m.room == room)
    rest = sum(m.lines for m in modules)
    for feature, places in FEATURES.items():
        lines = sum(m.lines for m in modules if _within(m.name.partition(".")[2], places))
        rest -= lines
        yield f"feature: {feature}", lines
    yield "without these features", rest


def _within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def main() -> int:
    """Print the numbers; with ``--check``, fail when one is past its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("package", nargs="?", default=ROOT / "toolchain" / "qbuild", type=Path)
    parser.add_argument("--list", action="store_true", help="name what is counted")
    parser.add_argument("--sizes", action="store_true", help="lines of each room and feature")
    parser.add_argument("--check", action="store_true", help="fail when a limit is passed")
    args = parser.parse_args()
    modules = read(args.package)
    edges = [(m.name, target) for m in modules for target, _, _ in m.imports]
    rooms = [(room_of(a), room_of(b)) for a, b in edges]
    between = circles([(a, b) for a, b in rooms if a and b])
    among = circles(edges)
    top = [m for m in modules if not m.room]
    inner = [
        f"{m.name}:{line} {target}"
        for m in modules
        if m.room != "cli"
        for target, line, inside in m.imports
        if inside
    ]
    largest = max(size for m in modules for size, _ in m.functions)
    numbers = {
        "files at the top of the package": len(top),
        "rooms": len({m.room for m in modules} - {""}),
        "circles between rooms": len(between),
        "circles of files": len(among),
        "imports inside functions outside cli/": len(inner),
        "lines": sum(m.lines for m in modules),
        "lines of the largest function": largest,
    }
    for name, number in numbers.items():
        print(f"{name:<40} {number:>6}")
    if args.sizes:
        for name, number in sizes(modules):
            print(f"{name:<40} {number:>6}")
    if args.list:
        for group in between + among:
            print("circle:", " ".join(group))
        print(*inner, sep="\n")
        for size, name in sorted((f for m in modules for f in m.functions), reverse=True)[:12]:
            print(f"{size:>4} {name}")
    past = [name for name, limit in LIMITS.items() if numbers[name] > limit]
    if args.check and past:
        print(*(f"past its limit of {LIMITS[name]}: {name}" for name in past), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
