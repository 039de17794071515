"""Does everything that a set of binaries needs end in the set or in the target system?

Found from import tables alone: imports, delay imports and forwarded exports of PE files,
DT_NEEDED of ELF files. *Every* file of the set is a starting point, because ggml loads backends
at run time, which no import table shows. Nothing is executed to learn what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from qbuild import resources
from qbuild.binary.elf import ElfImage as Elf
from qbuild.binary.pe import PeImage, classify_crt

if TYPE_CHECKING:
    from qbuild.binary.elf import ElfImage
    from qbuild.binary.pe import PeImage

Where = Literal["bundle", "system", "driver", "missing"]

_TABLES = {"windows": "windows-dlls.toml", "linux": "linux-libs.toml"}


@dataclass(frozen=True, kw_only=True)
class SystemTable:
    """Libraries that the target system brings (``system``) and that its drivers bring."""

    system: tuple[str, ...]
    driver: tuple[str, ...]

    def where(self, name: str) -> Literal["system", "driver"] | None:
        """Return what brings this library, or nothing when it must be in the bundle.

        Args:
            name: Library name, in lower case for Windows.
        """
        if any(fnmatchcase(name, pattern) for pattern in self.driver):
            return "driver"
        if any(fnmatchcase(name, pattern) for pattern in self.system):
            return "system"
        return None


@dataclass(frozen=True, kw_only=True)
class Need:
    """A library that a file asks for, and where it was found."""

    name: str
    where: Where
    delay: bool = False


@dataclass(frozen=True, kw_only=True)
class FileDeps:
    """What one file of the set needs, and which files need it."""

    needs: tuple[Need, ...]
    needed_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason why the set would not load."""

    kind: str  # "missing", "symbol", "debug-runtime", "driver-inside", "runpath", "machine"
    file: str  # the file it is about
    needs: str  # what it asks for, or ""
    message: str  # one line for people; names both

    def __str__(self) -> str:
        """Return the line for people."""
        return self.message


@dataclass(frozen=True, kw_only=True)
class Closure:
    """The dependencies of a set of files."""

    files: Mapping[str, FileDeps]
    problems: tuple[Problem, ...]
    superfluous: tuple[str, ...]
    """Libraries that no other file asks for and that nothing loads at run time."""


def load_table(target_os: str, *extra: str) -> SystemTable:
    """Return the committed table of an operating system's own libraries.

    Args:
        target_os: ``windows`` or ``linux``.
        extra: Further groups that count as the system's: ``cuda`` for what only NVIDIA's libraries
            ask for, ``cuda-runtime``, ``openblas`` and ``vc-runtime`` when the user brings those
            libraries.
    """
    data = resources.read_table(_TABLES[target_os])

    def names(key: str) -> tuple[str, ...]:
        return tuple(name for group in data.get(key, []) for name in group["names"])

    system = [name for key in ("group", *extra) for name in names(key)]
    return SystemTable(system=tuple(system), driver=names("driver"))


def resolve(
    files: Mapping[str, PeImage | ElfImage],
    *,
    target_os: str,
    table: SystemTable,
    runtime_loaded: Iterable[str] = (),
) -> Closure:
    """Return where everything the files need comes from, and what is wrong.

    Args:
        files: File name (without folder) → what was read from it.
        target_os: ``windows`` or ``linux``.
        table: What the system brings.
        runtime_loaded: Names of files that are loaded by name at run time.
    """
    windows = target_os == "windows"
    by_key = {_fold(name, windows): name for name in files}
    needs: dict[str, tuple[Need, ...]] = {}
    users: dict[str, set[str]] = {name: set() for name in files}
    problems: list[Problem] = []
    for name, image in sorted(files.items()):
        if table.where(_fold(name, windows)) == "driver":
            problems.append(
                Problem(
                    kind="driver-inside",
                    file=name,
                    needs="",
                    message=f"{name}: is part of the driver and must never be shipped",
                )
            )
        if isinstance(image, PeImage):
            found = _pe(name, image, files, by_key, table, problems)
        else:
            found = _elf(name, image, files, table, problems)
        needs[name] = found
        for need in found:
            if need.where == "bundle":
                users[by_key[_fold(need.name, windows)]].add(name)
    loaded = set(runtime_loaded)
    superfluous = tuple(
        name
        for name, image in sorted(files.items())
        if is_library(image) and not users[name] - {name} and name not in loaded
    )
    return Closure(
        files={
            name: FileDeps(needs=needs[name], needed_by=tuple(sorted(users[name])))
            for name in sorted(files)
        },
        problems=tuple(problems),
        superfluous=superfluous,
    )


def _fold(name: str, windows: bool) -> str:
    """Return the name as the loader compares it: Windows ignores case."""
    return name.lower() if windows else name


def is_library(image: PeImage | ElfImage) -> bool:
    """Return whether it is a DLL or a shared object."""
    return image.is_dll if isinstance(image, PeImage) else image.kind == "so"


