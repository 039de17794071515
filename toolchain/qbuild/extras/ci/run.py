"""Run a pipeline's job on this machine: the same steps in the same order, from a clean clone.

What a service would do is done with plain means: the checkout is a clone of HEAD, Python a virtual
environment, an artifact a folder. Steps that would touch more than the job's own folder (system
packages, a service's issues and releases) are left out and named.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbuild import process
from qbuild.errors import PipelineError, UsageError
from qbuild.extras.ci.jobs import Job, Row, Said, Workflow, fill, table
from qbuild.recipe.convert import suggest
from qbuild.source.gitenv import run_git
from qbuild.source.gitless import have_git

_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # how GitHub runs ``shell: bash``


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One job with one row of its matrix."""

    name: str
    workflow: str
    job: Job
    row: Row

    def variables(self, said: Said) -> dict[str, str]:
        """Return the variables of a job or step; those that only a service knows are left out."""
        filled = {name: fill(value, self.row) for name, value in said.get("env", {}).items()}
        return {name: value for name, value in filled.items() if "${{" not in value}

    def given(self, step: Said) -> dict[str, str]:
        """Return what is given to an action."""
        return {name: fill(str(value), self.row) for name, value in step.get("with", {}).items()}


def instances(workflows: tuple[Workflow, ...]) -> dict[str, Instance]:
    """Return every job with every row by its name, e.g. ``build-avx2-linux``."""
    found: dict[str, Instance] = {}
    for workflow in workflows:
        for job in workflow.jobs:
            for row in job.rows:
                name = "-".join([job.id, *(row[k] for k in ("half", "recipe", "os") if k in row)])
                if name in found:  # `native` is in two workflows
                    name = f"{workflow.id}-{name}"
                found[name] = Instance(name=name, workflow=workflow.id, job=job, row=row)
    return found


def find(name: str, known: Mapping[str, Instance]) -> Instance:
    """Return the job of that name.

    Raises:
        UsageError: There is none.
    """
    if name not in known:
        raise UsageError(
            f"there is no job `{name}`",
            where="the pipelines made from the recipes",
            fix=suggest(name, known) or "`qbuild ci run` lists them",
        )
    return known[name]


def describe(step: Said, instance: Instance) -> tuple[str, str]:
    """Return what a step is called, and why it is left out here (empty: it is done)."""
    if "run" in step:
        return step["name"], step.get("x-left-out", "")
    action = table()["actions"][step["uses"]]
    title = action.get("here", "").format_map(instance.given(step)) or step["name"]
    return title, action.get("left-out", "")


def lines(instance: Instance) -> Iterator[str]:
    """Yield what running a job would do, for people."""
    machine = fill(instance.job.said["runs-on"], instance.row)
    yield f"== {instance.name} ({instance.workflow}, {machine})"
    if instance.job.local:
        yield f"   not here: {instance.job.local}"
    if "x-scratch" in instance.job.said:
        yield "   from scratch: with a new store"
    for name, value in instance.variables(instance.job.said).items():
        yield f"   {name}={value}"
    for step in instance.job.steps:
        title, why_not = describe(step, instance)
        yield f" - {title}" + (f" [left out here: {why_not}]" if why_not else "")
        yield from (f"     $ {line}" for line in step.get("run", "").splitlines())


