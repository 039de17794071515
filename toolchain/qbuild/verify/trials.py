"""What is tried with each way to run a bundle: version, a known sentence, a server, options."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from qbuild.errors import VerifyError
from qbuild.verify import tiny_gguf
from qbuild.verify.runners import Runner
from qbuild.verify.sandbox import Limits, Ran, run

_VERSION: Final = re.compile(r"^version: (.+?) \(build (\d+), commit (\w+)\)", re.MULTILINE)
_LOADED: Final = re.compile(r"loaded CPU backend from .*ggml-cpu-([a-z0-9]+)\.")
_PROBE: Final = Path(__file__).with_name("server_child.py")
_PROMPT: Final = "say it"
_TOKENS: Final = 32
_SECONDS: Final = 60.0
_COMMON: Final = (
    "--temp", "0", "--ctx-size", "256", "--offline", "--no-warmup",
    # Two threads, which sleep rather than spin while they wait: the machine may be busy.
    "--threads", "2", "--poll", "0",
)  # fmt: skip
_NAMES_VARIANT: Final = ("--verbosity", "4")
"""With less, llama-cli does not say which file the CPU backend was loaded from."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The programs of an unpacked bundle and what is needed to run them."""

    root: Path  # folder with the bundle's files
    suffix: str  # ``.exe`` or ""
    model: Path  # the tiny model
    scratch: Path  # folder for homes and output
    networks: set[str] = field(default_factory=set)  # gets what each run says about its network

    def find(self, name: str) -> Path | None:
        """Return a program's path, wherever in the bundle it lies."""
        return next(
            (path for path in sorted(self.root.rglob(name + self.suffix)) if path.is_file()), None
        )

    def execute(self, runner: Runner, argv: Sequence[str]) -> Ran:
        """Run one of the bundle's programs in the sandbox."""
        return self._run([*runner.prefix, *argv], runner)

    def execute_probe(self, runner: Runner, order: dict[str, Any]) -> Ran:
        """Run the probe, which starts one of the bundle's servers."""
        return self._run([sys.executable, "-I", str(_PROBE), json.dumps(order)], runner)

    def _run(self, argv: Sequence[str], runner: Runner) -> Ran:
        work = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            limits = Limits(seconds=_SECONDS * runner.slowdown, memory=runner.memory)
            ran = run(argv, scratch=work, env=runner.env, limits=limits)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self.networks.add(ran.network)
        return ran


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to try with each runner."""

    kind: str  # last part of the check's id
    title: str  # what is promised
    programs: tuple[str, ...]  # what it runs; it is tried when one of them is in the bundle
    # returns what went wrong; None when it cannot be tried
    find: Callable[[Programs, Runner], list[str]] | None
    why_not: str = ""  # why it cannot be tried
    runners: tuple[str, ...] = ()  # ids of the runners it makes sense with; none named: all


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A text that a program's ``--help`` must hold, and the patch that brings it."""

    program: str
    text: str
    patch: str


def steps(
    commit: str, number: int | None, wanted: Iterable[Wanted] = (), *, cuda: bool = False
) -> tuple[Step, ...]:
    """Return what is tried.

    Args:
        commit: Pinned commit id, or "" when unknown.
        number: Upstream's build number, when known.
        wanted: Texts that must be in the programs' help.
        cuda: Whether a CUDA backend is inside.
    """
    helps = tuple(wanted)
    made = [
        Step(
            kind="version",
            title="--version gives the pinned commit",
            programs=("llama-cli", "llama-server"),
            find=_version_step(commit, number) if commit else None,
            why_not="there is no manifest that says which commit it is",
        ),
        Step(
            kind="generate",
            title="generates the known sentence",
            programs=("llama-cli",),
            find=_generates,
        ),
        Step(
            kind="server",
            title="serves /health and a completion",
            programs=("llama-server",),
            find=_serves,
        ),
    ]
    if cuda:
        made.append(
            Step(
                kind="devices",
                title="the CUDA backend loads and lists its devices, or says why there are none",
                programs=("llama-cli", "llama-server"),
                find=_devices,
            )
        )
    if helps:
        names = tuple(sorted({item.program for item in helps}))
        made.append(
            Step(
                kind="help",
                title="--help has the options that patches add",
                programs=names,
                find=_help_step(helps),
            )
        )
    return tuple(made)


def version_problem(output: str, commit: str, number: int | None) -> str:
    """Return what is wrong with the output of ``--version``, or "".

    Args:
        output: What the program printed.
        commit: Pinned commit id, full.
        number: Upstream's build number, when known.
    """
    found = _VERSION.search(output)
    if not found:
        return "--version prints no line `version: … (build …, commit …)`"
    line, printed = found[0], found[3]
    # Seven digits are what git abbreviates to at least; fewer would match too much.
    if len(printed) < 7 or not commit.startswith(printed):
        return f"not the pin: it prints `{line}`, the pin is commit {commit[:9]}"
    if number is not None and int(found[2]) != number:
        return f"not the pin: it prints `{line}`, the pin is build {number}"
    return ""


def _version_step(commit: str, number: int | None) -> Callable[[Programs, Runner], list[str]]:
    def find(programs: Programs, runner: Runner) -> list[str]:
        problems = []
        for name in ("llama-cli", "llama-server"):
            program = programs.find(name)
            if program is None:
                continue
            ran = programs.execute(runner, [str(program), "--version"])
            if not ran.ok:
                problems.append(f"{program.name} --version {ran.how()}")
            elif problem := version_problem(ran.stdout + ran.stderr, commit, number):
                problems.append(f"{program.name}: {problem}")
        return problems

    return find


