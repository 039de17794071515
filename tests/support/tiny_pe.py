"""Makes small, valid PE files: what tests need of a Windows program, byte by byte.

Layout by Microsoft's "PE Format": headers, `.text` (code), `.rdata` (imports, exports, extra
bytes), `.pdata` (one function over the whole code).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64, "i686": 0x14C}
BASE = 0x140000000
RET = b"\xc3"
_FILE, _PAGE = 0x200, 0x1000
TEXT_RVA, RDATA_RVA = 0x1000, 0x100000
PDATA_RVA = 0x200000


class _Blob:
    """Bytes at a known address, with room for pointers to what follows."""

    def __init__(self, rva: int) -> None:
        self.rva = rva
        self.data = bytearray()

    def here(self) -> int:
        return self.rva + len(self.data)

    def add(self, data: bytes) -> int:
        at = self.here()
        self.data += data + b"\0" * (-len(data) % 8)
        return at

    def text(self, value: str) -> int:
        return self.add(value.encode() + b"\0")


def _imports(blob: _Blob, imports: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    """Write the import table; return its address and size."""
    rows = []
    for dll, symbols in imports.items():
        hints = [blob.add(struct.pack("<H", 0) + name.encode() + b"\0") for name in symbols]
        thunks = struct.pack(f"<{len(hints) + 1}Q", *hints, 0)
        lookup, addresses = blob.add(thunks), blob.add(thunks)
        rows.append(struct.pack("<5I", lookup, 0, 0, blob.text(dll), addresses))
    table = b"".join(rows) + bytes(20)
    return blob.add(table), len(table)


def _exports(blob: _Blob, dll: str, names: Sequence[str]) -> tuple[int, int]:
    start = blob.here()
    blob.add(bytes(40))
    ordered = sorted(names)
    texts = [blob.text(name) for name in ordered]
    functions = blob.add(struct.pack(f"<{len(ordered)}I", *[TEXT_RVA] * len(ordered)))
    pointers = blob.add(struct.pack(f"<{len(ordered)}I", *texts))
    ordinals = blob.add(struct.pack(f"<{len(ordered)}H", *range(len(ordered))))
    header = struct.pack(
        "<IIHHIIIIIII", 0, 0, 0, 0, blob.text(dll), 1, len(ordered), len(ordered),
        functions, pointers, ordinals,
    )  # fmt: skip
    blob.data[start - blob.rva : start - blob.rva + 40] = header
    return start, blob.here() - start


def _debug(blob: _Blob, pdb: str, repro: bool, timestamp: int) -> tuple[int, int]:
    rows = []
    if pdb:
        record = b"RSDS" + bytes(16) + struct.pack("<I", 1) + pdb.encode() + b"\0"
        at = blob.add(record)
        # Fields: flags, time, version, type (2: CodeView), size, address, file offset.
        offset = at - RDATA_RVA
        rows.append((0, timestamp, 0, 2, len(record), at, offset))
    if repro:
        rows.append((0, timestamp, 0, 16, 0, 0, 0))
    return rows, len(rows) * 28  # type: ignore[return-value]


def make_pe(
    imports: Mapping[str, Sequence[str]] | Sequence[str] = (),
    *,
    exports: Sequence[str] = (),
    dll: str = "",
    machine: str = "x86_64",
    code: bytes = RET,
    extra: bytes = b"",
    timestamp: int = 0,
    repro: bool = False,
    pdb: str = "",
    sections: Mapping[str, bytes] | Sequence[str] = (),
    functions: Sequence[tuple[int, int]] | None = None,
    linker: tuple[int, int] = (14, 0),
) -> bytes:
    """Return a PE file.

    Args:
        imports: DLL → symbols, or just DLLs (one symbol each).
        exports: Exported names, all at the start of the code.
        dll: Its own name; makes it a DLL.
        machine: Key of MACHINES.
        code: Content of `.text`.
        extra: Bytes put into `.rdata`.
        timestamp: The header's time field.
        repro: Whether the debug directory says that the time is a hash.
        pdb: Path of a symbol file in the debug directory.
        sections: Names of more (data) sections, with or without their content.
        functions: (start, end) offsets within the code; default: all of it is one function.
        linker: Version of the linker in the header.
    """
    if not isinstance(imports, Mapping):
        imports = {name: ["f"] for name in imports}
    contents = sections if isinstance(sections, Mapping) else dict.fromkeys(sections, bytes(16))
    rdata = _Blob(RDATA_RVA)
    import_dir = _imports(rdata, imports) if imports else (0, 0)
    export_dir = _exports(rdata, dll or "x.dll", exports) if exports else (0, 0)
    unwind = rdata.add(b"\x01\x00\x00\x00")
    rdata.add(extra)
    spans = [(0, len(code))] if functions is None else list(functions)
    pdata = b"".join(struct.pack("<3I", TEXT_RVA + a, TEXT_RVA + b, unwind) for a, b in spans)

    count = 3 + len(contents)
    headers_size = -(-(0x40 + 24 + 240 + 40 * count) // _FILE) * _FILE
    text_at = headers_size
    rdata_at = text_at + -(-max(len(code), 1) // _FILE) * _FILE
    debug_dir = (0, 0)
    if pdb or repro:
        rows, size = _debug(rdata, pdb, repro, timestamp)
        table = b"".join(
            struct.pack("<IIIIIII", *row[:6], row[6] + rdata_at if row[5] else 0)
            for row in rows  # type: ignore[attr-defined]
        )
        debug_dir = (rdata.add(table), size)

    def pad(data: bytes) -> bytes:
        return data + b"\0" * (-len(data) % _FILE)

    bodies = [(".text", TEXT_RVA, code, 0x60000020), (".rdata", RDATA_RVA, bytes(rdata.data),
              0x40000040), (".pdata", PDATA_RVA, pdata or bytes(12), 0x40000040)]  # fmt: skip
    for index, (name, data) in enumerate(contents.items()):
        bodies.append((name, PDATA_RVA + _PAGE * (index + 1), data, 0x40000040))
    directories = [(0, 0)] * 16
    directories[0], directories[1], directories[6] = export_dir, import_dir, debug_dir
    directories[3] = (PDATA_RVA, len(pdata)) if pdata else (0, 0)
    image_size = PDATA_RVA + _PAGE * (len(contents) + 1)
    dos = b"MZ" + bytes(58) + struct.pack("<I", 0x40)
    flags = 0x22 | (0x2000 if dll else 0)
    file_header = b"PE\0\0" + struct.pack(
        "<HHIIIHH", MACHINES[machine], count, timestamp, 0, 0, 240, flags
    )
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, *linker, len(pad(code)), len(pad(rdata.data)), 0,
        TEXT_RVA, TEXT_RVA, BASE, _PAGE, _FILE, 6, 0, 0, 0, 6, 0, 0, image_size, headers_size, 0,
        3, 0x160, 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16,
    )  # fmt: skip
    optional += b"".join(struct.pack("<II", *entry) for entry in directories)
    table, content, at = b"", b"", headers_size
    for name, rva, body, characteristics in bodies:
        raw = pad(body)
        table += struct.pack(
            "<8sIIIIIIHHI", name.encode()[:8], len(body), rva, len(raw), at, 0, 0, 0, 0,
            characteristics,
        )  # fmt: skip
        content += raw
        at += len(raw)
    head = dos + file_header + optional + table
    return head + b"\0" * (headers_size - len(head)) + content
