"""The programs of an unpacked zip, started and watched: ``llama-bench`` and ``llama-server``."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from qbuild.errors import VerifyError
from qbuild.extras.bench.model import Alone

_LOOK = 0.05  # seconds between two looks at a program's memory


@dataclass(frozen=True, kw_only=True)
class Programs:
    """What a zip's programs need to run here."""

    root: Path  # folder with the zip's files
    suffix: str  # ``.exe`` or ""
    # what comes before a program on the command line: nothing, or Wine
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # the whole environment

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """Return a program's command line.

        Raises:
            VerifyError: The zip does not hold it.
        """
        program = self.root / f"{name}{self.suffix}"
        if not program.is_file():
            raise VerifyError(
                f"there is no {program.name} in this zip",
                where=str(self.root),
                fix=f'build it with `--set build.targets=[...,"{name}"]`, or leave that part out',
            )
        return [*self.prefix, str(program), *words]


class Memory:
    """Watches how much memory a process and its children take at most."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, self._now())
            self._stop.wait(_LOOK)

    def _now(self) -> int:
        total = 0
        with suppress(psutil.Error):
            parent = psutil.Process(self._pid)
            for process in (parent, *parent.children(recursive=True)):
                with suppress(psutil.Error):
                    total += process.memory_info().rss
        return total

    def stop(self) -> int:
        """Return the most that was seen, in bytes."""
        self._stop.set()
        self._thread.join()
        return self.peak


def run_alone(
    programs: Programs, model: Path, *, prompt: int, answer: int, threads: int, timeout: float
) -> Alone:
    """Run ``llama-bench`` once.

    Args:
        programs: The zip's.
        model: A GGUF file.
        prompt: Tokens that are read.
        answer: Tokens that are written.
        threads: Of the CPU.
        timeout: Seconds after which it is ended.

    Raises:
        VerifyError: It is not in the zip, fails, or takes too long.
    """
    words = ["-m", str(model), "-p", str(prompt), "-n", str(answer), "-r", "1", "-o", "json",
             "-t", str(threads)]  # fmt: skip
    command = programs.command("llama-bench", words)
    with tempfile.TemporaryFile() as log, _started(command, programs, log, capture=True) as process:
        memory = Memory(process.pid)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise VerifyError(
                f"llama-bench took longer than {timeout:.0f} s",
                where=str(model),
                fix="take a smaller model, or fewer tokens with --prompt and --answer",
            ) from None
        finally:
            peak = memory.stop()
        if process.returncode != 0:
            raise VerifyError(f"llama-bench ended with {process.returncode}: {_last_line(log)}")
    return Alone(**_rates(out), memory=peak)


def _rates(out: bytes) -> dict[str, float]:
    """Return tokens per second of prompt and answer from what ``llama-bench -o json`` prints."""
    try:
        rows = json.loads(out)
        rates = {"answer" if row["n_gen"] else "prompt": float(row["avg_ts"]) for row in rows}
        return {"prompt": rates["prompt"], "answer": rates["answer"]}
    except (ValueError, KeyError, TypeError) as error:
        raise VerifyError(f"llama-bench printed no figures ({error})") from error


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that answers: its port on loopback, its process."""

    port: int
    process: subprocess.Popen[bytes]

    def memory(self) -> int:
        """Return the most memory it took so far, in bytes, as far as the system keeps it."""
        with suppress(OSError, ValueError, StopIteration):
            text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
            line = next(each for each in text.splitlines() if each.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0


@contextmanager
def serving(
    programs: Programs, model: Path, *, users: int, threads: int, context: int, patience: float
) -> Iterator[Server]:
    """Start ``llama-server``, wait until it answers, and end it afterwards.

    Args:
        programs: The zip's.
        model: A GGUF file.
        users: Requests that it works on at the same time.
        threads: Of the CPU.
        context: Tokens of context for each user.
        patience: Seconds to wait until it is ready.

    Raises:
        VerifyError: It is not in the zip, ends, or does not answer in time.
    """
    port = _free_port()
    words = [
        "--model", str(model), "--host", "127.0.0.1", "--port", str(port), "--parallel", str(users),
        "--ctx-size", str(users * context), "--threads", str(threads), "--offline", "--no-webui",
    ]  # fmt: skip
    command = programs.command("llama-server", words)
    with tempfile.TemporaryFile() as log, _started(command, programs, log) as process:
        deadline = time.monotonic() + patience
        while not _healthy(port):
            if process.poll() is not None:
                raise VerifyError(f"llama-server ended: {_last_line(log)}")
            if time.monotonic() > deadline:
                raise VerifyError(
                    f"llama-server did not answer within {patience:.0f} s: {_last_line(log)}"
                )
            time.sleep(0.1)
        yield Server(port=port, process=process)


@contextmanager
def _started(
    command: Sequence[str], programs: Programs, log: IO[bytes], *, capture: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; whatever happens, it and its children do not outlive the block."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else log,
            stderr=log,
            env=dict(programs.env),
            cwd=programs.root,
        )
    except OSError as error:
        what = f"{command[0]} cannot be started: {error.strerror or error}"
        raise VerifyError(what, where=str(programs.root)) from error
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    family = []
    with suppress(psutil.Error):
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    for each in family:
        with suppress(psutil.Error):
            each.kill()
    process.wait()


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "no word")[:200]
