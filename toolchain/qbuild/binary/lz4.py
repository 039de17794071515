"""Decompresses LZ4 blocks: what fat binaries use, too little to need a package for.

The format: a token byte (4 bits literal length, 4 bits match length), more length bytes where a
field is 15, the literals, a two-byte distance back, more match length bytes. The last sequence
ends after its literals.
"""

from __future__ import annotations

from qbuild.errors import BinaryError


def decompress_block(block: bytes, full_size: int) -> bytes:
    """Decompress one block.

    Args:
        block: The compressed bytes, exactly.
        full_size: Bytes that must come out.

    Raises:
        BinaryError: The block is damaged, or gives another number of bytes.
    """
    out = bytearray()
    position = 0
    end = len(block)
    try:
        while position < end:
            token = block[position]
            position += 1
            length = token >> 4
            if length == 15:
                while (more := block[position]) == 255:
                    length += 255
                    position += 1
                length += more
                position += 1
            if length:
                if position + length > end or len(out) + length > full_size:
                    raise BinaryError("damaged LZ4 block: literals reach too far")
                out += block[position : position + length]
                position += length
            if position == end:
                break
            distance = block[position] | block[position + 1] << 8
            position += 2
            length = (token & 15) + 4
            if length == 19:
                while (more := block[position]) == 255:
                    length += 255
                    position += 1
                length += more
                position += 1
            start = len(out) - distance
            if distance == 0 or start < 0 or len(out) + length > full_size:
                raise BinaryError("damaged LZ4 block: a match reaches too far")
            if distance >= length:
                out += out[start : start + length]
            else:  # the match overlaps what it writes: a repeated pattern
                pattern = bytes(out[start:])
                out += (pattern * (length // distance + 1))[:length]
    except IndexError:
        raise BinaryError("damaged LZ4 block: it is cut off") from None
    if len(out) != full_size:
        raise BinaryError(f"damaged LZ4 block: {len(out)} bytes where {full_size} were announced")
    return bytes(out)
