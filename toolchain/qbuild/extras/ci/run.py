"""Run a pipeline's job on this machine: the same steps in the same order, from a clean clone.

What a service would do is done with plain means: the checkout is a clone of HEAD, Python a virtual
environment, an artifact a folder. Steps that would touch more than the job's own folder (system
packages, a service's issues and releases) are left out and named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from qbuild import process
from qbuild.errors import PipelineError, UsageError
from qbuild.extras.ci.pipeline import (
    Attest,
    Checkout,
    Download,
    Job,
    Keep,
    Restore,
    Run,
    SetUpPython,
    Step,
    Upload,
    Workflow,
)
from qbuild.recipe.convert import suggest

Say = Callable[[str], None]

_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""How GitHub runs ``shell: bash``."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One job with one row of its matrix."""

    name: str
    workflow: str
    job: Job
    row: Mapping[str, str]

    def fill(self, template: str) -> str:
        """Return a template with this row's values."""
        for key, value in self.row.items():
            template = template.replace(f"{{{key}}}", value)
        return template

    @property
    def env(self) -> dict[str, str]:
        """Return the variables that the job's scripts read."""
        names = {"recipe": "RECIPE", "os": "TARGET_OS"}
        return {names[key]: value for key, value in self.row.items() if key in names}


def instances(workflows: tuple[Workflow, ...]) -> tuple[Instance, ...]:
    """Return every job with every row, named e.g. ``build-avx2-linux``."""
    found: list[Instance] = []
    for workflow in workflows:
        for job in workflow.jobs:
            for row in job.rows or ({},):
                words = [job.id, *(row[key] for key in ("half", "recipe", "os") if key in row)]
                name = "-".join(words)
                if any(each.name == name for each in found):  # `native` is in two workflows
                    name = f"{workflow.id}-{name}"
                found.append(Instance(name=name, workflow=workflow.id, job=job, row=row))
    return tuple(found)


def find(name: str, known: tuple[Instance, ...]) -> Instance:
    """Return the job of that name.

    Raises:
        UsageError: There is none.
    """
    names = [each.name for each in known]
    if name not in names:
        raise UsageError(
            f"there is no job `{name}`",
            where="the pipelines made from the recipes",
            fix=suggest(name, names) or "`qbuild ci run` lists them",
        )
    return known[names.index(name)]


def describe(step: Step, instance: Instance) -> tuple[str, str]:
    """Return what a step is called, and why it is left out here (empty: it is done)."""
    match step:
        case Run():
            return step.name, step.runner_only
        case Checkout():
            return "Clone HEAD", ""
        case SetUpPython():
            return "Python in a virtual environment", ""
        case Restore():
            return f"Restore: {step.name.lower()}", "the store of this machine serves as it is"
        case Keep():
            return f"Keep: {step.name.lower()}", "the store of this machine keeps everything"
        case Upload():
            return f"Hand over {step.path} as {instance.fill(step.artifact)}", ""
        case Download():
            return f"Fetch {step.pattern} into {step.path}", ""
        case Attest():
            return f"Sign {step.path}", "it signs with the service's identity"


def run(instance: Instance, *, root: Path, work: Path, artifacts: Path, say: Say) -> None:
    """Do a job's steps.

    Args:
        instance: What to run.
        root: The checkout whose HEAD is cloned.
        work: Empty folder for the clone and the virtual environment.
        artifacts: Folder in which jobs find what others handed over.
        say: Called with each line for people.

    Raises:
        PipelineError: A step failed, or the job cannot run here.
        Stopped: Ctrl-C, SIGTERM or SIGHUP.
    """
    if instance.job.local:
        raise PipelineError(
            f"job {instance.name} cannot run here: {instance.job.local}",
            fix="look at its steps with --dry-run",
        )
    if instance.job.scratch:
        say("from scratch: its store is a new one, and goes with it")
    local = _Local(instance=instance, root=root, work=work, artifacts=artifacts, say=say)
    failed: PipelineError | None = None
    for number, step in enumerate(instance.job.steps, start=1):
        title, why_not = describe(step, instance)
        head = f"[{number}/{len(instance.job.steps)}] {title}"
        if why_not:
            say(f"{head}: left out, {why_not}")
            continue
        always = isinstance(step, Upload | Run) and step.when == "always"
        if failed and not always:
            continue
        say(head)
        try:
            local.do(step, title)
        except PipelineError as error:
            failed = failed or error
    if failed:
        raise failed


