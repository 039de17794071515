"""Reading a failed log: whatever wrapped, coloured or prefixed it, and in whatever language.

A log is reduced to *compact* text, without blanks and line breaks and in lower case, so that a
message matches however it was wrapped; each place in it is known by its line in the log.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from qbuild.doctor.codes import Seen, seen_in
from qbuild.doctor.findings import Finding, findings
from qbuild.doctor.signatures import Found, compact

HEAD: Final = 2 << 20
TAIL: Final = 6 << 20
"""Of a log with more characters only this much of its head and of its tail is read: the first
error is near the one, the last near the other, and the answer must not take long."""

ROUNDED: Final = "exit-code-rounded"
"""The diagnosis for a code that was rounded so far that it can be one of several."""

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
_PREFIX: Final = re.compile(
    r"""^\s*(?:
        \[?\d{4}[-/]\d\d[-/]\d\d[T\s]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?\]?:?\s
                                          # GitHub Actions, GitLab, Docker, Python's logging
      | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s # a clock alone
      | [A-Z][a-z]{2}\s+\d+\s\d\d:\d\d:\d\d\s\S+\s[\w./@-]+(?:\[\d+\])?:\s   # syslog, journald
      | \d+\.\d\d\.\d{3}\.\d{3}\s[IWED]\s  # llama-server --log-timestamps
      | \#\#\[(?:error|warning|group|debug|command)\]
      | \#\d+\s+\d+\.\d+\s                # docker build
      | [a-z][\w.-]*\s+\|\s               # docker compose
      | \d+>                              # MSBuild's number of a project
      | \[\d+/\d+\]\s                     # ninja's count
      | \[\s*\d+%\]\s                     # make's
      | (?:>\s)+                          # quoted in a mail or a report
    )+""",
    re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class LogHit:
    """A signature seen in a log."""

    finding: Finding  # row of the table
    position: int  # where in the compact text
    evidence: tuple[str, ...]  # the lines that show it
    # named groups of the signature, as they were written (upper case is lost)
    groups: dict[str, str]
    codes: tuple[int, ...] = ()  # the codes that a rounded one can stand for


class LogText:
    """A log as lines, and as one compact text in which each place knows its line."""

    def __init__(self, text: str) -> None:
        self.lines = _lines(text)
        self.plain = [_PREFIX.sub("", line) for line in self.lines]
        parts = [compact(line) for line in self.plain]
        self._starts: list[int] = []
        total = 0
        for part in parts:
            self._starts.append(total)
            total += len(part)
        self.whole = "".join(parts)

    def line_of(self, position: int) -> int:
        """Return the index of the line that holds a place of the compact text."""
        return bisect_right(self._starts, position) - 1

    def start_of(self, line: int) -> int:
        """Return where a line begins in the compact text."""
        return self._starts[line]

    def evidence(self, begin: int, end: int) -> tuple[str, ...]:
        """Return the lines from one to another as a person sees them."""
        shown = [
            each for i in range(begin, min(end, begin + 3) + 1) if (each := self.lines[i].strip())
        ]
        return (f"line {begin + 1}: {' '.join(shown)[:300]}",)


def scan(log: LogText) -> tuple[LogHit, ...]:
    """Return every known signature in a log, likeliest cause first.

    Order: causes before symptoms (``tier``), then what comes first: later errors of one build
    are mostly consequences of its first. What another one explains is left out.
    """
    hits = list(_by_signature(log)) + list(_by_code(log))
    first: dict[str, LogHit] = {}
    for hit in sorted(hits, key=lambda each: (each.position, -len(each.groups))):
        first.setdefault(hit.finding.id, hit)
    explained = {each for hit in first.values() for each in hit.finding.explains}
    kept = [hit for hit in first.values() if hit.finding.id not in explained]
    return tuple(sorted(kept, key=lambda hit: (hit.finding.tier, hit.position, hit.finding.id)))


def _asked_for(finding: Finding, log: LogText) -> bool:
    return not finding.also or any(each.find(log.whole) for each in finding.also)


def _by_signature(log: LogText) -> Iterator[LogHit]:
    for finding in findings().values():
        matches = [found for each in finding.patterns if (found := each.find(log.whole))]
        if not matches or not _asked_for(finding, log):
            continue
        # of two signatures at one place the one that tells more
        first = min(matches, key=lambda match: (match.start, -len(match.groups)))
        detailed = next((match for match in matches if any(match.groups.values())), first)
        yield _hit(finding, log, first, detailed)


def _hit(finding: Finding, log: LogText, first: Found, detailed: Found) -> LogHit:
    begin = log.line_of(first.start)
    end = log.line_of(max(first.start, first.end - 1))
    return LogHit(
        finding=finding,
        position=first.start,
        evidence=log.evidence(begin, end),
        groups=detailed.groups | _extracted(finding, log, begin, end),
    )


def _extracted(finding: Finding, log: LogText, begin: int, end: int) -> dict[str, str]:
    """Return what the table's expression finds in the lines: ``flag2`` is a flag, too."""
    if finding.extract is None:
        return {}
    match = finding.extract.search("\n".join(log.plain[begin : end + 4]))
    if match is None:  # some messages name the thing before they say what is wrong with it
        match = finding.extract.search("\n".join(log.plain[max(0, begin - 4) : end + 1]))
    named = match.groupdict() if match else {}
    return {
        name.rstrip("0123456789"): " ".join(value.split())[:120]
        for name, value in named.items()
        if value
    }


def _by_code(log: LogText) -> Iterator[LogHit]:
    rows: dict[int, list[Finding]] = {}
    for finding in findings().values():
        for code in finding.codes:
            rows.setdefault(code, []).append(finding)
    known = tuple(rows)
    for line, seen in _codes_in(log, known):
        told = [findings()[ROUNDED]] if len(seen.codes) > 1 else rows[seen.codes[0]]
        for finding in told:
            if _asked_for(finding, log):
                yield LogHit(
                    finding=finding,
                    position=log.start_of(line),
                    evidence=log.evidence(line, line),
                    groups=_extracted(finding, log, line, line),
                    codes=seen.codes,
                )


def _codes_in(log: LogText, known: tuple[int, ...]) -> Iterator[tuple[int, Seen]]:
    """Yield codes with their lines: first those that stand in one line, then wrapped ones."""
    text = "\n".join(log.plain)
    starts = [0]
    for line in log.plain:
        starts.append(starts[-1] + len(line) + 1)
    whole = False
    for seen in seen_in(text, known):
        whole = True
        yield bisect_right(starts, seen.start) - 1, seen
    if whole:
        return
    joined = "".join(log.plain)
    for seen in seen_in(joined, known):
        # as many line ends were left out as there are lines before it
        at = next((i for i in range(len(starts) - 1) if starts[i + 1] - i - 1 > seen.start), 0)
        yield at, seen


def _lines(text: str) -> list[str]:
    if len(text) > HEAD + TAIL:
        # as many line ends as were left out keep the line numbers right
        skipped = text.count("\n", HEAD, len(text) - TAIL)
        text = text[:HEAD] + "\n" * skipped + text[-TAIL:]
    return [
        line.rsplit("\r", 1)[-1]
        for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    ]
