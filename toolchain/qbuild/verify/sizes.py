"""What each file of a zip costs, and why it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbuild import bounds
from qbuild.binary.zip_reader import ZipView, open_zip
from qbuild.bundle.manifest import FILE_NAME, Manifest, load_manifest
from qbuild.errors import QbuildError


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One file."""

    name: str  # path in the zip
    size: int  # bytes unpacked
    packed: int  # bytes in the zip
    why: str  # its role and who asks for it, as the manifest says; "" without one


def costs(path: Path) -> tuple[Cost, ...]:
    """Return what each file of a zip costs, the largest part of the zip first.

    Raises:
        ArchiveError: It is no sound zip.
    """
    with open_zip(path) as view:
        manifest = _manifest(view)
        found = []
        for name in view.names:
            member = view.member(name)
            why = _why(manifest, name)
            found.append(Cost(name=name, size=member.size, packed=member.packed, why=why))
    return tuple(sorted(found, key=lambda cost: (-cost.packed, cost.name)))


def _manifest(view: ZipView) -> Manifest | None:
    try:
        return (
            load_manifest(view.read(FILE_NAME, most=bounds.JSON))
            if FILE_NAME in view.names
            else None
        )
    except QbuildError:
        return None  # the check of the manifest says what is wrong with it


def _why(manifest: Manifest | None, name: str) -> str:
    entry = manifest.file(name) if manifest else None
    if entry is None:
        return ""
    users = f", for {', '.join(entry.needed_by)}" if entry.needed_by else ""
    return f"{entry.role}{users}"


def render(found: tuple[Cost, ...]) -> str:
    """Return a table for people; sizes in MB (10⁶ bytes)."""
    total, packed = sum(c.size for c in found), sum(c.packed for c in found)
    width = max((len(cost.name) for cost in found), default=4)
    lines = [f"{'file':<{width}} {'MB':>8} {'zipped':>8} {'of zip':>7}  why"]
    for cost in found:
        share = 100 * cost.packed / max(packed, 1)
        lines.append(
            f"{cost.name:<{width}} {cost.size / 1e6:8.2f} {cost.packed / 1e6:8.2f} "
            f"{share:6.1f}%  {cost.why}"
        )
    lines.append(f"{'all':<{width}} {total / 1e6:8.2f} {packed / 1e6:8.2f} {100.0:6.1f}%")
    return "\n".join(lines)
