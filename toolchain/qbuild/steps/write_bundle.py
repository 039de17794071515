"""Write the zip of a bundle: prove what must hold, choose what ships, pack it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbuild.binary.pe import read_pe
from qbuild.bundle.cuda_proof import prove
from qbuild.bundle.facts import BundleFacts, CudaFacts
from qbuild.bundle.launch.check import check_flags
from qbuild.bundle.launch.scripts import extra_files
from qbuild.bundle.make import make_bundle
from qbuild.recipe.toolchains import by_visual_studio
from qbuild.steps.base import Request, Step
from qbuild.steps.bundle_facts import static_facts
from qbuild.store import Entry
from qbuild.toolchains import crt
from qbuild.toolchains.crt import Redistributable


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