@dataclass(frozen=True, kw_only=True)
class _Local:
    instance: Instance
    root: Path
    work: Path
    artifacts: Path
    say: Say

    @property
    def store(self) -> dict[str, str]:
        """Return the store of a job that must not find results of an earlier one."""
        return {"QBUILD_STORE": str(self.work / "store")} if self.instance.job.scratch else {}

    @property
    def clone(self) -> Path:
        return self.work / "clone"

    def do(self, step: Step, title: str) -> None:
        match step:
            case Run():
                self._script(step, title)
            case Checkout():
                self._command(["git", "clone", "-q", "--no-local", str(self.root), "clone"], title)
            case SetUpPython():
                self._command([sys.executable, "-m", "venv", str(self.work / "venv")], title)
            case Upload():
                self._upload(step, title)
            case Download():
                self._download(step, title)
            case _:  # pragma: no cover - describe() leaves the others out
                raise AssertionError(step)

    def _script(self, step: Run, title: str) -> None:
        folder = self.clone if self.clone.is_dir() else self.work
        path = self.work / "step.sh"
        path.write_text(step.script, encoding="utf-8")
        given = {key: self.instance.fill(value) for key, value in step.env.items()}
        self._command([*_BASH, str(path)], title, cwd=folder, env=given)

    def _command(
        self,
        command: list[str],
        title: str,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] = {},
    ) -> None:
        venv = self.work / "venv"
        programs = venv / ("Scripts" if os.name == "nt" else "bin")
        log = self.work / "job.log"
        status = process.run_logged(
            command,
            cwd=cwd or self.work,
            env={
                **os.environ,
                **self.instance.env,
                **self.store,
                **env,
                "CI": "true",
                "VIRTUAL_ENV": str(venv),
                "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            },
            log=log,
            on_line=lambda line: self.say(f"    {line}"),
            cut_network=False,
        )
        if status != 0:
            raise PipelineError(
                f"job {self.instance.name}: step `{title}` ended with status {status}",
                where=str(self.clone),
                fix="its output stands above",
            )

    def _upload(self, step: Upload, title: str) -> None:
        folder = self.artifacts / self.instance.fill(step.artifact)
        pattern = f"{step.path}*" if step.path.endswith("/") else step.path
        found = sorted(path for path in self.clone.glob(pattern) if path.is_file())
        if not found:
            raise PipelineError(
                f"job {self.instance.name}: step `{title}` found no file",
                where=str(self.clone / step.path),
                fix="an earlier step should have made it",
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in found:
            shutil.copy2(path, folder / path.name)
        self.say(f"    {len(found)} files in {folder}")

    def _download(self, step: Download, title: str) -> None:
        there = sorted(self.artifacts.iterdir()) if self.artifacts.is_dir() else []
        folders = [each for each in there if fnmatch(each.name, step.pattern)]
        if not folders:
            raise PipelineError(
                f"job {self.instance.name}: step `{title}` found no such artifact",
                where=str(self.artifacts),
                fix=f"run the jobs it needs first: {', '.join(self.instance.job.needs)}",
            )
        base = self.clone if self.clone.is_dir() else self.work
        target = base / step.path
        target.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            for path in folder.iterdir():
                shutil.copy2(path, target / path.name)


def uncommitted(root: Path) -> bool:
    """Tell whether the checkout holds changes that a clone of HEAD will lack."""
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False
    )
    return bool(done.stdout.strip())
