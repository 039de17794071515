"""Children: their output, their end with ours, and signals at a run of the real program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qbuild import process
from qbuild.process import Stopped, run_logged
from support.systems import sends_signals

pytestmark = pytest.mark.integration


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(tmp_path: Path, code: str, **more: object) -> tuple[int, list[str], str]:
    lines: list[str] = []
    log = tmp_path / "log"
    status = run_logged(
        python(code), cwd=tmp_path, env={"PATH": os.defpath, "X": "y"}, log=log,
        on_line=lines.append, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return status, lines, log.read_text()


def test_output_status_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBUILD_TEST_OF_OURS", "not for children")
    code = (
        "import os, sys; print(os.getcwd());"
        "print(os.environ['X'], 'QBUILD_TEST_OF_OURS' not in os.environ);"
        "print('err', file=sys.stderr); print(sys.stdin.read() == ''); sys.exit(3)"
    )
    status, lines, log = run(tmp_path, code)
    assert status == 3
    assert str(tmp_path) in lines and "y True" in lines and "err" in lines and "True" in lines
    assert log == "\n".join(lines) + "\n"
    status, lines, log = run(tmp_path, "print('more')")
    assert ((status, lines) == (0, ["more"]) and log.endswith("True\nerr\nmore\n")) or "more" in log


def test_bytes_that_are_no_text_are_kept_readable(tmp_path: Path) -> None:
    _, lines, _ = run(tmp_path, r"import sys; sys.stdout.buffer.write(b'a\xff\n')")
    assert lines == ["a�"]


@pytest.mark.parametrize("cut", [True, False])
def test_the_network_is_cut_unless_it_is_asked_for(tmp_path: Path, cut: bool) -> None:
    if not process.isolation():
        pytest.skip("this system allows no namespaces")
    code = "import os; print(os.readlink('/proc/self/ns/net'))"
    _, lines, _ = run(tmp_path, code, cut_network=cut)
    own = os.readlink("/proc/self/ns/net")
    assert (lines[-1] == own) is not cut


def test_a_stop_between_two_lines_ends_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_stop_asked", False)
    seen: list[str] = []

    def stop(line: str) -> None:
        seen.append(line)
        process._stop_asked = True

    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(Stopped, match="log"):
        run_logged(
            python(code), cwd=tmp_path, env={}, log=tmp_path / "log", on_line=stop,
            cut_network=False,
        )  # fmt: skip
    assert time.monotonic() - started < 30
    assert not Path(f"/proc/{seen[0]}").exists()


def test_a_stop_ends_a_child_that_says_nothing_below_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals come to the main thread alone; a worker's compiler went on for minutes."""
    monkeypatch.setattr(process, "_stop_asked", False)
    born = tmp_path / "born"
    code = f"import os, time; open({str(born)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def work() -> int:
        return run_logged(
            python(code), cwd=tmp_path, env={}, log=tmp_path / "log", cut_network=False
        )

    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(work)
        while not (born.exists() and born.read_text()):
            time.sleep(0.05)
        process._stop_asked = True
        asked = time.monotonic()
        with pytest.raises(Stopped, match="log"):
            begun.result()
    assert time.monotonic() - asked < 30
    assert not Path(f"/proc/{born.read_text()}").exists()


@sends_signals
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_each_signal_that_asks_to_stop_is_heard_once(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    code = (
        "import os, signal\nfrom qbuild import process\nprocess.stop_on_signals()\n"
        f"try:\n    os.kill(os.getpid(), {int(number)})\n    import time; time.sleep(5)\n"
        "except process.Stopped:\n    print('stopped', process.stop_asked())\n"
        f"with process.signals_ignored():\n    os.kill(os.getpid(), {int(number)})\n"
        "print('ignored')\n"
        "try:\n    process.check_stop()\nexcept process.Stopped:\n    print('marked')\n"
    )
    done = subprocess.run(
        python(code), capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    assert done.stdout.split() == ["stopped", "True", "ignored", "marked"], done.stderr


@sends_signals
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """`nohup qbuild …` goes on when the terminal is closed."""
    code = (
        "import os, signal\nfrom qbuild import process\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nprocess.stop_on_signals()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('on', process.stop_asked())\n"
    )
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["on", "False"], done.stderr
