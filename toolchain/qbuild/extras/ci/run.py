"""Run a pipeline's job on this machine: the same steps in the same order, from a clean clone.

What a service would do is done with plain means: the checkout is a clone of HEAD, Python a virtual
environment, an artifact a folder. Steps that would touch more than the job's own folder (system
packages, a service's issues and releases) are left out and named.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbuild import process
from qbuild.errors import PipelineError, UsageError
from qbuild.extras.ci.jobs import Job, Step, Workflow, table
from qbuild.recipe.convert import suggest
from qbuild.source.gitenv import run_git
from qbuild.source.gitless import have_git

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
        return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda it: self.row[it[1]], template)

    def variables(self, said: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of a job or step; those that only a service knows are left out."""
        filled = {name: self.fill(value) for name, value in said.get("env", {}).items()}
        return {name: value for name, value in filled.items() if "${{" not in value}

    def given(self, step: Step) -> dict[str, str]:
        """Return what is given to an action."""
        return {name: self.fill(str(value)) for name, value in step.get("with", {}).items()}


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


def describe(step: Step, instance: Instance) -> tuple[str, str]:
    """Return what a step is called, and why it is left out here (empty: it is done)."""
    if "run" in step:
        return step["name"], step.get("x-left-out", "")
    action = table()["actions"][step["uses"]]
    title = action.get("here", "").format_map(instance.given(step)) or step["name"]
    return title, action.get("left-out", "")


def lines(instance: Instance) -> Iterator[str]:
    """Yield what running a job would do, for people."""
    yield f"== {instance.name} ({instance.workflow}, {instance.fill(instance.job.said['runs-on'])})"
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
    if "x-scratch" in instance.job.said:
        say("from scratch: its store is a new one, and goes with it")
    here = _Here(instance=instance, root=root, work=work, artifacts=artifacts, say=say)
    failed: PipelineError | None = None
    for number, step in enumerate(instance.job.steps, start=1):
        title, why_not = describe(step, instance)
        head = f"[{number}/{len(instance.job.steps)}] {title}"
        if why_not:
            say(f"{head}: left out, {why_not}")
        elif not failed or step.get("if") == "always()":
            say(head)
            try:
                here.do(step, title)
            except PipelineError as error:
                failed = failed or error
    if failed:
        raise failed


@dataclass(frozen=True, kw_only=True)
class _Here:
    instance: Instance
    root: Path
    work: Path
    artifacts: Path
    say: Say

    @property
    def clone(self) -> Path:
        return self.work / "clone"

    @property
    def folder(self) -> Path:
        """Where steps run: the clone, once there is one."""
        return self.clone if self.clone.is_dir() else self.work

    def do(self, step: Step, title: str) -> None:
        given = self.instance.given(step)
        match step.get("uses"):
            case None:
                script = self.work / "step.sh"
                script.write_text(step["run"], encoding="utf-8", newline="\n")
                self._command([*_BASH, str(script)], title, self.instance.variables(step))
            case "actions/checkout":
                words = ["clone", "-q", "--no-local", str(self.root), str(self.clone)]
                self._command(["git", *words], title)
            case "actions/setup-python":
                self._command([sys.executable, "-m", "venv", str(self.work / "venv")], title)
            case "actions/upload-artifact":
                self._hand_over(given["path"], given["name"], title)
            case "actions/download-artifact":
                self._fetch(given["pattern"], given["path"], title)

    def _failed(self, title: str, what: str, where: Path, fix: str) -> PipelineError:
        said = f"job {self.instance.name}: step `{title}` {what}"
        return PipelineError(said, where=str(where), fix=fix)

    def _command(self, command: list[str], title: str, env: Mapping[str, str] = {}) -> None:
        if shutil.which(command[0]) is None:
            fix = "install it (Windows: Git for Windows brings git and bash)"
            raise self._failed(title, f"needs `{command[0]}`", Path("PATH"), fix)
        venv = self.work / "venv"
        programs = Path(sysconfig.get_path("scripts", "venv", {"base": str(venv)}))
        # a job that must not find results of an earlier one has a store of its own
        scratch = "x-scratch" in self.instance.job.said
        status = process.run_logged(
            command,
            cwd=self.folder,
            env={
                **os.environ,
                **self.instance.variables(self.instance.job.said),
                **({"QBUILD_STORE": str(self.work / "store")} if scratch else {}),
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
            what, fix = f"ended with status {status}", "its output stands above"
            raise self._failed(title, what, self.clone, fix)

    def _hand_over(self, path: str, artifact: str, title: str) -> None:
        folder = self.artifacts / artifact
        pattern = f"{path}*" if path.endswith("/") else path
        found = sorted(each for each in self.clone.glob(pattern) if each.is_file())
        if not found:
            fix = "an earlier step should have made it"
            raise self._failed(title, "found no file", self.clone / path, fix)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for each in found:
            shutil.copy2(each, folder / each.name)
        self.say(f"    {len(found)} files in {folder}")

    def _fetch(self, pattern: str, path: str, title: str) -> None:
        folders = sorted(self.artifacts.glob(pattern))
        if not folders:
            needs = ", ".join(self.instance.job.said.get("needs", ()))
            fix = f"run the jobs it needs first: {needs}"
            raise self._failed(title, "found no such artifact", self.artifacts, fix)
        target = self.folder / path
        for folder in folders:
            shutil.copytree(folder, target, dirs_exist_ok=True)


def uncommitted(root: Path) -> bool:
    """Tell whether the checkout holds changes that a clone of HEAD will lack."""
    return have_git() and bool(run_git(["status", "--porcelain"], root).out)
