"""The pinned inputs of a build, each fetched once into the store: the source and the wheels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbuild import host
from qbuild.console import Reporter
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import SourcePin, WheelPin
from qbuild.source.fetch import fetch_source
from qbuild.source.wheels import check_room, fetch_file, unpack_wheel
from qbuild.steps.ensure import ensure
from qbuild.steps.options import Record
from qbuild.steps.source import source_step
from qbuild.steps.wheel import UNPACKED, wheel_step
from qbuild.store import Entry, Store, remove_tree
from qbuild.toolchains import zig


def fetch_commit(
    pin: SourcePin,
    dest: Path,
    reporter: Reporter,
    *,
    origins: Sequence[str],
    offline: bool,
    record: Record,
) -> dict[str, Any]:
    """Put a pinned commit into ``dest/repo.git`` and return facts.

    Raises:
        OriginError: No origin delivers it, or one delivers something else.
    """
    reporter.say(f"fetch: {pin.name} {pin.commit[:9]} ({_download_size(pin)})")
    fetched = fetch_source(
        pin, dest / "repo.git", origins=origins, offline=offline, reporter=reporter
    )
    record.origin = fetched.origin
    return {"commit": fetched.commit, "tree": fetched.tree}


def unpack_pin(
    wheel: WheelPin, dest: Path, store: Store, reporter: Reporter, *, offline: bool
) -> dict[str, Any]:
    """Fetch a pinned wheel, unpack it into ``dest/files`` and return facts.

    Raises:
        OriginError: No index or mirror delivers the pinned file, or ``offline`` forbids asking.
    """
    check_room([wheel], store.root, unpacked=UNPACKED * wheel.size)
    verb = "look for" if offline else "fetch"
    reporter.say(f"{verb}: {wheel.filename} ({wheel.size / 1e6:.0f} MB)")
    aside = dest.with_name(dest.name + "-file")
    try:
        path = fetch_file(wheel, aside, offline=offline, reporter=reporter)
        unpack_wheel(path, dest / "files")
    finally:
        remove_tree(aside)
    if wheel.project == "ziglang":
        zig.adjust(dest / "files")
    return {"project": wheel.project, "version": wheel.version}


def fetch_pin(
    pin: SourcePin,
    store: Store,
    reporter: Reporter,
    *,
    origins: Sequence[str],
    offline: bool,
) -> Entry:
    """Return the store's repository (``repo.git``) that holds a pinned commit, without a plan.

    Raises:
        OriginError: No origin delivers it, or one delivers something else.
    """
    record = Record()

    def make(dest: Path) -> Mapping[str, Any]:
        return fetch_commit(pin, dest, reporter, origins=origins, offline=offline, record=record)

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
    places: Sequence[str] = (
        f"{name}/data/bin/{file}",
        f"*.data/scripts/{file}",
        f"bin/{file}",
    )
    for pattern in places:
        for path in sorted(files.glob(pattern)):
            return path
    raise ToolchainError(f"the pinned wheel holds no program `{name}`", where=str(files))


def _download_size(pin: SourcePin) -> str:
    size = pin.sdist.size if pin.sdist else 0
    return f"about 40 MB by git, or {size / 1e6:.0f} MB from the sdist" if size else "by git"


BUILD_PROGRAMS: Mapping[str, Callable[[Path], Path]] = {
    "cmake": lambda files: program(files, "cmake"),
    "ninja": lambda files: program(files, "ninja"),
}
"""Project of a pinned wheel → where its program lies among the unpacked files."""
