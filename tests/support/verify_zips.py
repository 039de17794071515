"""Makes bundles for the tests of verify: small binaries with a manifest, provenance and SBOM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.bundle.manifest import Manifest, ManifestFile
from qbuild.verify import verify_zip
from qbuild.verify.verdict import Check, Verdict

COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
TREE = "b2da53584951ec8aa40680229509a6646a637560"
PROGRAMS = (".exe", "llama-cli", "llama-server")


@dataclass(kw_only=True)
class Made:
    """A bundle that can be bent before it is written."""

    os: str = "windows"
    cpu: str = "x86-64-v3"
    recipe: str = "avx2"
    name: str = ""
    glibc: str = "2.28"
    variants: dict[str, list[str]] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    series: list[dict[str, Any]] = field(default_factory=list)
    features: dict[str, Any] = field(default_factory=dict)
    cuda: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    papers: dict[str, bytes] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return self.name or f"llama-{COMMIT and 'g' + COMMIT[:9]}-{self.recipe}-{self.os}-x86_64"

    def contents(self) -> dict[str, bytes]:
        """Return everything that goes into the zip."""
        files = dict(self.files)
        files["sbom.cdx.json"] = sbom(files)
        files["provenance.json"] = self.provenance(files)
        files["manifest.json"] = self.manifest(files)
        return {**files, **self.papers}

    def manifest(self, files: Mapping[str, bytes]) -> bytes:
        target: dict[str, Any] = {"os": self.os, "arch": "x86_64", "cpu": self.cpu, "isa": []}
        if self.os == "linux":
            target["glibc"] = self.glibc
        if self.variants is not None:
            target["variants"] = self.variants
        features = {"linkage": "shared", **self.features}
        made = Manifest(
            schema=1,
            name=self.stem,
            recipe=self.recipe,
            version=f"g{COMMIT[:9]}",
            target=target,
            source={"commit": COMMIT, "tree": TREE, "build_number": None},
            patched={"commit": COMMIT, "tree": TREE},
            series=tuple(self.series),
            toolchain={"name": "zig", "version": "0"},
            features=features,
            files=tuple(listed(name, data) for name, data in sorted(files.items())),
        )
        data = json.loads(made.to_json()) | self.changes
        return json.dumps(data).encode()

    def provenance(self, files: Mapping[str, bytes]) -> bytes:
        target = {"os": self.os, "arch": "x86_64", "cpu": self.cpu, "isa": [], "glibc": self.glibc,
                  "variants": self.variants is not None}  # fmt: skip
        recipe = {
            "name": self.recipe, "target": target,
            "build": {"options": {}, "linkage": self.features.get("linkage", "shared")},
            "cuda": self.cuda,
        }  # fmt: skip
        return json.dumps({
            "_type": "https://in-toto.io/Statement/v1",
            "predicateType": "https://slsa.dev/provenance/v1",
            "subject": [
                {"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
                for name, data in sorted(files.items())
            ],
            "predicate": {"buildDefinition": {
                "externalParameters": {"recipe": recipe},
                "internalParameters": {
                    "patched": {"commit": COMMIT, "tree": TREE},
                    "series": self.series,
                    "toolchain": {"name": "zig", "version": "0"},
                },
                "resolvedDependencies": [
                    {"name": "llama.cpp", "digest": {"gitCommit": COMMIT, "gitTree": TREE}}
                ],
            }},
        }).encode()  # fmt: skip

    def write(self, folder: Path, *, without: tuple[str, ...] = ()) -> Path:
        """Write the zip, leaving some files out of it (but not out of its papers)."""
        path = folder / f"{self.stem}.zip"
        write_zip(path, [
            ZipEntry(name=name, source=data, executable=name.endswith(PROGRAMS))
            for name, data in self.contents().items() if name not in without
        ])  # fmt: skip
        return path

    def verify(self, folder: Path, *, without: tuple[str, ...] = (), gpu: str = "") -> Verdict:
        return verify_zip(self.write(folder, without=without), gpu=gpu)


def listed(name: str, data: bytes) -> ManifestFile:
    role = {"sbom.cdx.json": "sbom", "provenance.json": "provenance"}.get(
        name, "executable" if name.endswith(PROGRAMS) else "library"
    )
    return ManifestFile(
        path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), role=role,  # type: ignore[arg-type]
        executable=name.endswith(PROGRAMS),
    )  # fmt: skip


def sbom(files: Mapping[str, bytes]) -> bytes:
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "components": [
            {"type": "file", "name": name, "bom-ref": name,
             "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]}
            for name, data in sorted(files.items())
        ] or [{"type": "library", "name": "llama.cpp"}],
    }).encode()  # fmt: skip


def check(verdict: Verdict, id: str) -> Check:
    """Return one check of a verdict."""
    found = [item for item in verdict.checks if item.id == id]
    assert len(found) == 1, [item.id for item in verdict.checks]
    return found[0]


def findings(verdict: Verdict) -> str:
    """Return every finding of the failed checks, one a line."""
    return "\n".join(line for item in verdict.failed for line in item.details)
