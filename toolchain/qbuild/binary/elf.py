"""Reads a Linux program or shared library (ELF): what it is, what it needs, what it offers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qbuild.binary.image import (
    MAX_SECTIONS,
    Buffer,
    Metered,
    Section,
    Source,
    Symbol,
    check_sections,
    only_binary_errors,
)
from qbuild.binary.image import opened as open_source
from qbuild.errors import BinaryError

__all__ = ["ElfImage", "eh_frame_functions", "read_elf", "read_elf_data"]

# e_machine values: the System V ABI's list.
MACHINES = {
    "EM_X86_64": "x86_64",
    "EM_AARCH64": "aarch64",
    "EM_386": "i686",
    "EM_ARM": "armv7",
    "EM_RISCV": "riscv64",
}

_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")
_EXECUTE = 0x4  # SHF_EXECINSTR
_SEGMENT_EXECUTE = 0x1  # PF_X
_MOST_VERSIONS = 4096  # libraries with versioned symbols, and versions of one of them
_DEFINED_TYPES = ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE", "STT_GNU_IFUNC", "STT_LOOS", "STT_TLS")

# Pointer encodings of .eh_frame: Linux Standard Base, "DWARF Exception Header Encoding".
_PCREL = 0x10
_FORMATS: Mapping[int, str] = {0x00: "q", 0x03: "I", 0x04: "Q", 0x0B: "i", 0x0C: "q"}


@dataclass(frozen=True, kw_only=True)
class ElfImage:
    """What an ELF file says about itself. Addresses are virtual addresses."""

    machine: str  # "x86_64", "aarch64", "i686", ..., or e_machine's name
    kind: str  # "exe" (fixed address), "pie" or "so"
    entry: int = 0  # address of the entry point; 0 when there is none
    soname: str | None = None  # DT_SONAME
    needed: tuple[str, ...] = ()  # DT_NEEDED, in file order
    rpath: tuple[str, ...] = ()  # DT_RPATH, split at colons
    runpath: tuple[str, ...] = ()  # DT_RUNPATH, split at colons
    interpreter: str | None = None  # the dynamic loader an executable asks for
    # library → symbol versions needed of it
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_glibc: tuple[int, int] | None = None  # highest GLIBC_x.y needed
    exports: tuple[str, ...] = ()  # defined dynamic symbols
    # undefined dynamic symbols; weak ones left out, as they may stay undefined
    imports: tuple[str, ...] = ()
    # those of them that ask for no version: no part of glibc can be meant
    unversioned: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()  # sections in file order
    # (start, end) of every function with unwind data, sorted
    functions: tuple[tuple[int, int], ...] = ()
    symbols: tuple[Symbol, ...] = ()  # defined symbols with their addresses
    code_starts: tuple[int, ...] = ()  # entry point and exported functions: code that others call


def read_elf(source: Source) -> ElfImage:
    """Read an ELF file.

    Raises:
        BinaryError: It cannot be read, is no 64-bit little-endian ELF file, or is damaged.
    """
    with open_source(source) as (data, where), only_binary_errors("ELF file", where):
        return _read(data)


def read_elf_data(data: Buffer) -> ElfImage:
    """Read an ELF file that is in memory or mapped; errors as in :func:`read_elf`."""
    with only_binary_errors("ELF file", "<data>"):
        return _read(data)


def _read(data: Buffer) -> ElfImage:
    if data[:4] != b"\x7fELF":
        raise BinaryError("not an ELF file")
    if data[4:6] != b"\x02\x01":
        raise BinaryError("not a 64-bit little-endian ELF file")
    from elftools.elf.elffile import ELFFile

    elf: Any = ELFFile(Metered(data))
    if elf.num_sections() > MAX_SECTIONS or elf.num_segments() > MAX_SECTIONS:
        raise BinaryError(f"{elf.num_sections()} sections, {elf.num_segments()} segments")
    sections = tuple(_sections(elf, len(data)))
    check_sections(sections, len(data))
    _sections_tell_the_truth(elf, sections)
    dynamic = _dynamic(elf)
    versions = _versions(elf)
    defined, undefined, unversioned = _symbols(elf)
    kind = "exe"
    interpreter = None
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_INTERP":
            interpreter = str(segment.get_interp_name())
    if elf["e_type"] == "ET_DYN":
        pie = dynamic["flags_1"] & 0x08000000  # DF_1_PIE
        program = pie or (interpreter is not None and dynamic["soname"] is None)
        kind = "pie" if program else "so"
    elif elf["e_type"] != "ET_EXEC":
        raise BinaryError(f"neither a program nor a shared library ({elf['e_type']})")
    entry = int(elf["e_entry"])
    functions: tuple[tuple[int, int], ...] = ()
    for section in sections:
        if section.name == ".eh_frame":
            body = bytes(data[section.offset : section.offset + section.size])
            functions = eh_frame_functions(body, section.rva)
    code = [s for s in sections if s.executable]
    starts = {
        symbol.rva
        for symbol in defined
        if any(s.rva <= symbol.rva < s.rva + s.virtual_size for s in code)
    }
    return ElfImage(
        machine=MACHINES.get(elf["e_machine"], str(elf["e_machine"])),
        kind=kind,
        entry=entry,
        soname=dynamic["soname"],
        needed=tuple(dynamic["needed"]),
        rpath=tuple(dynamic["rpath"]),
        runpath=tuple(dynamic["runpath"]),
        interpreter=interpreter,
        versions=versions,
        max_glibc=_max_glibc(versions),
        exports=tuple(symbol.name for symbol in defined),
        imports=tuple(undefined),
        unversioned=tuple(unversioned),
        sections=sections,
        functions=functions,
        symbols=tuple(defined),
        code_starts=tuple(sorted(starts | ({entry} if entry else set()))),
    )


def _sections_tell_the_truth(elf: Any, sections: Sequence[Section]) -> None:
    """Check that the section table shows what the loader will use.

    The loader goes by segments alone. A file whose section table is cut off or bent would look
    as if it needed nothing and held no code.

    Raises:
        BinaryError: The dynamic table, or a part of what is mapped executable, is no section.
    """
    from elftools.elf.dynamic import DynamicSection

    tables = {int(s["sh_offset"]) for s in elf.iter_sections() if isinstance(s, DynamicSection)}
    code = sorted((s.offset, s.offset + s.size) for s in sections if s.executable and s.size)
    for segment in elf.iter_segments():
        start, size = int(segment["p_offset"]), int(segment["p_filesz"])
        if segment["p_type"] == "PT_DYNAMIC" and start not in tables:
            raise BinaryError("the section table does not show the dynamic table")
        if segment["p_type"] != "PT_LOAD" or not segment["p_flags"] & _SEGMENT_EXECUTE:
            continue
        entry = int(elf["e_entry"]) - int(segment["p_vaddr"]) + start
        inside = [(a, b) for a, b in code if a >= start and b <= start + size]
        if size and not inside:
            raise BinaryError("no section shows the executable part of the file")
        here = start <= entry < start + size and elf["e_entry"]
        if here and not any(a <= entry < b for a, b in inside):
            raise BinaryError("the entry point is in no executable section")


def _dynamic(elf: Any) -> dict[str, Any]:
    from elftools.elf.dynamic import DynamicSection

    found: dict[str, Any] = {
        "soname": None, "needed": [], "rpath": [], "runpath": [], "flags_1": 0,
    }  # fmt: skip
    for section in elf.iter_sections():
        if not isinstance(section, DynamicSection):
            continue
        for tag in section.iter_tags():
            if tag.entry.d_tag == "DT_SONAME":
                found["soname"] = str(tag.soname)
            elif tag.entry.d_tag == "DT_NEEDED":
                found["needed"].append(str(tag.needed))
            elif tag.entry.d_tag == "DT_RPATH":
                found["rpath"] = [part for part in str(tag.rpath).split(":") if part]
            elif tag.entry.d_tag == "DT_RUNPATH":
                found["runpath"] = [part for part in str(tag.runpath).split(":") if part]
            elif tag.entry.d_tag == "DT_FLAGS_1":
                found["flags_1"] = int(tag.entry.d_val)
    return found


def _versions(elf: Any) -> dict[str, tuple[str, ...]]:
    from elftools.elf.gnuversions import GNUVerNeedSection

    found: dict[str, tuple[str, ...]] = {}
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            if section.num_versions() > _MOST_VERSIONS:
                raise BinaryError(f"{section.num_versions()} versioned libraries")
            for library, needed in section.iter_versions():
                if library["vn_cnt"] > _MOST_VERSIONS:
                    raise BinaryError(f"{library['vn_cnt']} versions of {library.name}")
                found[str(library.name)] = tuple(sorted(str(one.name) for one in needed))
    return found


def _max_glibc(versions: Mapping[str, tuple[str, ...]]) -> tuple[int, int] | None:
    found = [
        (int(match[1]), int(match[2]))
        for names in versions.values()
        for name in names
        if (match := _GLIBC.fullmatch(name))
    ]
    return max(found, default=None)


def _sections(elf: Any, file_size: int) -> Iterator[Section]:
    for section in elf.iter_sections():
        present = section["sh_type"] not in ("SHT_NOBITS", "SHT_NULL")
        size = int(section["sh_size"]) if present else 0
        offset = int(section["sh_offset"])
        if offset + size > file_size:
            raise BinaryError(f"section {section.name} reaches beyond the end of the file")
        yield Section(
            name=str(section.name),
            rva=int(section["sh_addr"]),
            offset=offset,
            size=size,
            virtual_size=int(section["sh_size"]),
            executable=bool(section["sh_flags"] & _EXECUTE),
        )


def _symbols(elf: Any) -> tuple[list[Symbol], list[str], list[str]]:
    """Return defined, (strongly) undefined, and undefined unversioned dynamic symbols."""
    from elftools.elf.gnuversions import GNUVerSymSection
    from elftools.elf.sections import SymbolTableSection

    defined, undefined, unversioned = [], [], []
    numbers = next((s for s in elf.iter_sections() if isinstance(s, GNUVerSymSection)), None)
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection) or section.name != ".dynsym":
            continue
        for index, symbol in enumerate(section.iter_symbols()):
            if not symbol.name:
                continue
            if symbol["st_shndx"] == "SHN_UNDEF":
                if symbol["st_info"]["bind"] == "STB_WEAK":
                    continue
                undefined.append(str(symbol.name))
                version = "VER_NDX_GLOBAL"
                if numbers is not None and index < numbers.num_symbols():
                    version = numbers.get_symbol(index)["ndx"]
                if version in ("VER_NDX_GLOBAL", "VER_NDX_LOCAL"):
                    unversioned.append(str(symbol.name))
            elif symbol["st_info"]["type"] in _DEFINED_TYPES and symbol["st_other"][
                "visibility"
            ] in ("STV_DEFAULT", "STV_PROTECTED"):
                defined.append(Symbol(name=str(symbol.name), rva=int(symbol["st_value"])))
    return defined, undefined, unversioned


def eh_frame_functions(body: bytes, address: int) -> tuple[tuple[int, int], ...]:
    """Return (start, end) of every function that has unwind data.

    Reads only the two address fields of each entry; pyelftools decodes the unwind programs as
    well, which takes minutes for a large library.

    Args:
        body: Contents of ``.eh_frame``.
        address: Its virtual address.

    Raises:
        BinaryError: An entry is malformed.
    """
    encodings: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    at = 0
    while at + 4 <= len(body):
        (length,) = struct.unpack_from("<I", body, at)
        if length == 0:
            # A terminator; linkers may put further tables behind it.
            at += 4
            continue
        start = at + 4
        if length == 0xFFFFFFFF:
            (length,) = struct.unpack_from("<Q", body, start)
            start += 8
        end = start + length
        if end > len(body):
            raise BinaryError(f"an unwind entry at {at:#x} reaches beyond .eh_frame")
        (back,) = struct.unpack_from("<I", body, start)
        if back == 0:
            encodings[at] = _cie_encoding(body[start + 4 : end])
        else:
            encoding = encodings.get(start - back)
            if encoding is None:
                raise BinaryError(f"an unwind entry at {at:#x} has no common part")
            form = _FORMATS.get(encoding & 0x0F)
            if form is None or encoding & 0x70 not in (0, _PCREL):
                raise BinaryError(f"unwind pointers of encoding {encoding:#x} are not known")
            size = struct.calcsize("<" + form)
            (begin,) = struct.unpack_from("<" + form, body, start + 4)
            # The range has the same size, and is never negative.
            (span,) = struct.unpack_from("<" + form.upper(), body, start + 4 + size)
            if encoding & 0x70 == _PCREL:
                begin += address + start + 4
            begin &= (1 << 64) - 1
            if span:
                found.append((begin, begin + span))
        at = end
    return tuple(sorted(set(found)))


def _cie_encoding(cie: bytes) -> int:
    """Return the pointer encoding that a common information entry sets for its functions."""
    end = cie.index(b"\0", 1)
    augmentation = cie[1:end].decode("latin-1")
    if not augmentation.startswith("z"):
        return 0
    at = end + 1
    # Code and data alignment, return register (a plain byte in version 1, which reads the same as
    # long as it is below 128; x86-64 has 17), length of the augmentation.
    for _ in range(4):
        at = _skip_leb128(cie, at)
    for letter in augmentation[1:]:
        if letter == "R":
            return cie[at]
        if letter == "P":
            kind = cie[at]
            form = _FORMATS.get(kind & 0x0F, "q")
            at += 1 + struct.calcsize("<" + form)
        elif letter == "L":
            at += 1
    return 0


def _skip_leb128(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1
