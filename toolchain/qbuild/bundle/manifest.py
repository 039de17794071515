"""``manifest.json``: what is in a bundle, and from what it was made.

It lists every file of the zip but itself. ``verify`` reads it as a claim to be checked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from qbuild import bounds
from qbuild.binary.names import check_name, collisions
from qbuild.binary.zip_reader import ZipView
from qbuild.bundle.facts import BundleFacts, canonical_json
from qbuild.errors import ArchiveError, VerifyError
from qbuild.recipe.variants import extensions_of

FILE_NAME: Final = "manifest.json"
SCHEMA: Final = 1

Role = Literal[
    "executable", "library", "backend", "licence", "script", "doc", "provenance", "sbom", "data"
]
ROLES: Final[frozenset[str]] = frozenset(get_args(Role))

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class ManifestFile:
    """One file of the bundle."""

    path: str  # name inside the zip
    size: int  # bytes when unpacked
    sha256: str  # of the content, in hex
    role: Role  # what it is for
    # files that load it: by import table, or at run time for a backend
    needed_by: tuple[str, ...] = ()
    executable: bool = False  # whether it is unpacked as a program on Unix systems


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole manifest; field names are the keys of the JSON file."""

    schema: int
    name: str
    recipe: str
    version: str
    target: Mapping[str, Any]
    source: Mapping[str, Any]
    patched: Mapping[str, str]
    series: tuple[Mapping[str, Any], ...]
    toolchain: Mapping[str, Any]
    features: Mapping[str, Any]
    files: tuple[ManifestFile, ...]

    def to_json(self) -> bytes:
        """Return the file's bytes: a pure function of the content."""
        return canonical_json(dataclasses.asdict(self))

    def file(self, path: str) -> ManifestFile | None:
        """Return what is said about a file, or ``None``."""
        return next((entry for entry in self.files if entry.path == path), None)

    def by_role(self, *roles: Role) -> tuple[ManifestFile, ...]:
        """Return the files with one of these roles, sorted by path."""
        return tuple(entry for entry in self.files if entry.role in roles)


def make_manifest(facts: BundleFacts, files: tuple[ManifestFile, ...]) -> Manifest:
    """Return the manifest of a bundle with these files (any order)."""
    target = facts.recipe.target
    source = facts.source
    described: dict[str, Any] = {
        "os": target.os,
        "arch": target.arch,
        "cpu": target.cpu,
        "isa": sorted(target.isa),
    }
    if not facts.windows:
        described["glibc"] = target.glibc
    if target.variants:
        described["variants"] = extensions_of(entry.path for entry in files)
    return Manifest(
        schema=SCHEMA,
        name=facts.name,
        recipe=facts.recipe.name,
        version=source.label,
        target=described,
        source=dataclasses.asdict(source),
        patched={"commit": facts.patched_commit, "tree": facts.patched_tree},
        series=tuple(dataclasses.asdict(series) for series in facts.series),
        toolchain=facts.toolchain.described(),
        features={
            "linkage": facts.recipe.build.linkage,
            "web_ui": facts.ui,
            "https": facts.https,
            "gpu_validated": facts.gpu_validated,
            **({"cuda": facts.cuda.toolkit} if facts.cuda else {}),
            **({"cuda_details": dataclasses.asdict(facts.cuda)} if facts.cuda else {}),
        },
        files=tuple(sorted(files, key=lambda entry: entry.path)),
    )


def _bad(what: str, key: str) -> VerifyError:
    return VerifyError(
        f"{FILE_NAME}: {what}",
        where=f"{FILE_NAME}: {key}",
        fix="the bundle was altered or not made by qbuild; get it again",
    )


def _field(data: Mapping[str, Any], key: str, kind: type | tuple[type, ...], at: str = "") -> Any:
    path = f"{at}.{key}" if at else key
    if key not in data:
        raise _bad(f"`{path}` is missing", path)
    value = data[key]
    # bool is an int to Python, and never meant here.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise _bad(f"`{path}` has the wrong type ({type(value).__name__})", path)
    return value


