"""Run pip for one pinned file, so that nothing but the pin decides what comes back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from qbuild.console import Task
from qbuild.errors import OriginError
from qbuild.recipe.lock import FilePin, WheelPin
from qbuild.source.causes import Cause, cause_of, page_instead

_TAG = re.compile(r"(?P<python>[a-z0-9.]+)-(?P<abi>[A-Za-z0-9_.]+)-(?P<platform>[A-Za-z0-9_.]+)")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
# pip reads the metadata of an sdist before it saves it, by running the sdist's build backend.
# Only this backend occurs among the pins; the stand-in below answers in its place, so that
# nothing of the sdist is imported or run (nor its build requirements fetched).
_BACKEND = "scikit_build_core"
_STAND_IN = '''\
"""Stands in for the sdist's build backend: gives pip the metadata the lockfile knows."""
import os
import pathlib


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    project = os.environ["QBUILD_SDIST_PROJECT"]
    version = os.environ["QBUILD_SDIST_VERSION"]
    folder = pathlib.Path(metadata_directory, f"{project.replace('-', '_')}-{version}.dist-info")
    folder.mkdir()
    text = f"Metadata-Version: 2.1\\nName: {project}\\nVersion: {version}\\n"
    folder.joinpath("METADATA").write_text(text, encoding="utf-8")
    return folder.name


def build_wheel(*args, **kwargs):
    raise SystemExit("qbuild never builds an sdist")


build_sdist = build_wheel
'''


def platform_options(pin: WheelPin) -> list[str]:
    """Return the options that make pip look for this host's wheel whatever host pip runs on."""
    parts = pin.filename.removesuffix(".whl").split("-")
    match = _TAG.fullmatch("-".join(parts[-3:]))
    if match is None:
        raise OriginError(f"not a wheel's file name: {pin.filename}", where="the lockfile")
    options = []
    for tag in match["platform"].split("."):
        if tag != "any":
            options += ["--platform", tag]
    if number := re.fullmatch(r"cp(\d)(\d+)", match["python"]):
        options += ["--implementation", "cp", "--python-version", ".".join(number.groups())]
        options += ["--abi", match["abi"]]
    return options


def pip_for(
    command: Sequence[str], pin: FilePin | WheelPin, scratch: Path, task: Task | None
) -> tuple[int, str]:
    """Run pip for one pinned file, its hash required."""
    request = scratch / "request.txt"
    line = f"{pin.project}=={pin.version} --hash=sha256:{pin.sha256}\n"
    request.write_text(line, encoding="utf-8", newline="\n")
    env = environment(scratch)
    if isinstance(pin, FilePin):
        folder = scratch / "stand-in"
        package = folder / _BACKEND
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("", encoding="utf-8", newline="\n")
        (package / "build.py").write_text(_STAND_IN, encoding="utf-8", newline="\n")
        search = [str(folder), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(search)
        env["QBUILD_SDIST_PROJECT"] = pin.project
        env["QBUILD_SDIST_VERSION"] = pin.version
    return run_pip([*command, "--require-hashes", "-r", str(request)], env, task)


def environment(scratch: Path) -> dict[str, str]:
    """Return pip's environment: the user's settings, less those that would change the answer."""
    nothing = scratch / "no-constraints.txt"
    nothing.write_text("", encoding="utf-8", newline="\n")
    env = {key: value for key, value in os.environ.items() if key != "PIP_REQUIRE_VIRTUALENV"}
    # An empty value would be ignored in favour of the configuration file's; an empty file is not.
    # As a URL, because pip splits the variable at blanks.
    env["PIP_CONSTRAINT"] = nothing.absolute().as_uri()
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env["PIP_NO_INPUT"] = "1"
    env["PIP_NO_COLOR"] = "1"
    env["PIP_RETRIES"] = "0"  # pip would try again what cannot pass, too; qbuild knows which can
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONIOENCODING"] = "utf-8"
    return env


def run_pip(command: Sequence[str], env: dict[str, str], task: Task | None) -> tuple[int, str]:
    """Run pip, feed its progress to the task, and return status and output."""
    bar = "raw" if task is not None and _pip_version() >= (24, 1) else "off"
    verb, *rest = command
    # -vv: only then does pip say why a page of the index could not be had
    words = [sys.executable, "-m", "pip", verb, "-vv", "--progress-bar", bar, *rest]
    lines: list[str] = []
    with subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if (match := _PROGRESS.search(line)) and task is not None:
                    task.update(done=int(match[1]))
                elif not match:
                    lines.append(line)
        except BaseException:
            process.terminate()
            raise
    return process.returncode, "".join(lines)


def _pip_version() -> tuple[int, ...]:
    from importlib import metadata

    numbers = re.findall(r"\d+", metadata.version("pip"))
    return tuple(int(number) for number in numbers[:2])


_LOCATION = re.compile(r"^\s*\* (https?://\S+)\s*$", re.MULTILINE)
_NOTHING = re.compile(r"No matching distribution found|\(from versions: none\)")


def index_of(output: str) -> str:
    """Return the address that pip asked, without a password; empty: it did not say."""
    found = _LOCATION.search(output)
    return re.sub(r"(?<=://)[^/@\s]*@", "", found[1]) if found else ""


def why_pip_failed(output: str) -> Cause | None:
    """Return the cause in pip's words, or in the page that the index gave; nothing if unknown.

    A login page of a hotel reads to pip like an index without files, and pip says only that
    there is none: then the page itself is looked at.
    """
    cause = cause_of(output)
    if cause is not None and cause.id != "wheel-not-found":
        return cause
    found = _LOCATION.search(output)
    return (page_instead(found[1]) if found and _NOTHING.search(output) else None) or cause


def last_error(output: str) -> str:
    """Return the line of pip's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("ERROR:")] or lines
    return told[-1].removeprefix("ERROR: ")[:300] if told else "pip said nothing"
