"""Reads a Windows program or DLL (PE/COFF): what it is, what it needs, what it offers.

>>> read_pe(Path("llama-server.exe")).imports      # doctest: +SKIP
(Import(dll='KERNEL32.dll', symbols=('AcquireSRWLockExclusive', ...), delay=False), ...)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qbuild.binary import pe_tables
from qbuild.binary.image import (
    Buffer,
    Names,
    Section,
    Source,
    Symbol,
    c_string,
    check_sections,
    only_binary_errors,
)
from qbuild.binary.image import opened as open_source
from qbuild.binary.pe_tables import Forward, Import
from qbuild.errors import BinaryError

__all__ = ["DebugEntry", "Forward", "Import", "PeImage", "classify_crt", "read_pe", "read_pe_data"]

# IMAGE_FILE_MACHINE_*, IMAGE_SUBSYSTEM_* and IMAGE_DEBUG_TYPE_*: Microsoft, "PE Format".
MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0xA641: "arm64ec", 0x14C: "i686", 0x1C4: "armv7"}
SUBSYSTEMS = {1: "native", 2: "windows", 3: "console", 10: "efi"}
DEBUG_TYPES = {
    1: "coff", 2: "codeview", 4: "misc", 9: "borland", 11: "clsid", 12: "vc-feature",
    13: "pogo", 14: "iltcg", 16: "repro", 17: "embedded-pdb", 19: "pdb-checksum",
    20: "ex-dll-characteristics",
}  # fmt: skip

_DIRECTORY_EXPORT, _DIRECTORY_IMPORT, _DIRECTORY_EXCEPTION = 0, 1, 3
_DIRECTORY_RELOCATION, _DIRECTORY_DEBUG, _DIRECTORY_DELAY = 5, 6, 13
_CHARACTERISTIC_DLL = 0x2000
_SECTION_EXECUTE = 0x20000000
_MOST_DEBUG = 64  # entries of the debug directory; a linker writes up to five
_FILE_ALIGNMENT = 0x200  # the loader rounds section offsets down to a disk sector

# Microsoft's names of its C and C++ runtimes; a trailing "d" marks the debug build, which is
# licensed for development machines only and is absent everywhere else.
_DEBUG_CRT = re.compile(
    r"(?:ucrtbased|msvcrtd|(?:msvcp|msvcr|vcruntime|concrt|vccorlib|mfc|vcomp)\d+(?:_\w+)?d"
    r"|libomp140d\.\w+)\.dll",
    re.IGNORECASE,
)
_VCRUNTIME = re.compile(
    r"(?:vcruntime|msvcp|concrt|vccorlib|vcomp)\d+(?:_\w+)?\.dll", re.IGNORECASE
)
_OLD_MSVCR = re.compile(r"msvcr\d+\.dll", re.IGNORECASE)
_UCRT = re.compile(r"(?:ucrtbase|api-ms-win-crt-[\w-]+)\.dll", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class DebugEntry:
    """One entry of the debug directory."""

    type: str  # name of the entry type ("codeview", "repro", ...), or its number
    timestamp: int  # the entry's time field: seconds since 1970, or a content hash
    pdb: str | None = None  # path of the symbol file, exactly as the linker wrote it


@dataclass(frozen=True, kw_only=True)
class PeImage:
    """What a PE file says about itself. Addresses are relative to the image base (RVAs)."""

    machine: str  # "x86_64", "aarch64", "arm64ec", "i686", "armv7", or the number in hex
    is_dll: bool  # whether it is a DLL
    timestamp: int  # the header's time field (lld writes a hash of the content here)
    subsystem: str  # "console", "windows", ...
    image_base: int  # preferred load address
    entry: int  # address of the entry point; 0 when there is none
    imports: tuple[Import, ...]  # imported DLLs, delay-loaded ones last
    exports: tuple[str, ...]  # exported names, forwarded ones included
    export_ordinals: tuple[int, ...]  # numbers of all exports, named or not
    forwards: tuple[Forward, ...]  # exports that another DLL implements
    sections: tuple[Section, ...]  # sections in file order
    debug_entries: tuple[DebugEntry, ...]  # the debug directory
    # (start, end) of every function with unwind data, sorted
    functions: tuple[tuple[int, int], ...]
    symbols: tuple[Symbol, ...]  # exported names with their addresses
    code_starts: tuple[int, ...]  # entry point and all exported addresses: code that others call
    pointers: tuple[int, ...]  # addresses of absolute 64-bit pointers (from the base relocations)
    crt: str  # C runtime in use, see :func:`classify_crt`
    # major and minor version of the linker; for MSVC that of its toolset (14, 44)
    linker: tuple[int, int] = (0, 0)


def classify_crt(dlls: Iterable[str]) -> str:
    """Name the C runtime that a list of imported DLLs amounts to.

    Args:
        dlls: Imported DLL names.

    Returns:
        "debug" (never shippable), "vcruntime-md" (needs Microsoft's redistributable),
        "msvcr" (Visual Studio 2013 and older), "mixed" (UCRT and msvcrt at once: two heaps),
        "ucrt" (part of Windows 10), "msvcrt" (the old system one), or "none" (static, or no C).
    """
    names = list(dlls)
    if any(_DEBUG_CRT.fullmatch(n) for n in names):
        return "debug"
    if any(_VCRUNTIME.fullmatch(n) for n in names):
        return "vcruntime-md"
    if any(_OLD_MSVCR.fullmatch(n) for n in names):
        return "msvcr"
    ucrt = any(_UCRT.fullmatch(n) for n in names)
    msvcrt = any(n.lower() == "msvcrt.dll" for n in names)
    if ucrt and msvcrt:
        return "mixed"
    return "ucrt" if ucrt else "msvcrt" if msvcrt else "none"


def read_pe(source: Source) -> PeImage:
    """Read a PE file.

    Args:
        source: Path (the file is mapped, not loaded), or the bytes.

    Raises:
        BinaryError: The file cannot be read, is no PE file, or is damaged.
    """
    with open_source(source) as (data, where), only_binary_errors("PE file", where):
        return _read(data)


def read_pe_data(data: Buffer) -> PeImage:
    """Read a PE file that is already in memory or mapped (errors as :func:`read_pe`)."""
    with only_binary_errors("PE file", "<data>"):
        return _read(data)


def _read(data: Buffer) -> PeImage:
    if data[:2] != b"MZ":
        raise BinaryError("not a PE file: it does not start with MZ")
    import pefile  # 100 ms that most commands need not wait for

    pe = pefile.PE(data=data, fast_load=True)  # headers and sections only
    optional, header = pe.OPTIONAL_HEADER, pe.FILE_HEADER
    wide = optional.Magic == 0x20B
    if not wide and optional.Magic != 0x10B:
        raise BinaryError(f"unknown optional header ({optional.Magic:#x})")
    if len(pe.sections) != header.NumberOfSections:
        raise BinaryError(
            f"{header.NumberOfSections} sections announced, {len(pe.sections)} readable"
        )
    sections = tuple(_section(entry, len(data)) for entry in pe.sections)
    check_sections(sections, len(data))
    names = Names(data)
    addresses = pe_tables.AddressMap(sections, min(optional.SizeOfHeaders, len(data)))
    directories = [(d.VirtualAddress, d.Size) for d in optional.DATA_DIRECTORY]
    directories += [(0, 0)] * (16 - len(directories))
    machine = MACHINES.get(header.Machine, f"{header.Machine:#06x}")

    def table(index: int) -> tuple[int, int]:
        rva, size = directories[index]
        return (rva, size) if rva and size else (0, 0)

    imports = pe_tables.read_imports(data, addresses, table(_DIRECTORY_IMPORT)[0], wide, names)
    imports += pe_tables.read_delay_imports(
        data, addresses, table(_DIRECTORY_DELAY)[0], wide, optional.ImageBase, names
    )
    exports = pe_tables.read_exports(data, addresses, *table(_DIRECTORY_EXPORT), names)
    functions: list[tuple[int, int]] = []
    if machine == "x86_64":  # ARM's unwind table has another layout, and we only decode x86
        functions = pe_tables.read_functions(data, addresses, *table(_DIRECTORY_EXCEPTION))
    entry = optional.AddressOfEntryPoint
    return PeImage(
        machine=machine,
        is_dll=bool(header.Characteristics & _CHARACTERISTIC_DLL),
        timestamp=header.TimeDateStamp,
        subsystem=SUBSYSTEMS.get(optional.Subsystem, str(optional.Subsystem)),
        image_base=optional.ImageBase,
        entry=entry,
        imports=tuple(imports),
        exports=exports.names,
        export_ordinals=exports.ordinals,
        forwards=exports.forwards,
        sections=sections,
        debug_entries=tuple(_debug(data, addresses, *table(_DIRECTORY_DEBUG))),
        functions=tuple(functions),
        symbols=exports.symbols,
        code_starts=tuple(sorted({*exports.addresses, *([entry] if entry else [])})),
        pointers=tuple(
            pe_tables.read_pointers(data, addresses, *table(_DIRECTORY_RELOCATION)) if wide else ()
        ),
        crt=classify_crt(i.dll for i in imports),
        linker=(optional.MajorLinkerVersion, optional.MinorLinkerVersion),
    )


def _section(entry: Any, file_size: int) -> Section:  # Any: pefile has no types
    name: str = entry.Name.rstrip(b"\0").decode("ascii", "backslashreplace")
    offset: int = entry.PointerToRawData - entry.PointerToRawData % _FILE_ALIGNMENT
    size: int = entry.SizeOfRawData
    virtual: int = entry.Misc_VirtualSize or size
    if size and offset + min(size, virtual) > file_size:
        raise BinaryError(f"section {name} reaches beyond the end of the file")
    return Section(
        name=name,
        rva=entry.VirtualAddress,
        offset=offset,
        size=min(size, file_size - offset) if size else 0,
        virtual_size=virtual,
        executable=bool(entry.Characteristics & _SECTION_EXECUTE),
    )


def _debug(
    data: Buffer, addresses: pe_tables.AddressMap, rva: int, size: int
) -> Iterable[DebugEntry]:
    if size > 28 * _MOST_DEBUG:
        raise BinaryError(f"{size // 28} entries of the debug directory")
    for index in range(size // 28):
        start = addresses.offset(rva + 28 * index)
        _flags, stamp, _version, kind, length, _address, offset = struct.unpack_from(
            "<7I", data, start
        )
        pdb = None
        if kind == 2 and length > 24:  # CodeView: GUID + age (RSDS) or the older signature
            magic = data[offset : offset + 4]
            skip = {b"RSDS": 24, b"NB10": 16}.get(magic)
            pdb = c_string(data, offset + skip) if skip else None
        yield DebugEntry(type=DEBUG_TYPES.get(kind, str(kind)), timestamp=stamp, pdb=pdb)
