"""The GPU side of a bundle, read from its bytes: which kernels, which GPUs, which driver.

A bundle of qbuild's must hold exactly what its recipe names. Of anyone else's the same is told
without a judgement: the fat binaries say what will run where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from qbuild.binary.fatbin import FatReport, read_fatbin_data
from qbuild.bundle.cuda_proof import running
from qbuild.bundle.manifest import Manifest
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.device_code import WORDS, check_archs, gpu_verdict
from qbuild.cuda.table import driver_floor, parse_version
from qbuild.errors import BinaryError, QbuildError, RecipeError, ToolchainError
from qbuild.verify import binaries, papers
from qbuild.verify.binaries import Images, foreign_files, mapped
from qbuild.verify.structure import Unpacked
from qbuild.verify.verdict import Check, judge, not_run, passed

_COMPILERS: Final = ("nvcc", "clang-cuda")
_TITLE: Final = "GPU code is what the name says"


def checks(
    images: Images,
    unpacked: Unpacked,
    *,
    name: str,
    manifest: Manifest | None,
    recipe: Mapping[str, Any],
    target_os: str,
    gpu: str = "",
) -> Iterator[Check]:
    """Yield what can be said of a bundle's device code.

    Args:
        images: The binaries.
        unpacked: Their bytes.
        name: File name of the zip.
        manifest: Its claims, when it has any.
        recipe: The recipe in its provenance, or an empty one.
        target_os: ``windows``, ``linux`` or "".
        gpu: A GPU to judge, by name or compute capability; "" for none.
    """
    reports, problems = read(images, unpacked)
    promised = _promised(name, manifest, recipe)
    version = str(manifest.features.get("cuda") or "") if manifest else ""
    problems += binaries.cuda_problems(images, promised, version)
    own = _own(images, reports)
    wanted = papers.texts(papers.dig(recipe, "cuda", "architectures"))
    if wanted:
        problems += _differences(own, wanted)
    seen = [_held(file, report) for file, report in own.items()]
    if not seen:
        seen = ["CPU only: no file holds GPU code"]
    yield judge("cuda", _TITLE, problems, *seen)
    if not own:
        if gpu:
            yield not_run("cuda.gpu", f"runs on {gpu}", "this bundle is CPU only")
        return
    yield from _families(own)
    yield _driver(images, reports, target_os, recipe)
    if gpu:
        yield _judge_gpu(own, gpu)


def read(images: Images, unpacked: Unpacked) -> tuple[dict[str, FatReport], list[str]]:
    """Return the device code of every file that has some, and what cannot be read."""
    reports: dict[str, FatReport] = {}
    problems = []
    for name in images.names:
        if not binaries.has_device_code(images.every[name]):
            continue
        with mapped(unpacked, name) as data:
            try:
                report = read_fatbin_data(data)
            except BinaryError as error:
                problems.append(f"{name}: {error.what}")
                continue
        if report.entries:
            reports[name] = report
    return reports, problems


def _promised(name: str, manifest: Manifest | None, recipe: Mapping[str, Any]) -> bool:
    named = papers.CUDA_NAME.search(name) or (
        manifest is not None and papers.CUDA_NAME.search(manifest.recipe)
    )
    return (
        bool(named)
        or bool(papers.dig(recipe, "cuda", "architectures"))
        or papers.dig(recipe, "build", "options", "GGML_CUDA") is True
        or papers.dig(recipe, "toolchain", "name") in _COMPILERS
    )


def _own(images: Images, reports: Mapping[str, FatReport]) -> dict[str, FatReport]:
    """Return the reports of llama.cpp's own files: all but NVIDIA's libraries."""
    foreign = foreign_files(images)
    return {name: report for name, report in reports.items() if name not in foreign}


def _differences(own: Mapping[str, FatReport], wanted: tuple[str, ...]) -> Iterator[str]:
    try:
        archs = parse_archs(wanted)
    except RecipeError as error:
        yield f"provenance.json: the recipe's architectures: {error.what}"
        return
    for name, report in own.items():
        try:
            check_archs(report, archs, where=name)
        except QbuildError as error:
            yield f"{name}: {error.what}"


def _held(name: str, report: FatReport) -> str:
    parts = []
    if report.cubins:
        parts.append("machine code for " + ", ".join(report.cubins))
    if report.ptx:
        parts.append("PTX for " + ", ".join(report.ptx))
    return (
        f"{PurePosixPath(name).name}: {' and '.join(parts) or 'no cubin and no PTX'} "
        f"({report.size / 1e6:.0f} MB, {report.compression})"
    )


def _families(own: Mapping[str, FatReport]) -> Iterator[Check]:
    for name, report in own.items():
        try:
            runs = running(report)
        except QbuildError as error:
            yield not_run("cuda.gpus", "which GPUs run it", f"{name}: {error.what}")
            continue
        by_how: dict[str, list[str]] = {}
        for family, how in runs:
            by_how.setdefault(how, []).append(family)
        lines = [f"{how}: {', '.join(families)}" for how, families in by_how.items()]
        yield passed("cuda.gpus", "which GPUs run it", "; ".join(lines) or "none that is known")


def _driver(
    images: Images, reports: Mapping[str, FatReport], target_os: str, recipe: Mapping[str, Any]
) -> Check:
    """Return the lowest driver, from the runtime's major version and the compressions in use."""
    title = "the NVIDIA driver it needs"
    majors = {
        match[1]
        for name in images.names
        for library in binaries.needed(images, name)
        if (match := binaries.CUDA_LIBRARY.fullmatch(library))
    }
    if len(majors) != 1 or not target_os:
        return not_run("cuda.driver", title, "it does not say which CUDA runtime it needs")
    (major,) = majors
    version = major if len(major) <= 2 else major[:2]  # cudart64_110.dll is CUDA 11
    try:
        floors = [
            driver_floor(version, target_os, report.compression) for report in reports.values()
        ]
    except ToolchainError as error:
        return not_run("cuda.driver", title, error.what)
    floor = max(floors, key=parse_version)
    said = papers.dig(recipe, "cuda", "driver")
    problems = []
    if isinstance(said, str) and said and parse_version(floor) > parse_version(said):
        problems = [f"needs driver {floor}, the recipe promises {said}"]
    return judge("cuda.driver", title, problems, f"{floor} or newer (CUDA {version})")


def _judge_gpu(own: Mapping[str, FatReport], gpu: str) -> Check:
    verdicts = [(name, gpu_verdict(report, gpu)) for name, report in own.items()]
    lines = [f"{PurePosixPath(name).name}: {verdict}" for name, verdict in verdicts]
    bad = [
        f"{line}; take a recipe for it, or build with --cuda-arch"
        for line, (_, verdict) in zip(lines, verdicts, strict=True)
        if WORDS[verdict.coverage] == WORDS["none"]
    ]
    return judge("cuda.gpu", f"runs on {gpu}", bad, *lines)
