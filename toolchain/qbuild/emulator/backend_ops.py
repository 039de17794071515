"""Runs test-backend-ops and graphs of our own in pieces; keeps what came, so that a run goes on.

A piece is one process with some hundred cases. Its results are appended to a file of one JSON line
per case as soon as it ends; a run that was stopped begins after the last one. A case in which the
program dies is one result, and the piece goes on behind it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from qbuild.emulator import cases, report
from qbuild.errors import CompileError

RIGHT: Final = "right"
WRONG: Final = "wrong"
ABSENT: Final = "not supported"
DIED: Final = "died"

_RESULT: Final = re.compile(r"(?:^|\s)([A-Z][A-Z_0-9]*)\((\w+=.*)\): (OK|FAIL|not supported.*)$")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FOUND: Final = "emulated GPU: "
_STATUS: Final = {"OK": RIGHT, "FAIL": WRONG}
_PIECE: Final = 100
"""Cases of one process: a list of names makes the program compare each with all of its cases."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one case."""

    case: str  # its name, as the program prints it, or our own line
    status: str  # :data:`RIGHT`, :data:`WRONG`, :data:`ABSENT` or :data:`DIED`
    said: str = ""  # what the program said of a wrong one, e.g. the error


@dataclass(kw_only=True)
class Outcome:
    """Everything that a run, or several that went on, brought."""

    results: dict[str, Result] = field(default_factory=dict)  # case → what came of it
    # (unit, kernel) → how often it was launched
    ran: dict[tuple[str, str], int] = field(default_factory=dict)
    # what the emulated GPU itself said: races, accesses outside
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0  # time that the program ran
    complete: bool = False  # every case has a result

    def count(self, status: str) -> int:
        """Return how many cases ended so."""
        return sum(result.status == status for result in self.results.values())

    @property
    def failed(self) -> list[Result]:
        """The cases that are wrong, or in which the program died."""
        return [each for each in self.results.values() if each.status in (WRONG, DIED)]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A test program that is ready to run."""

    path: Path  # ``test-backend-ops``, or ``test-graphs``, which takes names of cases as that does
    env: Mapping[str, str]  # what is added to its environment
    log: Path  # where all its output is appended
    state: Path  # where results are kept; what it holds already is not run again
    prefix: tuple[str, ...] = ()  # words in front of its command, e.g. Wine's

    def start(self, options: Sequence[str], report_file: Path) -> subprocess.Popen[str]:
        """Start it with options of its own."""
        command = [*self.prefix, str(self.path), "test", "-b", "CUDA0", *options]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.env, "QBUILD_EMULATOR_REPORT": str(report_file)},
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=self.path.parent,
        )


def merged(*parts: Outcome) -> Outcome:
    """Return what several programs brought, as one outcome."""
    every = Outcome(complete=all(part.complete for part in parts))
    for part in parts:
        every.results |= part.results
        for key, launches in part.ran.items():
            every.ran[key] = every.ran.get(key, 0) + launches
        every.findings = list(dict.fromkeys([*every.findings, *part.findings]))
        every.seconds += part.seconds
    return every


def names_of(program: Path) -> tuple[str, ...]:
    """Return the cases that ``test-graphs`` has, all of which are run.

    Raises:
        CompileError: It does not start.
    """
    ran = subprocess.run(
        [str(program), "list"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ran.returncode != 0:
        raise CompileError(
            f"{program.name} does not list its cases: {ran.stderr.strip()[:200]}",
            where=f"exit code {ran.returncode}",
        )
    return tuple(ran.stdout.splitlines())


Progress = Callable[[int, str], None]
"""Is told how many cases have a result, and the operation of the last one."""


def load(state: Path) -> Outcome:
    """Read what earlier runs brought; a line that was cut off by a kill counts as not run."""
    outcome = Outcome()
    lines = state.read_text(encoding="utf-8").splitlines() if state.is_file() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "case" in row:
            outcome.results[row["case"]] = Result(**row)
        else:
            for unit, kernel, launches in row["ran"]:
                outcome.ran[unit, kernel] = outcome.ran.get((unit, kernel), 0) + launches
            outcome.findings = list(dict.fromkeys([*outcome.findings, *row["findings"]]))
            outcome.seconds += row["seconds"]
    return outcome


def run_selection(
    program: Program,
    chosen: cases.Selection,
    numbers: Mapping[str, Mapping[str, int]],
    *,
    until: float = float("inf"),
    progress: Progress,
) -> Outcome:
    """Run the cases of a selection that have no result yet.

    Args:
        program: What runs them.
        chosen: The cases.
        numbers: ggml's numbers of operations and types, see :func:`cases.numbers_in`.
        until: ``time.monotonic()`` after which no further piece is begun.
        progress: Is called after every case.
    """
    outcome = load(program.state)
    own = {case.text: case for case in chosen.own}
    for names, is_own in ((chosen.named, False), (tuple(own), True)):
        left = [name for name in names if name not in outcome.results]
        size = _PIECE
        while left and time.monotonic() < until:
            piece = left[:size]
            if is_own:
                file = program.state.with_suffix(".rows")
                rows = cases.test_file([own[name] for name in piece], numbers)
                file.write_text(rows, encoding="ascii", newline="\n")
                options = ["--test-file", str(file)]
            else:
                options = ["-o", ",".join(piece)]
            done = _piece(program, options, piece, is_own, outcome, progress)
            # Named cases run in the program's own order: one by one shows in which it died.
            size = 1 if any(name not in done.results for name in piece) else _PIECE
            _keep(program.state, done)
            outcome = load(program.state)
            left = [name for name in left if name not in outcome.results]
    outcome.complete = all(name in outcome.results for name in (*chosen.named, *own))
    return outcome


def run_options(program: Program, options: Sequence[str], progress: Progress) -> Outcome:
    """Run the cases that options of the program itself select; nothing is kept."""
    outcome = _piece(program, options, (), False, Outcome(), progress)
    outcome.complete = True
    return outcome


def _piece(
    program: Program,
    options: Sequence[str],
    names: Sequence[str],
    in_order: bool,
    before: Outcome,
    progress: Progress,
) -> Outcome:
    """Run one process.

    Args:
        program: What runs.
        options: Its options.
        names: The cases that it was asked for; without them each that it prints counts.
        in_order: Its results come in the order of the names (and under other names).
        before: What is known already, for the progress.
        progress: Is called after every case.
    """
    done = Outcome()
    written = program.state.with_suffix(".report")
    written.unlink(missing_ok=True)
    program.log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with program.log.open("a", encoding="utf-8") as log:
        process = program.start(options, written)
        try:
            for name, status, said in _lines(process, log, done):
                at = len(done.results)
                case = names[at] if in_order and at < len(names) else name
                done.results[case] = Result(case=case, status=status, said=said)
                progress(len(before.results) + len(done.results), case.split("(")[0])
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
    done.seconds = time.monotonic() - started
    _settle(done, names, code)
    text = written.read_text(encoding="utf-8") if written.is_file() else ""
    done.ran = {(row.unit, row.kernel): row.launches for row in report.read(text)}
    return done


def _settle(done: Outcome, names: Sequence[str], code: int) -> None:
    """Give a result to the cases that a process did not come to, so that a run ends.

    Raises:
        CompileError: The program did not even start its cases.
    """
    missing = [name for name in names if name not in done.results]
    if code in (0, 1):
        # It ended by itself: what it did not print it does not have.
        for name in missing:
            said = "the pinned test-backend-ops has no such case"
            done.results[name] = Result(case=name, status=WRONG, said=said)
    elif len(names) == 1 and missing:
        done.results[names[0]] = Result(case=names[0], status=DIED, said=f"exit code {code}")
    elif not names:
        raise CompileError(f"test-backend-ops ended with exit code {code}")


def _lines(
    process: subprocess.Popen[str], log: object, done: Outcome
) -> Iterator[tuple[str, str, str]]:
    assert process.stdout is not None
    for raw in process.stdout:
        log.write(raw)  # type: ignore[attr-defined]
        line = _COLOUR.sub("", raw).rstrip()
        if _FOUND in line and not _RESULT.search(line):
            found = line[line.index(_FOUND) + len(_FOUND) :]
            if found not in done.findings:
                done.findings.append(found)
            continue
        match = _RESULT.search(line)
        if match is not None:
            status = _STATUS.get(match[3], ABSENT)
            yield f"{match[1]}({match[2]})", status, line[: match.start()].strip()


def _keep(state: Path, done: Outcome) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) for result in done.results.values()]
    last = {
        "ran": [[unit, kernel, count] for (unit, kernel), count in done.ran.items()],
        "findings": done.findings,
        "seconds": round(done.seconds, 3),
    }
    with state.open("a", encoding="utf-8") as out:
        # A line that a kill cut off must not swallow the next one: an end first, then lines.
        out.write("\n" + "".join(json.dumps(row) + "\n" for row in [*rows, last]))
        out.flush()
        os.fsync(out.fileno())
