"""What needs git, by the Windows Python with a git.exe, each verb beside what Linux makes of it.

``ci/windows-host.sh git`` runs these; QBUILD_TEST_WINDOWS_GIT names the folder of git.exe, which
``tests/windows_host/git.sh`` builds: no registry that we know of holds one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.held import remove_tree
from qbuild.recipe.lock import load_lock
from qbuild.steps.source import source_step
from qbuild.store import Store
from windows_host import machine as windows
from windows_host.machine import Machine, windows_path

pytestmark = [pytest.mark.integration, pytest.mark.windows_host, pytest.mark.git]

OLD = "llama.cpp-2026-06-28"
"""A pin of the lockfile, older than the one that the series are made for."""

WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Me"), ("EMAIL", "me@invalid"), ("DATE", "1790000000 +0000"))
}


@pytest.fixture(scope="module")
def windows_store(user_store: Store) -> Iterator[Path]:
    """A store for that system with the sources of both pins, as this system fetched them."""
    words = ["patch", "check", "no-https", "--against", OLD, "--store", str(user_store.root)]
    subprocess.run([sys.executable, "-m", "qbuild", *words], check=False, capture_output=True)
    root = Path(tempfile.mkdtemp(prefix="q"))  # Windows wants it short
    for pin in load_lock(resources.lockfile()).sources:
        step = source_step(pin)
        entry = user_store.find(step.kind, step.key)
        assert entry is not None, f"{pin.name} could not be fetched"
        windows.lend(Store(root), entry, step)
    yield root
    remove_tree(root)


@dataclass(frozen=True, kw_only=True)
class Both:
    """The same commands on both systems, each in a folder of its own with its own series."""

    machine: Machine
    here: Path
    there: Path
    stores: tuple[Path, Path]

    def qbuild(self, *words: str, store: bool = True) -> tuple[int, str]:
        """Run a verb on both; return status and output, which are the same."""
        own = ("--store", str(self.stores[0])) if store else ()
        command = [sys.executable, "-m", "qbuild", *words, *own]
        linux = subprocess.run(
            command, cwd=self.here, capture_output=True, text=True, check=False, timeout=600
        )
        own = ("--store", windows_path(self.stores[1])) if store else ()
        found = self.machine.run("-m", "qbuild", *words, *own, cwd=self.there)
        assert "Traceback" not in found.stderr
        assert found.returncode == linux.returncode, found.stderr
        said = found.stdout.replace(windows_path(self.there), str(self.here)).replace("\\", "/")
        assert said == linux.stdout
        return linux.returncode, linux.stdout

    def git(self, folder: str, *words: str) -> None:
        """Run git on both, there the git.exe."""
        for root, command, env in (
            (self.here, "git", {**os.environ, **WHO}),
            (self.there, "wine git.exe", self.machine.environment(**WHO)),
        ):
            done = subprocess.run(
                [*command.split(), *words], cwd=root / folder, env=env, check=False,
                capture_output=True, text=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr

    def files(self, name: str) -> dict[str, bytes]:
        """Return the files of a folder, which are the same on both."""
        here, there = (
            {p.relative_to(root).as_posix(): p.read_bytes() for p in (root / name).rglob("*.*")}
            for root in (self.here, self.there)
        )
        assert here == there
        return here


@pytest.fixture
def both(machine: Machine, user_store: Store, windows_store: Path, tmp_path: Path) -> Both:
    """Both systems, or a skip where there is no git for that one."""
    if "WINEPATH" not in machine.environment():
        pytest.skip("QBUILD_TEST_WINDOWS_GIT names no folder (tests/windows_host/git.sh)")
    for name in ("here", "there"):
        shutil.copytree(resources.patches_dir(), tmp_path / name / "patches")
        shutil.copy(resources.lockfile(), tmp_path / name / "my.lock")
    return Both(
        machine=machine,
        here=tmp_path / "here",
        there=tmp_path / "there",
        stores=(user_store.root, windows_store),
    )


def test_status_of_a_recipes_series(both: Both) -> None:
    status, said = both.qbuild("patch", "status", "--recipe", "gtx1060", "--offline")
    assert status == 0 and "qwen3-mtp/0001-library.patch: clean" in said


def test_check_against_an_older_commit(both: Both) -> None:
    status, said = both.qbuild("patch", "check", "qwen3-mtp", "--against", OLD, "--offline")
    assert status == 6 and "file gone" in said


def test_a_series_is_edited_with_git_and_written_back(both: Both) -> None:
    words = ("--patches", "patches", "--offline")
    assert both.qbuild("patch", "edit", "parser-crash", *words)[0] == 0
    for root in (both.here, both.there):
        source = root / "parser-crash-edit" / "tools" / "server" / "server-chat.cpp"
        assert b"\r" not in source.read_bytes()
        with source.open("ab") as stream:
            stream.write(b"// one more line\n")
    before = both.files("patches")
    both.git("parser-crash-edit", "commit", "-q", "-a", "--amend", "--no-edit")
    refresh = ("patch", "refresh", "--dir", "parser-crash-edit", "--patches", "patches")
    assert both.qbuild(*refresh, store=False)[0] == 0
    after = both.files("patches")
    changed = sorted(name for name in after if after[name] != before[name])
    assert [name.rpartition("/")[2] for name in changed] == [
        "0006-build-and-tests.patch", "series.toml",
    ]  # fmt: skip
    assert b"+// one more line\n" in after[changed[0]]


def test_a_series_is_carried_over_or_stops_where_it_does_not_fit(both: Both) -> None:
    words = ("--to", OLD, "--patches", "patches", "--offline")
    assert both.qbuild("patch", "rebase", "cpu-variants", *words)[0] == 0
    status, said = both.qbuild("patch", "rebase", "windows-gnu", *words)
    assert status == 6 and "0003-common-tools-link-statically.patch stopped" in said
    both.git("windows-gnu-rebase", "am", "--skip")  # the last one fits
    refresh = ("patch", "refresh", "--dir", "windows-gnu-rebase", "--patches", "patches")
    both.qbuild(*refresh, store=False)
    assert both.files("patches")


def test_the_pin_moves_to_a_commit_of_a_clone(both: Both) -> None:
    pin = load_lock(resources.lockfile()).source(OLD)
    step = source_step(pin)
    for root in (both.here, both.there):
        shutil.copytree(both.stores[0] / step.kind / step.key / "repo.git", root / "clone.git")
    words = ("lock", "--pin", pin.commit, "--lockfile", "my.lock", "--origin", "clone.git")
    status, said = both.qbuild(*words, store=False)
    assert status == 0 and "my.lock: written" in said
    lines = [(root / "my.lock").read_bytes() for root in (both.here, both.there)]
    assert lines[0] == lines[1] != resources.lockfile().read_bytes()
