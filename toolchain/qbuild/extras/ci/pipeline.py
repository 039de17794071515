"""What a pipeline is made of, in words of no particular service.

Text that differs from row to row of a job's matrix is a template: ``{recipe}``, ``{os}``,
``{runner}`` and ``{half}`` stand for the row's values. Scripts get them as the environment
variables ``RECIPE`` and ``TARGET_OS`` instead, so that no value is ever pasted into a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

NATIVE_NOTE = "never run by qbuild's authors"
"""Stands in the title of every job that needs a real Windows, which nobody here had."""

When = Literal["", "always", "failed", "not-pull-request", "push"]
"""When a step or job runs; empty: whenever the one before it succeeded."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One build: a recipe for one operating system.

    Args:
        recipe: Name of the recipe.
        os: Operating system of the bundle.
        toolchain: The recipe's toolchain.
        runner: Machine that builds it, as GitHub names its images.
        native: Whether it can only be built on Windows itself (MSVC, nvcc for Windows).
        summary: The recipe's own line.
    """

    recipe: str
    os: str
    toolchain: str
    runner: str
    native: bool
    summary: str

    @property
    def row(self) -> dict[str, str]:
        """Return the values that templates are filled with."""
        return {"recipe": self.recipe, "os": self.os, "runner": self.runner}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run a script: bash (``-eo pipefail``) unless ``windows_shell`` names another one.

    Args:
        name: What it does, for people.
        script: The script; it may use ``$RECIPE`` and ``$TARGET_OS``.
        env: Further variables; values are templates.
        runner_only: Why it is left out where it would touch a person's machine or account.
        when: When it runs.
        windows_shell: A shell of a Windows runner, e.g. ``pwsh`` or ``cmd``.
    """

    name: str
    script: str
    env: Mapping[str, str] = field(default_factory=dict)
    runner_only: str = ""
    when: When = ""
    windows_shell: str = ""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """Get the repository, without leaving a token in it."""


@dataclass(frozen=True, kw_only=True)
class SetUpPython:
    """Put a Python of this version first on PATH."""

    version: str = "3.11"


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Get files that an earlier run kept.

    Args:
        name: What it is.
        paths: Folders below the user's cache folder of qbuild.
        key: Template of the exact key.
        prefix: Template of what a key that will do as well begins with.
    """

    name: str
    paths: tuple[str, ...]
    key: str
    prefix: str


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Keep files for later runs; never from a pull request, which could plant something."""

    name: str
    paths: tuple[str, ...]
    key: str


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Hand files to later jobs and to people."""

    artifact: str
    path: str
    days: int = 30
    when: When = ""


@dataclass(frozen=True, kw_only=True)
class Download:
    """Fetch what earlier jobs handed over; ``pattern`` may hold ``*``, all land in one folder."""

    pattern: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Attest:
    """Sign where these files came from (Sigstore, through the service's own identity)."""

    path: str


Step = Run | Checkout | SetUpPython | Restore | Keep | Upload | Download | Attest


@dataclass(frozen=True, kw_only=True)
class Job:
    """Steps on one machine, once per row of the matrix.

    Args:
        id: Its name in files and on the command line.
        title: Its name for people; a template.
        steps: What it does, in order.
        rows: The matrix; empty: the job runs once.
        needs: Jobs that must have succeeded.
        runner: Template of the machine's image.
        permissions: What its token may do beyond reading the repository.
        when: When it runs.
        minutes: When it is stopped.
        note: What a reader must know about it.
        local: Why it cannot run on this machine, if so.
        scratch: Whether it must find nothing that was made before.
    """

    id: str
    title: str
    steps: tuple[Step, ...]
    rows: tuple[Mapping[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    runner: str = "ubuntu-24.04"
    permissions: Mapping[str, str] = field(default_factory=dict)
    when: When = ""
    minutes: int = 30
    note: str = ""
    local: str = ""
    scratch: bool = False


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """Jobs with a common trigger.

    Args:
        id: Name of its file.
        title: Its name for people.
        why: One sentence for the head of the file.
        on: GitHub's trigger table.
        jobs: Its jobs, in order.
    """

    id: str
    title: str
    why: str
    on: Mapping[str, object]
    jobs: tuple[Job, ...]
