"""Read a zip, the records beside it and the store into a report."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from qbuild.binary.zip_reader import ZipView, open_zip
from qbuild.console import Reporter, Silent
from qbuild.errors import ArchiveError
from qbuild.extras.report import changes, contents, history
from qbuild.extras.report.data import Fact, GpuCode, Patch, Report
from qbuild.extras.report.speed import speed_beside
from qbuild.recipe import toml
from qbuild.recipe.isa import EXTENSIONS
from qbuild.recipe.levels import LEVELS
from qbuild.recipe.rebuild import recipe_words
from qbuild.store import Store
from qbuild.verify import papers
from qbuild.verify.papers import dig, texts
from qbuild.verify.static import Bundle, read_bundle, scratch_folder, verify_zip
from qbuild.verify.structure import unpack
from qbuild.verify.verdict import Verdict

MOST_FILES: Final = 300  # files that a page lists; a zip of ours has a tenth of them

_MOST: Final = 100
_INNER: Final = ("predicate", "buildDefinition", "internalParameters")


def collect(
    path: Path,
    *,
    other: Path | None = None,
    store: Store | None = None,
    reporter: Reporter | None = None,
) -> Report:
    """Read everything a report says about a zip.

    Args:
        path: The zip; it is only read, and checked by reading. Verdict and build record are
            looked for beside it.
        other: Another zip to compare it with.
        store: Where the record of its compile may lie.
        reporter: Where progress goes.

    Raises:
        ArchiveError: A zip is damaged or cannot be read.
        VerifyError: There is no room to unpack it for reading.
    """
    reporter = reporter or Silent()
    try:
        size = path.stat().st_size
    except OSError as error:
        what = f"{path.name} cannot be read: {error.strerror or error}"
        raise ArchiveError(what, where=str(path)) from error
    found = verify_zip(path, reporter=reporter)
    with open_zip(path) as view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("read", total=total, unit="bytes") as task:
            unpacked = unpack(view, scratch / "files", task)
        bundle = read_bundle(path.name, unpacked)
        compared = None
        if other is not None:
            reporter.say(f"compare with {other.name}")
            compared = changes.against(path, other)
        return _report(path, view, bundle, found, size, total, store, compared)


def _report(
    path: Path,
    view: ZipView,
    bundle: Bundle,
    found: Verdict,
    size: int,
    total: int,
    store: Store | None,
    compared: Any,
) -> Report:
    closure = contents.closure_of(bundle)
    items = tuple(contents.items_of(bundle, view, closure))
    rest = items[MOST_FILES:]
    gpu, gpus = contents.gpu_of(bundle)
    manifest = bundle.manifest
    problems = [*bundle.unpacked.damaged.values(), *bundle.images.problems]
    if bundle.manifest_problem:
        problems.append(bundle.manifest_problem)
    elif manifest is not None:
        problems += papers.manifest_problems(manifest, bundle.unpacked)
    if closure is not None:
        problems += [str(problem) for problem in closure.problems]
    cmake = dig(bundle.provenance, *_INNER, "cmake")
    return Report(
        zip_name=path.name,
        sha256=found.sha256,
        size=size,
        unpacked=total,
        summary=_summary(bundle),
        ours=manifest is not None,
        problems=tuple(problems[:_MOST]),
        labels=_labels(bundle, gpu),
        key_facts=_key_facts(bundle, size, total, len(items), gpu),
        files=items[:MOST_FILES],
        left_out=(len(rest), sum(item.size for item in rest)),
        needs=contents.needs_of(bundle, closure)[:_MOST],
        cpu=_cpu(bundle),
        switches=_switches(cmake),
        gpu=gpu[:_MOST],
        gpus=gpus[:_MOST],
        patches=tuple(itertools.islice(_patches(bundle), _MOST)),
        pins=_pins(bundle)[:_MOST],
        checked=history.checked(path, found),
        built=history.built_of(path, found.sha256, store),
        rebuild=_rebuild(bundle, path.name),
        recipe=_recipe_toml(bundle.recipe),
        against=compared,
        speed=speed_beside(path, found.sha256),
    )


def _summary(bundle: Bundle) -> str:
    manifest = bundle.manifest
    if manifest is None:
        return "Not a zip of qbuild's, or its manifest cannot be read: no claims, only files"
    summary = dig(bundle.recipe, "summary")
    return (
        str(summary) if summary else f"llama.cpp {manifest.version} from recipe {manifest.recipe}"
    )


def _labels(bundle: Bundle, gpu: tuple[GpuCode, ...]) -> tuple[str, ...]:
    labels = []
    if bundle.target_os == "windows":
        labels.append(
            "It was not run on a real Windows by those who built it. Where a check below says that "
            "its programs ran, that was in Wine on Linux."
        )
    if any(code.ours for code in gpu) and not _gpu_validated(bundle):
        labels.append("Its GPU code was not run on a real GPU by those who built it.")
    return tuple(labels)


def _gpu_validated(bundle: Bundle) -> bool:
    return bool(bundle.manifest and bundle.manifest.features.get("gpu_validated") is True)


def _key_facts(
    bundle: Bundle, size: int, total: int, files: int, gpu: tuple[GpuCode, ...]
) -> tuple[Fact, ...]:
    manifest = bundle.manifest
    facts = [Fact(label="Download", value=megabytes(size), note=f"{megabytes(total)} unpacked")]
    system = {"windows": "Windows", "linux": "Linux"}.get(bundle.target_os, "not known")
    note = f"{files} files"
    if manifest is not None:
        arch = str(manifest.target["arch"])
        glibc = manifest.target.get("glibc")
        note = f"{arch}, glibc {glibc} or newer" if glibc else f"{arch}, Windows 10 or newer"
    facts.append(Fact(label="System", value=system, note=note))
    if manifest is not None:
        level = str(manifest.target["cpu"])
        facts.append(Fact(label="Processor", value=level, note=_short(_needs(level))))
        version = str(manifest.source.get("version") or manifest.version)
        count = sum(1 for _ in _patches(bundle))
        note = f"{count} patches" if count else "no patches"
        facts.append(
            Fact(label="llama.cpp", value=str(manifest.source["commit"])[:9],
                 note=f"{version}, {note}")
        )  # fmt: skip
    archs = sorted({line.split()[0] for code in gpu if code.ours for line, _, _ in code.archs})
    facts.append(
        Fact(
            label="GPU code",
            value="CUDA" if archs else "none",
            note=", ".join(archs) if archs else "everything runs on the processor",
        )
    )
    return tuple(facts)


def _needs(level: str) -> str:
    """Return which processors have a level; "" for what the manifest calls one and is none."""
    return known.needs if (known := LEVELS.get(level)) else ""


def _short(text: str) -> str:
    """Return a processor level's words up to the first example."""
    return text.partition(": ")[0].removeprefix("a processor ")


