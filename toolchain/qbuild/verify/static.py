"""``verify``: every check that reading a zip can settle, from its bytes alone.

Nothing is executed and nothing is believed: names, manifest and provenance are claims, the
binaries are what they are compared with. A zip that qbuild did not make has no claims; it is told
what is inside, and the checks that need a claim are reported as not run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild import bounds, held
from qbuild.binary.zip_reader import ZipView, open_zip
from qbuild.bundle.manifest import FILE_NAME as MANIFEST
from qbuild.bundle.manifest import Manifest, load_manifest
from qbuild.bundle.provenance import FILE_NAME as PROVENANCE
from qbuild.console import Reporter, Silent, Task
from qbuild.errors import ArchiveError, QbuildError, VerifyError
from qbuild.hashing import sha256_file
from qbuild.process import check_stop
from qbuild.verify import binaries, cpu, cuda, papers, patch_probes
from qbuild.verify.binaries import Images
from qbuild.verify.habits import unpacking_problems
from qbuild.verify.launch import launch_check
from qbuild.verify.remedies import remedies
from qbuild.verify.structure import Unpacked, repack_problems, structure_problems, unpack
from qbuild.verify.verdict import Check, Verdict, judge, not_run

_NO_MANIFEST: Final = f"the zip holds no {MANIFEST}; only qbuild's own make this claim"
_STEPS: Final = 14  # about how many checks there are; device code brings more
_WEB_UI: Final = "application/manifest+json"
"""Type of one of the UI's files: in the table of embedded files, and nowhere else in a server."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """An unpacked zip with its claims and its binaries."""

    name: str  # file name of the zip
    unpacked: Unpacked  # its files
    manifest: Manifest | None  # its claims, when it has any that can be read
    manifest_problem: str  # why not, when it has a manifest that cannot be read
    images: Images  # its binaries
    provenance: Mapping[str, Any] | None  # its provenance statement, when it can be read

    @property
    def target_os(self) -> str:
        """What it is for: the claim, else what its files are."""
        return str(self.manifest.target["os"]) if self.manifest else self.images.target_os

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe that the provenance holds, or an empty one."""
        found = papers.dig(
            self.provenance, "predicate", "buildDefinition", "externalParameters", "recipe"
        )
        return found if isinstance(found, Mapping) else {}

    @property
    def foreign(self) -> frozenset[str]:
        """Binaries that others compiled and the recipe only adds."""
        return binaries.foreign_files(self.images)


def verify_zip(path: Path, *, reporter: Reporter | None = None, gpu: str = "") -> Verdict:
    """Check a zip by reading it.

    Args:
        path: The zip; it is only read.
        reporter: Where progress goes.
        gpu: A GPU's name or compute capability: whether it runs the device code inside.

    Raises:
        VerifyError: The scratch folder cannot be written to.
        ArchiveError: There is no such file, or it cannot be read from disk.
    """
    reporter = reporter or Silent()
    try:
        digest = sha256_file(path)
    except OSError as error:
        what = f"{path.name} cannot be read: {error.strerror or error}"
        raise ArchiveError(what, where=str(path)) from error
    try:
        view = open_zip(path)
    except ArchiveError as error:
        refused = judge("archive", "the archive is sound", [error.what])
        return Verdict(zip_name=path.name, sha256=digest, checks=(refused,))
    with view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("unpack", total=total, unit="bytes") as task:
            unpacked = unpack(view, scratch / "files", task)
        bundle = read_bundle(path.name, unpacked)
        with reporter.task("verify", total=_STEPS) as task:
            checks: list[Check] = []
            for check in _checks(path, view, bundle, scratch, task, gpu):
                check_stop()
                checks.append(check)
                task.update(done=len(checks), total=max(_STEPS, len(checks)), note=check.title)
    check_stop()
    return Verdict(zip_name=path.name, sha256=digest, checks=tuple(checks))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a temporary folder.

    Raises:
        VerifyError: None can be made.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(held.scratch("qbuild-verify-"))
        except OSError as error:
            raise VerifyError(
                f"there is no place to unpack for checking: {error.strerror or error}",
                where=tempfile.gettempdir(),
                fix="point TMPDIR at a folder that can be written to",
            ) from error
        yield folder


def read_bundle(name: str, unpacked: Unpacked) -> Bundle:
    """Read the claims and the binaries of an unpacked zip."""
    manifest, problem = None, ""
    if MANIFEST in unpacked.files:
        try:
            manifest = load_manifest(bounds.read_bytes(unpacked.files[MANIFEST].path, bounds.JSON))
        except QbuildError as error:
            problem = error.what
        except OSError as error:
            problem = f"{MANIFEST} is {error.strerror}"
    try:
        provenance = papers.read_object(unpacked, PROVENANCE)
    except (KeyError, ValueError):
        provenance = None
    return Bundle(
        name=name,
        unpacked=unpacked,
        manifest=manifest,
        manifest_problem=problem,
        images=binaries.read_images(unpacked),
        provenance=provenance,
    )


def _timed(id: str, title: str, find: Callable[[], Iterable[str]], *seen: str) -> Check:
    started = time.monotonic()
    problems = tuple(find())
    return judge(id, title, problems, *seen, seconds=time.monotonic() - started)


def _checks(
    path: Path, view: ZipView, bundle: Bundle, scratch: Path, task: Task, gpu: str
) -> Iterator[Check]:
    """Make all checks, the cheap ones first."""
    unpacked, images, manifest = bundle.unpacked, bundle.images, bundle.manifest
    problems = (*unpacked.damaged.values(), *images.problems)
    if not images.names and manifest is None and not problems:
        problems = ("it holds no program, no library and no manifest: there is nothing to accept",)
    yield judge("archive", "the archive is sound", problems, f"{len(unpacked.files)} files")
    yield _packing(path, view, bundle, scratch)
    yield judge(
        "unpacking", "it unpacks as it should", list(unpacking_problems(view, unpacked, images))
    )
    yield from _papers(bundle)
    arch = str(manifest.target["arch"]) if manifest else "x86_64"
    yield judge(
        "machine",
        "every binary is for the target",
        binaries.machine_problems(images, bundle.target_os, arch),
        f"{len(images.names)} binaries for {bundle.target_os or 'no system'}, {arch}",
    )
    yield _closure(bundle)
    yield from cpu.level_checks(
        images,
        unpacked,
        level=str(manifest.target["cpu"]) if manifest else "",
        isa=papers.texts(manifest.target.get("isa")) if manifest else (),
        variants=manifest.target.get("variants") if manifest else cpu.variants_inside(images),
        foreign=bundle.foreign,
        task=task,
    )
    yield _traces(bundle)
    yield from _glibc(bundle)
    yield from _source(bundle)
    yield _web_ui(bundle)
    yield from cuda.checks(
        images,
        unpacked,
        name=bundle.name,
        manifest=manifest,
        recipe=bundle.recipe,
        target_os=bundle.target_os,
        gpu=gpu,
    )
    yield from launch_check(
        bundle.recipe, {name: file.path for name, file in unpacked.files.items()}, bundle.target_os
    )


def _packing(path: Path, view: ZipView, bundle: Bundle, scratch: Path) -> Check:
    id, title = "packing", "the archive is packed reproducibly"
    if bundle.manifest is None:
        return not_run(id, title, bundle.manifest_problem or _NO_MANIFEST)
    if bundle.unpacked.damaged:
        return not_run(id, title, "some of its files are damaged")

    def find() -> list[str]:
        return list(structure_problems(view)) or list(
            repack_problems(path, view, bundle.unpacked, scratch)
        )

    return _timed(id, title, find)


def _papers(bundle: Bundle) -> Iterator[Check]:
    manifest, unpacked = bundle.manifest, bundle.unpacked
    title = "files are those of the manifest"
    if manifest is None:
        missing = not_run("manifest", title, _NO_MANIFEST)
        yield (
            judge("manifest", title, [bundle.manifest_problem])
            if (bundle.manifest_problem)
            else missing
        )
        yield not_run("provenance", "provenance fits the files", _NO_MANIFEST)
        yield not_run("sbom", "the SBOM parses", _NO_MANIFEST)
        return
    yield judge(
        "manifest",
        title,
        (*papers.manifest_problems(manifest, unpacked),
         *papers.name_problems(manifest, bundle.name)),
        f"{len(manifest.files)} files with size and sha256",
    )  # fmt: skip
    title = "provenance fits the files"
    if bundle.provenance is None:
        yield judge("provenance", title, [f"{PROVENANCE}: is missing or no JSON object"])
    else:
        found = papers.provenance_problems(bundle.provenance, manifest, unpacked)
        yield judge("provenance", title, found)
    yield _sbom(manifest, unpacked)


def _sbom(manifest: Manifest, unpacked: Unpacked) -> Check:
    id, title = "sbom", "the SBOM parses"
    listed = manifest.by_role("sbom")
    if not listed:
        return judge(id, title, [f"{MANIFEST}: lists no file with the role sbom"])
    problems = []
    for entry in listed:
        try:
            data = papers.read_object(unpacked, entry.path)
        except KeyError:
            problems.append(f"{entry.path}: is missing")
        except ValueError as error:
            problems.append(f"{entry.path}: is not JSON ({error})")
        else:
            problems += papers.sbom_problems(data, entry.path, unpacked)
    return judge(id, title, problems)


def _closure(bundle: Bundle) -> Check:
    id, title = "closure", "everything it needs is inside or part of the system"
    # The manifest may claim any system; that it is a wrong one is said by the check `machine`.
    if bundle.target_os not in ("linux", "windows"):
        return not_run(id, title, "there are no programs of one known system inside")
    if bundle.unpacked.damaged:
        return not_run(id, title, "some of its files are damaged")
    if (repeated := binaries.repeated_name(bundle.images)) is not None:
        return judge(id, title, [f"{repeated[0]} and {repeated[1]}: two files answer to one name"])
    system_libstdcxx = papers.dig(bundle.recipe, "bundle", "system_libstdcxx") is True
    cuda_runtime = papers.dig(bundle.recipe, "bundle", "cuda_runtime") == "separate"

    def find() -> list[str]:
        result = binaries.closure_of(
            bundle.images,
            bundle.target_os,
            system_libstdcxx=system_libstdcxx,
            cuda_runtime=cuda_runtime,
            user_brings=papers.user_brings(bundle.recipe),
        )
        missing = [each.needs for each in result.problems if each.kind == "missing"]
        said = [str(problem) for problem in result.problems]
        return [*said, *remedies(missing, bundle.unpacked.files)]

    return _timed(id, title, find)


def _traces(bundle: Bundle) -> Check:
    """Whether the build machine shows; nobody promised that of a zip that others made."""
    id, title = "traces", "nothing of the build machine"
    images, unpacked = bundle.images, bundle.unpacked
    if bundle.manifest is not None or bundle.manifest_problem:
        return _timed(id, title, lambda: binaries.trace_problems(images, unpacked, bundle.foreign))
    found = list(binaries.trace_problems(images, unpacked, bundle.foreign))
    if not found:
        return judge(id, title, [])
    timed = [each for each in found if "holds a time" in each]
    lines = [f"{len(timed)} files hold the time they were linked at"] if timed else []
    others = len(found) - len(timed)
    lines += [f"{others} more traces, e.g. {found[-1]}"] if others else []
    return not_run(id, title, *lines, _NO_MANIFEST)


def _glibc(bundle: Bundle) -> Iterator[Check]:
    if bundle.target_os != "linux":
        return
    id, title = "glibc", "runs on the glibc it names"
    needs = binaries.glibc_needed(bundle.images)
    seen = [f"needs {version[0]}.{version[1]}" for version in list(needs.values())[:1]]
    if bundle.manifest is None or "glibc" not in bundle.manifest.target:
        yield not_run(id, title, *seen, _NO_MANIFEST)
        return
    promised = str(bundle.manifest.target["glibc"])
    yield judge(id, title, binaries.glibc_problems(needs, promised), *seen)


def _source(bundle: Bundle) -> Iterator[Check]:
    manifest, images, unpacked = bundle.manifest, bundle.images, bundle.unpacked
    if manifest is None:
        yield not_run("source", "binaries hold the pinned commit id", _NO_MANIFEST)
        yield not_run("patches", "each patch is in the binaries", _NO_MANIFEST)
        return
    commit = str(manifest.source["commit"])
    yield _timed(
        "source",
        "binaries hold the pinned commit id",
        lambda: binaries.source_problems(images, unpacked, commit),
    )
    wanted, without = patch_probes.probes_of(manifest)
    readable, rest = patch_probes.split_by_kind(wanted)
    problems = [p for item in readable if (p := patch_probes.probe_problem(item, images, unpacked))]
    title = "each patch is in the binaries"
    total = sum(len(papers.texts(series.get("patches"))) for series in manifest.series)
    others = total - len(wanted) - len(without)
    seen = f"seen: {len(readable)} of {total}" if readable else "no patch has to be seen here"
    if readable and others > 0:
        seen += f"; {others} for another system or linkage"
    yield judge("patches", title, problems, seen)
    unseen = [*rest, *(f"{label}: nothing says how to see it" for label in without)]
    if unseen:
        hint = "their programs' --help says it: `qbuild verify --run` asks for it" if rest else ""
        details = (*unseen, hint) if hint else unseen
        yield not_run("patches.unseen", "patches that reading cannot see", *details)


def _web_ui(bundle: Bundle) -> Check:
    """Whether the page that the papers promise is in the programs, and no other."""
    id, title = "web-ui", "the web UI is inside or not, as the manifest says"
    having = patch_probes.files_with(_WEB_UI, bundle.images, bundle.unpacked)
    seen = f"inside: {', '.join(having)}" if having else "not inside"
    if bundle.manifest is None:
        return not_run(id, title, seen, _NO_MANIFEST)
    promised = bundle.manifest.features.get("web_ui")
    if having and promised is not True:
        return judge(
            id, title, [f"{having[0]}: holds a web UI, {MANIFEST} says that none is inside"]
        )
    if promised is True and not having:
        return judge(id, title, [f"no program holds the web UI that {MANIFEST} promises"])
    return judge(id, title, [], seen)
