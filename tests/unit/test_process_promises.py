"""Children and signals, with a system that answers as it is told: also what only Windows has."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild import host, job, process
from qbuild.process import Stopped

AT_IMPORT = process._stop_asked, process._starting


def test_nothing_is_asked_at_the_start() -> None:
    assert AT_IMPORT == (False, False)


@pytest.fixture(autouse=True)
def _a_system_with_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Windows' Python the number that Linux is played with."""
    monkeypatch.setattr(signal, "SIGKILL", 9, raising=False)


@pytest.fixture(autouse=True)
def _own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the test process as it was, and no answer of a played system behind."""
    before = {number: signal.getsignal(number) for number in process._stop_signals()}
    hook = sys.unraisablehook
    monkeypatch.setattr(process, "_stop_asked", False)
    process.isolation.cache_clear()
    yield
    process.isolation.cache_clear()
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook


def system(monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> list[list[str]]:
    """Let ``unshare`` end with these answers; return what it was called with."""
    calls: list[list[str]] = []
    left = list(answers)

    def run(words: list[str], *, capture_output: bool, timeout: float, check: bool) -> Any:
        assert capture_output and not check and timeout == 20
        calls.append(words)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer)

    monkeypatch.setattr(host, "system", lambda: "linux")
    monkeypatch.setattr(subprocess, "run", run)
    return calls


BEST = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")


@pytest.mark.parametrize(
    ("answers", "prefix"),
    [
        ((0,), BEST),
        ((1, 0), ("unshare", "--map-root-user", "--net")),
        ((1, 1), ()),
        ((FileNotFoundError(), FileNotFoundError()), ()),
        ((subprocess.TimeoutExpired("unshare", 20), 0), ("unshare", "--map-root-user", "--net")),
    ],
)
def test_the_best_isolation_that_works_is_taken(
    answers: tuple[Any, ...], prefix: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = system(monkeypatch, *answers)
    assert process.isolation() == prefix
    assert process.isolation() == prefix and len(calls) == len(answers), "it is asked once"
    assert calls[0] == [*BEST, "true"]


def test_the_network_stays_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    system(monkeypatch, 0)
    assert process.isolation(network=True) == tuple(word for word in BEST if word != "--net")


def test_windows_has_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = system(monkeypatch)
    monkeypatch.setattr(host, "system", lambda: "windows")
    assert process.isolation() == () and calls == []


def test_a_child_asks_to_die_with_us(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    libc = SimpleNamespace(prctl=lambda *words: asked.append(words))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc if name is None else None)
    process.die_with_parent()
    assert asked == [(1, 9)]  # PR_SET_PDEATHSIG, SIGKILL


def handler_of(monkeypatch: pytest.MonkeyPatch, number: int) -> Any:
    for each in process._stop_signals():
        signal.signal(each, signal.SIG_DFL)
    process.stop_on_signals()
    return signal.getsignal(number)


@pytest.mark.parametrize("number", [*process._stop_signals()])
def test_a_signal_raises_and_leaves_a_mark(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = handler_of(monkeypatch, number)
    process.check_stop()
    with pytest.raises(Stopped):
        handler(number, None)
    assert process.stop_asked()
    with pytest.raises(Stopped):
        process.check_stop()


def test_while_a_child_is_started_only_the_mark_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a fork callback would be lost, and the child with it."""
    handler = handler_of(monkeypatch, signal.SIGTERM)
    monkeypatch.setattr(process, "_starting", True)
    handler(signal.SIGTERM, None)
    assert process.stop_asked()


class Child:
    """A process that says these lines and ends as it is told."""

    def __init__(self, *lines: str, stubborn: bool = False) -> None:
        self.stdout = io.StringIO("".join(lines))
        self.pid, self.stubborn = 4242, stubborn
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> int:
        self.waits.append(timeout)
        if self.stubborn and timeout is not None:
            raise subprocess.TimeoutExpired("x", timeout)
        return 7


