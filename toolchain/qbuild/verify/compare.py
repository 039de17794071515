"""Compare two zips: which member differs, in which section, at which bytes, and why perhaps."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.binary.zip_reader import open_zip
from qbuild.hashing import sha256_file

if TYPE_CHECKING:
    from qbuild.binary.zip_reader import ZipView

_SHOWN = 48
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d")
_DATE = re.compile(rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d{4}")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One member, one section in which the two zips differ."""

    member: str
    section: str
    offset: int
    first: bytes
    second: bytes
    reason: str

    def line(self) -> str:
        """Return the difference as one line for people."""
        at = f" at {self.offset:#x}" if self.offset >= 0 else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.member}, {self.section}{at}: {self.first!r} / {self.second!r}{why}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All differences between two zips."""

    sha256: tuple[str, str]
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether the two files are the same bytes."""
        return self.sha256[0] == self.sha256[1]

    @property
    def reasons(self) -> list[str]:
        """Return the distinct reasons that were recognised."""
        return sorted({d.reason for d in self.differences if d.reason})

    def headline(self) -> str:
        """Return which members differ."""
        names = sorted({d.member for d in self.differences})
        return ", ".join(names) or "only in the container"

    def lines(self) -> list[str]:
        """Return one line per difference."""
        return [d.line() for d in self.differences] or ["the same members, another container"]

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a machine reads it."""
        return {
            "identical": self.identical,
            "sha256": list(self.sha256),
            "differences": [
                {
                    **dataclasses.asdict(d),
                    "first": d.first.decode("latin-1"),
                    "second": d.second.decode("latin-1"),
                }
                for d in self.differences
            ],
        }


def compare_zips(first: Path, second: Path) -> Comparison:
    """Compare two zips.

    Raises:
        ArchiveError: One of them is damaged.
    """
    digests = (sha256_file(first), sha256_file(second))
    if digests[0] == digests[1]:
        return Comparison(sha256=digests, differences=())
    return Comparison(sha256=digests, differences=tuple(_differences(first, second)))


def _differences(first: Path, second: Path) -> Iterator[Difference]:
    with open_zip(first) as one, open_zip(second) as two:
        for name in sorted({*one.names, *two.names}):
            if name not in one.names or name not in two.names:
                side = "second" if name not in one.names else "first"
                yield Difference(
                    member=name, section="whole file", offset=-1, first=b"", second=b"",
                    reason=f"only the {side} build has it",
                )  # fmt: skip
                continue
            if not _same_member(one, two, name):
                yield from _member_differences(one, two, name)


_MOST = 1 << 30  # bytes of a member up to which its sections are compared: both are in memory then


def _same_member(one: ZipView, two: ZipView, name: str) -> bool:
    if one.member(name).size != two.member(name).size:
        return False
    return _digest(one, name) == _digest(two, name)


def _digest(view: ZipView, name: str) -> bytes:
    found = hashlib.sha256()
    for piece in view.chunks(name):
        found.update(piece)
    return found.digest()


def _member_differences(one: ZipView, two: ZipView, name: str) -> Iterator[Difference]:
    if max(one.member(name).size, two.member(name).size) > _MOST:
        yield Difference(
            member=name, section="whole file", offset=-1, first=b"", second=b"",
            reason="too large to look into",
        )  # fmt: skip
        return
    yield from compare_members(name, one.read(name, most=_MOST), two.read(name, most=_MOST))


def compare_members(name: str, a: bytes, b: bytes) -> Iterator[Difference]:
    """Yield the first difference of each section in which two files differ."""
    seen: set[str] = set()
    for section, start, end in _sections(a):
        one, two = a[start:end], b[start:end]
        if one == two or section in seen:
            continue
        seen.add(section)
        at = next(
            (i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y),
            min(len(one), len(two)),
        )
        low = max(0, at - _SHOWN // 2)
        left, right = one[low : at + _SHOWN], two[low : at + _SHOWN]
        yield Difference(
            member=name,
            section=section,
            offset=start + at,
            first=_text(left),
            second=_text(right),
            reason=_reason(left, right),
        )
    if not seen:
        yield Difference(
            member=name, section="end of file", offset=min(len(a), len(b)), first=b"",
            second=b"", reason=f"{len(a)} and {len(b)} bytes long",
        )  # fmt: skip


def _sections(data: bytes) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of a PE's or ELF's parts; one part for anything else."""
    parts: list[tuple[str, int, int]] = []
    try:
        if data[:2] == b"MZ":
            import pefile

            pe = pefile.PE(data=data, fast_load=True)
            for s in pe.sections:
                label = s.Name.rstrip(b"\0").decode("latin-1")
                start = int(s.PointerToRawData)
                parts.append((label, start, start + int(s.SizeOfRawData)))
        elif data[:4] == b"\x7fELF":
            import io

            from elftools.elf.elffile import ELFFile

            for s in ELFFile(io.BytesIO(data)).iter_sections():
                if s["sh_type"] != "SHT_NOBITS" and s["sh_size"]:
                    parts.append((s.name, s["sh_offset"], s["sh_offset"] + s["sh_size"]))
    except Exception:  # a damaged file is compared as plain bytes
        parts = []
    if not parts:
        return [("contents", 0, len(data))]
    first = min(start for _, start, _ in parts)
    return [("headers", 0, first), *parts, ("whole file", 0, len(data))]


def _text(data: bytes) -> bytes:
    """Return the printable run around the difference when there is one, else the raw bytes."""
    runs = re.findall(rb"[\x20-\x7e]{4,}", data)
    return max(runs, key=len) if runs else data[:16]


def _reason(left: bytes, right: bytes) -> str:
    if _CLOCK.search(left) and _CLOCK.search(right):
        return "a time of day: __TIME__ or a clock"
    if _DATE.search(left) and _DATE.search(right):
        return "a date: __DATE__ or a clock"
    if b"/" in left and b"/" in right and re.search(rb"/[\w.-]+/[\w.-]+", left):
        return "a path of the build folder"
    return ""
