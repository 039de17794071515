"""Reads CUDA fat binaries: which machine code and which PTX a DLL or shared library carries.

NVIDIA does not document the format. What is used here was found by writing fat binaries with
NVIDIA's own nvfatbin library (12.9) and reading them back:

* container: magic 0xBA55ED50, u16 version 1, u16 size of this header (16), u64 bytes that follow;
* entry: u16 kind (1 PTX, 2 cubin), u16, u32 size of the entry's header, u64 size of the payload as
  stored (padded to 8), u32 size without padding where compressed, u32, u16 + u16 version, u32
  architecture, u32 + u32 offset and length of a name, u64 flags, u64, u64 size when decompressed;
* flags: 0x2000 LZ4 block, 0x8000 zstd frame, 0x100000 an ``a`` architecture, 0x200000 an ``f`` one.

A linked file has one container per compiled unit, one after another with zero bytes between, in
the section ``.nv_fatbin``; PE cuts that name to ``.nv_fatb``.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from qbuild.binary.image import (
    MAX_SECTIONS,
    Buffer,
    Metered,
    Names,
    Source,
    only_binary_errors,
    opened,
)
from qbuild.binary.lz4 import decompress_block
from qbuild.binary.pe import read_pe_data
from qbuild.errors import BinaryError

Kind = Literal["cubin", "ptx", "other"]
Compression = Literal["none", "lz4", "zstd"]

MAGIC: Final = 0xBA55ED50
SECTIONS: Final = frozenset({".nv_fatbin", ".nv_fatb", "__nv_relfatbin", "__nv_rel"})
"""Names of sections that hold containers; the second and fourth are PE's first 8 characters."""

_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS: Final[dict[int, Kind]] = {1: "ptx", 2: "cubin"}
_LZ4, _ZSTD, _ARCH_A, _ARCH_F = 0x2000, 0x8000, 0x10_0000, 0x20_0000
MAX_CUBIN: Final = 256 << 20
"""Bytes that an entry may claim to have when decompressed (cublasLt's largest is 20 MB)."""

_EM_CUDA: Final = 190
_STT_FUNC: Final = 2
_STO_ENTRY: Final = 0x10
"""Bit of ``st_other`` that marks a kernel (an entry point) in a cubin's symbol table."""


@dataclass(frozen=True, kw_only=True)
class FatEntry:
    """One piece of device code."""

    kind: Kind  # ``cubin``, ``ptx``, or ``other`` (NVVM IR, an index)
    arch: str  # architecture: ``61``, ``120a``
    compression: Compression  # how the payload is stored
    size: int  # bytes in the file, padding included
    full_size: int  # bytes when decompressed
    container: int  # number of the container (one per compiled unit), counted over the file
    offset: int  # file offset of the payload
    stored: int  # bytes of the payload without padding


@dataclass(frozen=True, kw_only=True)
class FatReport:
    """All device code of one file."""

    entries: tuple[FatEntry, ...]  # in file order; empty for a file without CUDA code
    sections: tuple[str, ...]  # names of the sections they lie in
    size: int  # bytes of these sections

    @property
    def cubins(self) -> tuple[str, ...]:
        """Architectures with machine code, ascending."""
        return self._archs("cubin")

    @property
    def ptx(self) -> tuple[str, ...]:
        """Architectures with PTX, ascending."""
        return self._archs("ptx")

    @property
    def compression(self) -> Compression:
        """The strongest compression in use: what the driver must be able to read."""
        used = {entry.compression for entry in self.entries}
        return "zstd" if "zstd" in used else "lz4" if "lz4" in used else "none"

    @property
    def incomplete(self) -> dict[tuple[Kind, str], int]:
        """(kind, architecture) that only some containers carry → number of those that lack it."""
        total = len({entry.container for entry in self.entries})
        having = {(entry.kind, entry.arch, entry.container) for entry in self.entries}
        counts = Counter((kind, arch) for kind, arch, _ in having)
        return {what: total - n for what, n in sorted(counts.items()) if n < total}

    def _archs(self, kind: Kind) -> tuple[str, ...]:
        found = {entry.arch for entry in self.entries if entry.kind == kind}
        return tuple(sorted(found, key=lambda arch: (int(arch.rstrip("af")), arch)))


def read_fatbin(source: Source) -> FatReport:
    """Read the fat binaries of a PE or ELF file.

    Raises:
        BinaryError: The file or a fat binary in it is damaged, or is neither PE nor ELF.
    """
    with opened(source) as (data, where), only_binary_errors("fat binary", where):
        return read_fatbin_data(data)


