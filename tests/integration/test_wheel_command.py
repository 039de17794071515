"""``qbuild wheel``: a zip becomes a wheel, the wheel a command in a new virtual environment."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.small_project import SmallProject
from support.systems import on_linux

pytestmark = pytest.mark.integration


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@on_linux  # whose program it builds and installs; Windows' is in ci/windows-host.sh small
def test_a_recipe_becomes_a_command(small: SmallProject, new_store: Path, tmp_path: Path) -> None:
    command = small.command(new_store, tmp_path / "dist")
    command[command.index("build")] = "wheel"
    done = run(command)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert Path(f"{wheel}.sha256").read_text() == f"{digest}  {wheel.name}\n"

    # The same zip gives the same wheel: nothing of the machine or the moment is in it.
    again = [sys.executable, "-m", "qbuild", "wheel", "--store", str(new_store), "-q", "--offline"]
    again += ["--zip", str(tmp_path / "dist" / small.zip_name), "--dist", str(tmp_path / "again")]
    done = run(again)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "-q"]
    done = run([*install, str(wheel)])
    assert done.returncode == 0, done.stderr
    said = run([str(tmp_path / "venv" / "bin" / "llama-cli"), "--version"])
    assert said.returncode == 0, said.stderr
    assert small.zip_name.split("-")[1][1:] in said.stdout, "not the pinned commit's program"
    texts = list((tmp_path / "venv").rglob("*.dist-info/licenses/**/*.txt"))
    assert texts, "the licences are not installed"


def test_what_is_no_zip_of_ours_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbuild", "wheel", "--dist", str(tmp_path)]
    done = run([*command, "--zip", str(tmp_path / "none.zip")])
    assert done.returncode == 2
    assert "there is no such zip" in done.stderr
    done = run([*command, "avx2", "--zip", "x.zip"])
    assert done.returncode == 2
    assert "name one" in done.stderr
