"""Finds paths of the build machine among a binary's bytes.

A compiler writes them through ``__FILE__``, debug information and symbol-file names. They give away
whose machine built a bundle, and they make two builds differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from qbuild import resources
from qbuild.binary.image import Buffer

_SHOWN = 120

# A drive path with a folder that holds users' or CI systems' work. "C:\Windows" and
# "C:\Program Files" are places programs look for, like /usr. Both expressions begin with a plain
# byte, which re finds many times faster than a class; what stands before it is looked at after.
_WINDOWS = re.compile(
    rb":(?<=(?<![A-Za-z0-9])[A-Za-z]:)[\\/](?:Users|a|agent|b|build|builds|dev|work|src|tmp|temp"
    rb"|jenkins|github|projects|code)[\\/][\x20-\x7e]{2,}",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class BuildPath:
    """A path found in a file."""

    offset: int  # where it starts, in bytes
    text: str  # the path, cut to a readable length

    def __str__(self) -> str:
        """Return the path with its place."""
        return f"{self.text} (at {self.offset:#x})"


@cache
def _table() -> tuple[re.Pattern[bytes], re.Pattern[str]]:
    data = resources.read_table("build-paths.toml")
    roots = b"|".join(re.escape(root.encode().removeprefix(b"/")) for root in data["suspicious"])
    # Not in the middle of a path or URL: "https://host/src/x" is no folder of this machine.
    suspicious = re.compile(rb"/(?<![\w./:~%>}\])-]/)(?:" + roots + rb")[\x21-\x7e]{2,}")
    allowed = "|".join(f"(?:{item['pattern']})" for item in data["allowed"])
    return suspicious, re.compile(allowed)


def find_build_paths(data: Buffer, *, limit: int = 10) -> Iterator[BuildPath]:
    """Yield paths of a build machine that stand in the bytes.

    Args:
        data: The file, in memory or mapped.
        limit: How many to report at most; one leak often shows hundreds of times.
    """
    suspicious, allowed = _table()
    seen: set[str] = set()
    for pattern, before in ((suspicious, 0), (_WINDOWS, len("C"))):
        for match in pattern.finditer(data):
            start = match.start() - before
            text = data[start : match.end()][:_SHOWN].decode("ascii", "backslashreplace")
            if text in seen or allowed.fullmatch(text):
                continue
            seen.add(text)
            yield BuildPath(offset=start, text=text)
            if len(seen) >= limit:
                return