class _StepError(Exception):
    """A step failed: how, where, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A job on this machine."""

    instance: Instance  # what to run
    root: Path  # the checkout whose HEAD is cloned
    work: Path  # empty folder for the clone and the virtual environment
    artifacts: Path  # folder in which jobs find what others handed over
    say: Callable[[str], None]  # called with each line for people

    def steps(self) -> None:
        """Do the job's steps; after one that failed only those that always run.

        Raises:
            PipelineError: A step failed, or the job cannot run here.
            Stopped: Ctrl-C, SIGTERM or SIGHUP.
        """
        job = self.instance.job
        if job.local:
            raise PipelineError(
                f"job {self.instance.name} cannot run here: {job.local}",
                fix="look at its steps with --dry-run",
            )
        if self._scratch:
            self.say("from scratch: its store is a new one, and goes with it")
        failed: PipelineError | None = None
        for number, step in enumerate(job.steps, start=1):
            title, why_not = describe(step, self.instance)
            head = f"[{number}/{len(job.steps)}] {title}"
            if why_not:
                self.say(f"{head}: left out, {why_not}")
            elif not failed or step.get("if") == "always()":
                self.say(head)
                try:
                    self._step(step)
                except _StepError as error:
                    what, where, fix = error.args
                    said = f"job {self.instance.name}: step `{title}` {what}"
                    failed = failed or PipelineError(said, where=str(where), fix=fix)
        if failed:
            raise failed

    @property
    def _scratch(self) -> bool:
        """Whether it must not find results of an earlier job."""
        return "x-scratch" in self.instance.job.said

    @property
    def _clone(self) -> Path:
        return self.work / "clone"

    def _step(self, step: Said) -> None:
        given = self.instance.given(step)
        match step.get("uses"):
            case None:
                script = self.work / "step.sh"
                script.write_text(step["run"], encoding="utf-8", newline="\n")
                self._command(*_BASH, str(script), env=self.instance.variables(step))
            case "actions/checkout":
                self._command("git", "clone", "-q", "--no-local", str(self.root), str(self._clone))
            case "actions/setup-python":
                self._command(sys.executable, "-m", "venv", str(self.work / "venv"))
            case "actions/upload-artifact":
                self._hand_over(given["path"], given["name"])
            case "actions/download-artifact":
                self._fetch(given["pattern"], given["path"])

    @property
    def _folder(self) -> Path:
        """Where steps run: the clone, once there is one."""
        return self._clone if self._clone.is_dir() else self.work

    def _command(self, *command: str, env: Mapping[str, str] = {}) -> None:
        if shutil.which(command[0]) is None:
            fix = "install it (Windows: Git for Windows brings git and bash)"
            raise _StepError(f"needs `{command[0]}`", "PATH", fix)
        venv = self.work / "venv"
        programs = sysconfig.get_path("scripts", "venv", {"base": str(venv)})
        status = process.run_logged(
            command,
            cwd=self._folder,
            env={
                **os.environ,
                **self.instance.variables(self.instance.job.said),
                **({"QBUILD_STORE": str(self.work / "store")} if self._scratch else {}),
                **env,
                "CI": "true",
                "VIRTUAL_ENV": str(venv),
                "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            },
            log=self.work / "job.log",
            on_line=lambda line: self.say(f"    {line}"),
            cut_network=False,
        )
        if status != 0:
            raise _StepError(f"ended with status {status}", self._clone, "its output stands above")

    def _hand_over(self, path: str, artifact: str) -> None:
        pattern = f"{path}*" if path.endswith("/") else path
        found = sorted(each for each in self._clone.glob(pattern) if each.is_file())
        if not found:
            fix = "an earlier step should have made it"
            raise _StepError("found no file", self._clone / path, fix)
        folder = self.artifacts / artifact
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for each in found:
            shutil.copy2(each, folder / each.name)
        self.say(f"    {len(found)} files in {folder}")

    def _fetch(self, pattern: str, path: str) -> None:
        folders = sorted(self.artifacts.glob(pattern))
        if not folders:
            needs = ", ".join(self.instance.job.said.get("needs", ()))
            fix = f"run the jobs it needs first: {needs}"
            raise _StepError("found no such artifact", self.artifacts, fix)
        for folder in folders:
            shutil.copytree(folder, self._folder / path, dirs_exist_ok=True)


def uncommitted(root: Path) -> bool:
    """Tell whether the checkout holds changes that a clone of HEAD will lack."""
    return have_git() and bool(run_git(["status", "--porcelain"], root).out)
