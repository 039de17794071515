"""What is inside a zip and why: files, what their bytes are, who loads what, GPU code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from qbuild.binary.fatbin import read_fatbin_data
from qbuild.binary.zip_reader import ZipView
from qbuild.bundle.closure import is_library
from qbuild.cuda.device_code import families
from qbuild.errors import QbuildError
from qbuild.extras.report.data import GpuCode, Item, Kind, Needs, Part
from qbuild.verify import binaries, papers
from qbuild.verify.static import Bundle

if TYPE_CHECKING:
    from qbuild.binary.fatbin import FatReport
    from qbuild.binary.image import Section
    from qbuild.bundle.closure import Closure

_KINDS: Final[Mapping[str, Kind]] = {
    "executable": "program",
    "library": "library",
    "backend": "backend",
    "script": "script",
    "licence": "licence",
    "doc": "paper",
    "provenance": "paper",
    "sbom": "paper",
}
_PAPERS: Final[Mapping[str, str]] = {
    "manifest.json": "lists every file with its sha256",
    "provenance.json": "says from what it was made",
    "sbom.cdx.json": "lists the parts and their licences (CycloneDX)",
    "README.txt": "for the person who unpacks the zip",
}
_CONSTANTS: Final = (".rdata", ".rodata", ".data.rel.ro")
_TABLES: Final = (
    ".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".pdata", ".xdata", ".reloc", ".edata",
    ".idata", ".dynsym", ".dynstr", ".symtab", ".strtab", ".shstrtab", ".gnu.hash", ".hash",
    ".gnu.version", ".gnu.version_r", ".rela.dyn", ".rela.plt", ".relr.dyn", ".got", ".got.plt",
)  # fmt: skip
_NAMES_SHOWN: Final = 3


def closure_of(bundle: Bundle) -> Closure | None:
    """Return who needs what, or nothing for a zip without programs of one system."""
    if not bundle.images.names or not bundle.target_os:
        return None
    system = papers.dig(bundle.recipe, "bundle", "system_libstdcxx") is True
    separate = papers.dig(bundle.recipe, "bundle", "cuda_runtime") == "separate"
    try:
        return binaries.closure_of(
            bundle.images,
            bundle.target_os,
            system_libstdcxx=system,
            cuda_runtime=separate,
            user_brings=papers.user_brings(bundle.recipe),
        )
    except (QbuildError, KeyError):  # a claimed system that there is no table for
        return None


def needs_of(bundle: Bundle, closure: Closure | None) -> tuple[Needs, ...]:
    """Return what each program and library loads, programs first."""
    if closure is None:
        return ()
    full = {PurePosixPath(name).name: name for name in bundle.images.names}
    windows = bundle.target_os == "windows"
    inside = {(name.lower() if windows else name): name for name in closure.files}

    def row(name: str) -> Needs:
        found: dict[str, list[str]] = defaultdict(list)
        for need in closure.files[name].needs:
            shown = need.name
            if need.where == "bundle":
                shown = inside.get(need.name.lower() if windows else need.name, need.name)
            found[need.where].append(shown)
        once = {where: tuple(dict.fromkeys(names)) for where, names in found.items()}
        return Needs(
            name=name,
            kind=kind_of(bundle, full[name]),
            inside=once.get("bundle", ()),
            system=once.get("system", ()),
            driver=once.get("driver", ()),
            missing=once.get("missing", ()),
            users=closure.files[name].needed_by,
        )

    order = {"program": 0, "library": 1, "backend": 2}
    rows = [row(name) for name in closure.files]
    return tuple(sorted(rows, key=lambda each: (order.get(each.kind, 3), each.name)))


def kind_of(bundle: Bundle, path: str) -> Kind:
    """Return what a file is for: the manifest's word, else what its bytes and name say."""
    entry = bundle.manifest.file(path) if bundle.manifest else None
    if entry is not None:
        return _KINDS.get(entry.role, "other")
    if path in _PAPERS:
        return "paper"
    image = bundle.images.every.get(path)
    if image is not None:
        return "library" if is_library(image) else "program"
    if PurePosixPath(path).suffix.lower() in (".bat", ".cmd", ".ps1", ".sh"):
        return "script"
    name = path.lower()
    return "licence" if "license" in name or "licence" in name or "copying" in name else "other"


