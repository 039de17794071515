"""What a bundle's papers say, as far as the plan knows it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import qbuild
from qbuild.bundle.facts import (
    BundleFacts,
    InputFile,
    PatchFacts,
    SeriesFacts,
    SourceFacts,
    ToolchainFacts,
)
from qbuild.recipe.lock import WheelPin
from qbuild.steps.base import Request, Step
from qbuild.steps.tools import BUILD_TOOLS, HOST_TOOLS

if TYPE_CHECKING:
    from qbuild.patches.series import Series
    from qbuild.steps.plan import Plan


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
                subject=patch.subject,
                why=patch.entry.why,
                sha256=hashlib.sha256(patch.body).hexdigest(),
                probe=dataclasses.asdict(patch.entry.probe),
            )
            for patch in series.patches
        ),
    )


def _gpu_validated(ask: Request, described: Mapping[str, Any]) -> bool | None:
    """Return whether every architecture's kernels have run on a real GPU; none without CUDA."""
    if not ask.recipe.cuda.architectures:
        return None
    from qbuild.cuda.arch import parse_archs  # most recipes have no GPU side
    from qbuild.cuda.device_code import gpu_validated

    return all(
        gpu_validated(cuda_compiler(described), arch, ask.pin.commit)
        for arch in parse_archs(ask.recipe.cuda.architectures)
    )


def cuda_compiler(described: Mapping[str, Any]) -> str:
    """Return the CUDA compiler as ``gpu-validated.toml`` calls it: nvcc with its release."""
    return " ".join(str(described[key]) for key in ("name", "toolkit") if key in described)
