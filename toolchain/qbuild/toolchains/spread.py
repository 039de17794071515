"""Let distcc run the pinned compiler on other machines.

distcc sends preprocessed source and the *name* of a compiler. Every host therefore offers the very
same zig under a name that carries its version, and this machine calls it by that name, too: the
code is the same wherever it was compiled. (An object names the host's temporary file in its symbol
table; that goes when the program is stripped at link time.) A compiler found on a system cannot
promise as much, so only the zig toolchain is spread.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from qbuild.errors import ToolchainError
from qbuild.store import link_tree

HERE = "localhost"  # what distcc calls this machine in its log

_REMOTE = re.compile(r"\bcompile .* on ([^ ]+) completed ok$", re.MULTILINE)

_ERROR = re.compile(r"^distcc\[\d+\] (?:\(\w+\) )?ERROR: (.+)$", re.MULTILINE)

LANGUAGES = {"cc": "c", "c++": "c++"}


def remote_name(version: str, tool: str) -> str:
    """Return the name under which hosts offer a compiler, e.g. ``qbuild-zig-0.17.1-c++``."""
    return f"qbuild-zig-{version}-{tool}"


def remote_script(zig: Path, tool: str, cache_dir: Path) -> str:
    """Return the program of that name.

    zig does not know the endings of preprocessed files (``.i``, ``.ii``), so their language is
    said; preprocessing what is preprocessed changes nothing.
    """
    call = shlex.join([str(zig), tool])
    caches = "".join(
        f"export {name}={shlex.quote(str(cache_dir))}\n"
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    )
    return (
        f"#!/bin/sh\n{caches}"
        'for word do case "$word" in\n'
        f'*.i | *.ii) exec {call} -x {LANGUAGES[tool]} "$@" ;;\n'
        "esac; done\n"
        f'exec {call} "$@"\n'
    )


def make_host(folder: Path, zig: Path, version: str) -> list[Path]:
    """Make a folder from which a distcc daemon offers the pinned compiler.

    The daemon runs as a user of its own, who need not be able to read a person's store: the
    compiler's files are linked (or copied) to the folder.

    Args:
        folder: New folder; everybody must be able to reach it.
        zig: The unpacked compiler.
        version: Its version.

    Returns:
        The programs that the daemon may run; ``folder/allowed`` lists them for DISTCC_CMDLIST.
    """
    link_tree(zig.parent, folder / "ziglang")
    cache = folder / "cache"
    cache.mkdir()
    cache.chmod(0o777)  # the daemon's user is not known here
    offered = write_host(folder / "ziglang" / zig.name, version, folder / "bin", cache)
    allowed = "".join(f"{path}\n" for path in offered)
    (folder / "allowed").write_text(allowed, encoding="utf-8", newline="\n")
    return offered


def write_host(zig: Path, version: str, folder: Path, cache_dir: Path) -> list[Path]:
    """Write the compilers a host offers into ``folder`` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for tool in LANGUAGES:
        path = folder / remote_name(version, tool)
        path.write_text(remote_script(zig, tool, cache_dir), encoding="utf-8", newline="\n")
        path.chmod(0o755)
        written.append(path)
    return written


def write_spread(
    wrappers: Mapping[str, Sequence[str]], *, version: str, work: Path, cache_dir: Path
) -> Path:
    """Write the launcher that stands before the compiler's wrapper, and return it.

    Args:
        wrappers: The toolchain's wrappers; those of ``cc`` and ``c++`` begin with zig's path and
            the tool's name.
        version: zig's version.
        work: Folder of the build.
        cache_dir: zig's cache on this machine, for what is compiled here after all.

    Raises:
        ToolchainError: distcc is not installed.
    """
    distcc = shutil.which("distcc")
    if distcc is None:
        raise ToolchainError(
            "`distcc` is not on PATH",
            where="--compile-on or QBUILD_COMPILE_HOSTS",
            fix="install it (Debian: apt install distcc), or compile here only",
        )
    tools = work / "tools"
    write_host(Path(wrappers["cc"][0]), version, tools, cache_dir)
    lines = ["#!/bin/sh", "# Called as: spread .../c++ arguments", 'tool="$1"', "shift"]
    lines.append('case "$tool" in')
    for tool in ("c++", "cc"):
        flags = shlex.join(wrappers[tool][2:])
        name = remote_name(version, tool)
        lines.append(f'*/{tool}) exec {shlex.quote(distcc)} {name} {flags} "$@" ;;')
    lines += ['*) exec "$tool" "$@" ;;', "esac", ""]
    path = tools / "spread"
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    path.chmod(0o755)
    return path


def compiled_on(log: Path) -> dict[str, int]:
    """Return host → how many files it compiled, as distcc's own log says."""
    if not log.is_file():
        return {}
    text = log.read_text(encoding="utf-8", errors="replace")
    return dict(sorted(Counter(_REMOTE.findall(text)).items()))


def why_here(log: Path) -> str:
    """Return the first error of distcc's log: why a file did not go to another machine."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    found = _ERROR.search(text)
    return f"distcc says `{found[1]}`" if found else "distcc names no error"
