"""Zips byte by byte, so that any field can lie."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field


@dataclass
class Raw:
    """A member whose every header field can lie; ``None`` means the truth."""

    name: bytes = b"file.txt"
    data: bytes = b"content"
    method: int = 0
    flags: int = 0x800
    attributes: int = 0o100644 << 16
    system: int = 3
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    offset: int | None = None
    extra: bytes = b""
    comment: bytes = b""
    local: dict[str, int | bytes] = field(default_factory=dict)

    def body(self) -> bytes:
        if self.method != 8:
            return self.data
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.data) + packer.flush()


def raw_zip(*members: Raw, count: int | None = None, disk: int = 0, tail: bytes = b"") -> bytes:
    """Return a zip; ``count`` and ``disk`` stand in its end record, ``tail`` follows it."""
    out, directory = b"", b""
    for member in members:
        body, at = member.body(), len(out)
        crc = zlib.crc32(member.data) if member.crc is None else member.crc
        size = len(member.data) if member.size is None else member.size
        packed = len(body) if member.packed is None else member.packed
        name = member.local.get("name", member.name)
        assert isinstance(name, bytes)
        out += (
            struct.pack(
                "<4s5H3L2H",
                member.local.get("magic", b"PK\x03\x04"),
                20,
                member.flags,
                member.local.get("method", member.method),
                0,
                0x21,
                member.local.get("crc", crc),
                packed,
                size,
                len(name),
                0,
            )
            + name
            + body
        )
        directory += (
            struct.pack(
                "<4s6H3L5H2L",
                b"PK\x01\x02",
                member.system << 8 | 20,
                20,
                member.flags,
                member.method,
                0,
                0x21,
                crc,
                packed,
                size,
                len(member.name),
                len(member.extra),
                len(member.comment),
                0,
                0,
                member.attributes,
                at if member.offset is None else member.offset,
            )
            + member.name
            + member.extra
            + member.comment
        )
    number = len(members) if count is None else count
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", disk, 0, number, number, len(directory), len(out), 0
    )
    return out + directory + end + tail
