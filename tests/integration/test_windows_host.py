"""qbuild by a real Windows CPython in Wine: verbs, files, children, folders, a whole small build.

``ci/windows-host.sh`` runs these; see there. What is seen here was seen in Wine, not on Windows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.console import Plain
from qbuild.recipe.lock import load_lock
from qbuild.steps.pinned import fetch_wheel
from qbuild.store import Store
from support import gguf_files, small_project, tiny_coff
from support.small_project import SmallProject
from windows_host import machine as windows
from windows_host.machine import Machine, windows_path

pytestmark = [pytest.mark.integration, pytest.mark.windows_host]

SCRIPTS = Path(windows.__file__).parent
KILLS = (
    ("while the source is fetched", "tmp/source-*/*", 1),
    ("while it is patched", "tmp/patch-*/*", 1),
    ("while CMake configures", "work/*/build/CMakeFiles", 1),
    ("with 3 objects", "work/*/build/CMakeFiles/parts.dir/*.obj", 3),
    ("with 9 objects", "work/*/build/CMakeFiles/parts.dir/*.obj", 9),
)
"""When the small project's build is killed: a pattern in the store, and how many files match it."""
WHOLE_BUILD_S = 3600


def qbuild(machine: Machine, cwd: Path, *words: str, timeout: float = 600) -> str:
    """Run qbuild there; return what it printed on standard output."""
    done = machine.run("-m", "qbuild", *words, cwd=cwd, timeout=timeout)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_a_machine_of_which_wine_knows_nothing_yet_wakes_up(
    machine: Machine, tmp_path: Path
) -> None:
    """Wine told of the prefix that it made, and the first word was waited for without end."""
    new = replace(machine, folder=tmp_path)
    (tmp_path / machine.python.parent.name).symlink_to(machine.python.parent)
    with new.awake():
        assert (tmp_path / "prefix" / "drive_c").is_dir()


# -- the verbs ------------------------------------------------------------------------------------


def test_what_looks_at_recipes_and_pins(machine: Machine, tmp_path: Path) -> None:
    assert "qbuild" in qbuild(machine, tmp_path, "version")
    assert "laptop" in qbuild(machine, tmp_path, "list")
    assert 'name = "laptop"' in qbuild(machine, tmp_path, "show", "laptop")
    assert "pins, sound" in qbuild(machine, tmp_path, "lock", "--offline")
    # What does not depend on the host has the same key on both.
    plan = ("plan", "laptop", "--os", "windows", "--json")
    there = json.loads(qbuild(machine, tmp_path, *plan))
    here = subprocess.run(["qbuild", *plan], capture_output=True, check=True, cwd=tmp_path)
    keys = [{s["kind"]: s["key"] for s in p["steps"]} for p in (there, json.loads(here.stdout))]
    assert keys[0]["source"] == keys[1]["source"]
    assert keys[0]["patch"] == keys[1]["patch"]


@pytest.mark.parametrize("shell", ["cmd", "ps1", "sh"])
def test_a_script_written_there_is_the_one_written_here(
    machine: Machine, tmp_path: Path, shell: str
) -> None:
    command = ("plan", "laptop", "--os", "windows", "--script", shell, "-o")
    qbuild(machine, tmp_path, *command, windows_path(tmp_path / "there"))
    subprocess.run(["qbuild", *command, str(tmp_path / "here")], check=True)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_what_looks_at_the_machine(machine: Machine, tmp_path: Path) -> None:
    found = json.loads(qbuild(machine, tmp_path, "detect", "--json"))
    assert found
    done = machine.run("-m", "qbuild", "doctor", "--json", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)
    qbuild(machine, tmp_path, "toolkit")
    for action in ("size", "verify", "prune"):  # a store below tmp_path would be too deep there
        qbuild(machine, tmp_path, "cache", action, "--store", "C:\\q")
    assert not (machine.folder / "prefix" / "drive_c" / "q").exists(), "looking made a store"


def test_what_reads_files(machine: Machine, tmp_path: Path) -> None:
    gguf_files.write(tmp_path / "m.gguf", *gguf_files.qwen3())
    assert json.loads(qbuild(machine, tmp_path, "model", "m.gguf", "--json"))
    assert "model" in qbuild(machine, tmp_path, "launch", "show", "laptop")
    (tmp_path / "a.obj").write_bytes(tiny_coff.make_object("/DEFAULTLIB:LIBCMT"))
    assert "a.obj" in qbuild(machine, tmp_path, "crt", "a.obj")


