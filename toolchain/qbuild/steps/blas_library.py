"""One OpenBLAS on disk: where it is, whether it fits a recipe, how CMake is told of it.

Three origins: the pinned ``scipy-openblas32`` wheel of the *target* system, a prebuilt folder that
``OpenBLAS_DIR`` names, or the system's own (Linux). Whatever it is, it is read before anything is
configured: headers, the names it exports, its processor and system, its threads, its C runtime.

Some builds prefix their symbols so that two copies can live in one process (scipy's export
``scipy_cblas_sgemm``). The header says so, and CMake maps the two names that ggml calls: no patch.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild import host
from qbuild.binary.coff import CoffFile, read_coff
from qbuild.binary.elf import read_elf
from qbuild.binary.pe import read_pe
from qbuild.errors import BinaryError, ToolchainError
from qbuild.recipe.model import Recipe
from qbuild.recipe.toolchains import by_visual_studio, traits
from qbuild.steps.tools import OPENBLAS as PROJECT
from qbuild.toolchains import crt

FOLDER_VARIABLE: Final = "OpenBLAS_DIR"

WHEEL_ROOT: Final = "scipy_openblas32"
WHEEL_LINK: Final[Mapping[str, str]] = {
    "linux": "lib/libscipy_openblas.so",
    "windows": "lib/libscipy_openblas.lib",
}
WHEEL_SHIPPED: Final[Mapping[str, str]] = {
    "linux": "lib/libscipy_openblas.so",
    "windows": "lib/libscipy_openblas.dll",
}
"""What the programs load."""
WHEEL_PREFIX: Final = "scipy_"

CALLED: Final = ("cblas_sgemm", "openblas_set_num_threads")  # what ggml-blas.cpp calls of OpenBLAS

_DECLARED: Final = re.compile(r"\b(\w*?)cblas_sgemm(64_)?\s*\(")
_VERSION: Final = re.compile(r'OPENBLAS_VERSION\s+"\s*OpenBLAS\s+([\w.]+)')
_OPENMP: Final = re.compile(r"(lib)?(gomp|omp|iomp|vcomp)[\d.-].*", re.IGNORECASE)
_LICENCES: Final = ("LICENSE*", "LICENCE*", "COPYING*")
_SYSTEM_ROOTS: Final = ("/usr", "/usr/local")


@dataclass(frozen=True, kw_only=True)
class OpenBlas:
    """One OpenBLAS that was read and fits its recipe."""

    include: Path  # folder of ``cblas.h``
    link: Path  # what the linker is given: an import library, a shared or a static library
    shipped: Path | None  # library that the programs load; ``None``: it is linked in
    licence: Path | None  # its licence text; ``None`` where the system keeps the library
    prefix: str  # put before each of its symbols, e.g. ``scipy_``
    suffix: str  # put behind, e.g. ``64_``
    version: str  # as its header says, or ""


def digests(found: OpenBlas) -> dict[str, str]:
    """Return name → sha256 of every file that goes into a build."""
    parts = (*sorted(found.include.rglob("*.h")), found.link, found.shipped, found.licence)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in parts
        if path is not None
    }


def locate(recipe: Recipe, env: Mapping[str, str], files: Path | None = None) -> OpenBlas:
    """Find the OpenBLAS of a recipe and check that it fits.

    Args:
        recipe: What is built.
        env: Environment that ``OpenBLAS_DIR`` is read from.
        files: The unpacked wheel, for the origin ``wheel``.

    Raises:
        ToolchainError: It is missing or does not fit; the message says why.
    """
    where = f"recipe {recipe.name}: openblas.origin = {recipe.openblas.origin}"
    if recipe.openblas.origin == "wheel":
        assert files is not None
        return inspect(files / WHEEL_ROOT, recipe, where, licences=files)
    if recipe.openblas.origin == "system":
        return _of_system(recipe, where)
    named = env.get(FOLDER_VARIABLE, "")
    if not named:
        raise ToolchainError(
            f"{FOLDER_VARIABLE} is not set: it names the folder of a prebuilt OpenBLAS",
            where=where,
            fix=f"set it to the folder that holds include and lib, or set openblas.origin = "
            f'"wheel", which fetches a pinned one ({PROJECT})',
        )
    root = host.expand_user(named)
    if not root.is_dir():
        raise ToolchainError(
            f"{FOLDER_VARIABLE} names a folder that does not exist", where=str(root)
        )
    if (root / "OpenBLASConfig.cmake").is_file():  # CMake's habit: lib/cmake/openblas
        root = next((each for each in root.parents if (each / "include").is_dir()), root)
    return inspect(root.absolute(), recipe, where, licences=root)


def _of_system(recipe: Recipe, where: str) -> OpenBlas:
    if recipe.target.os != "linux":
        raise ToolchainError(
            "Windows brings no OpenBLAS of its own",
            where=where,
            fix='set openblas.origin = "wheel", or "folder" with OpenBLAS_DIR',
        )
    for root in map(Path, _SYSTEM_ROOTS):
        if next(_headers(root), None) is not None and next(_linux_libraries(root), None):
            return inspect(root, recipe, where, licences=None)
    raise ToolchainError(
        "the system has no OpenBLAS with its headers",
        where=where,
        fix='install it (Debian: libopenblas-dev), or set openblas.origin = "wheel"',
    )


def inspect(root: Path, recipe: Recipe, where: str, *, licences: Path | None) -> OpenBlas:
    """Read an OpenBLAS folder and check that it fits the recipe.

    Args:
        root: Folder that holds ``include`` and ``lib`` (and ``bin``).
        recipe: What is built.
        where: For messages.
        licences: Folder that its licence text is looked for in; ``None``: nothing will ship.

    Raises:
        ToolchainError: Something is missing or does not fit.
        BinaryError: A library is damaged.
    """
    include = next(_headers(root), None)
    if include is None:
        raise ToolchainError(
            "there is no cblas.h in this OpenBLAS",
            where=str(root / "include"),
            fix="take a build with CBLAS and its headers",
        )
    header = (include / "cblas.h").read_text(encoding="utf-8", errors="replace")
    declared = _DECLARED.search(header)
    if declared is None:
        raise ToolchainError("its cblas.h declares no cblas_sgemm", where=str(include / "cblas.h"))
    prefix, suffix = declared[1], declared[2] or ""
    names = {f"{prefix}{name}{suffix}" for name in CALLED}
    if not all(re.search(rf"\b{name}\s*\(", header) for name in names):
        raise ToolchainError(
            "its cblas.h is not OpenBLAS's: it declares no openblas_set_num_threads",
            where=str(include / "cblas.h"),
            fix="take OpenBLAS's own headers",
        )
    if recipe.target.os == "windows":
        link, shipped = _windows_library(root, recipe, where, names)
    else:
        link, shipped = _linux_library(root, recipe, where, names)
    config = include / "openblas_config.h"
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    version = _VERSION.search(text)
    return OpenBlas(
        include=include,
        link=link,
        shipped=shipped if licences is not None else None,
        licence=_licence(licences) if licences is not None else None,
        prefix=prefix,
        suffix=suffix,
        version=version[1] if version else "",
    )


def _headers(root: Path) -> Iterator[Path]:
    base = root / "include"
    # A plain cblas.h beside it may be the reference BLAS's, which knows no threads.
    for pattern in ("openblas*/cblas.h", "*/openblas*/cblas.h", "cblas.h", "*/cblas.h"):
        yield from (path.parent for path in sorted(base.glob(pattern)))


def _licence(root: Path) -> Path:
    for folder in (".", "*.dist-info/licenses", "share/licenses/*", "share/doc/*"):
        for pattern in _LICENCES:
            for path in sorted(root.glob(f"{folder}/{pattern}")):
                if path.is_file():
                    return path
    raise ToolchainError(
        "this OpenBLAS comes without its licence text, which must go with it",
        where=str(root),
        fix="put OpenBLAS's LICENSE file into that folder",
    )


# -- libraries ---------------------------------------------------------------------------------


def _check_names(exports: set[str], names: set[str], path: Path) -> None:
    if lacking := sorted(names - exports):
        raise ToolchainError(
            f"{path.name} does not export {', '.join(lacking)}, which its header declares",
            where=str(path),
            fix="header and library are of different builds: take both from one",
        )


def _check_threads(needed: list[str], path: Path) -> None:
    if openmp := [name for name in needed if _OPENMP.fullmatch(name)]:
        raise ToolchainError(
            f"{path.name} runs its threads by OpenMP ({openmp[0]}): ggml has its own threads here, "
            "and the two would fight for the processor",
            where=str(path),
            fix="take a build with OpenBLAS's own threads (USE_OPENMP=0)",
        )


def _linux_libraries(root: Path) -> Iterator[Path]:
    for name in ("lib*openblas*.so", "lib*openblas*.a"):
        for folder in ("lib", "lib/*/openblas*", "lib/*", "lib64"):
            yield from sorted(root.glob(f"{folder}/{name}"))


def _linux_library(
    root: Path, recipe: Recipe, where: str, names: set[str]
) -> tuple[Path, Path | None]:
    link = next(_linux_libraries(root), None)
    if link is None:
        raise ToolchainError(
            "there is no OpenBLAS library for Linux in this folder",
            where=str(root / "lib"),
            fix="it needs lib/libopenblas.so or lib/libopenblas.a",
        )
    if link.suffix == ".a":
        return link, None
    image = read_elf(link)
    if image.machine != recipe.target.arch:
        raise ToolchainError(
            f"{link.name} is for {image.machine}, the recipe for {recipe.target.arch}",
            where=str(link),
        )
    _check_names(set(image.exports), names, link)
    _check_threads(list(image.needed), link)
    floor = tuple(int(part) for part in recipe.target.glibc.split("."))
    if image.max_glibc and traits(recipe).brings_libc and image.max_glibc > floor:
        need = ".".join(map(str, image.max_glibc))
        raise ToolchainError(
            f"{link.name} needs glibc {need}, the recipe promises {recipe.target.glibc}",
            where=f"{where}; {link}",
            fix=f'set target.glibc = "{need}", or openblas.origin = "wheel"',
        )
    return link, link


def _windows_library(
    root: Path, recipe: Recipe, where: str, names: set[str]
) -> tuple[Path, Path | None]:
    patterns = ("*openblas*.lib", "*openblas*.dll.a", "*openblas*.a")
    found = [path for pattern in patterns for path in sorted(root.glob(f"lib/{pattern}"))]
    if not found:
        raise ToolchainError(
            "there is no OpenBLAS library for Windows in this folder",
            where=str(root / "lib"),
            fix="it needs an import library (.lib or .dll.a) with its DLL, or a static library",
        )
    link = found[0]
    read = read_coff(link)
    _check_runtime(read, link, recipe, where)
    if not read.dlls:
        return link, None
    dll = read.dlls[0]
    for folder in ("bin", "lib", "."):
        for path in sorted((root / folder).glob("*.dll")):
            if path.name.lower() == dll.lower():
                image = read_pe(path)
                if image.machine != recipe.target.arch:
                    raise ToolchainError(
                        f"{path.name} is for {image.machine}, the recipe for {recipe.target.arch}",
                        where=str(path),
                    )
                _check_names(set(image.exports), names, path)
                _check_threads([entry.dll for entry in image.imports], path)
                return link, path
    raise ToolchainError(
        f"{link.name} is the import library of {dll}, which is not in this folder",
        where=str(root),
        fix=f"put {dll} into its bin folder",
    )


def _check_runtime(read: CoffFile, link: Path, recipe: Recipe, where: str) -> None:
    """Refuse a static library whose C runtime is not the recipe's."""
    if by_visual_studio(recipe):
        crt.check_libraries([link], recipe.toolchain.runtime, where=f"{where}; {link}")
        return
    asked = sorted({flag for item in read.objects for flag in crt.demand_of(item).runtimes})
    if asked:
        raise ToolchainError(
            f"{link.name} was compiled by MSVC with {asked[0]}; the {recipe.toolchain.name} "
            "toolchain has another C and C++ runtime",
            where=f"{where}; {link}",
            fix="take the DLL build with its import library, or the msvc toolchain",
        )


