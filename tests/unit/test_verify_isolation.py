"""The sandbox's helper where the system offers less than Linux usually does."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from qbuild.verify import sandbox_child
from qbuild.verify.run import _network_check
from support.systems import can_fork


def fake_libc(unshare: int) -> SimpleNamespace:
    return SimpleNamespace(unshare=lambda flags: unshare, prctl=lambda *args: 0)


@can_fork
@pytest.mark.parametrize(
    ("libc", "says"),
    [
        (lambda: fake_libc(-1), "network namespaces are not allowed here"),
        (SimpleNamespace, "this system has no network namespaces"),
    ],
)
def test_no_namespace_is_said(monkeypatch: pytest.MonkeyPatch, libc: object, says: str) -> None:
    monkeypatch.setattr(sandbox_child, "_libc", libc)
    assert says in sandbox_child._enter_namespace()


@can_fork
def test_a_namespace_that_cannot_be_set_up_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the child that tries may enter it."""
    parent = os.getpid()
    entered: list[int] = []

    def enter() -> str:
        entered.append(os.getpid())
        return "user namespaces cannot be set up here (Operation not permitted)"

    monkeypatch.setattr(sandbox_child, "_enter_namespace", enter)
    assert "cannot be set up" in sandbox_child.cut_network()
    assert parent not in entered


@can_fork
def test_a_child_that_dies_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter() -> str:
        raise RuntimeError

    monkeypatch.setattr(sandbox_child, "_enter_namespace", enter)
    assert sandbox_child.cut_network() == "the attempt to make a network namespace failed"


@can_fork
def test_both_tries_must_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_child, "_enter_namespace", lambda: "loopback")
    assert sandbox_child.cut_network() == "loopback"


def test_a_run_with_a_network_is_reported_as_such() -> None:
    check = _network_check({"loopback", "network namespaces are not allowed here"})
    assert check.status == "not-run"
    assert check.details == ("network namespaces are not allowed here",)
    assert _network_check({"loopback"}).status == "passed"


@can_fork
def test_descendants_are_found_by_parent() -> None:
    pid = os.fork()
    if pid == 0:
        import time

        time.sleep(30)
        os._exit(0)
    try:
        assert sandbox_child.descendants().get(pid, 0) > 0
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