def test_pipelines_are_the_same_there(machine: Machine, tmp_path: Path) -> None:
    root = windows_path(windows.REPO)
    assert "fresh: .github/workflows/build.yml" in qbuild(
        machine, tmp_path, "ci", "github", "--check", "--root", root
    )
    assert "fresh: ci/gitlab-ci.yml" in qbuild(
        machine, tmp_path, "ci", "gitlab", "--check", "--root", root
    )
    assert '$ qbuild build "$RECIPE"' in qbuild(
        machine, tmp_path, "ci", "run", "build-avx2-linux", "--dry-run"
    )


def test_what_needs_git_says_how_to_get_it(machine: Machine, tmp_path: Path) -> None:
    assert "qwen3-mtp" in qbuild(machine, tmp_path, "patch", "explain", "qwen3-mtp")
    done = machine.run("-m", "qbuild", "patch", "edit", "qwen3-mtp", "--offline", cwd=tmp_path)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "winget install Git.Git" in done.stderr


def test_a_store_too_deep_is_refused_with_two_ways_out(machine: Machine, tmp_path: Path) -> None:
    deep = "C:\\" + "x" * 90
    done = machine.run("-m", "qbuild", "cache", "size", "--store", deep, cwd=tmp_path)
    assert done.returncode == 13
    assert "--store C:\\q" in done.stderr and "long paths" in done.stderr


def test_output_in_any_code_page(machine: Machine, tmp_path: Path) -> None:
    for page in ("cp437", "cp850", "cp1252", "cp936", "cp932", "utf-8"):
        done = machine.run("-m", "qbuild", "plan", "laptop", cwd=tmp_path, PYTHONIOENCODING=page)
        assert done.returncode == 0, f"{page}: {done.stderr}"


# -- files and children ---------------------------------------------------------------------------


