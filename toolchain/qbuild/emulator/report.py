"""What a run on the emulated GPU leaves: which kernels ran, how often, how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A kernel that ran."""

    unit: str  # its compiled unit
    kernel: str  # its mangled name
    launches: int  # how often it was launched; 0 when the program was ended before it could say
    blocks: int  # blocks of all launches
    threads: int  # threads of all launches
    seconds: float  # time on the CPU, which says nothing about a GPU


def read(text: str) -> tuple[Ran, ...]:
    """Read the report that ``QBUILD_EMULATOR_REPORT`` names; runs that append are added up."""
    found: dict[tuple[str, str], Ran] = {}
    for fields in _rows(text):
        unit, kernel = fields[0], fields[1]
        before = found.get((unit, kernel))
        numbers = [int(field) for field in fields[2:5]]
        if before is not None:
            numbers = [
                before.launches + numbers[0],
                before.blocks + numbers[1],
                before.threads + numbers[2],
            ]
        found[unit, kernel] = Ran(
            unit=unit,
            kernel=kernel,
            launches=numbers[0],
            blocks=numbers[1],
            threads=numbers[2],
            seconds=float(fields[5]) + (before.seconds if before else 0.0),
        )
    return tuple(found.values())


def _rows(text: str) -> Iterable[list[str]]:
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 6:
            yield fields
