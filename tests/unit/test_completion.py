"""The scripts of `qbuild completion`; what they are told: test_shell_completion.py."""

from __future__ import annotations

import sys

import pytest

from qbuild.cli.main import run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    assert run(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "qbuild" in text
    assert "ARGCOMPLETE" in text


def test_without_the_library_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("argcomplete", "argcomplete.shell_integration"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(["completion", "bash"]) == 2
    assert "qbuild[completion]" in capsys.readouterr().err
