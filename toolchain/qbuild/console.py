"""What qbuild says while it works: one bar per long task, plain lines when output is a file.

Progress goes to standard error so that ``--json`` on standard output stays clean.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import ProgressColumn

_QUIET_S = 5.0

_NARROW, _WIDE = 50, 76
"""Letters of a line: below the first there is room for a task's name and how far it is, from the
second on also for what is being worked on."""

Unit = Literal["bytes", "steps", "items"]


class Task(Protocol):
    """One long piece of work that a person can watch."""

    def update(
        self, *, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        """Say how far the task is; ``note`` is what is being worked on right now."""


class Reporter(Protocol):
    """Where messages and progress go."""

    def say(self, text: str) -> None:
        """Print one line a person wants to read."""

    def warn(self, text: str) -> None:
        """Print one line a person must not miss."""

    def task(
        self, label: str, *, total: int | None = None, unit: Unit = "steps"
    ) -> contextlib.AbstractContextManager[Task]:
        """Open a task; its bar closes when the context ends."""


class _SilentTask:
    def update(
        self, *, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        pass


class Silent:
    """Says nothing: tests and library use."""

    def say(self, text: str) -> None:
        """Drop the line."""

    def warn(self, text: str) -> None:
        """Drop the line."""

    @contextlib.contextmanager
    def task(
        self,
        label: str,  # noqa: ARG002
        *,
        total: int | None = None,  # noqa: ARG002
        unit: Unit = "steps",  # noqa: ARG002
    ) -> Iterator[Task]:
        """Give a task that shows nothing."""
        yield _SilentTask()


def _print(text: str) -> None:
    """Print to standard error; that nobody can read it any more must not end a build."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class _PlainTask:
    """Prints a line now and then, so that a CI log shows life but stays short.

    At most one line per tenth of the way, and none for what is over in a few seconds.
    """

    def __init__(self, label: str, total: int | None) -> None:
        self.label, self.total, self.done, self.shown = label, total, 0, 0
        self.last = time.monotonic()

    def update(
        self, *, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        self.total = total if total is not None else self.total
        self.done = done if done is not None else self.done
        if not self.total:
            return
        # A total may be an estimate: more than all of it is never said.
        tenth = min(10, 10 * self.done // self.total)
        now = time.monotonic()
        if tenth > self.shown and now - self.last > _QUIET_S:
            self.shown, self.last = tenth, now
            suffix = f"  {note}" if note else ""
            _print(f"  {self.label}: {10 * tenth:3d} %{suffix}")


class Plain:
    """Lines only: standard error is not a terminal."""

    def say(self, text: str) -> None:
        """Print the line."""
        _print(text)

    def warn(self, text: str) -> None:
        """Print the line, marked."""
        _print(f"warning: {text}")

    @contextlib.contextmanager
    def task(
        self,
        label: str,
        *,
        total: int | None = None,
        unit: Unit = "steps",  # noqa: ARG002
    ) -> Iterator[Task]:
        """Give a task that prints a line per tenth."""
        yield _PlainTask(label, total)


class _RichTask:
    def __init__(self, progress: object, task_id: object) -> None:
        self._progress, self._id = progress, task_id

    def update(
        self, *, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        fields: dict[str, object] = {}
        if done is not None:
            fields["completed"] = done
        if total is not None:
            fields["total"] = total
        if note is not None:
            fields["note"] = note
        self._progress.update(self._id, **fields)  # type: ignore[attr-defined]


class Rich:
    """Bars with count, speed or ETA: standard error is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: RichConsole = Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        """Print the line above the bars."""
        self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Print the line above the bars, in yellow."""
        self._console.print(f"warning: {text}", style="yellow", markup=False)

    @contextlib.contextmanager
    def task(self, label: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        """Give a task with a bar."""
        from rich import progress as rp

        narrow = self._console.width < _NARROW
        columns = _columns(unit, self._console.width)
        with rp.Progress(
            *columns, console=self._console, transient=True, expand=narrow
        ) as progress:
            yield _RichTask(progress, progress.add_task(label, total=total, note=""))


def _columns(unit: Unit, width: int) -> list[ProgressColumn]:
    """Return what a line of this many letters can show; cut short it would say nothing."""
    from rich import progress as rp
    from rich.table import Column

    if width < _NARROW:
        name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        done = rp.TaskProgressColumn() if unit == "bytes" else rp.MofNCompleteColumn()
        return [rp.TextColumn("{task.description}", table_column=name), done]
    amount: list[ProgressColumn] = (
        [rp.DownloadColumn(), rp.TransferSpeedColumn()]
        if unit == "bytes"
        else [rp.MofNCompleteColumn()]
    )
    bar = rp.BarColumn(bar_width=24 if width >= _WIDE else 8)
    columns = [rp.TextColumn("{task.description}"), bar, *amount, rp.TimeRemainingColumn()]
    if width >= _WIDE:
        columns.append(rp.TextColumn("{task.fields[note]}", markup=False))
    return columns


def reporter(*, quiet: bool = False) -> Reporter:
    """Return the reporter that suits where standard error goes."""
    if quiet:
        return Silent()
    return Rich() if sys.stderr.isatty() else Plain()