def _file(data: Any, at: str) -> ManifestFile:
    if not isinstance(data, dict):
        raise _bad(f"`{at}` is not an object", at)
    path = _field(data, "path", str, at)
    try:
        check_name(path, archive=FILE_NAME)
    except ArchiveError as error:
        raise _bad(f"`{at}.path`: {error.what}", f"{at}.path") from error
    sha256 = _field(data, "sha256", str, at)
    if not _SHA256.fullmatch(sha256):
        raise _bad(f"`{at}.sha256` of {path} is not a sha256", f"{at}.sha256")
    size = _field(data, "size", int, at)
    if size < 0:
        raise _bad(f"`{at}.size` of {path} is negative", f"{at}.size")
    role = _field(data, "role", str, at)
    if role not in ROLES:
        raise _bad(f"`{at}.role` of {path} is unknown: {role!r}", f"{at}.role")
    needed_by = _field(data, "needed_by", list, at)
    if not all(isinstance(name, str) for name in needed_by):
        raise _bad(f"`{at}.needed_by` of {path} is not a list of names", f"{at}.needed_by")
    return ManifestFile(
        path=path,
        size=size,
        sha256=sha256,
        role=cast("Role", role),
        needed_by=tuple(needed_by),
        executable=_field(data, "executable", bool, at),
    )


def load_manifest(data: bytes) -> Manifest:
    """Parse a ``manifest.json`` and check its form.

    Raises:
        VerifyError: It is no JSON, of another schema version, or a key is missing, of the wrong
            type or out of range; the key is named.
    """
    try:
        raw = bounds.load_json(data.decode())
    except ValueError as error:
        raise _bad(f"it is not JSON ({error})", "its text") from error
    if not isinstance(raw, dict):
        raise _bad("it is not an object", "its text")
    schema = _field(raw, "schema", int)
    if schema != SCHEMA:
        raise VerifyError(
            f"{FILE_NAME} has schema {schema}; this qbuild reads {SCHEMA}",
            where=f"{FILE_NAME}: schema",
            fix="use the qbuild that made the bundle, or a newer one",
        )
    source = _field(raw, "source", dict)
    patched = _field(raw, "patched", dict)
    for at, table in (("source", source), ("patched", patched)):
        for key in ("commit", "tree"):
            if not _OBJECT_ID.fullmatch(_field(table, key, str, at)):
                raise _bad(f"`{at}.{key}` is not a git object id", f"{at}.{key}")
    target = _field(raw, "target", dict)
    for key in ("os", "arch", "cpu"):
        _field(target, key, str, "target")
    files = tuple(
        _file(entry, f"files[{index}]") for index, entry in enumerate(_field(raw, "files", list))
    )
    paths = [entry.path for entry in files]
    if clash := collisions(paths):
        raise _bad(f"`files` names {clash[0]!r} and {clash[1]!r}, which collide", "files")
    known = set(paths)
    for entry in files:
        for name in entry.needed_by:
            if name not in known:
                raise _bad(f"{entry.path} is needed by {name}, which is not listed", "files")
    series = _field(raw, "series", list)
    if not all(isinstance(entry, dict) for entry in series):
        raise _bad("`series` is not a list of objects", "series")
    return Manifest(
        schema=schema,
        name=_field(raw, "name", str),
        recipe=_field(raw, "recipe", str),
        version=_field(raw, "version", str),
        target=target,
        source=source,
        patched=patched,
        series=tuple(series),
        toolchain=_field(raw, "toolchain", dict),
        features=_field(raw, "features", dict),
        files=files,
    )


def read_manifest(view: ZipView) -> Manifest:
    """Return the manifest of an open bundle.

    Raises:
        VerifyError: There is none, or it is malformed.
        ArchiveError: Its data in the zip is damaged.
    """
    if FILE_NAME not in view.names:
        raise VerifyError(
            f"{view.archive} holds no {FILE_NAME}",
            where=view.archive,
            fix="only bundles made by qbuild can be verified",
        )
    return load_manifest(view.read(FILE_NAME, most=bounds.JSON))


def compare(manifest: Manifest, view: ZipView) -> tuple[str, ...]:
    """Return how a zip differs from its manifest, one sentence per difference; none: it matches.

    Raises:
        ArchiveError: A member's data is damaged.
    """
    problems = []
    listed = {entry.path: entry for entry in manifest.files}
    present = set(view.names) - {FILE_NAME}
    problems += [f"{name} is missing from the zip" for name in sorted(listed.keys() - present)]
    problems += [f"{name} is not in the manifest" for name in sorted(present - listed.keys())]
    for name in sorted(present & listed.keys()):
        entry, member = listed[name], view.member(name)
        if member.executable != entry.executable:
            problems.append(f"{name} has other permissions than the manifest says")
        if member.size != entry.size:
            problems.append(f"{name} has {member.size} bytes, the manifest says {entry.size}")
            continue
        digest = hashlib.sha256()
        for piece in view.chunks(name):
            digest.update(piece)
        if digest.hexdigest() != entry.sha256:
            problems.append(
                f"{name} has sha256 {digest.hexdigest()}, the manifest says {entry.sha256}"
            )
    return tuple(problems)
