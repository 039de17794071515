"""Makes small, valid 64-bit ELF files: what tests need of a Linux program, byte by byte.

One segment maps the whole file at its own offsets, so that addresses equal file offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MACHINES = {"x86_64": 62, "aarch64": 183, "i686": 3}
RET = b"\xc3"
_DYN, _EXEC = 3, 2
_NEEDED, _STRTAB, _SYMTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 14, 15, 29


class _Strings:
    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


@dataclass(frozen=True, kw_only=True)
class _Part:
    name: str
    type: int
    flags: int
    body: bytes
    at: int
    link: int = 0
    info: int = 0
    entry: int = 0


def make_elf(
    needed: Sequence[str] = (),
    *,
    exports: Sequence[str] = (),
    imports: Sequence[str] = (),
    weak: Sequence[str] = (),
    versions: Mapping[str, Sequence[str]] | None = None,
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    machine: str = "x86_64",
    code: bytes = RET,
    functions: Sequence[tuple[int, int]] | None = None,
    kind: int = _DYN,
    sections: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return an ELF file.

    Args:
        needed: DT_NEEDED.
        exports: Functions it defines, all at the start of the code.
        imports: Undefined symbols without a version.
        weak: Undefined weak symbols.
        versions: Library → versions; one undefined symbol `v_<version>` for each.
        soname: DT_SONAME.
        rpath: DT_RPATH.
        runpath: DT_RUNPATH.
        machine: Key of MACHINES.
        code: Content of `.text`.
        functions: (start, end) offsets within the code; default: all of it is one function.
        kind: e_type.
        sections: More sections with data, by name.
    """
    strings, names = _Strings(), _Strings()
    numbers = {v: i + 2 for i, v in enumerate(v for vs in (versions or {}).values() for v in vs)}
    text_at = 0x1000
    symbols, versym = [bytes(24)], [0]

    def symbol(name: str, info: int, section: int, version: int) -> None:
        value = text_at if section else 0
        symbols.append(struct.pack("<IBBHQQ", strings.add(name), info, 0, section, value, 0))
        versym.append(version)

    for name in exports:
        symbol(name, 0x12, 1, 1)
    for name in imports:
        symbol(name, 0x12, 0, 1)
    for name in weak:
        symbol(name, 0x22, 0, 1)
    for version, number in numbers.items():
        symbol(f"v_{version}", 0x12, 0, number)

    need, libraries = b"", list((versions or {}).items())
    for index, (library, wanted) in enumerate(libraries):
        last = index == len(libraries) - 1
        need += struct.pack(
            "<HHIII", 1, len(wanted), strings.add(library), 16, 0 if last else 16 + 16 * len(wanted)
        )
        for position, version in enumerate(wanted):
            more = 0 if position == len(wanted) - 1 else 16
            need += struct.pack("<IHHII", 0, 0, numbers[version], strings.add(version), more)

    tags = [(_NEEDED, strings.add(name)) for name in needed]
    for tag, text in ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath)):
        if text:
            tags.append((tag, strings.add(text)))

    spans = [(0, len(code))] if functions is None else functions
    parts: list[_Part] = []
    at = text_at

    def part(name: str, type_: int, flags: int, body: bytes, **more: int) -> _Part:
        nonlocal at
        made = _Part(name=name, type=type_, flags=flags, body=body, at=at, **more)
        parts.append(made)
        at += -(-len(body) // 16) * 16
        return made

    part(".text", 1, 6, code)
    part(".eh_frame", 1, 2, _eh_frame(at, [(text_at + a, b - a) for a, b in spans]))
    dynstr = part(".dynstr", 3, 2, bytes(strings.data))
    dynsym = part(".dynsym", 11, 2, b"".join(symbols), link=3, info=1, entry=24)
    part(".gnu.version", 0x6FFFFFFF, 2, struct.pack(f"<{len(versym)}H", *versym), link=4, entry=2)
    if need:
        part(".gnu.version_r", 0x6FFFFFFE, 2, need, link=3, info=len(libraries))
    tags += [(_STRTAB, dynstr.at), (_SYMTAB, dynsym.at), (0, 0)]
    dynamic = part(
        ".dynamic", 6, 3, b"".join(struct.pack("<QQ", *t) for t in tags), link=3, entry=16
    )
    for name, body in (sections or {}).items():
        part(name, 1, 2, body)
    headers = [bytes(64)]
    for one in parts:
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ",
                names.add(one.name),
                one.type,
                one.flags,
                one.at,
                one.at,
                len(one.body),
                one.link,
                one.info,
                16,
                one.entry,
            )
        )
    shstr = names.add(".shstrtab")
    headers.append(struct.pack("<IIQQQQIIQQ", shstr, 3, 0, 0, at, len(names.data), 0, 0, 1, 0))
    table_at = at + -(-len(names.data) // 16) * 16
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 0x1000)
    size = len(dynamic.body)
    segments += struct.pack("<IIQQQQQQ", 2, 6, dynamic.at, dynamic.at, dynamic.at, size, size, 8)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", kind, MACHINES[machine], 1, text_at, 64, table_at, 0, 64, 56, 2, 64,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    image = bytearray(table_at)
    image[: len(head)] = head
    image[64 : 64 + len(segments)] = segments
    for one in parts:
        image[one.at : one.at + len(one.body)] = one.body
    image[at : at + len(names.data)] = names.data
    return bytes(image) + b"".join(headers)


def _eh_frame(address: int, functions: Sequence[tuple[int, int]]) -> bytes:
    """One common entry ("zR", pc-relative 32 bits), one entry per function, a terminator."""
    cie = struct.pack("<I", 0) + b"\x01zR\0\x01\x78\x10\x01\x1b" + b"\0" * 3
    out = struct.pack("<I", len(cie)) + cie
    for start, size in functions:
        here = len(out)
        begin = start - (address + here + 8)
        body = struct.pack("<IiIB", here + 4, begin, size, 0) + b"\0" * 3
        out += struct.pack("<I", len(body)) + body
    return out + bytes(4)
