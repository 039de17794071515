"""Runs the programs of an unpacked bundle: version, a known sentence, a server's answers.

Only ``qbuild verify --run`` and qbuild's own build come here; everything runs in the sandbox.
The tiny model of :mod:`qbuild.tiny_gguf` must say its one sentence, so that "it printed
something" does not pass for "it computes right".
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from qbuild import tiny_gguf
from qbuild.console import Reporter, Silent
from qbuild.errors import VerifyError
from qbuild.sandbox import Limits, Ran, run
from qbuild.unpack import open_zip
from qbuild.verify.model import Check, judge, not_run
from qbuild.verify.runners import Runner, plan_for

_VERSION: Final = re.compile(r"^version: (.+?) \(build (\d+), commit (\w+)\)", re.MULTILINE)
_PROBE: Final = Path(__file__).with_name("probe.py")
_PROMPT: Final = "say it"
_TOKENS: Final = 32
_SECONDS: Final = 60.0
_COMMON: Final = (
    "--temp", "0", "--ctx-size", "256", "--offline", "--no-warmup",
    # Two threads, which sleep rather than spin while they wait: the machine may be busy.
    "--threads", "2", "--poll", "0",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Bundle:
    """What the single checks need to know."""

    root: Path
    suffix: str
    model: Path
    scratch: Path
    networks: set[str] = field(default_factory=set)

    def program(self, name: str) -> Path | None:
        """Return the program's path, wherever in the bundle it lies."""
        found = sorted(self.root.rglob(name + self.suffix))
        return found[0] if found else None

    def execute(self, runner: Runner, argv: Sequence[str]) -> Ran:
        """Run one of the bundle's programs in the sandbox."""
        return self._run([*runner.prefix, *argv], runner)

    def execute_probe(self, runner: Runner, order: dict[str, Any]) -> Ran:
        """Run the probe, which starts one of the bundle's servers."""
        return self._run([sys.executable, "-I", str(_PROBE), json.dumps(order)], runner)

    def _run(self, argv: Sequence[str], runner: Runner) -> Ran:
        work = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            limits = Limits(seconds=_SECONDS * runner.slowdown)
            ran = run(argv, scratch=work, env=runner.env, limits=limits)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self.networks.add(ran.network)
        return ran


def run_zip(
    path: Path, *, cache_dir: Path | None = None, reporter: Reporter | None = None
) -> tuple[Check, ...]:
    """Unpack a zip into a scratch folder and run what is in it.

    Args:
        path: A zip that :func:`qbuild.verify.verify_zip` accepted.
        cache_dir: Where a prepared Wine prefix (0.7 GB) is kept between runs, or None.
        reporter: Where progress goes.

    Raises:
        VerifyError: The zip is for no system known here, or the sandbox does not work.
        ArchiveError: The zip is damaged.
    """
    from qbuild.verify.static import read_bundle, scratch_folder
    from qbuild.verify.structure import unpack

    reporter = reporter or Silent()
    with open_zip(path) as view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("unpack", total=total, unit="bytes") as task:
            unpacked = unpack(view, scratch / "files", task)
        bundle = read_bundle(path.name, unpacked)
        if not bundle.target_os:
            return (not_run("run", "its programs run", "there is no program inside"),)
        target = bundle.manifest.target if bundle.manifest else {}
        source = bundle.manifest.source if bundle.manifest else {}
        return run_checks(
            unpacked.root,
            target_os=bundle.target_os,
            cpu_level=str(target.get("cpu", "")),
            commit=str(source.get("commit", "")),
            number=source.get("build_number"),
            isa=tuple(target.get("isa", ())),
            qemu_cpu=str(bundle.recipe.get("checks", {}).get("qemu_cpu", "")),
            cache_dir=cache_dir,
            reporter=reporter,
        )


