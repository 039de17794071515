"""Fixtures for all tests, and the fence around the unit tests."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent / "unit"


@pytest.fixture(autouse=True)
def _fence(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
    yield


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a developer's configuration and environment out of every test."""
    for name in list(os.environ):
        if name.startswith("QBUILD_") and not name.startswith("QBUILD_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
