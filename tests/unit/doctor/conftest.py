"""These tests must not ask the real machine: neither programs nor NVIDIA's library."""

from __future__ import annotations

import pytest

from qbuild.doctor.detect import nvml
from qbuild.doctor.probe import HostProbe


@pytest.fixture(autouse=True)
def _no_real_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a unit test may not ask the real machine")

    monkeypatch.setattr(nvml, "load", refuse)
    monkeypatch.setattr(HostProbe, "output", refuse)