def test_held_files_are_waited_for_then_named(machine: Machine, tmp_path: Path) -> None:
    done = machine.run(windows_path(SCRIPTS / "held_files.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "file replaced b'new'" in done.stdout
    assert "another program holds it open" in done.stdout
    assert "file kept b'new'" in done.stdout
    assert "files ['file']" in done.stdout


@pytest.mark.parametrize(("how", "said"), [("run", "ended with 3"), ("stop", "stopped"),
                                           ("die", "up"), ("check", "up")])  # fmt: skip
def test_children_end_with_qbuild(machine: Machine, tmp_path: Path, how: str, said: str) -> None:
    done = machine.run(windows_path(SCRIPTS / "children.py"), how, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == said, done.stderr
    deadline = time.monotonic() + 240  # by itself the grandchild would end after 300 s
    while _alive("qbuild-grandchild") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _alive("qbuild-grandchild")


def _alive(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def test_odd_folders_are_right_or_refused(machine: Machine, tmp_path: Path) -> None:
    script = windows_path(SCRIPTS / "odd_folders.py")
    done = machine.run(script, windows_path(tmp_path), timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for name, said in rows:
        print(f"{said:8} {name}")
    assert len(rows) >= 30
    assert [row for row in rows if not row[1].startswith(("right", "refused"))] == []


def _tests(kind: str) -> list[str]:
    files = (windows.REPO / "tests" / kind).rglob("test_*.py")
    names = sorted(path.relative_to(windows.REPO).as_posix() for path in files)
    return [name for name in names if "windows_host" not in name]


@pytest.mark.fast
@pytest.mark.parametrize("file", _tests("unit"))
def test_the_unit_tests_by_the_windows_python(machine: Machine, tmp_path: Path, file: str) -> None:
    done = machine.run(
        "-m", "pytest", file, "-q", "-p", "no:cacheprovider", "--no-header", "-rfEs",
        "--basetemp", windows_path(tmp_path / "there"),
        cwd=windows.REPO, timeout=3000,
    )  # fmt: skip
    print(done.stdout[-4000:])
    assert done.returncode == 0


@pytest.mark.fast
@pytest.mark.parametrize("file", _tests("integration"))
def test_the_integration_tests_by_the_windows_python(
    machine: Machine, store_there: Path, short: Path, file: str
) -> None:
    (zig,) = store_there.glob("wheel/*/files/ziglang/zig.exe")
    done = machine.run(
        "-m", "pytest", file, "-q", "-p", "no:cacheprovider", "--no-header", "-rfEs",
        "--basetemp", windows_path(short / "t"),
        cwd=windows.REPO, timeout=3000, QBUILD_TEST_STORE=windows_path(store_there),
        QBUILD_TEST_ZIG=windows_path(zig),
        QBUILD_TEST_ZIG_CACHE=windows_path(store_there / "cache" / "zig"),
    )  # fmt: skip
    print(done.stdout[-4000:])
    assert done.returncode in (0, 5), "5: nothing of it is in the fast suite"


# -- a whole build --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def small_windows(tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    """The small project, for Windows, by zig."""
    folder = tmp_path_factory.mktemp("small-windows")
    return small_project.make(folder, resources.lockfile(), toolchain="zig", target="windows")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: tests there make stores below it, and Windows counts letters."""
    with tempfile.TemporaryDirectory(prefix="q", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def store_there(machine: Machine, user_store: Store) -> Iterator[Path]:
    """A store that holds Windows' wheels, with a compiler that Wine can run."""
    lock = load_lock(resources.lockfile())
    wheels = {
        project: fetch_wheel(
            lock.wheel(project, "windows-x86_64"), user_store, Plain(), offline=False
        ).path
        / "files"
        for project in ("cmake", "ninja", "ziglang")
    }
    root = Path(tempfile.mkdtemp(prefix="q"))  # Windows wants it short
    windows.fill_store(machine, Store(root), lock, wheels, bridge=True)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def there(command: list[str], *paths: Path) -> list[str]:
    """Return a command line of this system's qbuild as that system's Python gets it."""
    names = {str(path): windows_path(path) for path in paths}
    return [names.get(word, word) for word in command[1:]]


@pytest.mark.small
def test_the_small_project_from_nothing_killed_resumed_same_bytes(
    machine: Machine,
    small_windows: SmallProject,
    new_store: Path,
    store_there: Path,
    tmp_path: Path,
) -> None:
    here = small_windows.command(new_store, tmp_path / "here")
    subprocess.run(here, check=True, timeout=WHOLE_BUILD_S)
    wanted = hashlib.sha256((tmp_path / "here" / small_windows.zip_name).read_bytes()).hexdigest()

    dist = tmp_path / "there"
    paths = (small_windows.recipe, small_windows.lockfile, small_windows.patches,
             small_windows.repo, store_there, dist)  # fmt: skip
    command = there(small_windows.command(store_there, dist), *paths)
    started = time.monotonic()
    done = machine.run(*command, timeout=WHOLE_BUILD_S)
    whole = time.monotonic() - started
    assert done.returncode == 0, done.stdout + done.stderr
    found = dist / small_windows.zip_name
    assert hashlib.sha256(found.read_bytes()).hexdigest() == wanted
    record = json.loads((dist / f"{found.name}.build.json").read_text())
    assert record["host"] == "windows-x86_64"
    assert record["hermetic"] is False
    assert "ziglang" in record["altered"][0]

    print(f"whole build {whole:.0f} s")
    for kind in ("source", "patch", "compile", "stage", "bundle", "work"):
        shutil.rmtree(store_there / kind, ignore_errors=True)
    shutil.rmtree(dist)
    for point, pattern, count in KILLS:
        process = subprocess.Popen(
            machine.command(*command), env=machine.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while len(list(store_there.glob(pattern))) < count:
            assert process.poll() is None, f"it ended before {point}"
            time.sleep(0.02)
        process.kill()
        process.wait()
        print("killed:", point)
    done = machine.run(*command, timeout=WHOLE_BUILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert hashlib.sha256(found.read_bytes()).hexdigest() == wanted


@pytest.mark.small
def test_verbs_that_build(
    machine: Machine,
    small_windows: SmallProject,
    new_store: Path,
    store_there: Path,
    tmp_path: Path,
) -> None:
    here = small_windows.command(new_store, tmp_path / "here")
    here[here.index("build")] = "wheel"
    subprocess.run(here, check=True, timeout=WHOLE_BUILD_S)
    (wanted,) = (tmp_path / "here").glob("*.whl")

    dist = tmp_path / "there"
    paths = (small_windows.recipe, small_windows.lockfile, small_windows.patches,
             small_windows.repo, store_there, dist)  # fmt: skip
    command = there(small_windows.command(store_there, dist), *paths)

    def verb(name: str, *more: str, words: list[str] = command) -> str:
        words = [name if word == "build" else word for word in words]
        done = machine.run(*words, *more, timeout=WHOLE_BUILD_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    verb("wheel")
    assert (dist / wanted.name).read_bytes() == wanted.read_bytes()
    assert verb("test", "--also", "test-parts") == "test-parts: Passed\n1 passed, 0 failed\n"
    at = command.index("--origin")
    plain = [*command[:at], *command[at + 2 :]]
    plain.remove("--no-compiler-cache")
    said = verb("reproduce", "-j", "1", words=plain)
    assert said.startswith(f"identical: {small_windows.zip_name}\n")
