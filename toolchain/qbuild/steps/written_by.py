"""What writes a bundle: code, tables and libraries, found by following imports.

A change to any of them is a change to the bundle step's key, and nobody keeps a list. The code is
the *static import closure* of the module that writes bundles: every module of this package that it
names in an import statement, in functions, too, and what those name. (Imports under
``TYPE_CHECKING`` are not followed: they do not run.) The tables are those that this code names, and
the libraries those that qbuild asks for, as installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from qbuild import resources

START: Final = "qbuild.steps.bundle"  # the module that writes bundles

# Reading 70 files with a syntax tree takes 0.3 s, which every start would pay.
# A pattern that begins with a line end is searched for ten times as fast as one that begins with ^.
_IMPORT: Final = re.compile(
    r"\n[ \t]*(?:from[ \t]+(qbuild[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    r"|import[ \t]+(qbuild[\w.]*))"
)
_NOT_RUN: Final = re.compile(r"\nif TYPE_CHECKING:(?:\n[ \t]+[^\n]*|\n(?=[\n \t]))+")
_COMMENT: Final = re.compile(r"#[^\n]*")
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
        begin = f"{root}{os.sep}"
        if str(path).startswith(begin):
            return str(path)[len(begin) :].replace(os.sep, "/")
    return path.name


def _package() -> Path:
    return Path(resources.__file__).parent


@cache
def code() -> tuple[Path, ...]:
    """Return the files of the import closure of :data:`START`, sorted."""
    todo, names, seen = [START], {START}, dict[str, Path]()
    package = str(_package())
    while todo:
        for file in _files(package, todo.pop()):
            if file not in seen:
                seen[file] = Path(file)
                new = set(imported(_read(seen[file]))) - names
                names |= new
                todo += new
    return tuple(sorted(seen.values()))


def _files(package: str, module: str) -> Iterator[str]:
    """Yield a module's file and the ``__init__`` of each package that it is in.

    As texts: every start asks for some hundred names, and paths take longer than looking.
    """
    folder = package
    for part in module.split(".")[1:]:
        yield f"{folder}{os.sep}__init__.py"
        folder = f"{folder}{os.sep}{part}"
        if os.path.isfile(f"{folder}.py"):  # noqa: PTH113
            yield f"{folder}.py"
            return
    if os.path.isfile(file := f"{folder}{os.sep}__init__.py"):  # noqa: PTH113
        yield file


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
    # what stands between two quotes, whether they belong together or not: a pattern takes 5 ms more
    named = {word for path in code() for quote in "\"'" for word in _read(path).split(quote)}
    folders = {word.rstrip("/") for word in named}
    found = []
    for place, _, files in os.walk(root):
        folder = place[len(str(root)) + 1 :].replace(os.sep, "/")
        whole = folder.rpartition("/")[2] in folders if folder else False
        begin = f"{folder}/" if folder else ""
        found += [Path(place, file) for file in files if whole or f"{begin}{file}" in named]
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
