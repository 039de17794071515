"""Fixtures for all tests, and the fence around the unit tests."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent / "unit"


@pytest.fixture(autouse=True)
def _fence(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Let unit tests start no process and open no connection: they must be pure and fast."""
    if UNIT not in request.path.parents:
        yield
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test may not start a process or open a connection")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "system", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    # Their folders are deeper than what Windows leaves for a store; those about that say so.
    monkeypatch.setattr("qbuild.host.path_limit", lambda: None)
    caches = tmp_path_factory.getbasetemp() / "cache"
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):  # what is remembered stays among the tests
        monkeypatch.setenv(name, str(caches))
    yield


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a developer's configuration and environment out of every test."""
    for name in list(os.environ):
        if name.startswith("QBUILD_") and not name.startswith("QBUILD_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Record what the tool said, for ``ci/reports_table.py``."""
    return lambda text: record_property("told", text)


_skipped: list[str] = []
_TEMP = Path(tempfile.gettempdir())
_MODE = _TEMP.stat().st_mode


def _forbidden(config: pytest.Config) -> bool:
    """Where every tool must be there (CI), a skipped test is a failure."""
    required = bool(os.environ.get("QBUILD_REQUIRE_TOOLS"))
    return required and bool(_skipped) and not hasattr(config, "workerinput")


def _changed() -> str:
    """Removing a scratch folder once took the rights of everybody else from ``/tmp``."""
    now = _TEMP.stat().st_mode
    return "" if now == _MODE else f"{_TEMP} has mode {now:o} and had {_MODE:o}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(f"{report.nodeid}: {report.longrepr}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with a forbidden skip, or one that changed the machine's folder for scratch."""
    if _forbidden(session.config) or _changed():
        session.exitstatus = 1


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Say so behind pytest's last line, which counts the skipped as nothing bad."""
    if _forbidden(config):
        print("FAILED: skipped, and QBUILD_REQUIRE_TOOLS forbids it:", *_skipped, sep="\n  ")
    if changed := _changed():
        print(f"FAILED: {changed}")
