"""``sbom.cdx.json``: valid CycloneDX, and the same one every time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from qbuild.bundle.manifest import ManifestFile
from qbuild.bundle.sbom import make_sbom, sbom_json
from qbuild.bundle.third_party import Found, find
from support.bundles import FACTS, source_tree, zig_wheel

FILES = (
    ManifestFile(path="llama-cli.exe", size=3, sha256="a" * 64, role="executable"),
    ManifestFile(path="ggml.dll", size=3, sha256="b" * 64, role="library"),
    ManifestFile(path="licenses/llama.cpp.txt", size=3, sha256="c" * 64, role="licence"),
)


@pytest.fixture
def found(tmp_path: Path) -> tuple[Found, ...]:
    return find(
        FACTS,
        source_tree=source_tree(tmp_path / "src"),
        inputs={"ziglang": zig_wheel(tmp_path / "zig")},
        files=[],
    )


def components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {component["name"]: component for component in document["components"]}


def test_it_is_valid_cyclonedx(found: tuple[Found, ...]) -> None:
    text = sbom_json(FACTS, FILES, found).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_it_never_varies(found: tuple[Found, ...]) -> None:
    text = sbom_json(FACTS, FILES, found)
    assert sbom_json(FACTS, tuple(reversed(FILES)), tuple(reversed(found))) == text
    document = json.loads(text)
    assert "timestamp" not in document["metadata"]
    assert uuid.UUID(document["serialNumber"]).version == 5


def test_other_content_has_another_serial(found: tuple[Found, ...]) -> None:
    other = dataclasses.replace(FACTS, patched_tree="9" * 40)
    one, two = make_sbom(FACTS, FILES, found), make_sbom(other, FILES, found)
    assert one["serialNumber"] != two["serialNumber"]


def test_llama_cpp_carries_commit_and_patches(found: tuple[Found, ...]) -> None:
    llama = components(make_sbom(FACTS, FILES, found))["llama.cpp"]
    assert llama["purl"] == f"pkg:github/ggml-org/llama.cpp@{FACTS.source.commit}"
    assert llama["licenses"] == [{"expression": "MIT"}]
    properties = {entry["name"]: entry["value"] for entry in llama["properties"]}
    assert properties["qbuild:tree"] == FACTS.source.tree
    assert properties["qbuild:patched-tree"] == FACTS.patched_tree
    assert properties["qbuild:licence-file"] == "licenses/llama.cpp.txt"
    (patch,) = llama["pedigree"]["patches"]
    assert patch["resolves"][0]["id"] == "windows-gnu/0001-export-api.patch"


def test_parts_binaries_and_build_tools(found: tuple[Found, ...]) -> None:
    document = make_sbom(FACTS, FILES, found)
    parts = components(document)
    assert parts["cpp-httplib"]["version"] == "0.58.0"
    assert parts["libcxx"]["licenses"] == [{"expression": "Apache-2.0 WITH LLVM-exception"}]
    assert parts["ggml.dll"]["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    assert "licenses/llama.cpp.txt" not in parts
    assert parts["ziglang"]["scope"] == "excluded"
    (product,) = [
        entry["dependsOn"] for entry in document["dependencies"] if entry["ref"] == FACTS.name
    ]
    assert "part:llama.cpp" in product
    assert "build:" not in "".join(product)


def test_a_mirror_as_repository_has_no_github_purl(found: tuple[Found, ...]) -> None:
    source = dataclasses.replace(FACTS.source, repository="https://git.example.org/llama.cpp")
    document = make_sbom(dataclasses.replace(FACTS, source=source, series=()), FILES, found)
    assert "purl" not in components(document)["llama.cpp"]
    assert "pedigree" not in components(document)["llama.cpp"]


def test_golden_bytes() -> None:
    """The library's version must not show in a bundle: 9.0 and 11.12 both give this sum."""
    # A recipe that nobody knows has no changes in its name, which follow the shipped recipe's text.
    facts = dataclasses.replace(FACTS, recipe=dataclasses.replace(FACTS.recipe, name="sample"))
    digest = hashlib.sha256(sbom_json(facts, FILES, ())).hexdigest()
    assert digest == "4b46b93bc411990331bd71edebc3ff03ae3ff6eb4ad8280ff4d205f43446e1bf"
