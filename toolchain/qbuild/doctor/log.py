"""Reading a failed log: whatever wrapped, coloured or prefixed it, and in whatever language.

A log is reduced to *compact* text, without blanks and line breaks and in lower case, so that a
message matches however it was wrapped; each place in it is known by its line in the log.
"""

from __future__ import annotations

import contextlib
import locale
import os
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild.doctor.findings import Finding, compact, findings
from qbuild.errors import UsageError

HEAD: Final = 2 << 20
TAIL: Final = 6 << 20
"""Of a log with more characters only this much of its head and of its tail is read: the first
error is near the one, the last near the other, and the answer must not take long."""

_MOST: Final = 32 << 20
"""Bytes of a log's head, and of its tail, that are read at all: characters take up to four, and
colours as much again."""

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
_PREFIX: Final = re.compile(
    r"""^\s*(?:
        \d{4}-\d\d-\d\dT[\d:.]+Z\s        # GitHub Actions, GitLab
      | \#\#\[(?:error|warning|group|debug|command)\]
      | \#\d+\s+\d+\.\d+\s                # docker build
      | \d+>                              # MSBuild's number of a project
      | \[\d+/\d+\]\s                     # ninja's count
      | \[\s*\d+%\]\s                     # make's
    )+""",
    re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class LogHit:
    """A signature seen in a log.

    Args:
        finding: Row of the table.
        position: Where in the compact text.
        evidence: The lines that show it.
        groups: Named groups of the signature, as they were written (upper case is lost).
    """

    finding: Finding
    position: int
    evidence: tuple[str, ...]
    groups: dict[str, str]


def scan(text: str) -> tuple[LogHit, ...]:
    """Return every known signature in a log, likeliest cause first.

    Order: causes before symptoms (``tier``), then what comes first: later errors of one build
    are mostly consequences of its first.
    """
    lines = _lines(text)
    parts = [compact(_PREFIX.sub("", line)) for line in lines]
    starts, total = [], 0
    for part in parts:
        starts.append(total)
        total += len(part)
    whole = "".join(parts)
    hits = []
    for finding in findings().values():
        matches = [found for each in finding.patterns if (found := each.search(whole))]
        if not matches:
            continue
        # of two signatures at one place the one that tells more
        first = min(matches, key=lambda match: (match.start(), -len(match.groupdict())))
        detailed = next((match for match in matches if match.groupdict()), first)
        begin = bisect_right(starts, first.start()) - 1
        end = bisect_right(starts, max(first.start(), first.end() - 1)) - 1
        shown = [each for i in range(begin, min(end, begin + 3) + 1) if (each := lines[i].strip())]
        evidence = (f"line {begin + 1}: {' '.join(shown)[:300]}",)
        hits.append(
            LogHit(
                finding=finding,
                position=first.start(),
                evidence=evidence,
                groups={key: value or "" for key, value in detailed.groupdict().items()},
            )
        )
    return tuple(sorted(hits, key=lambda hit: (hit.finding.tier, hit.position, hit.finding.id)))


def _lines(text: str) -> list[str]:
    if len(text) > HEAD + TAIL:
        # as many line ends as were left out keep the line numbers right
        skipped = text.count("\n", HEAD, len(text) - TAIL)
        text = text[:HEAD] + "\n" * skipped + text[-TAIL:]
    return [
        line.rsplit("\r", 1)[-1]
        for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    ]


def decode(data: bytes, code_page: str | None = None) -> str:
    """Return a log's text, whatever wrote it.

    Windows PowerShell's ``>`` writes UTF-16. Of a build some programs write UTF-8 and some the
    system's code page, into one log: each line is read by itself.

    Args:
        data: The log's bytes.
        code_page: What is tried for lines that are not UTF-8; this system's by default.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if data[:4096].count(0) > len(data[:4096]) // 4:
        return data.decode("utf-16-le", errors="replace")
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    second = code_page or locale.getpreferredencoding(False)
    return "\n".join(_decode_line(line, second) for line in data.split(b"\n"))


def _decode_line(line: bytes, code_page: str) -> str:
    for encoding in ("utf-8", code_page):
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            return line.decode(encoding)
    return line.decode("cp1252", errors="replace")


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
