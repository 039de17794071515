"""The jobs of ``toolchain/data/pipelines.yml``, with the recipes' builds filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from qbuild import resources
from qbuild.extras.ci.matrix import Entry

Said = Mapping[str, Any]
"""Everything that is written about a thing, in GitHub's words and (``x-``) in ours."""

Row = Mapping[str, str]  # one line of a job's matrix: name → value


@dataclass(frozen=True, kw_only=True)
class Job:
    """Steps on one machine, once per row of the matrix; one empty row: it runs once."""

    id: str
    said: Said
    rows: tuple[Row, ...] = ({},)

    @property
    def steps(self) -> Sequence[Said]:
        """What it does, in order."""
        steps: Sequence[Said] = self.said["steps"]
        return steps

    @property
    def local(self) -> str:
        """Why it cannot run on this machine, if so."""
        return str(self.said.get("x-local", ""))

    @property
    def note(self) -> str:
        """What a reader must know about it."""
        return str(self.said.get("x-note", ""))

    def uses(self, action: str) -> bool:
        """Tell whether one of its steps is this action."""
        return any(step.get("uses") == action for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """Jobs with a common trigger; ``said`` is as for a job, without the jobs."""

    id: str
    said: Said
    jobs: tuple[Job, ...]


def fill(template: str, row: Row) -> str:
    """Return a text of the table with a row's values in it."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda it: row[it[1]], template)


@cache
def table() -> Said:
    """Return the whole file."""
    path = resources.data_dir() / "pipelines.yml"
    found: Said = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def workflows(entries: Sequence[Entry]) -> tuple[Workflow, ...]:
    """Return all workflows for these builds."""
    return tuple(
        Workflow(
            id=name,
            said={key: value for key, value in said.items() if key != "jobs"},
            jobs=tuple(_jobs(said["jobs"], entries)),
        )
        for name, said in table()["workflows"].items()
    )


def _jobs(said: Said, entries: Sequence[Entry]) -> Iterator[Job]:
    """Yield a workflow's jobs, without those that would have nothing to build."""
    rows = {name: tuple(_rows(job, entries)) for name, job in said.items()}
    for name, job in said.items():
        if "needs" in job:
            job = {**job, "needs": [each for each in job["needs"] if rows[each]]}
        if rows[name]:
            yield Job(id=name, said=job, rows=rows[name])


def _rows(job: Said, entries: Sequence[Entry]) -> Iterator[Row]:
    if "x-rows" not in job:
        yield {}
        return
    for entry in entries:
        if entry["native"] == (job["x-rows"] == "native"):
            row = {"recipe": entry["recipe"], "os": entry["os"], "runner": entry["runner"]}
            for each in job.get("x-each", [{}]):
                yield {**row, **each}
