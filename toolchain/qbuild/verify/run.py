"""Runs the programs of an unpacked bundle: version, a known sentence, a server's answers.

Only ``qbuild verify --run`` and qbuild's own build come here; everything runs in the sandbox.
The tiny model of :mod:`qbuild.verify.tiny_gguf` must say its one sentence, so that "it printed
something" does not pass for "it computes right".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild import held, host
from qbuild.binary.zip_reader import open_zip
from qbuild.bundle.manifest import Manifest
from qbuild.console import Reporter, Silent
from qbuild.errors import VerifyError
from qbuild.process import check_stop
from qbuild.verify import papers, patch_probes, tiny_gguf
from qbuild.verify.binaries import has_device_code
from qbuild.verify.launch import launch_steps
from qbuild.verify.runners import Runner, plan_for
from qbuild.verify.static import read_bundle, scratch_folder
from qbuild.verify.structure import unpack
from qbuild.verify.trials import Programs, Step, Wanted, steps
from qbuild.verify.verdict import Check, judge, not_run

if TYPE_CHECKING:
    from qbuild.verify.static import Bundle


def run_zip(
    path: Path, *, cache_dir: Path | None = None, reporter: Reporter | None = None
) -> tuple[Check, ...]:
    """Unpack a zip into a scratch folder and run what is in it.

    Args:
        path: A zip that :func:`qbuild.verify.verify_zip` accepted.
        cache_dir: Where a prepared Wine prefix (0.7 GB) is kept between runs, or None.
        reporter: Where progress goes.

    Raises:
        VerifyError: The zip is for no system known here, or the sandbox does not work.
        ArchiveError: The zip is damaged.
    """
    reporter = reporter or Silent()
    with open_zip(path) as view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("unpack", total=total, unit="bytes") as task:
            unpacked = unpack(view, scratch / "files", task)
        bundle = read_bundle(path.name, unpacked)
        if not bundle.target_os:
            return (not_run("run", "its programs run", "there is no program inside"),)
        target = bundle.manifest.target if bundle.manifest else {}
        source = bundle.manifest.source if bundle.manifest else {}
        number = source.get("build_number")
        return run_checks(
            unpacked.root,
            target_os=bundle.target_os,
            cpu_level=str(target.get("cpu", "")),
            commit=str(source.get("commit", "")),
            number=number if isinstance(number, int) else None,
            isa=papers.texts(target.get("isa")),
            variants="variants" in target,
            qemu_cpu=str(papers.dig(bundle.recipe, "checks", "qemu_cpu") or ""),
            wanted=_wanted_help(bundle.manifest),
            cuda=_cuda_loads(bundle),
            recipe=bundle.recipe,
            cache_dir=cache_dir,
            reporter=reporter,
        )


def _cuda_loads(bundle: Bundle) -> bool:
    """Return whether a CUDA backend must load here: with NVIDIA's libraries left out it cannot."""
    separate = papers.dig(
        bundle.recipe, "bundle", "cuda_runtime"
    ) == "separate" or "cublas" in papers.user_brings(bundle.recipe)
    inside = any(has_device_code(image) for image in bundle.images.every.values())
    return inside and not separate


def _wanted_help(manifest: Manifest | None) -> tuple[Wanted, ...]:
    if manifest is None:
        return ()
    found, _ = patch_probes.probes_of(manifest)
    return tuple(
        Wanted(program=item.probe.place, text=item.probe.value, patch=item.patch)
        for item in found
        if item.probe.kind == "help" and not item.probe.absent
    )


def run_checks(
    unpacked: Path,
    *,
    target_os: str,
    cpu_level: str,
    commit: str,
    number: int | None = None,
    isa: tuple[str, ...] = (),
    variants: bool = False,
    qemu_cpu: str = "",
    wanted: tuple[Wanted, ...] = (),
    cuda: bool = False,
    recipe: Mapping[str, Any] | None = None,
    host_os: str | None = None,
    cache_dir: Path | None = None,
    reporter: Reporter | None = None,
) -> tuple[Check, ...]:
    """Run what is in a bundle.

    Args:
        unpacked: Folder with the bundle's files; not written to.
        target_os: ``linux`` or ``windows``.
        cpu_level: psABI level; chooses the CPU that qemu-user plays. "" when it is not known.
        commit: Pinned commit id (hex, full), or "" when unknown.
        number: Upstream's build number, when known.
        isa: Extensions beyond the level.
        variants: Whether it chooses among variants of the CPU backend at start.
        qemu_cpu: CPU model for qemu instead of the level's.
        wanted: Texts that must be in the programs' ``--help``.
        cuda: Whether a CUDA backend is inside.
        recipe: The recipe as the provenance holds it, for its launch profiles.
        host_os: What this machine runs; default: asked.
        cache_dir: Where a prepared Wine prefix (0.7 GB) is kept between runs, or None.
        reporter: Where progress goes.

    Raises:
        VerifyError: The sandbox itself does not work.
    """
    reporter = reporter or Silent()
    with held.scratch("qbuild-verify-") as scratch:
        plan = plan_for(
            target_os=target_os,
            cpu_level=cpu_level,
            isa=isa,
            qemu_cpu=qemu_cpu,
            host_os=host_os or host.system(),
            scratch=scratch,
            cache_dir=cache_dir,
            variants=variants,
        )
        suffix = ".exe" if target_os == "windows" else ""
        model = tiny_gguf.write(scratch / "tiny.gguf")
        programs = Programs(root=unpacked.resolve(), suffix=suffix, model=model, scratch=scratch)
        tried = [*steps(commit, number, wanted, cuda=cuda), *launch_steps(recipe or {}, target_os)]
        checks = [*_try_all(programs, plan.runners, tried, reporter), *plan.missing]
        if programs.networks:
            checks.append(_network_check(programs.networks))
    return tuple(checks)


def _try_all(
    programs: Programs, runners: Sequence[Runner], tried: Sequence[Step], reporter: Reporter
) -> Iterator[Check]:
    """Yield a check for each step in each way to run it."""
    todo = [
        (runner, step)
        for runner in runners
        for step in tried
        if (not step.runners or runner.id in step.runners)
        and (not runner.only or step.kind in runner.only)
    ]
    with reporter.task("run", total=len(todo), unit="steps") as task:
        for done, (runner, step) in enumerate(todo):
            task.update(done=done, note=f"{step.kind} in {runner.label}")
            yield _one(programs, runner, step)
            check_stop()  # a signal to the whole group ends the program, too
        task.update(done=len(todo))


def _one(programs: Programs, runner: Runner, step: Step) -> Check:
    id = f"run.{runner.id}.{step.kind}"
    here = [name for name in step.programs if programs.find(name)]
    title = f"{', '.join(here or step.programs[:1])}: {step.title} ({runner.label})"
    if not here:
        missing = " or ".join(f"{name}{programs.suffix}" for name in step.programs)
        return not_run(id, title, f"there is no {missing} in this bundle")
    if step.find is None:
        return not_run(id, title, step.why_not)
    started = time.monotonic()
    try:
        problems = step.find(programs, runner)
    except VerifyError as error:  # it could not even be started
        problems = [error.what]
    return judge(id, title, problems, seconds=time.monotonic() - started)


def _network_check(networks: set[str]) -> Check:
    title = "ran without a network"
    reasons = sorted(networks - {"loopback"})
    if reasons:
        return not_run("run.network", title, *reasons)
    return judge("run.network", title, ())
