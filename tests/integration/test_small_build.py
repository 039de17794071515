"""The whole flow on a small project: kills, full disk, damage, races, offline, no-op."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.small_project import SmallProject, lend_tools
from support.systems import WINDOWS
from support.tools import require, require_namespaces

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(WINDOWS, reason="test_windows_host.py builds this project on Windows"),
]

KILLS = 20


def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)  # type: ignore[call-overload,no-any-return]


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def wanted(
    small: SmallProject, tool_wheels: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The sha256 of an undisturbed build."""
    folder = tmp_path_factory.mktemp("undisturbed")
    lend_tools(folder / "store", tool_wheels)
    done = run(small.command(folder / "store", folder / "dist"))
    assert done.returncode == 0, done.stderr
    return sha(folder / "dist" / small.zip_name)


def test_the_program_in_the_zip_prints_the_pinned_commit(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    done = run(small.command(new_store, tmp_path / "dist"))
    assert done.returncode == 0, done.stderr
    zip_path = tmp_path / "dist" / small.zip_name
    assert sha(zip_path) == wanted
    assert (tmp_path / "dist" / f"{small.zip_name}.sha256").read_text().split()[0] == wanted
    from qbuild.binary.zip_reader import open_zip

    with open_zip(zip_path) as view:
        view.extract_to(tmp_path / "out")
    said = run([str(tmp_path / "out" / "llama-cli"), "--version"])
    assert small.zip_name.split("-")[1][1:] in said.stdout


def test_a_test_of_the_projects_own_is_built_and_run(
    small: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    command = small.command(new_store, tmp_path / "dist")
    command[command.index("build")] = "test"
    done = run([*command, "--also", "test-parts"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "test-parts: Passed\n1 passed, 0 failed\n"


def test_the_systems_compiler_builds_it_too(
    small_gcc: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    done = run(small_gcc.command(new_store, tmp_path / "dist"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dist" / small_gcc.zip_name).is_file()


def test_a_second_run_does_nothing_and_writes_nothing(
    small: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    command = small.command(new_store, tmp_path / "dist", "--json")
    assert run(command).returncode == 0

    def snapshot() -> dict[str, tuple[int, int]]:
        return {
            str(p): (p.stat().st_mtime_ns, p.stat().st_size)
            for root in (new_store, tmp_path / "dist")
            for p in root.rglob("*")
        }

    before = snapshot()
    done = run(command)
    assert done.returncode == 0
    assert json.loads(done.stdout)["fresh"] is False
    assert snapshot() == before


def test_a_touched_zip_is_delivered_again(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    command = small.command(new_store, tmp_path / "dist")
    assert run(command).returncode == 0
    zip_path = tmp_path / "dist" / small.zip_name
    zip_path.write_bytes(zip_path.read_bytes()[:-1] + b"x")
    assert run(command).returncode == 0
    assert sha(zip_path) == wanted


def test_kills_at_random_moments_never_spoil_the_result(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    """SIGKILL hits at moments spread over a whole build; the next run must end right."""
    command = small.command(new_store, tmp_path / "dist")
    started = time.monotonic()
    assert run(small.command(new_store, tmp_path / "timing")).returncode == 0
    whole = time.monotonic() - started
    from qbuild.held import remove_tree

    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    landed = 0
    for number in range(KILLS):
        for kind in ("source", "patch", "compile", "stage", "bundle", "work"):
            if number % 4 == 0:  # every fourth time from nothing, otherwise resuming
                remove_tree(new_store / kind)
        remove_tree(tmp_path / "dist")
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(dice.uniform(0.05, whole))
        landed += process.poll() is None
        process.kill()
        process.wait()
    assert landed >= KILLS // 4, "the kills came too late to prove anything"
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert sha(tmp_path / "dist" / small.zip_name) == wanted
    assert not list((tmp_path / "dist").glob(".*part*")) or landed


def test_children_do_not_outlive_a_killed_run(
    small: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        small.command(new_store, tmp_path / "dist"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        if any(_of(c, psutil.Process.name) in ("cmake", "ninja") for c in children):
            break
        time.sleep(0.01)
    else:
        pytest.fail("no child was seen")
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert {_of(c, psutil.Process.status) for c in alive} <= {"", psutil.STATUS_ZOMBIE}


def _of(process: psutil.Process, ask: Callable[[psutil.Process], str]) -> str:
    """Ask a process something; "" when it ended in between, which a child may do at any time."""
    try:
        return ask(process)
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_and_the_next_run_carries_on(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str, number: int
) -> None:
    command = [c for c in small.command(new_store, tmp_path / "dist") if c != "-q"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run in the background inherits an ignored SIGINT; a terminal's child does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("configure"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "carries on" in err
    assert run(command).returncode == 0
    assert sha(tmp_path / "dist" / small.zip_name) == wanted


def test_two_runs_at_once_one_builds_and_the_other_waits(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    base = [c for c in small.command(new_store, tmp_path) if c not in ("-q",)]
    both = []
    for name in ("one", "two"):
        command = list(base)
        command[command.index("--dist") + 1] = str(tmp_path / name)
        both.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    errors = [p.communicate(timeout=300)[1] for p in both]
    assert [p.returncode for p in both] == [0, 0], errors
    assert sha(tmp_path / "one" / small.zip_name) == wanted
    assert sha(tmp_path / "two" / small.zip_name) == wanted
    assert len([e for e in errors if "waiting for its result" in e]) == 1
    builds = [
        json.loads((tmp_path / name / f"{small.zip_name}.build.json").read_text())["made"]
        for name in ("one", "two")
    ]
    assert sum("compile" in made for made in builds) == 1


def test_damaged_entries_are_made_again(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    command = [c for c in small.command(new_store, tmp_path / "dist") if c != "-q"]
    assert run(command).returncode == 0
    harmed = 0
    for path in sorted(new_store.glob("*/*")):
        if path.parent.name not in ("patch", "compile", "stage", "bundle", "source"):
            continue
        victim = max(
            (f for f in path.rglob("*") if f.is_file() and f.name != "entry.json"),
            key=lambda f: f.stat().st_size,
        )
        victim.chmod(0o644)
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        harmed += 1
    assert harmed == 5
    (tmp_path / "dist" / small.zip_name).unlink()
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert "is damaged" in done.stderr
    assert sha(tmp_path / "dist" / small.zip_name) == wanted


def test_an_unfinished_tree_that_ninja_cannot_read_is_made_again(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    """CMake ends with 0 although the disk was too full for build.ninja; a soak found it."""
    from qbuild.held import remove_tree

    assert run(small.command(new_store, tmp_path / "dist", "--keep-work")).returncode == 0
    (left,) = new_store.glob("work/*/build/build.ninja")
    left.unlink()
    for kind in ("compile", "stage", "bundle"):
        remove_tree(new_store / kind)
    done = run(small.command(new_store, tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    assert sha(tmp_path / "again" / small.zip_name) == wanted


def test_an_unfinished_tree_from_the_future_is_finished(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    """Its sources are newer than now: ninja would configure a hundred times and give up."""
    from qbuild.held import remove_tree

    assert run(small.command(new_store, tmp_path / "dist", "--keep-work")).returncode == 0
    for kind in ("compile", "stage", "bundle"):
        remove_tree(new_store / kind)
    later = time.time_ns() + 10**9 * 86400 * 365
    for path in (new_store / "work").glob("*/src/**/*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(later, later))
    done = run(small.command(new_store, tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    assert sha(tmp_path / "again" / small.zip_name) == wanted


@pytest.mark.parametrize("megabytes", [1, 90, 130])
def test_a_full_disk_is_a_clear_error_and_room_mends_it(
    small: SmallProject, tool_wheels: list[Path], tmp_path: Path, wanted: str, megabytes: int
) -> None:
    require("mount")
    require_namespaces("--mount")
    mount = tmp_path / "tiny"
    mount.mkdir()
    wheels = lend_tools(tmp_path / "wheels", tool_wheels)
    # A tmpfs of our own in a mount namespace of our own: no right on the machine is needed.
    command = " ".join(f"'{c}'" for c in small.command(mount / "store", tmp_path / "dist"))
    script = (
        f"mount -t tmpfs -o size={megabytes}m none '{mount}' && mkdir -p '{mount}/store' && "
        f"(cp -a '{wheels}/.' '{mount}/store/' 2>/dev/null; {command}); echo status $?"
    )
    done = run(["unshare", "--map-root-user", "--mount", "sh", "-c", script])
    assert "status 13" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "free" in done.stderr
    assert not (tmp_path / "dist" / small.zip_name).exists()


def test_a_full_output_disk_keeps_the_finished_zip_in_the_store(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    require("mount")
    require_namespaces("--mount")
    mount = tmp_path / "tiny"
    mount.mkdir()
    command = " ".join(f"'{c}'" for c in small.command(new_store, mount / "dist"))
    script = f"mount -t tmpfs -o size=4k none '{mount}' && {command}; echo status $?"
    done = run(["unshare", "--map-root-user", "--mount", "sh", "-c", script])
    assert "status 13" in done.stdout, done.stdout + done.stderr
    assert "cannot write the zip" in done.stderr
    started = time.monotonic()
    assert run(small.command(new_store, tmp_path / "dist")).returncode == 0
    assert sha(tmp_path / "dist" / small.zip_name) == wanted
    assert time.monotonic() - started < 60


def test_offline_after_a_first_run_gives_the_same_zip(
    small: SmallProject, new_store: Path, tmp_path: Path, wanted: str
) -> None:
    require_namespaces("--net")
    command = small.command(new_store, tmp_path / "dist")
    assert run(command).returncode == 0
    from qbuild.held import remove_tree

    for kind in ("patch", "compile", "stage", "bundle"):
        remove_tree(new_store / kind)
    offline = [*small.command(new_store, tmp_path / "again"), "--offline"]
    at = offline.index("--origin")
    del offline[at : at + 2]
    done = run(["unshare", "--map-root-user", "--net", *offline])
    assert done.returncode == 0, done.stderr
    assert sha(tmp_path / "again" / small.zip_name) == wanted


def test_offline_with_an_empty_store_says_what_is_missing(
    small: SmallProject, tmp_path: Path
) -> None:
    done = run([*small.command(tmp_path / "empty", tmp_path / "dist"), "--offline"])
    assert done.returncode == 5
    assert "--offline" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name", ["with space", "中文 папка", "quote'dollar$", "a" * 100 + "/" + "b" * 100 + "/cc"]
)
def test_odd_folder_names_make_no_difference(
    small: SmallProject, tool_wheels: list[Path], tmp_path: Path, wanted: str, name: str
) -> None:
    root = tmp_path / name
    lend_tools(root / "store", tool_wheels)
    done = run(small.command(root / "store", root / "dist"))
    assert done.returncode == 0, done.stderr
    assert sha(root / "dist" / small.zip_name) == wanted


def test_a_compiler_error_is_shown_short_with_the_logs_path(
    new_store: Path, tmp_path: Path
) -> None:
    from qbuild import resources
    from support import small_project

    project = small_project.make(tmp_path / "broken", resources.lockfile())
    patch = project.patches / "break"
    patch.mkdir()
    # A broken source needs no patch: pin one whose main.c does not compile.
    (project.repo / "main.c").write_text("int main(void) { return nothing; }\n")
    small_project._git("commit", "-q", "-am", "break", cwd=project.repo)
    text = project.lockfile.read_text()
    old = [line.split('"')[1] for line in text.splitlines() if line.startswith(("commit", "tree"))]
    new = [small_project._git("rev-parse", w, cwd=project.repo) for w in ("HEAD", "HEAD^{tree}")]
    for a, b in zip(old, new, strict=True):
        text = text.replace(a, b)
    project.lockfile.write_text(text)
    patch.rmdir()
    done = run(project.command(new_store, tmp_path / "dist"))
    assert done.returncode == 9
    assert "nothing" in done.stderr and "main.c" in done.stderr
    assert len(done.stderr.splitlines()) <= 8
    log = done.stderr.split("full log: ")[1].splitlines()[0]
    assert Path(log).is_file()


@pytest.mark.usefixtures("small_gcc")
def test_the_clock_in_a_binary_is_named_by_reproduce(new_store: Path, tmp_path: Path) -> None:
    from qbuild import resources
    from support import small_project

    project = small_project.make(tmp_path / "clock", resources.lockfile(), toolchain="gcc")
    (project.repo / "main.c").write_text(
        "#include <stdio.h>\nint part0(int);\n"
        "int main(int c, char**v)\n"
        '{ puts(COMMIT " built at " __TIME__); return part0(c) + (v == 0); }\n'
    )
    small_project._git("commit", "-q", "-am", "clock", cwd=project.repo)
    text = project.lockfile.read_text()
    old = [line.split('"')[1] for line in text.splitlines() if line.startswith(("commit", "tree"))]
    new = [small_project._git("rev-parse", w, cwd=project.repo) for w in ("HEAD", "HEAD^{tree}")]
    for a, b in zip(old, new, strict=True):
        text = text.replace(a, b)
    project.lockfile.write_text(text)
    command = [
        sys.executable, "-m", "qbuild", "reproduce", str(project.recipe), "--lockfile",
        str(project.lockfile), "--patches", str(project.patches), "--store", str(new_store),
    ]  # fmt: skip
    env = {**os.environ, "QBUILD_ORIGIN": str(project.repo)}
    done = run(command, env=env)
    assert done.returncode == 12, done.stderr
    assert "llama-cli" in done.stderr
    assert ".rodata" in done.stderr
    assert "__TIME__" in done.stderr


def test_reproduce_finds_the_small_project_identical(
    small_gcc: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    assert run(small_gcc.command(new_store, tmp_path / "dist")).returncode == 0
    wanted = sha(tmp_path / "dist" / small_gcc.zip_name)
    command = [
        sys.executable, "-m", "qbuild", "reproduce", str(small_gcc.recipe), "--lockfile",
        str(small_gcc.lockfile), "--patches", str(small_gcc.patches), "--store", str(new_store),
        "--json",
    ]  # fmt: skip
    done = run(command, env={**os.environ, "QBUILD_ORIGIN": str(small_gcc.repo)})
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["identical"] is True
    assert data["sha256"] == [wanted, wanted]


def test_the_printed_script_builds_the_very_binary_of_the_zip(
    small_gcc: SmallProject, new_store: Path, tmp_path: Path
) -> None:
    assert run(small_gcc.command(new_store, tmp_path / "dist")).returncode == 0
    command = [
        sys.executable, "-m", "qbuild", "plan", str(small_gcc.recipe), "--lockfile",
        str(small_gcc.lockfile), "--patches", str(small_gcc.patches), "--script", "sh",
    ]  # fmt: skip
    printed = run(command)
    assert printed.returncode == 0, printed.stderr
    folder = tmp_path / "by hand"
    folder.mkdir()
    (folder / "build.sh").write_text(printed.stdout)
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{small_gcc.repo}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://small.invalid/small.git",
        # What a person has set for other work.
        "CFLAGS": "-DCOMMIT=nonsense",
        "CMAKE_GENERATOR_PLATFORM": "x64",
    }
    done = run(["sh", "build.sh"], cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    from qbuild.binary.zip_reader import open_zip

    with open_zip(tmp_path / "dist" / small_gcc.zip_name) as view:
        shipped = view.read("llama-cli")
    assert (folder / "build" / "bin" / "llama-cli").read_bytes() == shipped