def megabytes(size: float) -> str:
    """Return a size as people read it."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(size) >= step:
            return f"{size / step:.{1 if abs(size) < 100 * step else 0}f} {unit}"
    return f"{size:.0f} B"


def _cpu(bundle: Bundle) -> tuple[Fact, ...]:
    manifest = bundle.manifest
    facts = []
    if manifest is not None:
        level = str(manifest.target["cpu"])
        extra = texts(manifest.target.get("isa"))
        value = level + (f" with {', '.join(extra)}" if extra else "")
        facts.append(Fact(label="Promised level", value=value, note=_needs(level)))
    if options := dig(bundle.recipe, "build", "options"):
        shown = ", ".join(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in options.items()
        ) if isinstance(options, Mapping) else ""  # fmt: skip
        facts.append(Fact(label="Build options of the recipe", value=shown or "none"))
    details = manifest.features.get("cuda_details") if manifest else None
    if isinstance(details, Mapping):
        facts.append(
            Fact(
                label="CUDA",
                value=f"toolkit {details.get('toolkit')}",
                note=f"needs NVIDIA's driver {details.get('driver')} or newer",
            )
        )
    linkage = dig(bundle.recipe, "build", "linkage")
    if linkage:
        note = (
            "each tool is one file that can be copied alone"
            if linkage == "static"
            else "the tools share the libraries beside them"
        )
        facts.append(Fact(label="Linkage", value=str(linkage), note=note))
    return tuple(facts)


def _switches(cmake: object) -> tuple[tuple[str, bool], ...]:
    if not isinstance(cmake, Mapping):
        return ()
    return tuple(
        (name, cmake[option] is True) for name, option in EXTENSIONS.items() if option in cmake
    )


def _patches(bundle: Bundle) -> Any:
    manifest = bundle.manifest
    for series in manifest.series if manifest else ():
        found = series.get("patches")
        for patch in found if isinstance(found, list) else ():
            yield Patch(
                series=str(series.get("name")),
                file=str(dig(patch, "file") or ""),
                subject=str(dig(patch, "subject") or dig(patch, "file") or ""),
                why=str(dig(patch, "why") or ""),
                sha256=str(dig(patch, "sha256") or ""),
            )


def _pins(bundle: Bundle) -> tuple[Fact, ...]:
    manifest = bundle.manifest
    if manifest is None:
        return ()
    source = manifest.source
    facts = [
        Fact(label="llama.cpp commit", value=str(source["commit"]),
             note=str(source.get("date") or "")),
        Fact(label="llama.cpp tree", value=str(source["tree"])),
        Fact(label="Patched tree", value=str(manifest.patched["tree"]),
             note="what was compiled: the pin with every patch applied"),
    ]  # fmt: skip
    if repository := source.get("repository"):
        facts.append(Fact(label="Published at", value=str(repository)))
    toolchain = manifest.toolchain
    facts.append(
        Fact(
            label="Toolchain",
            value=f"{toolchain.get('name', '')} {toolchain.get('version', '')}".strip(),
            note=str(toolchain.get("triple") or ""),
        )
    )
    wheels = dig(bundle.provenance, *_INNER, "lock", "wheels")
    for wheel in wheels if isinstance(wheels, list) else ():
        facts.append(
            Fact(
                label=f"{dig(wheel, 'project')} {dig(wheel, 'version')}",
                value=str(dig(wheel, "sha256") or ""),
                note=str(dig(wheel, "filename") or ""),
            )
        )
    return tuple(facts)


def _rebuild(bundle: Bundle, zip_name: str) -> tuple[Fact, ...]:
    manifest = bundle.manifest
    facts = [
        Fact(label="Check it again", value=f"qbuild verify --run {zip_name}",
             note="reads every file; with --run its programs run too, in a sandbox"),
    ]  # fmt: skip
    if manifest is None:
        return tuple(facts)
    words = recipe_words(bundle.recipe) if bundle.recipe else (
        "--recipe", manifest.recipe, "--os", str(manifest.target["os"])
    )  # fmt: skip
    where = shlex.join(words)
    version = dig(bundle.provenance, "predicate", "runDetails", "builder", "version", "qbuild")
    note = "the same bytes come out of the same qbuild, recipe, lockfile and patches"
    return (
        *facts,
        Fact(
            label="Build it again",
            value=f"qbuild {where}",
            note=f"{note}; it was made with qbuild {version}" if version else note,
        ),
        Fact(
            label="Prove it",
            value=f"qbuild reproduce {where}",
            note="two builds from scratch in different folders, time zones and job counts",
        ),
    )


def _recipe_toml(recipe: Mapping[str, Any]) -> str:
    """Return the resolved recipe as TOML, or nothing when the zip holds none."""
    try:
        return toml.dumps(recipe) if recipe else ""
    except (ValueError, TypeError, RecursionError):  # e.g. a null, which TOML cannot say
        return ""
