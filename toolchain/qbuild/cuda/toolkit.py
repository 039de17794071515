"""The CUDA toolkits and host compilers of a machine: facts, and the pure choice among them.

:func:`capture` is the only function here that looks at the machine. It starts ``nvcc`` and the
compilers to ask for their versions, nothing else; a plan and its tests work on what it found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from qbuild import bounds
from qbuild.cuda import table
from qbuild.cuda.arch import CudaArch
from qbuild.errors import ToolchainError

VARIABLES: Final = ("CUDA_HOME", "CUDA_PATH")
"""Environment variables that name a toolkit; where one is set, no other place is looked at."""

PROGRAMS: Final = ("bin/nvcc", "bin/ptxas", "bin/cudafe++", "nvvm/bin/cicc")
"""Programs of a toolkit that decide what comes out."""

_COMPILERS: Final = (("gcc", "gcc", "g++"), ("clang", "clang", "clang++"))
_SUFFIXES: Final = ("", *(f"-{major}" for major in range(20, 8, -1)))
"""Distributions name the compilers beside their default one ``gcc-13``, ``clang-17``."""

_LIBRARIES: Final = ("lib64", "targets/x86_64-linux/lib", "lib", "lib/x86_64-linux-gnu")
_STATIC: Final = ("libcudart_static.a", "libcudadevrt.a")
_SECONDS: Final = 30


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """One CUDA toolkit."""

    root: str  # its folder: ``bin/nvcc`` lies in it
    version: str  # ``12.9.86`` (nvcc's) or ``12.9``; empty when nvcc does not say
    found: str  # how it was found: ``CUDA_HOME``, ``PATH``, ``/usr/local``
    cublas: bool  # whether cuBLAS's header and library are in it
    # whether the runtime's static libraries are in it: CMake's trial of nvcc links them
    static: bool = True
    # (program, bytes, time in ns) of :data:`PROGRAMS`: they change with an upgrade
    stamp: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostCompiler:
    """One C and C++ compiler that may compile nvcc's host side."""

    kind: str  # ``gcc`` or ``clang``
    cc: str  # path of the C compiler
    cxx: str  # path of the C++ compiler
    version: str  # ``12.2.0``
    # (path, bytes, time in ns) of both: they change with an upgrade
    stamp: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a machine has, in the order in which it is tried."""

    toolkits: tuple[Toolkit, ...] = ()  # toolkits
    compilers: tuple[HostCompiler, ...] = ()  # host compilers; the default one of the machine first
    problems: tuple[str, ...] = ()  # what looked like a toolkit and is none, one sentence each


def choose(
    machine: Machine, archs: Sequence[CudaArch], *, where: str | None = None, cublas: bool = True
) -> tuple[Toolkit, HostCompiler]:
    """Return the first toolkit that compiles every architecture, and the compiler it goes with.

    Args:
        machine: What there is.
        archs: The recipe's architectures.
        where: For messages.
        cublas: Whether ggml-cuda links cuBLAS, which must then be in the toolkit.

    Raises:
        ToolchainError: There is none; the message has the reason for each toolkit.
    """
    if not machine.toolkits:
        raise ToolchainError(
            "; ".join(machine.problems) or "this machine has no CUDA toolkit",
            where=where,
            fix="install CUDA 12.9 and let CUDA_HOME name its folder, or set toolchain.name = "
            '"clang-cuda", which needs nothing installed',
        )
    reasons: list[ToolchainError] = []
    for toolkit in machine.toolkits:
        try:
            return toolkit, _fitting(toolkit, machine.compilers, archs, where, cublas=cublas)
        except ToolchainError as error:
            reasons.append(error)
    if len(reasons) == 1:
        only, root = reasons[0], machine.toolkits[0]
        raise ToolchainError(
            only.what, where=f"{where}: {root.root} ({root.found})", fix=only.fix
        ) from only
    raise ToolchainError(
        "none of this machine's CUDA toolkits will do: "
        + "; ".join(
            f"{kit.root}: {reason.what}"
            for kit, reason in zip(machine.toolkits, reasons, strict=True)
        ),
        where=where,
        fix=reasons[0].fix,
    )


def _fitting(
    toolkit: Toolkit,
    compilers: Sequence[HostCompiler],
    archs: Sequence[CudaArch],
    where: str | None,
    *,
    cublas: bool,
) -> HostCompiler:
    """Return the compiler that goes with a toolkit, or raise the reason why it will not do."""
    if bad := unfit(toolkit.root):
        raise ToolchainError(
            f"CMake cannot take a toolkit whose path holds {bad}",
            where=where,
            fix="let CUDA_HOME name a link to it from another folder",
        )
    if not toolkit.version:
        raise ToolchainError(
            "nvcc does not say its version: the toolkit is damaged or for another machine",
            where=where,
            fix="run its `nvcc --version`, then install it again",
        )
    table.check_archs(archs, toolkit.version, where=where)
    if cublas and not toolkit.cublas:
        raise ToolchainError(
            f"CUDA {toolkit.version} is installed without cuBLAS, which ggml-cuda needs",
            where=where,
            fix="install its libcublas development package (cublas_v2.h and libcublas.so), or "
            'set bundle.cublas = "none"',
        )
    if not toolkit.static:
        raise ToolchainError(
            f"CUDA {toolkit.version} is installed without {' and '.join(_STATIC)}, which CMake's "
            "trial of nvcc links",
            where=where,
            fix="install the CUDA runtime's development package",
        )
    if not compilers:
        raise ToolchainError(
            "there is no gcc and no clang, and nvcc compiles its host side with one",
            where=where,
            fix='install gcc, or set toolchain.name = "clang-cuda", which needs none',
        )
    refusals = []
    for compiler in compilers:
        try:
            table.check_host_compiler(toolkit.version, compiler.kind, compiler.version, where=where)
        except ToolchainError as error:
            refusals.append(error)
        else:
            return compiler
    raise refusals[0]


def unfit(path: str) -> str:
    """Return the characters of a path that CMake or nvcc would split or replace, or ""."""
    return " ".join(repr(each) for each in sorted(set(path) & set(' ;"$\n')))


# -- what files and programs say: pure ---------------------------------------------------------


def version_in_json(text: str) -> str:
    """Return the version in a toolkit's ``version.json``: nvcc's, else the toolkit's, else ""."""
    try:
        data = bounds.load_json(text)
    except ValueError:
        return ""
    for name in ("cuda_nvcc", "cuda"):
        row = data.get(name) if isinstance(data, dict) else None
        version = row.get("version") if isinstance(row, dict) else None
        if isinstance(version, str) and re.fullmatch(r"[0-9]+(\.[0-9]+){1,3}", version):
            return version
    return ""


