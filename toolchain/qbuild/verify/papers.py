"""A bundle's papers against its files: manifest, provenance, SBOM, and what its name promises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from qbuild import bounds
from qbuild.bundle.manifest import FILE_NAME as MANIFEST
from qbuild.bundle.manifest import Manifest
from qbuild.bundle.provenance import FILE_NAME as PROVENANCE
from qbuild.bundle.provenance import PREDICATE, STATEMENT
from qbuild.verify.structure import Unpacked

CUDA_NAME: Final = re.compile(r"(?:^|[-_.])(?:cuda|cu1[0-9]|gtx|rtx|geforce|tesla|sm_?\d\d)", re.I)
"""Words in a zip's name that promise an NVIDIA backend."""


def manifest_problems(manifest: Manifest, unpacked: Unpacked) -> Iterator[str]:
    """Yield how the files differ from what the manifest says."""
    listed = {entry.path: entry for entry in manifest.files}
    present = unpacked.files.keys() - {MANIFEST}
    for name in sorted(listed.keys() - present):
        state = "damaged in" if name in unpacked.damaged else "missing from"
        yield f"{name}: is in {MANIFEST}, but {state} the zip"
    for name in sorted(present - listed.keys()):
        yield f"{name}: is in the zip, but not in {MANIFEST}"
    for name in sorted(present & listed.keys()):
        entry, file = listed[name], unpacked.files[name]
        if file.size != entry.size:
            yield f"{name}: has {file.size} bytes, {MANIFEST} says {entry.size}"
        elif file.sha256 != entry.sha256:
            yield f"{name}: has sha256 {file.sha256}, {MANIFEST} says {entry.sha256}"
        if file.executable != entry.executable:
            yield f"{name}: has other permissions than {MANIFEST} says"


def name_problems(manifest: Manifest, zip_name: str) -> Iterator[str]:
    """Yield where the zip's file name contradicts its manifest."""
    if zip_name != f"{manifest.name}.zip":
        yield f"{zip_name}: was renamed; {MANIFEST} says {manifest.name}.zip"
    target = manifest.target
    first = f"llama-{manifest.version}-{manifest.recipe}"
    last = f"-{target['os']}-{target['arch']}"
    # a recipe that was changed for one build has a digest of the changes behind its name
    changed = f"{re.escape(first)}(-[0-9a-f]{{6}})?{re.escape(last)}"
    if not re.fullmatch(changed, manifest.name):
        yield f"{MANIFEST}: calls itself {manifest.name}, its other entries make {first}{last}"


def read_object(unpacked: Unpacked, name: str) -> Mapping[str, Any]:
    """Return a JSON object that lies in the bundle.

    Raises:
        ValueError: It is no JSON object.
        KeyError: There is no such file.
    """
    try:
        text = bounds.read_bytes(unpacked.files[name].path, bounds.JSON)
    except OSError as error:
        raise ValueError(f"it is {error.strerror}") from error
    data = bounds.load_json(text)
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    return data


