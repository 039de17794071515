"""The bundle: from the plan and its results to one zip and what it states about itself."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qbuild
from qbuild.binary.pe import read_pe
from qbuild.bundle.cuda_proof import prove
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
from qbuild.bundle.launch.check import check_flags
from qbuild.bundle.launch.scripts import extra_files
from qbuild.bundle.make import make_bundle
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.device_code import gpu_validated
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.toolchains import by_visual_studio
from qbuild.steps import written_by
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.tools import BUILD_TOOLS, HOST_TOOLS
from qbuild.store import Entry
from qbuild.toolchains import crt

if TYPE_CHECKING:
    from qbuild.patches.series import Series
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan


class BundleStep(Kind):
    """The zip."""

    kind = "bundle"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return the binaries, everything the papers say, and what writes bundles.

        What the papers say comes from the one function that they are written from: nothing can be
        printed and missing here.
        """
        provided = ask.toolchain.provides()
        facts = static_facts(ask, before["configure"])
        return {
            "stage": before["stage"].key,
            "zip": f"{facts.name}.zip",
            "facts": dataclasses.asdict(facts),
            "provided": {name: list(where) for name, where in provided.items()},
            "bundled": [step.kind for step in before.values() if step.bundled],
            "writer": written_by.digest(),
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
        return write_bundle(
            build.plan.request,
            build.plan["configure"],
            step,
            made={kind: build.result(kind) for kind in ("stage", "patch", "compile")},
            unpacked=unpacked,
            dest=dest,
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


def lock_subset(ask: Request) -> dict[str, Any]:
    """Return the pins this build used, as they stand in the lockfile.

    Of a program of the build machine it is project and version: see :class:`InputFile`.
    """
    pin = ask.pin
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
    return {"source": source, "wheels": [_locked(wheel) for wheel in ask.wheels]}


def static_facts(ask: Request, configured: Step) -> BundleFacts:
    """Return what the bundle's papers say, as far as it is known before anything is made.

    Commit and tree of the patched source, the version of a compiler that is installed, and what is
    proven on the finished files are left empty: they are functions of earlier steps.
    """
    pin, described = ask.pin, configured.inputs["toolchain"]
    return BundleFacts(
        recipe=ask.recipe,
        source=SourceFacts(
            repository=pin.url.removesuffix(".git"),
            commit=pin.commit,
            tree=pin.tree,
            version=pin.version,
            date=pin.date,
            build_number=pin.build_number,
        ),
        patched_commit="",
        patched_tree="",
        series=tuple(_series(each) for each in ask.series),
        toolchain=ToolchainFacts(
            name=described["name"],
            version=described["version"],
            triple=described["target"],
            inputs=tuple(_input(w) for w in ask.wheels if w.project not in BUILD_TOOLS),
        ),
        lock=lock_subset(ask),
        cmake=configured.inputs["cache"],
        qbuild_version=qbuild.__version__,
        gpu_validated=_gpu_validated(ask, described),
        tools=tuple(_input(w) for w in ask.wheels if w.project in BUILD_TOOLS),
    )


def _series(series: Series) -> SeriesFacts:
    return SeriesFacts(
        name=series.name,
        summary=series.summary,
        digest=series.digest,
        patches=tuple(
            PatchFacts(
                file=patch.entry.file,
                subject=patch.mail.subject,
                why=patch.entry.why,
                sha256=hashlib.sha256(patch.mail.body).hexdigest(),
                probe=dataclasses.asdict(patch.entry.probe),
            )
            for patch in series.patches
        ),
    )


def _gpu_validated(ask: Request, described: Mapping[str, Any]) -> bool | None:
    """Return whether every architecture's kernels have run on a real GPU; none without CUDA."""
    if not ask.recipe.cuda.architectures:
        return None
    return all(
        gpu_validated(cuda_compiler(described), arch, ask.pin.commit)
        for arch in parse_archs(ask.recipe.cuda.architectures)
    )


def cuda_compiler(described: Mapping[str, Any]) -> str:
    """Return the CUDA compiler as ``gpu-validated.toml`` calls it: nvcc with its release."""
    return " ".join(str(described[key]) for key in ("name", "toolkit") if key in described)


def _runtime(facts: BundleFacts, staged: Path, pinned: str) -> Redistributable | None:
    """Prove the C runtime of what Visual Studio linked; return what it needs of Microsoft's.

    Args:
        facts: What is known.
        staged: The staged binaries.
        pinned: Version of the redistributable that is put beside the programs.

    Raises:
        BundleError: It has another runtime than its recipe, or needs a newer one than is pinned.
    """
    recipe = facts.recipe
    if not by_visual_studio(recipe):
        return None
    images = {path.name: read_pe(path) for path in sorted((staged / "bin").iterdir())}
    crt.check_imports(images, recipe.toolchain.runtime, where=recipe.name)
    need = crt.needed_redistributable(images)
    if recipe.bundle.vc_runtime == "app-local" and need is not None:
        crt.check_version(need, pinned, where=recipe.name)
    return need


def _cuda(
    ask: Request, configured: Step, staged: Path, provided: Mapping[str, Path]
) -> CudaFacts | None:
    """Prove the GPU side, where there is one.

    Raises:
        BundleError: A library will not do, or the device code is not the recipe's.
    """
    if not ask.recipe.cuda.architectures:
        return None
    versions = {wheel.project: wheel.version for wheel in ask.wheels}
    installed = str(configured.inputs["toolchain"].get("toolkit", ""))
    return prove(ask.recipe, staged, provided, versions, toolkit=installed)


def write_bundle(
    ask: Request,
    configured: Step,
    step: Step,
    *,
    made: Mapping[str, Entry],
    unpacked: Mapping[str, Path],
    dest: Path,
) -> dict[str, Any]:
    """Write the zip into ``dest`` and return its facts.

    Args:
        ask: What is built.
        configured: How it was configured.
        step: The bundle's step.
        made: Results of ``stage``, ``patch`` and ``compile``.
        unpacked: Project of a wheel, or kind of a bundled step → folder.
        dest: Where the zip goes.

    Raises:
        BundleError: Something the binaries need is missing or forbidden, or a launch profile
            names an option that they do not have.
    """
    staged, patched = made["stage"].path, made["patch"]
    facts = static_facts(ask, configured)
    provided = {
        name: unpacked[project] / file for name, (project, file) in step.inputs["provided"].items()
    }
    for kind in step.inputs["bundled"]:
        libraries = unpacked[kind] / "bin"
        if libraries.is_dir():
            provided |= {path.name: path for path in libraries.iterdir()}
    pinned = {wheel.project: wheel.version for wheel in ask.wheels}
    version = facts.toolchain.version or str(made["compile"].facts["compiler"])
    facts = dataclasses.replace(
        facts,
        patched_commit=patched.facts["commit"],
        patched_tree=patched.facts["tree"],
        toolchain=dataclasses.replace(facts.toolchain, version=version),
        cuda=_cuda(ask, configured, staged, provided),
        redistributable=_runtime(facts, staged, pinned.get("msvc-runtime", "")),
    )
    check_flags(facts.recipe, staged)
    result = make_bundle(
        stage=staged,
        source_tree=patched.path / "tree",
        toolchain_licences=unpacked,
        facts=facts,
        dest_dir=dest,
        provided=provided,
        extras=extra_files(facts.recipe),
    )
    return {"zip": result.zip.name, "sha256": result.sha256, "size": result.size}
