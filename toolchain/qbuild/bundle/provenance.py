"""``provenance.json``: how a bundle was made, as an in-toto statement with SLSA provenance.

Formats: in-toto Statement v1 and SLSA Provenance v1 (their ``_type`` and ``predicateType`` URIs
are below). It is unsigned: the statement says what to rebuild and compare, not who vouches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from qbuild.bundle.facts import BundleFacts, InputFile, canonical_json
from qbuild.bundle.manifest import ManifestFile
from qbuild.recipe.load import as_dict

FILE_NAME: Final = "provenance.json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:qbuild:build:v1"
BUILDER: Final = "urn:qbuild"


def make_provenance(facts: BundleFacts, files: Iterable[ManifestFile]) -> dict[str, Any]:
    """Return the statement about a bundle's files.

    There is no clock, host or folder in it: two machines that make the same bundle write the
    same statement. The files inside the zip are the subjects because the zip itself, which holds
    the statement, has no digest yet.

    Args:
        facts: What the bundle was made from.
        files: Its files, without manifest and provenance.
    """
    source = facts.source
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": entry.path, "digest": {"sha256": entry.sha256}}
            for entry in sorted(files, key=lambda entry: entry.path)
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"recipe": as_dict(facts.recipe)},
                "internalParameters": {
                    "lock": _plain(facts.lock),
                    "cmake": _plain(facts.cmake),
                    "series": [dataclasses.asdict(series) for series in facts.series],
                    "patched": {"commit": facts.patched_commit, "tree": facts.patched_tree},
                    "toolchain": facts.toolchain.described(),
                },
                "resolvedDependencies": [
                    {
                        "name": "llama.cpp",
                        "uri": f"git+{source.repository}@{source.commit}",
                        "digest": {"gitCommit": source.commit, "gitTree": source.tree},
                    },
                    *(_dependency(wheel) for wheel in _wheels(facts)),
                ],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"qbuild": facts.qbuild_version}},
                "metadata": {"invocationId": facts.name},
            },
            # An extension field, named after its owner as SLSA asks.
            "qbuild_labels": {"gpu_validated": facts.gpu_validated},
        },
    }


def provenance_json(facts: BundleFacts, files: Iterable[ManifestFile]) -> bytes:
    """Return the bytes of ``provenance.json``."""
    return canonical_json(make_provenance(facts, files))


def _wheels(facts: BundleFacts) -> list[InputFile]:
    unique = {
        (wheel.name, wheel.version, wheel.filename): wheel
        for wheel in (*facts.toolchain.inputs, *facts.tools)
    }
    return [unique[key] for key in sorted(unique)]


def _dependency(wheel: InputFile) -> dict[str, Any]:
    uri = f"pkg:pypi/{wheel.name}@{wheel.version}"
    if not wheel.filename:  # a program of the build machine: the build record names its file
        return {"name": f"{wheel.name} {wheel.version}", "uri": uri}
    return {
        "name": wheel.filename,
        "uri": f"{uri}?file_name={wheel.filename}",
        "digest": {"sha256": wheel.sha256},
    }


def _plain(value: Any) -> Any:
    """Return nested mappings and sequences as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_plain(item) for item in value]
        return sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items
    return value
