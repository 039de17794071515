"""The sandbox on real processes: what it cuts, what it stops, what it leaves behind (nothing)."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from qbuild.errors import VerifyError
from qbuild.verify import sandbox
from qbuild.verify.sandbox import Limits
from support.systems import on_linux

pytestmark = [pytest.mark.integration, on_linux]


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", textwrap.dedent(code)]


def gone(pid: int) -> bool:
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.1)
    return False


def test_output_and_status(tmp_path: Path) -> None:
    ran = sandbox.run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"),
        scratch=tmp_path,
    )
    assert (ran.returncode, ran.stdout, ran.stderr, ran.stopped) == (7, "out\n", "err\n", "")
    assert not ran.ok
    assert ran.how() == "ended with status 7 (err)"


def test_sees_nothing_of_the_users_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    ran = sandbox.run(
        python("import os; print(sorted(os.environ), os.environ['HOME'], os.getcwd())"),
        scratch=tmp_path,
        env={"EXTRA": "1"},
    )
    home = str(tmp_path.resolve() / "home")
    names = "['EXTRA', 'HOME', 'LANG', 'PATH', 'TMPDIR']"
    assert ran.stdout.strip().replace(", 'LC_CTYPE'", "") == f"{names} {home} {home}"


def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert sandbox.run(python("print(repr(input.__self__ and open(0).read()))"),
                       scratch=tmp_path).stdout == "''\n"  # fmt: skip


def test_only_loopback_is_left(tmp_path: Path) -> None:
    ran = sandbox.run(
        python(
            """
            import socket
            print([name for _, name in socket.if_nameindex()])
            server = socket.create_server(("127.0.0.1", 0))
            client = socket.create_connection(server.getsockname(), 5)
            print("loopback works")
            try:
                socket.create_connection(("192.0.2.1", 80), 5)
            except OSError as error:
                print(error.strerror)
            """
        ),
        scratch=tmp_path,
    )
    if ran.network != "loopback":
        pytest.skip(ran.network)
    assert ran.stdout.splitlines() == ["['lo']", "loopback works", "Network is unreachable"]


DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("pid", "w").write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("pid") or not open("pid").read():
        time.sleep(0.01)
    {then}
"""


def test_a_daemon_left_behind_is_killed(tmp_path: Path) -> None:
    ran = sandbox.run(python(DAEMON.format(then="")), scratch=tmp_path)
    assert ran.ok
    assert gone(int((tmp_path / "home/pid").read_text()))


def test_a_daemon_may_end_by_itself_when_asked_for(tmp_path: Path) -> None:
    code = DAEMON.format(then="").replace("time.sleep(600)", "time.sleep(1); open('done', 'w')")
    sandbox.run(python(code), scratch=tmp_path, limits=Limits(linger=10))
    assert (tmp_path / "home/done").exists()


def test_time_limit_stops_the_whole_tree(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = sandbox.run(
        python(DAEMON.format(then="time.sleep(600)")), scratch=tmp_path, limits=Limits(seconds=1)
    )
    assert time.monotonic() - started < 10
    assert ran.stopped == "time"
    assert ran.how().startswith("was stopped after 1 s")
    assert gone(int((tmp_path / "home/pid").read_text()))


def test_memory_limit(tmp_path: Path) -> None:
    ran = sandbox.run(
        python("import time; held = b'x' * (300 << 20); time.sleep(600)"),
        scratch=tmp_path,
        limits=Limits(seconds=60, memory=150 << 20),
    )
    assert ran.stopped == "memory"
    assert ran.peak_memory > 150 << 20
    assert "MiB of memory" in ran.how()


def test_memory_of_children_counts(tmp_path: Path) -> None:
    code = """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                held = b"x" * (60 << 20)
                time.sleep(600)
        time.sleep(600)
    """
    ran = sandbox.run(python(code), scratch=tmp_path, limits=Limits(seconds=60, memory=200 << 20))
    assert ran.stopped == "memory"


def test_file_size_limit(tmp_path: Path) -> None:
    code = """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with open("big", "wb") as stream:
            for _ in range(64):
                stream.write(b"x" * (1 << 20))
    """
    ran = sandbox.run(python(code), scratch=tmp_path, limits=Limits(file_size=8 << 20))
    assert ran.how() == "was ended by SIGXFSZ"
    assert (tmp_path / "home/big").stat().st_size <= 8 << 20


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match=r"nothing-here could not be started: No such file"):
        sandbox.run(["/nowhere/nothing-here"], scratch=tmp_path)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_nothing_outlives_qbuild(tmp_path: Path, name: str) -> None:
    code = textwrap.dedent(DAEMON.format(then="time.sleep(600)"))
    driver = (
        "import sys, pathlib; from qbuild.verify import sandbox\n"
        f"sandbox.run([sys.executable, '-c', {code!r}], scratch=pathlib.Path({str(tmp_path)!r}))"
    )
    package = str(Path(sandbox.__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", driver],
        env={**os.environ, "PYTHONPATH": package},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and hand that down to their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    note = tmp_path / "home/pid"
    for _ in range(200):
        if note.exists() and note.read_text():
            break
        time.sleep(0.05)
    pid = int(note.read_text())
    parent.send_signal(signal.Signals[name])
    parent.wait(20)
    assert gone(pid)