def version_in_output(text: str) -> str:
    """Return the version in what ``nvcc --version`` prints, or ""."""
    match = re.search(r"release ([0-9]+\.[0-9]+)(?:, V([0-9.]+[0-9]))?", text)
    return (match[2] or match[1]) if match else ""


def top_in_output(text: str, folder: str) -> str:
    """Return the toolkit folder that ``nvcc -v`` names, or "".

    Args:
        text: What it printed.
        folder: Where it ran: it may name its folder relative to that.
    """
    match = re.search(r"^#\$ TOP=(.+)$", text, re.MULTILINE)
    return os.path.normpath(Path(folder) / match[1].strip()) if match else ""


def places(environ: Mapping[str, str], local: Iterable[str]) -> list[tuple[str, str]]:
    """Return (folder, how it is known) of the toolkits to look at, without those on PATH.

    Args:
        environ: Environment variables.
        local: Folders in ``/usr/local`` called ``cuda`` or ``cuda-…``.
    """
    named = [(environ[name], name) for name in VARIABLES if environ.get(name)]
    if named:
        return named[:1]

    def newest_first(folder: str) -> tuple[bool, list[int]]:
        numbers = [int(part) for part in re.findall(r"[0-9]+", Path(folder).name)]
        return "-" in Path(folder).name, [-number for number in numbers]

    return [(folder, "/usr/local") for folder in sorted(local, key=newest_first)]


