"""The bundle: from the plan and its results to one zip and what it states about itself."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import __version__, resources
from qbuild.bundle.facts import (
    BundleFacts,
    CudaFacts,
    InputFile,
    PatchFacts,
    Redistributable,
    SeriesFacts,
    SourceFacts,
    ToolchainFacts,
)
from qbuild.cuda.tree import HOST_WHEELS
from qbuild.recipe.load import as_dict
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.rebuild import label
from qbuild.recipe.toolchains import by_visual_studio
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.configure import TOOLS
from qbuild.steps.npm import PROJECT as NODE
from qbuild.store import Entry

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan


BUILD_TOOLS: Final = (*TOOLS, NODE)
"""Wheels that make a build and leave nothing of theirs in it."""

HOST_TOOLS: Final = frozenset((*BUILD_TOOLS, *HOST_WHEELS))
"""Wheels of programs that run on the build machine: Linux and Windows have files of their own."""

# What writes a bundle: a change to any of these files makes a new bundle, no version to forget.
_BUNDLE_CODE = (
    "binary/zip_writer.py", "bundle/make.py", "steps/bundle.py", "bundle/closure.py",
    "bundle/facts.py", "bundle/manifest.py", "binary/names.py", "bundle/provenance.py",
    "bundle/readme.py", "bundle/sbom.py", "steps/stage.py", "bundle/third_party.py",
    "cuda/runtime.py", "bundle/launch/check.py", "bundle/launch/options.py",
    "bundle/launch/profile.py", "bundle/launch/scripts.py", "doctor/detect/levels.py",
    "recipe/rebuild.py", "recipe/variants.py",
)  # fmt: skip
_BUNDLE_TABLES = (
    "cuda.toml", "gpu-validated.toml", "gpus.toml", "linux-libs.toml", "third-party.toml",
    "windows-dlls.toml", "launch/instead.toml", "launch/run.bat", "launch/run.ps1",
    "launch/run.sh", "launch/driver.bat", "launch/driver.ps1", "launch/driver.sh",
    "launch/together.bat", "launch/together.ps1", "launch/together.sh",
)  # fmt: skip


class BundleStep(Kind):
    """The zip."""

    kind = "bundle"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return the binaries, the recipe, and the code and tables that write bundles."""
        recipe = ask.recipe
        system = f"{recipe.target.os}-{recipe.target.arch}"
        provided = ask.toolchain.provides()
        return {
            "stage": before["stage"].key,
            "zip": f"llama-{ask.version}-{label(recipe)}-{system}.zip",
            "recipe": as_dict(recipe),
            "provided": {name: list(where) for name, where in provided.items()},
            "code": _bundle_code_digest(),
        }

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return what is in it."""
        return "what the import tables ask for, licences, manifest, provenance, SBOM"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Write the zip.

        Raises:
            BundleError: Something the binaries need is missing or forbidden.
        """
        unpacked = build.all_unpacked()
        for kind in build.plan.bundled():
            unpacked[kind.kind] = kind.in_bundle(build.result(kind.kind))
        build.reporter.say(f"bundle: {step.inputs['zip']}")
        return bundle_from_plan(
            build.plan,
            staged=build.result("stage").path,
            patched=build.result("patch"),
            compiled=build.result("compile"),
            unpacked=unpacked,
            dest=dest,
        )


