"""Compile: ninja with a progress bar, and the first real error when it fails."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild import process
from qbuild.console import Reporter
from qbuild.errors import CompileError

_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")
_COMPILER_ERROR = re.compile(
    r"(?:^|: )(?:fatal |internal compiler )?error(?: (?:C|LNK)\d+)?:|"
    r"undefined (?:symbol|reference)|duplicate symbol|\bKilled\b|No space left on device"
)
_CONTEXT_LINES = 3


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One build step as ninja's log recorded it."""

    output: str
    start_ms: int
    end_ms: int


def build(
    ninja: Path,
    build_dir: Path,
    targets: Sequence[str],
    *,
    jobs: int,
    env: Mapping[str, str],
    log: Path,
    reporter: Reporter,
    network: bool = False,
) -> None:
    """Run ninja until the targets are up to date.

    Args:
        ninja: The program.
        build_dir: A configured build tree.
        targets: What to build.
        jobs: Commands at once.
        env: Their whole environment.
        log: File that gets all output.
        reporter: Who hears of the progress.
        network: Leave the network there.

    Raises:
        CompileError: A command failed; carries the first error and the log's path.
        Stopped: Ctrl-C, SIGTERM or SIGHUP.
    """
    command = [str(ninja), "-C", str(build_dir), "-j", str(jobs), *targets]
    environment = {**env, "NINJA_STATUS": "[%f/%t] "}
    mark = log.stat().st_size if log.exists() else 0
    with reporter.task(f"compile (-j{jobs})", unit="steps") as task:

        def follow(line: str) -> None:
            if match := _STATUS.match(line):
                task.update(done=int(match[1]), total=int(match[2]), note=_what_is_built(match[3]))

        status = process.run_logged(
            command,
            cwd=build_dir,
            env=environment,
            log=log,
            on_line=follow,
            cut_network=not network,
            bind_lives=True,
        )
    if status != 0:
        with log.open(encoding="utf-8", errors="replace") as stream:
            stream.seek(mark)
            text = stream.read()
        raise CompileError(
            f"the build failed: {first_error(text)}", where=f"full log: {log}", fix=advice(text)
        )


def _what_is_built(text: str) -> str:
    """Return the file of a status line such as ``Building CXX object a/b.cpp.o``."""
    last = text.split(" ")[-1]
    return last.rsplit("/", 1)[-1].removesuffix(".o").removesuffix(".obj")


def first_error(log: str) -> str:
    """Return the first compiler or linker error with a few lines around it.

    Lines that merely repeat a command (they may hold ``-Werror=…``) do not count.
    """
    lines = log.splitlines()
    for index, line in enumerate(lines):
        if line.startswith(("[", "FAILED:")) or len(line) > 2000:
            continue
        if _COMPILER_ERROR.search(line):
            return "\n  ".join(part[:400] for part in lines[index : index + _CONTEXT_LINES])
    for index, line in enumerate(lines):
        if line.startswith(("FAILED:", "ninja: error")):
            return "\n  ".join(part[:400] for part in lines[index : index + 2])
    return "\n  ".join(lines[-3:]) or "ninja said nothing"


def advice(log: str) -> str | None:
    """Return what the doctor makes of a failed log, or nothing when it knows no such failure."""
    from qbuild.doctor.examine import explain  # only a failed build asks the doctor

    found = explain(log)
    return found[0].short() if found else None


def read_log(build_dir: Path) -> tuple[Edge, ...]:
    """Return ninja's own record of what took how long, slowest first."""
    path = build_dir / ".ninja_log"
    edges: dict[str, Edge] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        parts = line.split("\t")
        if line.startswith("#") or len(parts) < 4:
            continue
        # Custom targets are logged with their whole path, which is nobody's business.
        output = parts[3].removeprefix(f"{build_dir.as_posix()}/")
        edges[output] = Edge(output=output, start_ms=int(parts[0]), end_ms=int(parts[1]))
    return tuple(sorted(edges.values(), key=lambda e: (e.start_ms - e.end_ms, e.output)))