def read_fatbin_data(data: Buffer) -> FatReport:
    """Read the fat binaries of a PE or ELF file in memory (errors as :func:`read_fatbin`)."""
    with only_binary_errors("fat binary", "<data>"):
        found = [each for each in _sections(data) if each[0] in SECTIONS]
        entries: list[FatEntry] = []
        containers = 0
        if sum(size for _, _, size in found) > len(data):
            raise BinaryError("its fat binaries lie on top of each other")
        for name, offset, size in found:
            more, containers = _section(data, name, offset, size, containers)
            entries += more
        return FatReport(
            entries=tuple(entries),
            sections=tuple(dict.fromkeys(name for name, _, _ in found)),
            size=sum(size for _, _, size in found),
        )


def read_containers(data: Buffer, offset: int = 0, size: int | None = None) -> list[FatEntry]:
    """Read containers that lie bare in a buffer (the file that the fatbinary program writes).

    Raises:
        BinaryError: They are damaged.
    """
    with only_binary_errors("fat binary", "<data>"):
        return _section(data, "<bytes>", offset, len(data) if size is None else size, 0)[0]


def _sections(data: Buffer) -> Iterator[tuple[str, int, int]]:
    """Give (name, file offset, bytes) of each section."""
    if data[:2] == b"MZ":
        for section in read_pe_data(data).sections:
            yield section.name, section.offset, section.size
    elif data[:4] == b"\x7fELF":
        from elftools.elf.elffile import ELFFile

        elf = ELFFile(Metered(data))
        if elf.num_sections() > MAX_SECTIONS:
            raise BinaryError(f"{elf.num_sections()} sections")
        for part in elf.iter_sections():
            if part["sh_type"] == "SHT_PROGBITS":
                yield part.name, part["sh_offset"], part["sh_size"]
    else:
        raise BinaryError("neither a PE nor an ELF file")


def _section(
    data: Buffer, name: str, offset: int, size: int, containers: int
) -> tuple[list[FatEntry], int]:
    """Read the containers of one section; return them and the number of containers so far."""
    end = offset + size
    if not 0 <= offset <= end <= len(data):
        raise BinaryError(f"section {name} lies outside the file")
    entries: list[FatEntry] = []
    position = offset
    while (position := _skip_padding(data, position, end)) < end:
        if end - position < _CONTAINER.size:
            raise BinaryError(f"a fat binary is cut off at offset {position:#x} in {name}")
        magic, version, header, length = _CONTAINER.unpack_from(data, position)
        if magic != MAGIC:
            raise BinaryError(
                f"neither a fat binary nor padding at offset {position:#x} in {name} "
                f"(found {magic:#010x})"
            )
        if version != 1 or header < _CONTAINER.size or length > end - position - header:
            raise BinaryError(
                f"damaged fat binary at offset {position:#x} in {name} "
                f"(version {version}, header {header}, {length} bytes)"
            )
        body = position + header
        entries += _entries(data, body, body + length, containers)
        containers += 1
        position = body + length
    return entries, containers


def container_digests(data: Buffer) -> tuple[str, ...]:
    """Return the sha256 (hex) of each container of a PE or ELF file, in file order.

    It names what a compiled unit registers with the CUDA runtime: header and entries, no padding.

    Raises:
        BinaryError: The file or a fat binary in it is damaged, or is neither PE nor ELF.
    """
    found: list[str] = []
    with only_binary_errors("fat binary", "<data>"):
        for name, offset, size in _sections(data):
            if name not in SECTIONS:
                continue
            _section(data, name, offset, size, 0)  # damage is told before anything is read
            position, end = offset, offset + size
            while (position := _skip_padding(data, position, end)) < end:
                _, _, header, length = _CONTAINER.unpack_from(data, position)
                stop = position + header + length
                found.append(hashlib.sha256(bytes(data[position:stop])).hexdigest())
                position = stop
    return tuple(found)


def _skip_padding(data: Buffer, position: int, end: int) -> int:
    """Return the position of the next byte that is not zero."""
    while position < end:
        block = data[position : min(position + 4096, end)]
        kept = len(block.lstrip(b"\0"))
        if kept:
            return position + len(block) - kept
        position += len(block)
    return end


def _entries(data: Buffer, position: int, end: int, container: int) -> Iterator[FatEntry]:
    while position < end:
        if end - position < _ENTRY.size:
            raise BinaryError(f"an entry of a fat binary is cut off at offset {position:#x}")
        (kind, _, header, size, packed, _, _, _, arch, _, _, flags, _, full) = _ENTRY.unpack_from(
            data, position
        )
        if header < _ENTRY.size or size > end - position - header or packed > size:
            raise BinaryError(
                f"damaged entry of a fat binary at offset {position:#x} "
                f"(header {header}, {size} bytes, {packed} packed)"
            )
        compression: Compression = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else "none"
        if compression != "none" and full > MAX_CUBIN:
            raise BinaryError(
                f"an entry at offset {position:#x} claims to be {full} bytes when decompressed"
            )
        if not 10 <= arch < 1000:
            raise BinaryError(f"an entry at offset {position:#x} is for architecture {arch}")
        suffix = "a" if flags & _ARCH_A else "f" if flags & _ARCH_F else ""
        yield FatEntry(
            kind=_KINDS.get(kind, "other"),
            arch=f"{arch}{suffix}",
            compression=compression,
            size=size,
            full_size=size if compression == "none" else full,
            container=container,
            offset=position + header,
            stored=size if compression == "none" else packed,
        )
        position += header + size