# -- looking at the machine --------------------------------------------------------------------


Ask = Callable[[Sequence[str]], str]
"""Runs a program and returns what it prints, or "" when it cannot be run."""


def ask(command: Sequence[str]) -> str:
    """Run a program for what it prints; see :data:`Ask`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def read_toolkit(root: Path, found: str, run: Ask = ask) -> Toolkit | str:
    """Return the toolkit in a folder, or one sentence that says why there is none."""
    nvcc = root / "bin" / "nvcc"
    if not root.is_dir():
        return f"{found} names {root}, which is no folder"
    if not nvcc.is_file():
        return f"{found} names {root}, which holds no bin/nvcc"
    if not (root / "include" / "cuda_runtime.h").is_file():
        return f"{root} holds nvcc, but not the CUDA runtime's headers (include/cuda_runtime.h)"
    version = ""
    try:
        version = version_in_json((root / "version.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        version = ""  # packages of distributions and wheels have none

    def holds(name: str) -> bool:
        return any((root / folder / name).exists() for folder in _LIBRARIES)

    stamp = []
    for name in PROGRAMS:
        if (root / name).is_file():
            info = (root / name).stat()
            stamp.append((name, info.st_size, info.st_mtime_ns))
    return Toolkit(
        root=str(root),
        version=version or version_in_output(run([str(nvcc), "--version"])),
        found=found,
        cublas=(root / "include" / "cublas_v2.h").is_file() and holds("libcublas.so"),
        static=all(holds(name) for name in _STATIC),
        stamp=tuple(stamp),
    )


def _on_path(run: Ask) -> str:
    """Return the toolkit folder of the nvcc on PATH, or ""; a script that starts it is asked."""
    program = shutil.which("nvcc")
    if program is None:
        return ""
    folder = Path(program).resolve().parent.parent
    if (folder / "include" / "cuda_runtime.h").is_file():
        return str(folder)
    return top_in_output(run([program, "-v", "__qbuild"]), str(Path.cwd()))


def _stamp(path: str) -> tuple[str, int, int]:
    info = Path(path).stat()
    return path, info.st_size, info.st_mtime_ns


def find_compilers(run: Ask = ask) -> tuple[HostCompiler, ...]:
    """Return the machine's gcc and clang: the plain names first, then the newest suffix."""
    found: dict[str, HostCompiler] = {}
    for suffix in _SUFFIXES:
        for kind, c, cxx in _COMPILERS:
            paths = [shutil.which(name + suffix) for name in (c, cxx)]
            if not paths[0] or not paths[1]:
                continue
            real = str(Path(paths[1]).resolve())
            if real in found:
                continue
            words = ["-dumpfullversion", "-dumpversion"] if kind == "gcc" else ["-dumpversion"]
            version = run([paths[1], *words]).strip()
            if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
                cc = str(Path(paths[0]).resolve())
                stamp = tuple(_stamp(path) for path in (cc, real))
                found[real] = HostCompiler(kind=kind, cc=cc, cxx=real, version=version, stamp=stamp)
    return tuple(found.values())


@cache
def capture() -> Machine:
    """Return what this machine has; it is looked at once in a run."""
    listed = [str(path) for path in Path("/usr/local").glob("cuda*") if path.is_dir()]
    wanted = places(os.environ, listed)
    if not any(found in VARIABLES for _, found in wanted) and (top := _on_path(ask)):
        wanted.insert(0, (top, "PATH"))
    toolkits: dict[str, Toolkit] = {}
    problems: list[str] = []
    for folder, found in wanted:
        root = Path(folder).absolute()
        if str(root.resolve()) in toolkits:
            continue
        read = read_toolkit(root, found)
        if isinstance(read, str):
            problems.append(read)
        else:
            toolkits[str(root.resolve())] = read
    return Machine(
        toolkits=tuple(toolkits.values()), compilers=find_compilers(), problems=tuple(problems)
    )
