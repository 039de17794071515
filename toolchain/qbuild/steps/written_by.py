"""What writes a bundle: code, tables and libraries, found by following imports.

A change to any of them is a change to the bundle step's key, and nobody keeps a list. The code is
the *static import closure* of the module that writes bundles: every module of this package that it
names in an import statement, in functions, too, and what those name. (Imports under
``TYPE_CHECKING`` are not followed: they do not run.) The tables are those that this code names, and
the libraries those that qbuild asks for, as installed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from qbuild import resources

START: Final = "qbuild.steps.bundle"
"""The module that writes bundles."""

# Reading 70 files with a syntax tree takes 0.3 s, which every start would pay.
# A pattern that begins with a line end is searched for ten times as fast as one that begins with ^.
_IMPORT: Final = re.compile(
    r"\n[ \t]*(?:from[ \t]+(qbuild[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    r"|import[ \t]+(qbuild[\w.]*))"
)
_NOT_RUN: Final = re.compile(r"\nif TYPE_CHECKING:(?:\n[ \t]+[^\n]*|\n(?=[\n \t]))+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_TABLE: Final = re.compile(r"""["']([\w./-]+)["']""")
_REQUIRED: Final = re.compile(r"^Requires-Dist: ([\w.-]+)(?![^\n]*extra ==)", re.MULTILINE)


@cache
def digest() -> str:
    """Return one sha256 over all of it."""
    found = hashlib.sha256()
    for path in (*code(), *tables()):
        data = _read(path).encode()
        found.update(f"{_name(path)}\0{len(data)}\0".encode() + data)
    for library in libraries():
        found.update(f"{library}\0".encode())
    return found.hexdigest()


@cache
def _read(path: Path) -> str:
    """Return a file's text with plain line ends, as git on Windows may not leave them."""
    return path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    """Return a name that says where a file belongs, and not where it lies on this machine."""
    for root in (_package(), resources.data_dir()):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def _package() -> Path:
    return Path(resources.__file__).parent


@cache
def code() -> tuple[Path, ...]:
    """Return the files of the import closure of :data:`START`, sorted."""
    todo, seen = {START}, set[Path]()
    while todo:
        for path in _files(todo.pop()):
            if path not in seen:
                seen.add(path)
                todo |= set(imported(_read(path)))
    return tuple(sorted(seen))


def _files(module: str) -> Iterator[Path]:
    """Yield a module's file and the ``__init__`` of each package that it is in."""
    folder = _package()
    for part in module.split(".")[1:]:
        yield folder / "__init__.py"
        if (file := folder / f"{part}.py").is_file():
            yield file
            return
        folder /= part
    if (folder / "__init__.py").is_file():
        yield folder / "__init__.py"


def imported(text: str) -> Iterator[str]:
    """Yield the modules of this package, and names in them, that a module's text imports."""
    for module, names, plain in _IMPORT.findall(_NOT_RUN.sub("", f"\n{text}")):
        if plain:
            yield plain
            continue
        yield module
        for name in _COMMENT.sub("", names).strip("()").split(","):
            if words := name.split():
                yield f"{module}.{words[0]}"


@cache
def tables() -> tuple[Path, ...]:
    """Return the files of ``toolchain/data`` that the code names, sorted.

    Templates of start scripts are named by their parts (``run`` and ``.bat``): they count when
    their folder is named.
    """
    root = resources.data_dir()
    named = {word for path in code() for word in _TABLE.findall(_read(path))}
    folders = {word.rstrip("/") for word in named}
    found = [
        path
        for path in root.rglob("*")
        if path.is_file()
        and (
            path.relative_to(root).as_posix() in named
            or (path.parent != root and path.parent.name in folders)
        )
    ]
    return tuple(sorted(found))


def libraries() -> tuple[str, ...]:
    """Return the libraries that qbuild asks for, as ``name-version`` of what is installed.

    Their bytes reach the zip: the compressor's, the writer's of the SBOM.
    """
    installed: dict[str, str] = {}
    for folder in map(Path, sys.path):
        if folder.is_dir():
            for path in folder.glob("*.dist-info"):
                project = path.name.partition("-")[0]
                installed.setdefault(_normal(project), str(path))
    own = installed.get("qbuild")
    metadata = Path(own, "METADATA") if own else None
    if metadata is None or not metadata.is_file():
        return ()
    wanted = _REQUIRED.findall(metadata.read_text(encoding="utf-8"))
    names = (installed.get(_normal(name), "") for name in wanted)
    return tuple(sorted(Path(name).name.removesuffix(".dist-info") for name in names if name))


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