def digest_of_files(paths: list[Path]) -> str:
    """Return one sha256 over the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        data = path.read_bytes().replace(b"\r\n", b"\n") if path.is_file() else b""
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _bundle_code_digest() -> str:
    package = Path(resources.__file__).parent
    return digest_of_files(
        [package / name for name in _BUNDLE_CODE]
        + [resources.data_dir() / name for name in _BUNDLE_TABLES]
    )


def _input(wheel: WheelPin) -> InputFile:
    if wheel.project in HOST_TOOLS:
        return InputFile(name=wheel.project, version=wheel.version)
    return InputFile(
        name=wheel.project, version=wheel.version, filename=wheel.filename, sha256=wheel.sha256
    )


def host_tools(plan: Plan) -> list[dict[str, str]]:
    """Return the files that the programs of the build machine came from, for the build record."""
    return [
        {"project": w.project, "version": w.version, "filename": w.filename, "sha256": w.sha256}
        for w in plan.wheels
        if w.project in HOST_TOOLS
    ]


def _locked(wheel: WheelPin) -> dict[str, Any]:
    named: dict[str, Any] = {"project": wheel.project, "version": wheel.version}
    if wheel.project in HOST_TOOLS:
        return named
    return named | {"filename": wheel.filename, "sha256": wheel.sha256, "size": wheel.size}


def lock_subset(plan: Plan) -> dict[str, Any]:
    """Return the pins this build used, as they stand in the lockfile.

    Of a program of the build machine it is project and version: see :class:`InputFile`.
    """
    pin = plan.pin
    source: dict[str, Any] = {
        "name": pin.name,
        "url": pin.url,
        "commit": pin.commit,
        "tree": pin.tree,
        "date": pin.date,
        "version": pin.version,
    }
    if pin.build_number:
        source["build_number"] = pin.build_number
    return {"source": source, "wheels": [_locked(wheel) for wheel in plan.wheels]}


def facts_of(
    plan: Plan,
    patched: Entry,
    compiled: Entry,
    cuda: CudaFacts | None = None,
    redistributable: Redistributable | None = None,
) -> BundleFacts:
    """Return what the bundle's manifest, provenance, SBOM and README say."""
    pin = plan.pin
    subjects = {(p["series"], p["file"]): p["subject"] for p in patched.facts["patches"]}
    series = tuple(
        SeriesFacts(
            name=s.name,
            summary=s.summary,
            digest=s.digest,
            patches=tuple(
                PatchFacts(
                    file=p.file,
                    subject=subjects.get((s.name, p.file), p.file),
                    why=p.entry.why,
                    sha256=hashlib.sha256(p.mail.body).hexdigest(),
                    probe=dataclasses.asdict(p.entry.probe),
                )
                for p in s.patches
            ),
        )
        for s in plan.series
    )
    described = plan["configure"].inputs["toolchain"]
    return BundleFacts(
        recipe=plan.recipe,
        source=SourceFacts(
            repository=pin.url.removesuffix(".git"),
            commit=pin.commit,
            tree=pin.tree,
            version=pin.version,
            date=pin.date,
            build_number=pin.build_number,
        ),
        patched_commit=patched.facts["commit"],
        patched_tree=patched.facts["tree"],
        series=series,
        toolchain=ToolchainFacts(
            name=described["name"],
            version=described["version"] or str(compiled.facts["compiler"]),
            triple=described["target"],
            inputs=tuple(_input(w) for w in plan.wheels if w.project not in BUILD_TOOLS),
        ),
        lock=lock_subset(plan),
        cmake=plan["configure"].inputs["cache"],
        qbuild_version=__version__,
        cuda=cuda,
        gpu_validated=_gpu_validated(plan),
        redistributable=redistributable,
        tools=tuple(_input(w) for w in plan.wheels if w.project in BUILD_TOOLS),
    )


def _gpu_validated(plan: Plan) -> bool | None:
    """Return whether every architecture's kernels have run on a real GPU; none without CUDA."""
    if not plan.recipe.cuda.architectures:
        return None
    from qbuild.cuda.arch import parse_archs
    from qbuild.cuda.device_code import gpu_validated

    return all(
        gpu_validated(_cuda_compiler(plan), arch, plan.pin.commit)
        for arch in parse_archs(plan.recipe.cuda.architectures)
    )


def _cuda_compiler(plan: Plan) -> str:
    """Return the CUDA compiler as ``gpu-validated.toml`` calls it: nvcc with its release."""
    described = plan["configure"].inputs["toolchain"]
    return " ".join(str(described[key]) for key in ("name", "toolkit") if key in described)


def _runtime(plan: Plan, staged: Path) -> Redistributable | None:
    """Prove the C runtime of what Visual Studio linked; return what it needs of Microsoft's.

    Raises:
        BundleError: It has another runtime than its recipe, or needs a newer one than is pinned.
    """
    recipe = plan.recipe
    if not by_visual_studio(recipe):
        return None
    from qbuild.binary.pe import read_pe
    from qbuild.toolchains import crt

    images = {path.name: read_pe(path) for path in sorted((staged / "bin").iterdir())}
    crt.check_imports(images, recipe.toolchain.runtime, where=recipe.name)
    need = crt.needed_redistributable(images)
    if recipe.bundle.vc_runtime == "app-local" and need is not None:
        (pinned,) = (w.version for w in plan.wheels if w.project == "msvc-runtime")
        crt.check_version(need, pinned, where=recipe.name)
    return need


def bundle_from_plan(
    plan: Plan,
    *,
    staged: Path,
    patched: Entry,
    compiled: Entry,
    unpacked: Mapping[str, Path],
    dest: Path,
) -> dict[str, Any]:
    """Write the zip into ``dest`` and return its facts.

    Raises:
        BundleError: Something the binaries need is missing or forbidden, or a launch profile
            names an option that they do not have.
    """
    from qbuild.bundle.launch.check import check_flags
    from qbuild.bundle.launch.scripts import extra_files
    from qbuild.bundle.make import make_bundle

    provided = {
        name: unpacked[project] / file
        for name, (project, file) in plan.toolchain.provides().items()
    }
    for kind in plan.bundled():
        libraries = unpacked[kind.kind] / "bin"
        if libraries.is_dir():
            provided |= {path.name: path for path in libraries.iterdir()}
    cuda = None
    if plan.recipe.cuda.architectures:
        from qbuild.bundle.cuda_proof import prove

        versions = {wheel.project: wheel.version for wheel in plan.wheels}
        installed = str(plan["configure"].inputs["toolchain"].get("toolkit", ""))
        cuda = prove(plan.recipe, staged, provided, versions, toolkit=installed)
    check_flags(plan.recipe, staged)
    result = make_bundle(
        stage=staged,
        source_tree=patched.path / "tree",
        toolchain_licences=unpacked,
        facts=facts_of(plan, patched, compiled, cuda, _runtime(plan, staged)),
        dest_dir=dest,
        provided=provided,
        extras=extra_files(plan.recipe),
    )
    return {"zip": result.zip.name, "sha256": result.sha256, "size": result.size}