def run_checks(
    unpacked: Path,
    *,
    target_os: str,
    cpu_level: str,
    commit: str,
    number: int | None = None,
    isa: tuple[str, ...] = (),
    qemu_cpu: str = "",
    host_os: str | None = None,
    cache_dir: Path | None = None,
    reporter: Reporter | None = None,
) -> tuple[Check, ...]:
    """Run what is in a bundle.

    Args:
        unpacked: Folder with the bundle's files; not written to.
        target_os: ``linux`` or ``windows``.
        cpu_level: psABI level; chooses the CPU that qemu-user plays. "" when it is not known.
        commit: Pinned commit id (hex, full), or "" when unknown.
        number: Upstream's build number, when known.
        isa: Extensions beyond the level.
        qemu_cpu: CPU model for qemu instead of the level's.
        host_os: What this machine runs; default: asked.
        cache_dir: Where a prepared Wine prefix (0.7 GB) is kept between runs, or None.
        reporter: Where progress goes.

    Raises:
        VerifyError: The sandbox itself does not work.
    """
    from qbuild import host

    reporter = reporter or Silent()
    checks: list[Check] = []
    with tempfile.TemporaryDirectory(prefix="qbuild-verify-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        plan = plan_for(
            target_os=target_os,
            cpu_level=cpu_level,
            isa=isa,
            qemu_cpu=qemu_cpu,
            host_os=host_os or host.system(),
            scratch=scratch,
            cache_dir=cache_dir,
        )
        bundle = _Bundle(
            root=unpacked.resolve(),
            suffix=".exe" if target_os == "windows" else "",
            model=tiny_gguf.write(scratch / "tiny.gguf"),
            scratch=scratch,
        )
        steps = _steps(commit, number)
        with reporter.task("run", total=len(steps) * len(plan.runners), unit="steps") as task:
            done = 0
            for runner in plan.runners:
                for step in steps:
                    task.update(done=done, note=f"{step.program} in {runner.label}")
                    checks.append(_one(bundle, runner, step))
                    done += 1
            task.update(done=done)
        checks += plan.missing
        if bundle.networks:
            checks.append(_network_check(bundle.networks))
    return tuple(checks)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One thing to try with each runner; ``find`` returns what went wrong."""

    kind: str
    title: str
    program: str
    find: Callable[[_Bundle, Runner], list[str]] | None


def _steps(commit: str, number: int | None) -> tuple[_Step, ...]:
    return (
        _Step(
            kind="version",
            title="prints the pinned commit",
            program="llama-cli",
            find=_version_step(commit, number) if commit else None,
        ),
        _Step(
            kind="generate",
            title="generates the known sentence",
            program="llama-cli",
            find=_generates,
        ),
        _Step(
            kind="server",
            title="serves /health and a completion",
            program="llama-server",
            find=_serves,
        ),
    )


def _one(bundle: _Bundle, runner: Runner, step: _Step) -> Check:
    id = f"run.{runner.id}.{step.kind}"
    title = f"{step.program} {step.title} ({runner.label})"
    if bundle.program(step.program) is None:
        return not_run(id, title, f"{step.program}{bundle.suffix} is not in this bundle")
    if step.find is None:
        return not_run(id, title, "there is no manifest that says which commit it is")
    started = time.monotonic()
    try:
        problems = step.find(bundle, runner)
    except VerifyError as error:  # it could not even be started
        problems = [error.what]
    return judge(id, title, problems, seconds=time.monotonic() - started)


def _network_check(networks: set[str]) -> Check:
    title = "ran without a network"
    reasons = sorted(networks - {"loopback"})
    if reasons:
        return not_run("run.network", title, *reasons)
    return judge("run.network", title, ())


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


def _version_step(commit: str, number: int | None) -> Callable[[_Bundle, Runner], list[str]]:
    def step(bundle: _Bundle, runner: Runner) -> list[str]:
        problems = []
        for name in ("llama-cli", "llama-server"):
            program = bundle.program(name)
            if program is None:
                continue
            ran = bundle.execute(runner, [str(program), "--version"])
            if not ran.ok:
                problems.append(f"{program.name} --version {ran.how()}")
            elif problem := version_problem(ran.stdout + ran.stderr, commit, number):
                problems.append(f"{program.name}: {problem}")
        return problems

    return step


def _generates(bundle: _Bundle, runner: Runner) -> list[str]:
    program = bundle.program("llama-cli")
    assert program is not None
    ran = bundle.execute(
        runner,
        [
            str(program), "--model", str(bundle.model), "--prompt", _PROMPT,
            "--predict", str(_TOKENS), "--single-turn", "--simple-io", "--no-show-timings",
            *_COMMON,
        ],
    )  # fmt: skip
    if not ran.ok:
        return [f"{program.name} {ran.how()}"]
    if tiny_gguf.SENTENCE not in ran.stdout.replace(_PROMPT, ""):
        said = ran.stdout.rpartition(f"> {_PROMPT}")[2].strip()[:80]
        return [f"{program.name} says {said!r} where the model says {tiny_gguf.SENTENCE!r}"]
    return []


def _serves(bundle: _Bundle, runner: Runner) -> list[str]:
    program = bundle.program("llama-server")
    assert program is not None
    chat = {"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": _TOKENS}
    order = {
        "argv": [
            *runner.prefix, str(program), "--model", str(bundle.model),
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
    ran = bundle.execute_probe(runner, order)
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