def _help_step(wanted: Sequence[Wanted]) -> Callable[[Programs, Runner], list[str]]:
    def find(programs: Programs, runner: Runner) -> list[str]:
        problems = []
        texts: dict[str, str] = {}
        for item in wanted:
            program = programs.find(item.program)
            if program is None:
                problems.append(f"{item.patch}: there is no {item.program} to ask for its help")
                continue
            if item.program not in texts:
                ran = programs.execute(runner, [str(program), "--help"])
                texts[item.program] = ran.stdout + ran.stderr
            if item.text not in texts[item.program]:
                problems.append(f"{program.name}: --help lacks {item.text!r} of patch {item.patch}")
        return problems

    return find


def _generates(programs: Programs, runner: Runner) -> list[str]:
    program = programs.find("llama-cli")
    assert program is not None
    ran = programs.execute(
        runner,
        [
            str(program), "--model", str(programs.model), "--prompt", _PROMPT,
            "--predict", str(_TOKENS), "--single-turn", "--simple-io", "--no-show-timings",
            *_COMMON, *(_NAMES_VARIANT if runner.variant else ()),
        ],
    )  # fmt: skip
    if not ran.ok:
        return [f"{program.name} {ran.how()}"]
    if tiny_gguf.SENTENCE not in ran.stdout.replace(_PROMPT, ""):
        said = ran.stdout.rpartition(f"> {_PROMPT}")[2].strip()[:80]
        return [f"{program.name} says {said!r} where the model says {tiny_gguf.SENTENCE!r}"]
    return variant_problems(program.name, ran.stdout + ran.stderr, runner.variant)


def variant_problems(program: str, output: str, variant: str) -> list[str]:
    """Return what is wrong with the variant of the CPU backend that a program loaded.

    Args:
        program: Its name.
        output: What it printed; ggml names the file that it loaded.
        variant: The one that must have been loaded; "": there is but one.
    """
    loaded = _LOADED.findall(output)
    if not variant or variant in loaded:
        return []
    return [f"{program} loaded the variant {', '.join(loaded) or 'none'}, {variant} fits this CPU"]


def _devices(programs: Programs, runner: Runner) -> list[str]:
    program = programs.find("llama-cli") or programs.find("llama-server")
    assert program is not None
    ran = programs.execute(runner, [str(program), "--list-devices"])
    if not ran.ok:
        return [f"{program.name} --list-devices {ran.how()}"]
    return devices_problems(program.name, ran.stdout, ran.stderr)


def devices_problems(program: str, stdout: str, stderr: str) -> list[str]:
    """Return what is wrong with the output of ``--list-devices`` of a bundle with CUDA.

    Without a driver the backend must say so itself: a backend that could not be loaded leaves no
    word about CUDA at all.
    """
    if "Available devices:" not in stdout:
        return [f"{program} --list-devices prints no list of devices"]
    if "CUDA" not in stdout + stderr:
        return [f"{program} --list-devices says nothing of CUDA: the backend was not loaded"]
    return []


def _serves(programs: Programs, runner: Runner) -> list[str]:
    program = programs.find("llama-server")
    assert program is not None
    chat = {"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": _TOKENS}
    order = {
        "argv": [
            *runner.prefix, str(program), "--model", str(programs.model),
            "--host", "127.0.0.1", "--port", "{port}", "--parallel", "1", *_COMMON,
        ],
        "ready": "/health",
        "seconds": _SECONDS * runner.slowdown / 2,
        "requests": [
            ["GET", "/health", None],
            ["POST", "/completion", {"prompt": "\n", "n_predict": _TOKENS, "temperature": 0}],
            ["POST", "/v1/chat/completions", chat],
        ],
    }  # fmt: skip
    ran = programs.execute_probe(runner, order)
    if not ran.ok:
        return [f"{program.name} {ran.how()}"]
    try:
        result = json.loads(ran.stdout)
    except ValueError as error:
        what = f"the server probe printed no JSON ({error})"
        raise VerifyError(what, where=str(_PROBE)) from error
    return [
        f"{program.name}: {problem}" for problem in server_problems(result, ran.stderr.splitlines())
    ]


def server_problems(result: dict[str, Any], log: Sequence[str]) -> list[str]:
    """Return what is wrong with a server's answers.

    Args:
        result: What the probe printed: ``problem``, and ``answers`` to /health, /completion and
            /v1/chat/completions.
        log: The server's log.
    """
    if result["problem"]:
        last = next((line.strip() for line in reversed(log) if line.strip()), "no log")
        return [f"{result['problem']}; its log ends: {last[:200]}"]
    paths = ("/health", "/completion", "/v1/chat/completions")
    problems = []
    texts = []
    for path, answer in zip(paths, result["answers"], strict=True):
        if answer["status"] != 200:
            problems.append(f"{path} answers {answer['status']}: {answer['text'][:200]}")
            continue
        try:
            texts.append((path, _said(path, json.loads(answer["text"]))))
        except (ValueError, KeyError, IndexError, TypeError):
            problems.append(f"{path} answers something unexpected: {answer['text'][:200]}")
    for path, text in texts:
        expected = "ok" if path == "/health" else tiny_gguf.SENTENCE
        if text.strip() != expected:
            problems.append(f"{path} says {text[:80]!r} where {expected!r} is right")
    return problems


def _said(path: str, data: Any) -> str:
    """Return the text that matters in an answer."""
    if path == "/health":
        return str(data["status"])
    if path == "/completion":
        return str(data["content"])
    return str(data["choices"][0]["message"]["content"])
