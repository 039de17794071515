"""The programs and libraries of a bundle against what is promised for them.

Files are taken for what their first bytes say, never for what their names say.
"""

from __future__ import annotations

import mmap
import ntpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from qbuild.binary.elf import read_elf
from qbuild.binary.pe import read_pe
from qbuild.binary.strings import find_build_paths
from qbuild.bundle import closure
from qbuild.errors import BinaryError
from qbuild.verify.structure import Unpacked

if TYPE_CHECKING:
    from qbuild.binary.elf import ElfImage
    from qbuild.binary.pe import PeImage
    from qbuild.bundle.closure import Closure

CUDA_LIBRARY: Final = re.compile(
    r"(?:lib)?(?:cudart|cublas|cublasLt)(?:64_|\.so\.)(\d+)(?:\.dll|[\d.]*)", re.IGNORECASE
)
_NVIDIA_EXPORTS: Final = frozenset({"cudaRuntimeGetVersion", "cublasCreate_v2", "cublasLtCreate"})
_FOREIGN_EXPORTS: Final = _NVIDIA_EXPORTS | {"openblas_get_config", "scipy_openblas_get_config"}
_CXX_RUNTIME: Final = ("libstdc++.so.6", "libgcc_s.so.1")
_BACKEND_EXPORTS: Final = frozenset({"ggml_backend_init", "ggml_backend_score"})
"""What ggml looks up in a library to take it for a backend (`ggml-backend-reg.cpp`)."""
_FATBIN_SECTION: Final = ".nv_fatb"  # PE cuts section names to eight characters


@dataclass(frozen=True, kw_only=True)
class Images:
    """The PE and ELF files of a bundle."""

    pe: Mapping[str, PeImage]  # name in the zip → image
    elf: Mapping[str, ElfImage]  # name in the zip → image
    problems: tuple[str, ...]  # one line per file that cannot be read

    @property
    def every(self) -> dict[str, PeImage | ElfImage]:
        """All images by name."""
        return {**self.pe, **self.elf}

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted((*self.pe, *self.elf)))

    @property
    def target_os(self) -> str:
        """What the files are for, going by the files; "" when there are none or both kinds."""
        if self.pe and not self.elf:
            return "windows"
        return "linux" if self.elf and not self.pe else ""


def read_images(unpacked: Unpacked) -> Images:
    """Read every PE and ELF file."""
    pe: dict[str, PeImage] = {}
    elf: dict[str, ElfImage] = {}
    problems = []
    for name, file in unpacked.files.items():
        with file.path.open("rb") as stream:
            magic = stream.read(4)
        try:
            if magic[:2] == b"MZ":
                pe[name] = read_pe(file.path)
            elif magic == b"\x7fELF":
                elf[name] = read_elf(file.path)
        except BinaryError as error:
            problems.append(f"{name}: {error.what}")
    return Images(pe=pe, elf=elf, problems=tuple(problems))


def foreign_files(images: Images) -> frozenset[str]:
    """Return third-party libraries that recipes only add, told by what they export."""
    every: dict[str, PeImage | ElfImage] = {**images.pe, **images.elf}
    return frozenset(
        name for name, image in every.items() if _FOREIGN_EXPORTS.intersection(image.exports)
    )


