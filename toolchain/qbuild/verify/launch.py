"""Launch profiles of a finished bundle: are they what the programs take, and do they start?

The recipe in the bundle's provenance says which profiles there are. Reading looks for their options
in the programs' data; running asks ``--help``, lets the programs read the very options and values,
and starts every script with the tiny model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from qbuild.bundle.launch.check import flag_problems
from qbuild.bundle.launch.options import help_problems
from qbuild.bundle.launch.profile import SERVER, offered, runnable, settings
from qbuild.bundle.launch.scripts import config_name, script_names
from qbuild.recipe.convert import KeyProblem, convert
from qbuild.recipe.launch import PHYSICAL, check
from qbuild.recipe.model import Launch
from qbuild.verify import tiny_gguf
from qbuild.verify.runners import Runner
from qbuild.verify.trials import Programs, Step, server_problems
from qbuild.verify.verdict import Check, judge

_TITLE: Final = "launch profiles name options that the programs have"
# These are opened while the options are read, and lie only where the bundle is used.
_OPENED: Final = frozenset(
    {"chat-template-file", "grammar-file", "json-schema-file", "media-path", "lora"}
)
_SMALL: Final = ("--offline", "--no-warmup", "--threads", "2", "--poll", "0", "--temp", "0")
_SECONDS: Final = 60.0


def profiles_in(recipe: Mapping[str, Any]) -> Mapping[str, Launch]:
    """Return the launch profiles of a recipe as a bundle's provenance holds it.

    Raises:
        KeyProblem: They are not what a recipe may hold.
    """
    raw = recipe.get("launch", {})
    profiles = convert(raw, Mapping[str, Launch], ("launch",))
    check(profiles)
    build = recipe.get("build")
    targets = build.get("targets") if isinstance(build, Mapping) else None
    return runnable(profiles, targets if isinstance(targets, list) else ())


def launch_check(
    recipe: Mapping[str, Any], files: Mapping[str, Path], target_os: str
) -> Iterator[Check]:
    """Check by reading; nothing for a bundle whose recipe has no profiles.

    Args:
        recipe: From the provenance.
        files: Name in the zip → unpacked file.
        target_os: ``linux`` or ``windows``.
    """
    try:
        profiles = profiles_in(recipe)
    except KeyProblem as problem:
        key = ".".join(problem.path)
        yield judge("launch", _TITLE, [f"provenance.json: `{key}` {problem.message}"])
        return
    if not profiles:
        return
    problems = []
    for name, profile in profiles.items():
        wanted = list(script_names(name, target_os))
        wanted += [] if profile.starts else [config_name(name)]
        problems += [f"{file}: is missing" for file in wanted if file not in files]
    inside = [path for name, path in files.items() if "/" not in name]
    problems += [
        f"{where}: {what}{f'; {advice}' if advice else ''}"
        for where, what, advice in flag_problems(profiles, inside)
    ]
    yield judge("launch", _TITLE, problems, f"{', '.join(profiles)}: by the programs' data")


def launch_steps(recipe: Mapping[str, Any], target_os: str) -> tuple[Step, ...]:
    """Return what is tried by running: the options, and the scripts themselves.

    Args:
        recipe: From the provenance.
        target_os: ``linux`` or ``windows``.
    """
    try:
        profiles = {n: p for n, p in profiles_in(recipe).items() if not p.starts}
    except KeyProblem:  # reading said so already
        profiles = {}
    if not profiles:
        return ()
    programs = tuple(sorted({profile.tool for profile in profiles.values()}))

    def flags(programs: Programs, runner: Runner) -> list[str]:
        return [
            p for name, profile in profiles.items() for p in _flags(programs, runner, name, profile)
        ]

    def starts(programs: Programs, runner: Runner) -> list[str]:
        return [
            p
            for name, profile in profiles.items()
            for p in _starts(programs, runner, name, profile)
        ]

    return (
        Step(
            kind="flags",
            title="take every option and value of the launch profiles",
            programs=programs,
            find=flags,
            runners=("native", "wine"),  # the same program has the same options on any CPU
        ),
        Step(
            kind="scripts",
            title="come up by their start scripts",
            programs=programs,
            find=starts,
            # A shell under qemu-user would start the programs outside of it.
            runners=("native",) if target_os == "linux" else ("native", "wine"),
        ),
    )


def _flags(programs: Programs, runner: Runner, name: str, profile: Launch) -> Iterator[str]:
    program = programs.find(profile.tool)
    if program is None:
        yield f"launch.{name}: there is no {profile.tool}"
        return
    lines = [setting for setting in settings(profile) if setting.name not in _OPENED]
    ran = programs.execute(runner, [str(program), "--help"])
    if not ran.ok:
        yield f"{program.name} --help {ran.how()}"
        return
    found = help_problems([*lines, *offered(profile)], ran.stdout)
    for setting, wrong in found:
        given = " ".join(setting.words())
        yield f"launch.{name}: {profile.tool} {given}: {wrong}"
    if found:
        return
    words = []
    for setting in lines:
        if setting.name == "slot-save-path":
            setting = replace(setting, value=str(programs.scratch))
        if (setting.name, setting.value) != ("threads", PHYSICAL):
            words += setting.words()
    # The options are read one after the other before the help is printed: a value that the program
    # refuses ends it with an error.
    ran = programs.execute(runner, [str(program), *words, "--help"])
    if not ran.ok:
        yield f"launch.{name}: {profile.tool} refuses its options: it {ran.how()}"


def _starts(programs: Programs, runner: Runner, name: str, profile: Launch) -> Iterator[str]:
    windows = bool(programs.suffix)
    script = programs.root / next(iter(script_names(name, "windows" if windows else "linux")))
    argv = [str(script), str(programs.model)]
    if windows:
        # `call` in front: quotes around the very first word would be taken off by cmd. Wine then
        # makes 1 of any other exit status than 0.
        argv = ["cmd.exe", "/c", "call", _windows_path(script), _windows_path(programs.model)]
    quiet = replace(runner, env={**runner.env, "QBUILD_NO_PAUSE": "1"})
    if profile.tool == SERVER:
        order = {
            "argv": [*runner.prefix, *argv, "--port", "{port}", *_SMALL],
            "ready": "/health",
            "seconds": _SECONDS * runner.slowdown / 2,
            "requests": [
                ["GET", "/health", None],
                ["POST", "/completion", {"prompt": "\n", "n_predict": 32, "temperature": 0}],
                ["POST", "/v1/chat/completions",
                 {"messages": [{"role": "user", "content": "say it"}], "max_tokens": 32}],
            ],
        }  # fmt: skip
        ran = programs.execute_probe(quiet, order)
        if not ran.ok:
            yield f"{script.name} {ran.how()}"
            return
        for problem in server_problems(json.loads(ran.stdout), ran.stderr.splitlines()):
            yield f"{script.name}: {problem}"
        return
    if profile.tool == "llama-cli":
        argv += ["--prompt", "say", "--predict", "32", "--single-turn", "--simple-io"]
        argv += ["--no-show-timings", *_SMALL]
    ran = programs.execute(quiet, argv)
    if not ran.ok:
        yield f"{script.name} {ran.how()}"
    elif profile.tool == "llama-cli" and tiny_gguf.SENTENCE not in ran.stdout:
        yield f"{script.name} does not say {tiny_gguf.SENTENCE!r}"


def _windows_path(path: Path) -> str:
    """Return a path as a Windows program in Wine sees it, or unchanged on Windows."""
    text = str(path)
    return "Z:" + text.replace("/", "\\") if text.startswith("/") else text