def items_of(bundle: Bundle, view: ZipView, closure: Closure | None) -> Iterator[Item]:
    """Yield every file of the zip, largest first."""
    for name in sorted(view.names, key=lambda each: (-view.member(each).size, each)):
        member = view.member(name)
        image = bundle.images.every.get(name)
        yield Item(
            path=name,
            kind=kind_of(bundle, name),
            size=member.size,
            packed=member.packed,
            why=_why(bundle, name, closure),
            parts=_parts(image.sections, member.size) if image is not None else (),
        )


def _why(bundle: Bundle, path: str, closure: Closure | None) -> str:
    if path in bundle.unpacked.damaged:
        return f"damaged: {bundle.unpacked.damaged[path]}"
    kind = kind_of(bundle, path)
    if path in _PAPERS:
        return _PAPERS[path]
    base = PurePosixPath(path).name
    deps = closure.files.get(base) if closure else None
    users = [name for name in deps.needed_by if name != base] if deps else []
    if kind == "program":
        targets = papers.texts(papers.dig(bundle.recipe, "build", "targets"))
        asked = base.removesuffix(".exe") in targets
        return "the recipe asks for it" if asked else "a program to start"
    if users:
        return f"needed by {_some(users)}"
    if kind == "backend":
        return "a backend: ggml looks for it beside the programs and loads it at run time"
    if kind == "library":
        return "no file inside names it; if it is used, then loaded by name at run time"
    return {
        "licence": "a text that must go along with what is inside",
        "script": "starts a program with fitting options",
        "paper": "documentation",
    }.get(kind, "")


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _parts(sections: tuple[Section, ...], size: int) -> tuple[tuple[Part, int], ...]:
    """Return what the bytes of a program are, largest first; the parts add up to its size."""
    sums: dict[Part, int] = defaultdict(int)
    left = size
    for section in sections:
        part: Part = "rest"
        if section.executable:
            part = "code"
        elif section.name.startswith((".nv_fatb", "__nv_rel")):
            part = "gpu"
        elif section.name.startswith(_CONSTANTS):
            part = "constants"
        elif section.name in _TABLES:
            part = "tables"
        taken = min(left, max(0, section.size))
        sums[part] += taken
        left -= taken
    sums["rest"] += left
    return tuple(sorted(((p, n) for p, n in sums.items() if n), key=lambda each: -each[1]))


def gpu_of(bundle: Bundle) -> tuple[tuple[GpuCode, ...], tuple[tuple[str, str], ...]]:
    """Return the CUDA code by file, and how each family of GPUs runs llama.cpp's kernels."""
    found: list[GpuCode] = []
    kernels: list[FatReport] = []
    for name, image in sorted(bundle.images.every.items()):
        if not binaries.has_device_code(image):
            continue
        ours = name not in bundle.foreign
        try:
            with binaries.mapped(bundle.unpacked, name) as data:
                report = read_fatbin_data(data)
        except QbuildError as error:
            found.append(GpuCode(path=name, ours=ours, problem=error.what))
            continue
        if ours:
            kernels.append(report)
        incomplete = "; ".join(
            f"{lacking} of its compiled units lack the {_code(kind)} for {arch}"
            for (kind, arch), lacking in report.incomplete.items()
        )
        found.append(
            GpuCode(
                path=name,
                ours=ours,
                archs=_archs(report),
                compression=report.compression,
                problem=incomplete if ours else "",
            )
        )
    rows: tuple[tuple[str, str], ...] = ()
    for report in kernels:
        try:
            rows += families(report)
        except QbuildError as error:
            found.append(GpuCode(path="", ours=True, problem=error.what))
    return tuple(found), rows


def _code(kind: str) -> str:
    return {"cubin": "machine code", "ptx": "PTX"}.get(kind, "other code")


def _archs(report: FatReport) -> tuple[tuple[str, int, int], ...]:
    pieces: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for entry in report.entries:
        number = int(entry.arch.rstrip("af"))
        pieces[number, entry.arch, entry.kind].append(entry.size)
    return tuple(
        (f"sm_{arch} {_code(kind)}" if kind == "cubin" else f"compute_{arch} {_code(kind)}",
         len(sizes), sum(sizes))
        for (_, arch, kind), sizes in sorted(pieces.items())
    )  # fmt: skip