@contextmanager
def mapped(unpacked: Unpacked, name: str) -> Iterator[mmap.mmap]:
    """Give a file's bytes without loading it."""
    with (
        unpacked.files[name].path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield data


def machine_problems(images: Images, target_os: str, arch: str) -> Iterator[str]:
    """Yield files that are of another system or processor than promised."""
    for name, pe in images.pe.items():
        if target_os == "linux":
            yield f"{name}: is a Windows program in a bundle for Linux"
        elif pe.machine != arch:
            yield f"{name}: is for {pe.machine}, the bundle for {arch}"
    for name, elf in images.elf.items():
        if target_os == "windows":
            yield f"{name}: is a Linux program in a bundle for Windows"
        elif elf.machine != arch:
            yield f"{name}: is for {elf.machine}, the bundle for {arch}"


def trace_problems(images: Images, unpacked: Unpacked, foreign: frozenset[str]) -> Iterator[str]:
    """Yield what tells of the build machine: times, folders of symbol files, paths.

    Args:
        images: The binaries.
        unpacked: Their bytes.
        foreign: Files that others compiled; they are as their vendors shipped them.
    """
    for name, pe in images.pe.items():
        if name in foreign:
            continue
        repro = any(entry.type == "repro" for entry in pe.debug_entries)
        if pe.timestamp and not repro:
            yield (
                f"{name}: its PE header holds a time ({pe.timestamp:#x}) and no mark that it is "
                "a content hash"
            )
        for entry in pe.debug_entries:
            if entry.pdb and ntpath.dirname(entry.pdb):
                yield f"{name}: its debug directory names the folder of {entry.pdb}"
    for name in images.names:
        if name not in foreign:
            with mapped(unpacked, name) as data:
                for found in find_build_paths(data):
                    yield f"{name}: holds a path of the build machine: {found}"


def source_problems(images: Images, unpacked: Unpacked, commit: str) -> Iterator[str]:
    """Yield a line when no binary holds the pinned commit id that ``--version`` prints."""
    if not images.names:
        return
    wanted = commit[:7].encode()
    for name in images.names:
        with mapped(unpacked, name) as data:
            if data.find(wanted) >= 0:
                return
    yield f"no file of the bundle holds the commit id {commit[:9]} that --version would print"


def has_device_code(image: PeImage | ElfImage) -> bool:
    """Return whether a file has a section for GPU code."""
    return any(section.name.startswith(_FATBIN_SECTION) for section in image.sections)


def cuda_problems(images: Images, promised: bool, version: str) -> Iterator[str]:
    """Yield where CUDA is promised but absent, or of another major version.

    Args:
        images: The binaries.
        promised: Whether name or recipe promise a CUDA backend.
        version: CUDA version of the recipe, e.g. ``12.9``, or "" when not known.
    """
    backends = [name for name, image in images.every.items() if has_device_code(image)]
    if promised and not backends:
        yield "its name promises CUDA, but no CUDA backend is inside (no file holds GPU code)"
    majors: dict[str, list[str]] = {}
    for name in images.names:
        for library in needed(images, name):
            if match := CUDA_LIBRARY.fullmatch(library):
                majors.setdefault(match[1], []).append(f"{name} needs {library}")
    expected = version.partition(".")[0]
    for major, lines in sorted(majors.items()):
        if expected and major != expected:
            yield from (f"{line}: built against CUDA {major}, the recipe is {version}"
                        for line in lines)  # fmt: skip
    if not expected and len(majors) > 1:
        yield "built against several CUDA versions: " + "; ".join(
            line for lines in majors.values() for line in lines
        )


def needed(images: Images, name: str) -> tuple[str, ...]:
    """Return the libraries that a file's import table names."""
    if name in images.pe:
        return tuple(entry.dll for entry in images.pe[name].imports)
    return tuple(images.elf[name].needed)


def repeated_name(images: Images) -> tuple[str, str] | None:
    """Return two files in different folders that answer to one library name."""
    seen: dict[str, str] = {}
    for name in images.names:
        base = PurePosixPath(name).name
        if base in seen:
            return seen[base], name
        seen[base] = name
    return None


def closure_of(
    images: Images,
    target_os: str,
    *,
    system_libstdcxx: bool = False,
    cuda_runtime: bool = False,
    user_brings: Sequence[str] = (),
) -> Closure:
    """Return where everything the binaries need comes from, and what comes from nowhere.

    Every file is a starting point, reached from an executable or not: what a backend loaded at
    run time needs counts as much as what an import table names. The files go by their names
    without folders: that is what import tables hold.

    Args:
        images: The binaries.
        target_os: ``windows`` or ``linux``.
        system_libstdcxx: Whether the recipe takes the C++ runtime from the target system.
        cuda_runtime: Whether the recipe leaves NVIDIA's libraries to the user.
        user_brings: Further groups that it leaves to the user: ``openblas``, ``vc-runtime``.
    """
    by_base = {PurePosixPath(name).name: image for name, image in images.every.items()}
    backends = [
        base for base, image in by_base.items() if _BACKEND_EXPORTS.intersection(image.exports)
    ]
    nvidia = any(_NVIDIA_EXPORTS.intersection(image.exports) for image in by_base.values())
    extra = ["cuda"] if nvidia else []
    extra += ["cuda-runtime"] if cuda_runtime else []
    extra += user_brings
    table = closure.load_table(target_os, *extra)
    if system_libstdcxx:
        table = replace(table, system=(*table.system, *_CXX_RUNTIME))
    return closure.resolve(by_base, target_os=target_os, table=table, runtime_loaded=backends)


def glibc_needed(images: Images) -> dict[str, tuple[int, int]]:
    """Return file → glibc version it needs, the newest first."""
    found = {name: elf.max_glibc for name, elf in images.elf.items() if elf.max_glibc}
    return dict(sorted(found.items(), key=lambda item: item[1], reverse=True))


def glibc_problems(needs: Mapping[str, tuple[int, int]], promised: str) -> Iterator[str]:
    """Yield files that need a newer glibc than promised."""
    floor = tuple(int(part) for part in re.findall(r"\d+", promised)[:2])
    for name, (major, minor) in needs.items():
        if (major, minor) > floor:
            yield f"{name}: needs glibc {major}.{minor}, the bundle promises {promised}"
