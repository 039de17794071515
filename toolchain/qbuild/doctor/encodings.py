"""A log's bytes as text, whatever program in whatever country wrote them.

Windows PowerShell's ``>`` writes UTF-16. Of a build some programs write UTF-8 and some the
system's code page, into one log: each line is read by itself. Which code page that is, is not
written anywhere: the one is taken in which most of what the doctor knows can be read.
"""

from __future__ import annotations

import contextlib
import locale
import os
from pathlib import Path
from typing import Final

from qbuild.errors import UsageError

CODE_PAGES: Final = ("cp1252", "cp850", "gb18030", "cp932", "cp1251", "cp866", "cp950", "cp949")
"""ANSI code pages of Windows, and the console's for Western Europe (850) and Russia (866)."""

_MOST: Final = 32 << 20
"""Bytes of a log's head, and of its tail, that are read at all: characters take up to four, and
colours as much again."""

_SAMPLE: Final = 300  # lines that are looked at to find the code page


def decode(data: bytes, code_page: str | None = None) -> str:
    """Return a log's text.

    Args:
        data: The log's bytes.
        code_page: What is tried first for lines that are not UTF-8; this system's by default.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if (wide := _wide(data)) is not None:
        return wide
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig").replace("\0", "")
    lines = data.replace(b"\0", b"").split(b"\n")  # PowerShell's >> adds UTF-16 to what is there
    page = _likeliest([each for each in lines if not _is_utf8(each)], code_page)
    return "\n".join(_decode_line(line, page) for line in lines)


def read_log(path: Path) -> str:
    """Return the text of a log file.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_MOST)
            size = stream.seek(0, os.SEEK_END) if stream.seekable() else len(head)
            if size <= len(head):
                return decode(head)
            stream.seek(-_MOST, os.SEEK_END)
            return f"{decode(head)}\n{decode(stream.read(_MOST))}"
    except OSError as error:
        raise UsageError(f"cannot read {path.name}: {error.strerror}", where=str(path)) from error


def _wide(data: bytes) -> str | None:
    """Return UTF-16 without its mark: every second byte of plain text is zero."""
    head = data[:4096]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) <= len(head) // 4:
        return None
    return data.decode("utf-16-be" if even > odd else "utf-16-le", errors="replace")


def _is_utf8(line: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        line.decode("utf-8")
        return True
    return False


def _likeliest(lines: list[bytes], first: str | None) -> str:
    from qbuild.doctor.log import LogText, scan

    own = first or locale.getpreferredencoding(False)
    sample = lines[:_SAMPLE] + lines[-_SAMPLE:]

    def rank(page: str) -> tuple[int, int]:
        read = [text for line in sample if (text := _in(page, line)) is not None]
        return len(scan(LogText("\n".join(read)))), len(read)

    return max(dict.fromkeys((own, *CODE_PAGES)), key=rank)  # the first of equals


def _in(page: str, line: bytes) -> str | None:
    with contextlib.suppress(UnicodeDecodeError, LookupError):
        return line.decode(page)
    return None


def _decode_line(line: bytes, code_page: str) -> str:
    for encoding in ("utf-8", code_page):
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            return line.decode(encoding)
    return line.decode("cp1252", errors="replace")