# -- the folder that CMake is given ------------------------------------------------------------


def assemble(found: OpenBlas, dest: Path) -> dict[str, Any]:
    """Copy what is compiled with, linked and shipped into one folder; return facts for people.

    Layout: ``include``, ``lib`` (for the linker), ``bin`` (for the bundle), ``LICENSE.txt``,
    ``VERSION`` and ``cmake/FindBLAS.cmake``.
    """
    for name in ("include", "lib", "bin", "cmake"):
        (dest / name).mkdir(parents=True)
    for header in sorted(found.include.rglob("*.h")):
        target = dest / "include" / header.relative_to(found.include)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(header, target)
    shutil.copyfile(found.link, dest / "lib" / found.link.name)
    if found.shipped is not None:
        shutil.copyfile(found.shipped, dest / "bin" / _loaded_as(found.shipped))
    if found.licence is not None:
        shutil.copyfile(found.licence, dest / "LICENSE.txt")
    (dest / "VERSION").write_text(
        f"OpenBLAS {found.version or 'unknown'}\n", encoding="utf-8", newline="\n"
    )
    module = find_module(
        "${CMAKE_CURRENT_LIST_DIR}/../include",
        f"${{CMAKE_CURRENT_LIST_DIR}}/../lib/{found.link.name}",
        prefix=found.prefix,
        suffix=found.suffix,
    )
    (dest / "cmake" / "FindBLAS.cmake").write_text(module, encoding="utf-8", newline="\n")
    return {"version": found.version, "library": found.link.name, "prefix": found.prefix}


