"""What a shell is told when TAB is pressed, by the real program and in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbuild.cli.main import COMMANDS
from qbuild.recipe.load import known_recipes
from support.tools import needs

pytest.importorskip("argcomplete", reason="the extra `completion` is not installed")
pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("qbuild ", set(COMMANDS)),
        ("qbuild re", {"report", "reproduce"}),
        ("qbuild --reci", {"--recipe"}),
        ("qbuild --recipe ", set(known_recipes())),
        ("qbuild --recipe avx2 --os w", {"windows"}),
        ("qbuild patch st", {"status"}),
        ("qbuild patch status --recipe lap", {"laptop"}),
        ("qbuild verify übung.zip --ru", {"--run"}),
    ],
)
def test_what_may_come_next(line: str, words: set[str], tmp_path: Path) -> None:
    out = tmp_path / "words"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "fish",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())),
    }
    command = [sys.executable, "-m", "qbuild"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {word.partition("\t")[0].strip() for word in out.read_text().split("\n") if word}
    assert words <= found
    assert all(word in words or word.startswith("-") for word in found)


@needs("bash")
def test_in_a_bash(tmp_path: Path) -> None:
    """The script that `qbuild completion bash` prints, as bash calls it."""
    program = tmp_path / "qbuild"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qbuild "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(qbuild completion bash)\n"
        'COMP_LINE="qbuild --recipe a" COMP_POINT=17 COMP_WORDBREAKS=" " COMP_TYPE=9\n'
        "_python_argcomplete qbuild\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["a100", "avx2"]
