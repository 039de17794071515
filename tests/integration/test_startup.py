"""What a start must not load: a run that finds its zip up to date takes a fifth of a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbuild.modelfile.summary import summarise
from support import gguf_files as g

pytestmark = pytest.mark.integration

HEAVY = {
    "ssl", "http.client", "email.utils", "unidiff", "git", "elftools", "pefile", "iced_x86",
    "numpy", "psutil",
    "jinja2", "cyclonedx", "rich", "yaml", "tomlkit", "asyncio",
}  # fmt: skip
if not hasattr(os, "sysconf"):  # then `model` asks it how much memory there is
    HEAVY.remove("psutil")

PLAN = """
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.resources import lockfile
from qbuild.steps.plan import make_plan
plan = make_plan(load_recipe("avx2"), load_lock(lockfile()), host="linux-x86_64", mails=False)
assert plan.zip_name.endswith(".zip")
"""


LIST = "from qbuild.cli.main import run; run(['list'])"
MODEL = "from qbuild.cli.main import run; run(['model', 'm.gguf'])"


@pytest.mark.parametrize("code", [LIST, PLAN, MODEL], ids=["list", "no-op", "model"])
def test_nothing_heavy_is_loaded(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    summarise(g.write(tmp_path / "m.gguf", *g.qwen3()))  # its template's first time loads jinja2
    code += f"\nimport sys; print('loaded:', *sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
