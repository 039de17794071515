"""``sbom.cdx.json``: the parts of a bundle as a CycloneDX bill of materials.

The library models and writes it; time stamp and random serial number, which would make every
build differ, are replaced by nothing and by a UUID over the content.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from qbuild.bundle.facts import BundleFacts, InputFile, canonical_json
from qbuild.bundle.manifest import ManifestFile
from qbuild.bundle.third_party import SOURCE, Found

if TYPE_CHECKING:
    from cyclonedx.model.component import Component as CdxComponent

FILE_NAME: Final = "sbom.cdx.json"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:qbuild:sbom")


def make_sbom(
    facts: BundleFacts, files: Iterable[ManifestFile], found: Sequence[Found]
) -> dict[str, Any]:
    """Return the CycloneDX 1.6 document.

    Args:
        facts: What the bundle was made from.
        files: Its files; binaries become file components with their hashes.
        found: The third-party components inside, llama.cpp itself among them.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    product = Component(
        name=facts.name,
        version=facts.source.label,
        type=ComponentType.APPLICATION,
        bom_ref=facts.name,
    )
    bom = Bom()
    bom.metadata.component = product
    bom.metadata.tools.components.add(
        Component(
            name="qbuild",
            version=facts.qbuild_version,
            type=ComponentType.APPLICATION,
            bom_ref="tool:qbuild",
        )
    )
    parts = [_third_party(facts, item) for item in found]
    binaries = [
        _binary(entry) for entry in files if entry.role in ("executable", "library", "backend")
    ]
    builders = [_builder(wheel) for wheel in (*facts.toolchain.inputs, *facts.tools)]
    for component in (*parts, *binaries, *builders):
        bom.components.add(component)
    bom.register_dependency(product, [*parts, *binaries])
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    document["metadata"].pop("timestamp", None)
    document.pop("serialNumber", None)
    digest = hashlib.sha256(canonical_json(document)).hexdigest()
    document["serialNumber"] = uuid.uuid5(_NAMESPACE, digest).urn
    return document


def sbom_json(facts: BundleFacts, files: Iterable[ManifestFile], found: Sequence[Found]) -> bytes:
    """Return the bytes of ``sbom.cdx.json``; arguments as in :func:`make_sbom`."""
    return canonical_json(make_sbom(facts, files, found))


def _third_party(facts: BundleFacts, item: Found) -> CdxComponent:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from packageurl import PackageURL

    row, source = item.component, facts.source
    properties = [Property(name="qbuild:from", value=_origin(facts, row.origin))]
    if row.path:
        properties.append(Property(name="qbuild:path", value=row.path))
    properties += [
        Property(name="qbuild:licence-file", value=f"licenses/{name}") for name, _ in item.texts
    ]
    component = Component(
        name=row.name,
        description=row.title,
        version=item.version or None,
        type=ComponentType.LIBRARY,
        bom_ref=f"part:{row.name}",
        licenses=[LicenseExpression(value=row.spdx)],
        properties=properties,
    )
    for name, version in item.parts:
        namespace, _, short = name.rpartition("/")
        component.components.add(
            Component(
                name=name,
                version=version,
                type=ComponentType.LIBRARY,
                bom_ref=f"part:{row.name}:{name}@{version}",
                purl=PackageURL("npm", namespace or None, short, version),
            )
        )
    if row.own:
        owner, _, name = source.repository.rstrip("/").removesuffix(".git").rpartition("/")
        host, _, namespace = owner.rpartition("/")
        if host.endswith("github.com"):
            component.purl = PackageURL("github", namespace, name, source.commit)
        component.external_references.add(
            ExternalReference(
                type=ExternalReferenceType.VCS,
                url=XsUri(source.repository),
                comment=f"commit {source.commit}, tree {source.tree}",
            )
        )
        component.properties.update(
            Property(name=name, value=value)
            for name, value in (
                ("qbuild:commit", source.commit),
                ("qbuild:tree", source.tree),
                ("qbuild:patched-commit", facts.patched_commit),
                ("qbuild:patched-tree", facts.patched_tree),
            )
        )
        _add_patches(component, facts)
    return component


def _origin(facts: BundleFacts, origin: str) -> str:
    if origin == SOURCE:
        return f"llama.cpp {facts.source.commit}"
    for wheel in (*facts.toolchain.inputs, *facts.tools):
        if wheel.name == origin:
            return f"{wheel.name} {wheel.version}"
    return f"{facts.toolchain.name} {facts.toolchain.version}"


def _add_patches(component: CdxComponent, facts: BundleFacts) -> None:
    from cyclonedx.model.component import Patch, PatchClassification, Pedigree
    from cyclonedx.model.issue import IssueClassification, IssueType

    patches = [
        Patch(
            type=PatchClassification.UNOFFICIAL,
            resolves=[
                IssueType(
                    type=IssueClassification.DEFECT,
                    id=f"{series.name}/{patch.file}",
                    name=patch.subject,
                    description=patch.why,
                )
            ],
        )
        for series in facts.series
        for patch in series.patches
    ]
    if patches:
        component.pedigree = Pedigree(patches=patches)


def _binary(entry: ManifestFile) -> CdxComponent:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=entry.path,
        type=ComponentType.FILE,
        bom_ref=f"file:{entry.path}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=entry.sha256)],
    )


def _builder(wheel: InputFile) -> CdxComponent:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from packageurl import PackageURL

    return Component(
        name=wheel.name,
        version=wheel.version,
        type=ComponentType.APPLICATION,
        scope=ComponentScope.EXCLUDED,  # it makes the bundle and is not in it
        bom_ref=f"build:{wheel.filename or wheel.name}",
        purl=PackageURL("pypi", None, wheel.name, wheel.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)] if wheel.sha256 else [],
    )
