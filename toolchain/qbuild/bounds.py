"""Bounds on what strangers hand over: how much of a file is read, how deep its JSON may be.

A parser that is right about every byte can still be fed until the machine has no memory left.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, BinaryIO, Final

DEEPEST: Final = 64
"""Levels that whatever walks parsed data afterwards can follow; nothing of ours needs ten."""

TEXT: Final = 1 << 20
"""Bytes of a recipe, lockfile, series or configuration; our largest table has 32 KB."""

JSON: Final = 8 << 20
"""Bytes of a JSON document. Python makes up to 25 bytes of one; our largest SBOM has 40 KB."""


_BITS: Final = 1024
"""Of a whole number; Python refuses to print one of 4,300 digits, which TOML can say in hex."""


def read_bytes(path: Path, most: int) -> bytes:
    """Return a file's content.

    Args:
        path: The file; a device or pipe is read no further than a file.
        most: Most bytes it may have.

    Raises:
        OSError: It cannot be read, or (``EFBIG``) is larger.
    """
    with path.open("rb") as stream:
        return read_stream(stream, most, str(path))


def read_stream(stream: BinaryIO, most: int, name: str) -> bytes:
    """Return what a stream still holds; errors as in :func:`read_bytes`."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than the {megabytes(most)} that such a file has", name)
    return data


def megabytes(size: int) -> str:
    """Return a bound (bytes, a power of two) as people read it."""
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def load_json(text: bytes | str, *, most: int = JSON) -> Any:
    """Return the data of a JSON text.

    Args:
        text: The text; bytes are UTF-8, UTF-16 or UTF-32.
        most: Most bytes (of a ``str``: characters) it may have.

    Raises:
        ValueError: It is no JSON, too large or nested too deeply.
    """
    if len(text) > most:
        raise ValueError(f"it is larger than {megabytes(most)}")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_data(data)
    return data


def check_data(data: object) -> None:
    """Check that parsed data can be walked and printed: its nesting, and its whole numbers.

    Raises:
        ValueError: It is nested deeper than :data:`DEEPEST`, or a number has hundreds of digits.
    """
    level, current = 0, [data]
    while current:
        if level > DEEPEST:
            raise ValueError("it is nested too deeply")
        inner: list[object] = []
        for value in current:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, int) and value.bit_length() > _BITS:
                raise ValueError("it holds a number that is far too long")
        level, current = level + 1, inner
