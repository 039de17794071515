"""The difference between two zips: what they were made from, which files differ, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from qbuild import bounds
from qbuild.binary.zip_reader import ZipView, open_zip
from qbuild.bundle.manifest import Manifest, read_manifest
from qbuild.bundle.provenance import FILE_NAME as PROVENANCE
from qbuild.errors import QbuildError
from qbuild.extras.report.data import Against, Change, FileChange
from qbuild.verify.compare import compare_zips
from qbuild.verify.papers import dig

_FILES: Final = 200
_PLACES: Final = 80
_ABSENT: Final = "–"


def against(path: Path, other: Path) -> Against:
    """Return in what a zip differs from another one.

    Raises:
        ArchiveError: One of them is damaged.
    """
    result = compare_zips(path, other)
    with open_zip(path) as one, open_zip(other) as two:
        changed = {each.member for each in result.differences}
        names = sorted({*one.names, *two.names})
        rows = [
            FileChange(path=name, here=_size(one, name), there=_size(two, name))
            for name in names
            if name in changed
        ]
        made = tuple(_made(_claims(one), _claims(two)))
    rows.sort(key=lambda each: (-abs((each.here or 0) - (each.there or 0)), each.path))
    shown = [each for each in result.differences if each.section != "whole file"]
    return Against(
        name=other.name,
        sha256=result.sha256[1],
        identical=result.identical,
        made=made,
        files=tuple(rows[:_FILES]),
        same=len(names) - len(rows),
        left_out=max(0, len(rows) - _FILES),
        places=tuple(each.line() for each in shown[:_PLACES]),
    )


def _size(view: ZipView, name: str) -> int | None:
    return view.member(name).size if name in view.names else None


def _claims(view: ZipView) -> dict[str, str]:
    """Return what a bundle says it was made from, as flat text; nothing for a zip of others."""
    try:
        manifest = read_manifest(view)
    except QbuildError:
        return {}
    try:
        statement = bounds.load_json(view.read(PROVENANCE, most=bounds.JSON))
    except (QbuildError, ValueError):
        statement = None
    inner = ("predicate", "buildDefinition", "internalParameters")
    claims = dict(_flat("", _manifest_claims(manifest)))
    claims |= _flat("cmake", dig(statement, *inner, "cmake"))
    wheels = dig(statement, *inner, "lock", "wheels")
    for wheel in wheels if isinstance(wheels, list) else ():
        claims[f"wheel {dig(wheel, 'project')}"] = (
            f"{dig(wheel, 'version')} ({str(dig(wheel, 'sha256'))[:12]})"
        )
    return claims


def _manifest_claims(manifest: Manifest) -> dict[str, Any]:
    claims: dict[str, Any] = {
        "recipe": manifest.recipe,
        "target": manifest.target,
        "source commit": manifest.source.get("commit"),
        "patched tree": manifest.patched.get("tree"),
        "toolchain": {
            "name": manifest.toolchain.get("name"),
            "version": manifest.toolchain.get("version"),
        },
        "features": manifest.features,
    }
    for series in manifest.series:
        patches = series.get("patches")
        for patch in patches if isinstance(patches, list) else ():
            label = f"patch {series.get('name')}/{dig(patch, 'file')}"
            claims[label] = str(dig(patch, "sha256"))[:12]
    return claims


def _flat(prefix: str, data: object) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) for everything in nested objects."""
    if isinstance(data, Mapping):
        for key in sorted(data, key=str):
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), data[key])
    elif isinstance(data, bool):
        yield prefix, "on" if data else "off"
    elif isinstance(data, list):
        yield prefix, ", ".join(str(each) for each in data) or "none"
    elif data is not None:
        yield prefix, str(data)


def _made(here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted({*here, *there}):
        one, two = here.get(name, _ABSENT), there.get(name, _ABSENT)
        if one != two:
            yield Change(what=name, here=one, there=two)
