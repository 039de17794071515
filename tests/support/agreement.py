"""The verdicts of the real llama-server and of ``qbuild model`` about one file."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild.errors import QbuildError
from qbuild.modelfile.parts import open_model
from qbuild.modelfile.summary import summarise
from support import services

_WAIT = 120.0  # seconds; a sound small model takes one, on a busy machine more


@dataclass(frozen=True, kw_only=True)
class Row:
    """One file."""

    what: str
    server: bool
    ours: bool
    server_said: str
    our_reason: str

    @property
    def agree(self) -> bool:
        return self.server == self.ours

    def text(self) -> str:
        word = "same " if self.agree else "OTHER"
        server, ours = ("loads" if each else "refuses" for each in (self.server, self.ours))
        said = self.our_reason if not self.ours else ""
        tail = "" if self.agree else f" | server: {self.server_said}"
        return f"{word} | {self.what} | server {server} | model {ours} {said[:160]}{tail}"


def ask_server(model: Path, server: Path, *flags: str) -> tuple[bool, str]:
    """Start the server on a model; return whether it became healthy, and what it said last."""
    port = services.free_port()
    command = [str(server), "-m", str(model), "--host", "127.0.0.1", "--port", str(port),
               "-c", "256", "--parallel", "1", "-t", "1", "--fit", "off", *flags]  # fmt: skip
    log = model.with_name("server.log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # a debugger takes seconds
        )  # fmt: skip
        try:
            healthy = services.healthy(port, process, _WAIT)
        finally:
            process.kill()
            process.wait()
    return healthy, _last_words(log.read_text(errors="replace"), process.returncode)


def _last_words(log: str, code: int) -> str:
    errors = [
        line for line in log.splitlines()
        if re.search(r"error|ASSERT|failed|exception|unsupported|what\(\)", line, re.I)
    ]  # fmt: skip
    return f"[{code}] " + " / ".join(each.strip()[:160] for each in errors[:2])


def ask_model(model: Path) -> tuple[bool, str]:
    """Return whether ``qbuild model`` passes a file, and why not."""
    try:
        found = summarise(model)
    except QbuildError as error:
        return False, error.what
    reasons = [f"[{each.id}] {each.what}" for each in found.traps if each.severity == "error"]
    return found.loads, "; ".join(reasons)


def compare(what: str, model: Path, server: Path) -> Row:
    """Ask both."""
    ours, reason = ask_model(model)
    healthy, said = ask_server(model, server, *_flags(model))
    return Row(what=what, server=healthy, ours=ours, server_said=said, our_reason=reason)


def _flags(model: Path) -> list[str]:
    """Return what a user gives besides: encoders answer with embeddings only."""
    with contextlib.suppress(QbuildError):
        arch = str(open_model(model).keys.get("general.architecture"))
        if "bert" in arch or arch in ("gemma-embedding", "llama-embed"):
            return ["--embedding"]
    return []


def summary(rows: Sequence[Row]) -> str:
    """Return the counts as lines."""
    same = sum(1 for each in rows if each.agree)
    passed = [each for each in rows if each.ours and not each.server]
    alarm = [each for each in rows if each.server and not each.ours]
    refused = sum(1 for each in rows if not each.server)
    return (
        f"{len(rows)} files, {refused} refused by the server; verdicts agree on {same} "
        f"({same / max(len(rows), 1):.1%})\n"
        f"passed by model, refused by the server: {len(passed)}\n"
        f"refused by model, loaded by the server: {len(alarm)}"
    )
