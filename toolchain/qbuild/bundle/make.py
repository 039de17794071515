"""The bundle: exactly the files that are needed, their licences and papers, in one zip.

What ships is found from the import tables of the staged binaries, never from a list and never by
running them. A library nobody asks for stays out; one that is asked for and is neither staged
nor part of the target system stops the run.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from qbuild.binary.elf import read_elf
from qbuild.binary.pe import read_pe
from qbuild.binary.zip_writer import ZipEntry, write_sha256, write_zip
from qbuild.bundle import closure, provenance, readme, sbom, third_party
from qbuild.bundle import manifest as manifests
from qbuild.bundle.facts import BundleFacts
from qbuild.bundle.manifest import ManifestFile, Role
from qbuild.errors import BundleError
from qbuild.hashing import sha256_file
from qbuild.recipe.variants import useful, variant_of

if TYPE_CHECKING:
    from qbuild.binary.elf import ElfImage
    from qbuild.binary.pe import PeImage

Image: TypeAlias = "PeImage | ElfImage"

__all__ = ["BundleFacts", "BundleResult", "ExtraFile", "make_bundle"]

LICENCES: Final = "licenses"
_BACKENDS: Final[Mapping[bool, tuple[str, ...]]] = {True: ("ggml-*.dll",), False: ("libggml-*.so",)}
"""What ggml looks for beside the executable (`ggml-backend-reg.cpp`), by "is Windows"."""

_NOT_BACKENDS: Final = ("ggml-base.dll", "libggml-base.so")
_BACKEND_HOST: Final[Mapping[bool, re.Pattern[str]]] = {
    True: re.compile(r"(lib)?ggml\.dll"),
    False: re.compile(r"libggml\.so(\.\d+)*"),
}


@dataclass(frozen=True, kw_only=True)
class ExtraFile:
    """A file that no import table asks for: a launch script, a page of documentation."""

    name: str
    content: bytes
    role: Role
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class BundleResult:
    """The finished zip: where, its sha256 (hex), bytes, its `.sha256` file, names inside."""

    zip: Path
    sha256: str
    size: int
    sum_file: Path
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Linked:
    """A binary as its tables describe it: the image, its soname ("" on Windows), what it loads."""

    image: Image
    soname: str
    loads: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Binary:
    """A staged binary under the name it ships with."""

    name: str
    path: Path
    linked: _Linked
    role: Role
    needed_by: tuple[str, ...] = ()


def make_bundle(
    *,
    stage: Path,
    source_tree: Path,
    toolchain_licences: Mapping[str, Path],
    facts: BundleFacts,
    dest_dir: Path,
    extras: Sequence[ExtraFile] = (),
    provided: Mapping[str, Path] | None = None,
) -> BundleResult:
    """Make the zip of a staged build and its ``.sha256`` in ``dest_dir``.

    Args:
        stage: Installed tree: ``bin/`` (executables; DLLs on Windows), ``lib/`` (Linux).
        source_tree: The patched source, for licence texts and vendored versions.
        toolchain_licences: Project of a wheel → folder it is unpacked in, e.g. ``ziglang``.
            A *file* is copied to ``licenses/<key>`` as it is.
        facts: What the bundle's papers say.
        dest_dir: Where the zip goes; made when missing.
        extras: More files to ship.
        provided: Name → file of libraries that ship when an import table asks for them: NVIDIA's
            and Microsoft's from wheels, OpenBLAS.

    Raises:
        BundleError: An executable or library is missing, a licence is not found, or a paper
            would hold the name of a folder of this machine.
        BinaryError: A staged binary is damaged.
        ArchiveError: The zip cannot be written.
    """
    binaries = _select(stage, facts, provided or {})
    inputs = {name: path for name, path in toolchain_licences.items() if path.is_dir()}
    found = third_party.find(
        facts, source_tree=source_tree, inputs=inputs, files=[binary.name for binary in binaries]
    )
    files = _Files()
    for binary in binaries:
        program = binary.role == "executable"
        files.add(binary.name, binary.path, binary.role, program, binary.needed_by)
    for name, text in _licence_files(found, toolchain_licences):
        files.add(f"{LICENCES}/{name}", text, "licence")
    for extra in extras:
        files.add(extra.name, extra.content, extra.role, extra.executable)
    papers = _add_papers(files, facts, found)
    _check_no_folders(papers, (stage, source_tree, dest_dir, *toolchain_licences.values()))
    written = write_zip(dest_dir / facts.zip_name, files.entries)
    return BundleResult(
        zip=written.path,
        sha256=written.sha256,
        size=written.size,
        sum_file=write_sha256(written.path, written.sha256),
        names=tuple(sorted(entry.name for entry in files.entries)),
    )


class _Files:
    """What goes into the zip, as entries and as the manifest lists it."""

    def __init__(self) -> None:
        self.entries: list[ZipEntry] = []
        self.listed: list[ManifestFile] = []

    def add(
        self,
        name: str,
        source: Path | bytes,
        role: Role,
        executable: bool = False,
        needed_by: tuple[str, ...] = (),
    ) -> None:
        """Add a file; all but the manifest are listed in it."""
        self.entries.append(ZipEntry(name=name, source=source, executable=executable))
        if isinstance(source, bytes):
            size, digest = len(source), hashlib.sha256(source).hexdigest()
        else:
            size, digest = source.stat().st_size, sha256_file(source)
        self.listed.append(
            ManifestFile(
                path=name,
                size=size,
                sha256=digest,
                role=role,
                needed_by=needed_by,
                executable=executable,
            )
        )


def _add_papers(
    files: _Files, facts: BundleFacts, found: Sequence[third_party.Found]
) -> dict[str, bytes]:
    """Add README, SBOM, provenance and, last, the manifest; return those that name no folder."""
    if facts.recipe.bundle.readme:
        files.add(readme.FILE_NAME, readme.make_readme(facts, found), "doc")
    papers = {sbom.FILE_NAME: sbom.sbom_json(facts, files.listed, found)}
    files.add(sbom.FILE_NAME, papers[sbom.FILE_NAME], "sbom")
    papers[provenance.FILE_NAME] = provenance.provenance_json(facts, files.listed)
    files.add(provenance.FILE_NAME, papers[provenance.FILE_NAME], "provenance")
    papers[manifests.FILE_NAME] = manifests.make_manifest(facts, tuple(files.listed)).to_json()
    files.entries.append(ZipEntry(name=manifests.FILE_NAME, source=papers[manifests.FILE_NAME]))
    return papers


def _licence_files(
    found: Iterable[third_party.Found], given: Mapping[str, Path]
) -> list[tuple[str, bytes]]:
    texts = {name: text for item in found for name, text in item.texts}
    for name, path in given.items():
        if path.is_file():
            texts[name] = path.read_bytes().replace(b"\r\n", b"\n")
        elif not path.is_dir():
            raise BundleError(f"the licence text {name} is missing", where=str(path))
    return sorted(texts.items())


def _check_no_folders(papers: Mapping[str, bytes], folders: Iterable[Path]) -> None:
    """Refuse papers that tell where they were made: two machines must write the same ones."""
    for folder in folders:
        for spelled in {str(folder), folder.as_posix(), str(folder).replace("\\", "\\\\")}:
            for name, content in papers.items():
                if folder.is_absolute() and len(folder.parts) > 2 and spelled.encode() in content:
                    raise BundleError(
                        f"{name} would hold the name of a folder of this machine",
                        where=f"{name}: {spelled}",
                        fix="this is a fault of qbuild; please report it",
                    )


# -- which binaries ----------------------------------------------------------------------------


def _fold(name: str, *, windows: bool) -> str:
    return name.lower() if windows else name


def _select(stage: Path, facts: BundleFacts, provided: Mapping[str, Path]) -> tuple[_Binary, ...]:
    """Return the executables and everything they load, sorted by name."""
    windows = facts.windows
    candidates = {
        name: _Binary(name=name, path=path, linked=_read(path, windows=windows), role="library")
        for name, path in provided.items()
    } | _libraries(stage, facts)
    chosen: dict[str, _Binary] = {}
    queue: deque[str] = deque()
    for target in facts.recipe.build.targets:
        name = f"{target}.exe" if windows else target
        path = stage / "bin" / name
        if not path.is_file():
            raise BundleError(
                f"target `{target}` has no executable {name} in the stage",
                where="build.targets",
                fix="only targets that are programs can ship",
            )
        linked = _read(path, windows=windows)
        chosen[name] = _Binary(name=name, path=path, linked=linked, role="executable")
        queue.append(name)
    runtime_loaded = sorted(n for n, c in candidates.items() if c.role == "backend")
    users: dict[str, set[str]] = {}
    hosts = [name for name in candidates if _BACKEND_HOST[windows].fullmatch(name)]
    for name in runtime_loaded:
        chosen[name] = candidates[name]
        users[name] = set(hosts)
        queue.append(name)
    by_key = {_fold(name, windows=windows): name for name in candidates}
    while queue:
        user = queue.popleft()
        for wanted in chosen[user].linked.loads:
            name = by_key.get(_fold(wanted, windows=windows), "")
            if not name:
                continue
            users.setdefault(name, set()).add(user)
            if name not in chosen:
                chosen[name] = candidates[name]
                queue.append(name)
    images = {name: binary.linked.image for name, binary in chosen.items()}
    if problems := _problems(images, facts, runtime_loaded):
        raise BundleError(
            "the bundle is not complete:\n  " + "\n  ".join(problems),
            where=facts.name,
            fix="stage the library, or add it to the table of system libraries if it is one",
        )
    return tuple(
        # Hosts of a backend may be absent: a static build has none.
        replace(binary, needed_by=tuple(sorted(users.get(name, set()) & chosen.keys())))
        for name, binary in sorted(chosen.items())
    )


def _read(path: Path, *, windows: bool) -> _Linked:
    if windows:
        pe = read_pe(path)
        loads = [entry.dll for entry in pe.imports] + [entry.dll for entry in pe.forwards]
        return _Linked(image=pe, soname="", loads=tuple(loads))

    elf = read_elf(path)
    return _Linked(image=elf, soname=elf.soname or "", loads=tuple(elf.needed))


def _problems(
    images: Mapping[str, Image], facts: BundleFacts, runtime_loaded: Sequence[str]
) -> list[str]:
    """Return what is missing for these files to load on the target, one line each."""
    result = closure.resolve(
        images,
        target_os=facts.recipe.target.os,
        table=closure.load_table(facts.recipe.target.os, *_extra_groups(facts)),
        runtime_loaded=runtime_loaded,
    )
    return [str(problem) for problem in result.problems]


def _extra_groups(facts: BundleFacts) -> tuple[str, ...]:
    recipe = facts.recipe
    groups = []
    if recipe.cuda.architectures:
        separate = recipe.bundle.cuda_runtime == "separate"
        groups.append("cuda-runtime" if separate else "cuda")
        if recipe.bundle.cublas == "separate":
            groups.append("cublas")
    if recipe.openblas.origin == "system":
        groups.append("openblas")
    if recipe.bundle.vc_runtime == "installed":
        groups.append("vc-runtime")
    return tuple(groups)


def _is_backend(name: str, *, windows: bool) -> bool:
    folded = _fold(name, windows=windows)
    return folded not in _NOT_BACKENDS and any(
        fnmatchcase(folded, pattern) for pattern in _BACKENDS[windows]
    )


def _libraries(stage: Path, facts: BundleFacts) -> dict[str, _Binary]:
    """Return the staged libraries by the name that their users ask for.

    On Linux a library lies there under up to three names (``libx.so``, ``libx.so.0``,
    ``libx.so.0.1.2``; links or copies): users ask for its soname, so only that one counts.
    A backend is opened by file name instead.

    Raises:
        BundleError: Two different files answer to one name.
    """
    windows = facts.windows
    loads_backends = _option(facts, "GGML_BACKEND_DL")
    folders = [stage / "bin"] if windows else [stage / "bin", stage / "lib"]
    found: dict[str, _Binary] = {}
    for path in sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        library = path.suffix.lower() == ".dll" if windows else ".so" in path.suffixes
        if not (library and path.is_file()):
            continue
        linked = _read(path, windows=windows)
        backend = loads_backends and _is_backend(path.name, windows=windows)
        variant = variant_of(path.name)
        if variant and variant not in useful(facts.recipe.target.cpu):
            continue
        name = path.name
        if linked.soname and not backend:
            name = linked.soname
        other = found.get(name)
        if other is not None and sha256_file(other.path) != sha256_file(path):
            raise BundleError(
                f"two different staged files are {name}",
                where=f"{other.path.name} and {path.name}",
                fix="clean the stage and build again",
            )
        if other is None or path.name == name:
            role: Role = "backend" if backend else "library"
            found[name] = _Binary(name=name, path=path, linked=linked, role=role)
    return found


def _option(facts: BundleFacts, name: str) -> bool:
    """Return whether a CMake option is on (absent: off)."""
    return str(facts.cmake.get(name, "off")).lower() in {"1", "on", "yes", "true", "y"}
