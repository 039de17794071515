"""The sandbox on Windows, played: a job ends what a program left behind; signals lack names."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild import job
from qbuild.errors import VerifyError
from qbuild.verify import sandbox, sandbox_child

ANSWER = {"returncode": 0, "stopped": "", "peak_memory": 0, "network": "loopback"}


class Helper:
    """A helper process that answers or does not, and a job that it is in."""

    def __init__(self, answer: str | None) -> None:
        self.answer, self.flags, self.done = answer, 0, list[str]()
        self.pid, self.returncode = 4242, 0

    def __call__(self, command: list[str], *, creationflags: int, **_: Any) -> Helper:
        self.flags = creationflags
        return self

    def communicate(self, _order: str, patience: float) -> tuple[str, str]:
        if self.answer is None:
            raise subprocess.TimeoutExpired("helper", patience)
        return self.answer, ""

    def poll(self) -> int:
        return 0

    def bind(self, pid: int) -> Helper:
        assert pid == self.pid
        self.done.append("bound")
        return self

    def end(self) -> None:
        self.done.append("ended")


@pytest.mark.parametrize("answer", [json.dumps(ANSWER), None], ids=["answers", "hangs"])
def test_a_job_ends_what_a_program_left_behind(
    answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start script's server went on after the check, and its files could not be removed."""
    helper = Helper(answer)
    monkeypatch.setattr("qbuild.host.system", lambda: "windows")
    monkeypatch.setattr(subprocess, "Popen", helper)
    monkeypatch.setattr(job, "bind", helper.bind)
    if answer is None:
        with pytest.raises(VerifyError, match="does not answer"):
            sandbox._ask_helper({}, "x.exe", 1.0)
    else:
        assert sandbox._ask_helper({}, "x.exe", 1.0) == ANSWER
    assert helper.flags == job.SUSPENDED_GROUP
    assert helper.done == ["bound", "ended"]


def test_a_limit_is_kept_where_signals_have_no_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The helper ended with an AttributeError when a program reached its time."""
    child: Any = SimpleNamespace(poll=lambda: 1, returncode=1)
    order = {
        "argv": ["x"], "cwd": str(tmp_path), "env": {}, "file_size": 1, "linger": 0,
        "stdout": str(tmp_path / "out"), "stderr": str(tmp_path / "err"),
    }  # fmt: skip
    for owner, name in ((os, "fork"), (os, "waitpid"), (signal, "SIGKILL")):
        monkeypatch.delattr(owner, name, raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for name in ("become_reaper", "limit"):
        monkeypatch.setattr(sandbox_child, name, lambda *_: None)
    monkeypatch.setattr(sandbox_child, "supervise", lambda *_: ("time", 0))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: child)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order)))
    assert sandbox_child.main() == 0
    assert json.loads(capsys.readouterr().out) == {
        "returncode": -9, "stopped": "time", "peak_memory": 0,
        "network": "this system has no network namespaces",
    }  # fmt: skip