def payload(data: Buffer, entry: FatEntry) -> bytes | None:
    """Return an entry's cubin or PTX, or ``None`` where this Python cannot decompress it (zstd).

    Raises:
        BinaryError: The payload is damaged.
    """
    stored = bytes(data[entry.offset : entry.offset + entry.stored])
    if len(stored) != entry.stored:
        raise BinaryError(f"the payload at offset {entry.offset:#x} is cut off")
    if entry.compression == "none":
        return stored
    if entry.compression == "lz4":
        return decompress_block(stored, entry.full_size)
    return _zstd(stored, entry.full_size)


def _zstd(stored: bytes, full_size: int) -> bytes | None:
    """Decompress with what Python has: from 3.14 on its own module, else nothing."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    with only_binary_errors("zstd-compressed entry", "<data>"):
        full = bytes(zstd.ZstdDecompressor().decompress(stored, full_size + 1))
        if len(full) != full_size:
            raise BinaryError(f"{len(full)} bytes where {full_size} were announced")
        return full


def kernels(data: Buffer, entry: FatEntry) -> tuple[str, ...] | None:
    """Return the mangled names of an entry's kernels, sorted.

    ``None`` where they cannot be read: zstd before Python 3.14, or neither a cubin nor PTX.

    Raises:
        BinaryError: The entry is damaged.
    """
    if entry.kind == "other":
        return None
    code = payload(data, entry)
    if code is None:
        return None
    with only_binary_errors(entry.kind, f"offset {entry.offset:#x}"):
        return tuple(sorted(_ptx_kernels(code) if entry.kind == "ptx" else _cubin_kernels(code)))


def all_kernels(source: Source, *, arch: str | None = None) -> tuple[str, ...]:
    """Return the names of every kernel with a cubin in a file (of one architecture, or any).

    Names that are there in several units (static functions) are there as often.

    Raises:
        BinaryError: The file is damaged, or holds cubins that this Python cannot decompress.
    """
    with opened(source) as (data, where):
        found: list[str] = []
        for entry in read_fatbin_data(data).entries:
            if entry.kind == "cubin" and arch in {None, entry.arch}:
                names = kernels(data, entry)
                if names is None:
                    raise BinaryError(
                        "its kernels are compressed with zstd",
                        where=where,
                        fix="read it with Python 3.14 or newer",
                    )
                found += names
        return tuple(sorted(found))


def _ptx_kernels(code: bytes) -> Iterator[str]:
    marker = b".entry "
    position = code.find(marker)
    while position >= 0:
        start = position + len(marker)
        end = start
        while end < len(code) and code[end : end + 1] not in b"( \t\r\n":
            end += 1
        yield code[start:end].decode("ascii")
        position = code.find(marker, end)


def _cubin_kernels(code: bytes) -> Sequence[str]:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(Metered(code))
    if elf["e_machine"] not in {_EM_CUDA, "EM_CUDA"}:
        raise BinaryError(f"a cubin for machine {elf['e_machine']}")
    header = elf.header
    size, count = int(header["e_shentsize"]), int(header["e_shnum"])
    if size < 64 or int(header["e_shoff"]) + size * count > len(code):
        raise BinaryError("a cubin's section table is cut off")
    rows = [
        struct.unpack_from("<IIQQQQIIQQ", code, int(header["e_shoff"]) + size * index)
        for index in range(count)
    ]
    names: list[str] = []
    read = Names(code)
    if sum(row[5] for row in rows if row[1] == 2) > len(code):
        raise BinaryError("a cubin's symbol tables lie on top of each other")
    for row in rows:
        if row[1] != 2:  # SHT_SYMTAB
            continue
        table, length, link = row[4], row[5], row[6]
        if link >= count or table + length > len(code):
            raise BinaryError("a cubin's symbol table is cut off")
        strings = rows[link][4]
        for at in range(table, table + length - 23, 24):
            name, info, other, section, _, _ = struct.unpack_from("<IBBHQQ", code, at)
            if info & 0xF == _STT_FUNC and other & _STO_ENTRY and section:
                names.append(read.at(strings + name))
    return names