class Bound:
    """A Windows job."""

    def __init__(self) -> None:
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What would have been killed."""
    seen: list[tuple[int, int]] = []
    note = lambda pid, number: seen.append((pid, int(number)))  # noqa: E731
    monkeypatch.setattr(os, "killpg", note, raising=False)
    return seen


def run(child: Child, log: Path, bound: Bound | None = None, **more: Any) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_start", lambda *_, **__: (child, bound))
        return process.run_logged(["x"], cwd=log.parent, env={}, log=log, cut_network=False, **more)


def test_output_goes_to_the_log_and_to_whoever_listens(
    tmp_path: Path, killed: list[tuple[int, int]]
) -> None:
    log, heard, bound = tmp_path / "log", list[str](), Bound()
    log.write_text("before\n")
    child = Child("one\n", "two\n")
    assert run(child, log, bound, on_line=heard.append) == 7
    assert child.stdout.closed
    assert log.read_text() == "before\none\ntwo\n" and heard == ["one", "two"]
    assert killed == [] and bound.ended == 1


@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError("odd"), ValueError), (KeyboardInterrupt(), Stopped)]
)
@pytest.mark.parametrize("windows", [False, True])
def test_whatever_goes_wrong_ends_the_child(
    tmp_path: Path, error: BaseException, raised: type[BaseException], windows: bool,
    killed: list[tuple[int, int]],
) -> None:  # fmt: skip
    def fail(_: str) -> None:
        raise error

    child, bound = Child("one\n", "two\n"), Bound() if windows else None
    with pytest.raises(raised) as caught:
        run(child, tmp_path / "log", bound, on_line=fail)
    assert killed == ([] if windows else [(4242, 15), (4242, 9)])
    assert child.waits == ([None] if windows else [5.0, 5.0])
    assert bound is None or bound.ended == 2
    if raised is Stopped:
        assert str(caught.value) == str(tmp_path / "log"), "where it stood"


def test_a_stop_that_came_while_it_was_started_ends_a_silent_child(
    tmp_path: Path, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_stop_asked", True)
    with pytest.raises(Stopped):
        run(Child(), tmp_path / "log")
    assert killed == [(4242, 15), (4242, 9)]


def test_a_child_that_does_not_listen_is_waited_for(killed: list[tuple[int, int]]) -> None:
    child: Any = Child(stubborn=True)
    process._stop(child, None)
    assert killed == [(4242, 15), (4242, 9)] and child.waits == [5.0, 5.0, None]


@pytest.mark.parametrize("error", [ProcessLookupError(), PermissionError()])
def test_a_child_that_is_gone_is_no_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(os, "killpg", fail, raising=False)
    child: Any = Child()
    process._stop(child, None)
    assert child.waits == [5.0, 5.0]


def test_on_windows_a_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "system", lambda: "windows")
    child: Any = Child("one\n", "two\n")
    assert list(process._lines(child)) == ["one\n", "two\n"]
    assert child.stdout.closed, "a build runs some hundred children"

    def closed() -> Iterator[str]:
        yield "one\n"
        raise ValueError("closed file")

    child.stdout = closed()
    assert list(process._lines(child)) == ["one\n"]


def test_on_windows_a_stop_is_noticed_while_a_child_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    monkeypatch.setattr(host, "system", lambda: "windows")
    monkeypatch.setattr(process, "_LOOK_UP_S", 0.01)
    speak = threading.Event()

    def slowly() -> Iterator[str]:
        yield "one\n"
        speak.wait(20)
        yield "two\n"

    child: Any = Child()
    child.stdout = slowly()
    lines = process._lines(child)
    assert next(lines) == "one\n"
    monkeypatch.setattr(process, "_stop_asked", True)
    with pytest.raises(Stopped):
        next(lines)
    monkeypatch.setattr(process, "_stop_asked", False)
    assert [each.daemon for each in threading.enumerate() if each.name.endswith("(listen)")] == [
        True
    ], "a child that never ends keeps nobody"
    speak.set()


@pytest.mark.parametrize("name", ["linux", "windows", "darwin"])
def test_how_a_child_is_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def popen(command: list[str], **words: Any) -> Child:
        assert process._starting, "a signal that comes now may only leave its mark"
        seen.update(words, command=command)
        return Child()

    monkeypatch.setattr(host, "system", lambda: name)
    monkeypatch.setattr(host, "search_path", lambda: "/found")
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(job, "bind", lambda pid: f"job of {pid}")
    _, bound = process._start(["x"], cwd=Path("/w"), env={"A": "1"})
    assert bound == ("job of 4242" if name == "windows" else None)
    assert not process._starting
    assert (seen["command"], seen["cwd"], seen["env"]) == (
        ["x"], Path("/w"), {"A": "1", "PATH": "/found"},
    )  # fmt: skip
    assert seen["text"] and seen["start_new_session"]
    assert (seen["encoding"], seen["errors"]) == ("utf-8", "replace")
    assert seen["stdin"] == subprocess.DEVNULL and seen["stderr"] == subprocess.STDOUT
    assert seen["preexec_fn"] == (process.die_with_parent if name == "linux" else None)
    assert seen["creationflags"] == (job.SUSPENDED_GROUP if name == "windows" else 0)
    process._start(["x"], cwd=Path("/w"), env={"PATH": "/mine"})
    assert seen["env"]["PATH"] == "/mine"


def test_a_child_that_cannot_be_started_leaves_signals_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", fail)
    with contextlib.suppress(FileNotFoundError):
        process._start(["x"], cwd=Path("/w"), env={})
    assert not process._starting


def test_last_words_are_said_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = handler_of(monkeypatch, signal.SIGTERM)
    with process.signals_ignored():
        assert {signal.getsignal(n) for n in process._stop_signals()} == {signal.SIG_IGN}
    assert {signal.getsignal(n) for n in process._stop_signals()} == {handler}


def test_which_isolation_a_child_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system(monkeypatch, 0, 0)
    started: list[list[str]] = []

    def start(command: list[str], **_: Any) -> tuple[Child, None]:
        started.append(command)
        return Child(), None

    monkeypatch.setattr(process, "_start", start)
    for words in ({}, {"cut_network": False}, {"cut_network": False, "bind_lives": True}):
        process.run_logged(["x"], cwd=tmp_path, env={}, log=tmp_path / "log", **words)
    bound = [word for word in BEST if word != "--net"]
    assert started == [[*BEST, "x"], ["x"], [*bound, "x"]]