def _pe(
    name: str,
    image: PeImage,
    files: Mapping[str, PeImage | ElfImage],
    by_key: Mapping[str, str],
    table: SystemTable,
    problems: list[Problem],
) -> tuple[Need, ...]:
    wanted: dict[str, tuple[set[str], bool]] = {}
    for entry in image.imports:
        symbols, delay = wanted.get(entry.dll, (set(), True))
        wanted[entry.dll] = (symbols | set(entry.symbols), delay and entry.delay)
    for forward in image.forwards:
        symbols, _ = wanted.get(forward.dll, (set(), False))
        wanted[forward.dll] = (symbols, False)
    found = []
    for dll, (symbols, delay) in sorted(wanted.items()):
        key = dll.lower()
        inside = by_key.get(key)
        where: Where = "bundle" if inside else (table.where(key) or "missing")
        found.append(Need(name=dll, where=where, delay=delay))
        if classify_crt([dll]) == "debug":
            problems.append(
                Problem(
                    kind="debug-runtime",
                    file=name,
                    needs=dll,
                    message=f"{name}: needs the debug runtime {dll}, which only developers' "
                    "machines have; build Release",
                )
            )
        elif where == "missing":
            problems.append(_missing(name, dll, _hint(key)))
        if inside is None:
            continue
        offered = files[inside]
        if not isinstance(offered, PeImage):
            continue
        problems.extend(
            Problem(
                kind="symbol",
                file=name,
                needs=f"{dll}!{symbol}",
                message=f"{name}: imports {symbol} from {dll}, and the {inside} of the bundle "
                "does not export it",
            )
            for symbol in sorted(symbols - _offers(offered))
        )
    return tuple(found)


def _offers(image: PeImage) -> set[str]:
    """Return what a DLL can be asked for: names, and numbers written as in imports (``#12``)."""
    return {*image.exports, *(f"#{number}" for number in image.export_ordinals)}


def _hint(dll: str) -> str:
    """Return what a missing DLL usually belongs to."""
    if dll.startswith(("vcruntime", "msvcp", "concrt", "vcomp", "vccorlib")):
        return "; it is part of Microsoft's redistributable, not of Windows"
    if dll.startswith(("libomp", "libgomp", "libiomp")):
        return "; an OpenMP runtime is not part of Windows or of the VC redistributable"
    if dll.startswith(("libgcc", "libstdc++", "libwinpthread", "libc++")):
        return "; a MinGW runtime is not part of Windows: link it in"
    return ""


def _missing(name: str, library: str, hint: str) -> Problem:
    return Problem(
        kind="missing",
        file=name,
        needs=library,
        message=f"{name}: needs {library}, which is neither in the bundle nor part of the "
        f"system{hint}",
    )


def _elf(
    name: str,
    image: ElfImage,
    files: Mapping[str, PeImage | ElfImage],
    table: SystemTable,
    problems: list[Problem],
) -> tuple[Need, ...]:
    found: list[Need] = []
    for library in image.needed:
        where: Where = "bundle" if library in files else (table.where(library) or "missing")
        found.append(Need(name=library, where=where))
        if where == "missing":
            problems.append(_missing(name, library, ""))
    inside = [need.name for need in found if need.where == "bundle"]
    paths = (*image.rpath, *image.runpath)
    if inside and not any(_is_own_folder(path) for path in paths):
        problems.append(
            Problem(
                kind="runpath",
                file=name,
                needs=inside[0],
                message=f"{name}: needs {inside[0]} of the bundle, but its runpath does not name "
                "its own folder ($ORIGIN)",
            )
        )
    problems.extend(
        Problem(
            kind="runpath",
            file=name,
            needs="",
            message=f"{name}: its runpath names {path}, a folder of another machine",
        )
        for path in paths
        if not path.startswith(("$ORIGIN", "${ORIGIN}"))
    )
    problems.extend(_elf_symbols(name, image, files, found))
    return tuple(found)


def _elf_symbols(
    name: str, image: ElfImage, files: Mapping[str, PeImage | ElfImage], needs: Sequence[Need]
) -> Iterable[Problem]:
    """Yield symbols that nothing the file can see offers.

    ELF symbols are not tied to a library. When every library it needs is in the bundle or glibc,
    those that no file of the bundle exports must carry a glibc version, or they are missing.
    """
    if any(need.where in ("missing", "driver") for need in needs):
        return
    offered = {
        symbol for other in files.values() if isinstance(other, Elf) for symbol in other.exports
    }
    for symbol in sorted(set(image.unversioned) - offered):
        yield Problem(
            kind="symbol",
            file=name,
            needs=symbol,
            message=f"{name}: needs the symbol {symbol}, which no file of the bundle exports",
        )


def _is_own_folder(path: str) -> bool:
    return path.rstrip("/") in ("$ORIGIN", "${ORIGIN}")