def user_brings(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups of libraries (tables of DLLs) that a recipe leaves to the user."""
    found = []
    if dig(recipe, "openblas", "origin") == "system":
        found.append("openblas")
    if dig(recipe, "bundle", "vc_runtime") == "installed":
        found.append("vc-runtime")
    # before `cublas` was a key of its own, it stayed out together with the runtime
    if dig(recipe, "bundle", "cublas") == "separate" or (
        dig(recipe, "bundle", "cublas") is None
        and dig(recipe, "bundle", "cuda_runtime") == "separate"
    ):
        found.append("cublas")
    return tuple(found)


def dig(data: object, *keys: str) -> object:
    """Return what lies at a path of keys in nested JSON objects, or None.

    Papers are claims of unknown form: nothing about their types can be taken for granted.
    """
    for key in keys:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def texts(data: object) -> tuple[str, ...]:
    """Return a JSON list's strings, or nothing when it is no list."""
    return tuple(str(item) for item in data) if isinstance(data, (list, tuple)) else ()


def provenance_problems(
    statement: Mapping[str, Any], manifest: Manifest, unpacked: Unpacked
) -> Iterator[str]:
    """Yield where the provenance does not fit the files and the manifest."""
    if statement.get("_type") != STATEMENT or statement.get("predicateType") != PREDICATE:
        yield f"{PROVENANCE}: is not an in-toto v1 statement with SLSA v1 provenance"
        return
    try:
        subjects = {str(item["name"]): item["digest"]["sha256"] for item in statement["subject"]}
        definition = statement["predicate"]["buildDefinition"]
        sources = {
            item["digest"]["gitCommit"]: item["digest"]["gitTree"]
            for item in definition["resolvedDependencies"]
            if "gitCommit" in item.get("digest", {})
        }
        patched = definition["internalParameters"]["patched"]
    except (KeyError, TypeError, AttributeError) as error:
        yield f"{PROVENANCE}: is malformed ({type(error).__name__}: {error})"
        return
    files = {
        name: file.sha256
        for name, file in unpacked.files.items()
        if name not in (MANIFEST, PROVENANCE)
    }
    for name in sorted(files.keys() | subjects.keys()):
        if name not in subjects:
            yield f"{name}: is no subject of {PROVENANCE}"
        elif name not in files:
            if name not in unpacked.damaged:  # else the manifest check has said so
                yield f"{name}: is a subject of {PROVENANCE}, but not in the zip"
        elif files[name] != subjects[name]:
            yield f"{name}: has sha256 {files[name]}, {PROVENANCE} says {subjects[name]}"
    if sources != {manifest.source["commit"]: manifest.source["tree"]}:
        yield f"{PROVENANCE}: names another source than {MANIFEST}"
    if patched != dict(manifest.patched):
        yield f"{PROVENANCE}: names another patched source than {MANIFEST}"
    for key, ours, theirs in _twice_said(definition, manifest):
        if ours != theirs:
            yield f"{MANIFEST}: `{key}` is {ours!r}, {PROVENANCE} says {theirs!r}"[:300]


def _twice_said(
    definition: Mapping[str, Any], manifest: Manifest
) -> Iterator[tuple[str, object, object]]:
    """Yield key, the manifest's value and the provenance's value of what both papers say.

    Every promise that other checks hold the binaries to is among them: the manifest is the one
    file that no other paper has a hash of.
    """
    recipe = dig(definition, "externalParameters", "recipe")
    inner = dig(definition, "internalParameters")
    target, features = manifest.target, manifest.features
    yield "recipe", manifest.recipe, dig(recipe, "name")
    for key in ("os", "arch", "cpu"):
        yield f"target.{key}", target[key], dig(recipe, "target", key)
    yield "target.isa", target.get("isa"), sorted(texts(dig(recipe, "target", "isa")))
    yield "target.variants", "variants" in target, dig(recipe, "target", "variants") is True
    if target["os"] == "linux":
        yield "target.glibc", target.get("glibc"), dig(recipe, "target", "glibc")
    yield "features.linkage", features.get("linkage"), dig(recipe, "build", "linkage")
    yield "toolchain", manifest.toolchain, dig(inner, "toolchain")
    yield "series", list(manifest.series), dig(inner, "series")


def sbom_problems(data: Mapping[str, Any], name: str, unpacked: Unpacked) -> Iterator[str]:
    """Yield what is wrong with a CycloneDX document: form, and hashes of files it lists."""
    from cyclonedx.model.bom import Bom

    if data.get("bomFormat") != "CycloneDX":
        yield f"{name}: is not a CycloneDX document"
        return
    try:
        # The library adds from_json to its classes by a decorator that type checkers do not see.
        bom = Bom.from_json(data)  # type: ignore[attr-defined]
    except Exception as error:  # whatever the library's parser meets in a damaged document
        yield f"{name}: does not parse ({type(error).__name__}: {error})"
        return
    if bom is None or not bom.components:
        yield f"{name}: lists no component"
    for component in _components(data):
        file = unpacked.files.get(str(component.get("name")))
        for item in component.get("hashes", ()):
            sha256 = item.get("content") if item.get("alg") == "SHA-256" else None
            if component.get("type") == "file" and sha256 and file and file.sha256 != sha256:
                yield f"{component['name']}: has sha256 {file.sha256}, {name} says {sha256}"


def _components(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for component in data.get("components") or ():
        yield component
        yield from _components(component)