def _loaded_as(path: Path) -> str:
    """Return the name that programs ask for: the soname on Linux."""
    try:
        return read_elf(path).soname or path.name
    except BinaryError:
        return path.name


def find_module(include: str, link: str, *, prefix: str, suffix: str) -> str:
    """Return the text of a ``FindBLAS.cmake`` that answers llama.cpp with one chosen library.

    Args:
        include: Folder of the headers, as CMake writes it.
        link: The library.
        prefix: What its symbols begin with.
        suffix: What they end with.
    """
    mapped = [f"{name}={prefix}{name}{suffix}" for name in CALLED if prefix or suffix]
    lines = [
        "# Written by qbuild: find_package(BLAS) finds this OpenBLAS and looks no further.",
        f'get_filename_component(_openblas_include "{include}" ABSOLUTE)',
        f'get_filename_component(_openblas_library "{link}" ABSOLUTE)',
        "if(NOT TARGET qbuild::openblas)",
        "  add_library(qbuild::openblas UNKNOWN IMPORTED)",
        "  set_target_properties(qbuild::openblas PROPERTIES",
        '    IMPORTED_LOCATION "${_openblas_library}"',
        f'    INTERFACE_COMPILE_DEFINITIONS "{";".join(mapped)}"',
        '    INTERFACE_INCLUDE_DIRECTORIES "${_openblas_include}")',
        "endif()",
        "set(BLAS_FOUND TRUE)",
        "set(BLAS_LIBRARIES qbuild::openblas)",
        'set(BLAS_INCLUDE_DIRS "${_openblas_include}")',
        'set(BLAS_LINKER_FLAGS "")',
    ]
    return "\n".join(lines) + "\n"
