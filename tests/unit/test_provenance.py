"""``provenance.json``: an in-toto statement without clock, host or folder."""

from __future__ import annotations

import dataclasses
import json
import re

from qbuild.bundle.facts import canonical_json
from qbuild.bundle.manifest import ManifestFile
from qbuild.bundle.provenance import make_provenance, provenance_json
from support.bundles import FACTS, NINJA, WHEEL

FILES = (
    ManifestFile(path="llama-cli.exe", size=3, sha256="a" * 64, role="executable"),
    ManifestFile(path="ggml.dll", size=3, sha256="b" * 64, role="library"),
)


def test_form_of_the_statement() -> None:
    statement = json.loads(provenance_json(FACTS, FILES))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [
        {"name": "ggml.dll", "digest": {"sha256": "b" * 64}},
        {"name": "llama-cli.exe", "digest": {"sha256": "a" * 64}},
    ]
    predicate = statement["predicate"]
    # The two required halves of SLSA provenance v1, and the required fields of each.
    assert {"buildType", "externalParameters"} <= predicate["buildDefinition"].keys()
    assert predicate["runDetails"]["builder"]["id"].startswith("urn:")
    assert predicate["qbuild_labels"] == {"gpu_validated": None}


def test_everything_that_went_in_is_named() -> None:
    definition = make_provenance(FACTS, FILES)["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["recipe"]["target"]["cpu"] == "x86-64-v3"
    inside = definition["internalParameters"]
    assert inside["patched"] == {"commit": "1" * 40, "tree": "2" * 40}
    assert inside["series"][0]["digest"] == "3" * 64
    assert inside["cmake"] == {"GGML_AVX2": True, "GGML_NATIVE": False}
    assert inside["lock"] == FACTS.lock
    source, *wheels = definition["resolvedDependencies"]
    assert source["uri"].startswith("git+https://")
    assert source["digest"] == {
        "gitCommit": FACTS.source.commit,
        "gitTree": FACTS.source.tree,
    }
    assert [(wheel["name"], wheel["digest"]["sha256"]) for wheel in wheels] == [
        (NINJA.filename, NINJA.sha256),
        (WHEEL.filename, WHEEL.sha256),
    ]


def test_no_time_is_in_it() -> None:
    text = provenance_json(FACTS, FILES).decode()
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d", text)
    assert "startedOn" not in text


def test_order_of_mappings_and_files_does_not_matter() -> None:
    lock = {"b": [1, {"y": 1, "x": 2}], "a": {"z": 1, "k": 2}}
    turned = {"a": {"k": 2, "z": 1}, "b": [1, {"x": 2, "y": 1}]}
    cmake = dict(reversed(list(FACTS.cmake.items())))
    one = dataclasses.replace(FACTS, lock=lock)
    two = dataclasses.replace(FACTS, lock=turned, cmake=cmake)
    assert provenance_json(one, FILES) == provenance_json(two, tuple(reversed(FILES)))


def test_gpu_validation_is_carried() -> None:
    labelled = dataclasses.replace(FACTS, gpu_validated=False)
    statement = make_provenance(labelled, FILES)
    assert statement["predicate"]["qbuild_labels"]["gpu_validated"] is False


def test_canonical_json() -> None:
    assert canonical_json({"b": "ä", "a": [True, None]}) == (
        '{\n  "a": [\n    true,\n    null\n  ],\n  "b": "ä"\n}\n'.encode()
    )
