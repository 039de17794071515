"""Why a fetch failed: what git, pip and npm said, in the doctor's words.

pip says "No matching distribution found" when a proxy refuses it, git "dumb http transport" when a
hotel wants a login. What they also said names the real cause; the doctor's table of network faults
(``toolchain/data/doctor/network.toml``) knows it, what can be done, and whether another try helps.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from qbuild import resources
from qbuild.doctor.signatures import Signature, compact, signature
from qbuild.errors import OriginError

TABLE: Final = "doctor/network.toml"

_LONGEST: Final = 140  # characters of another program's line that a message repeats

_PAGE_TIMEOUT_S: Final = 10.0
_PAGE_MOST: Final = 1 << 16  # bytes of a page that are looked at

_FILE: Final = re.compile(r"""href=["']?[^"'>]+\.(?:whl|tar\.gz|tgz|zip)\b""")
"""A link of an index page to a file."""

_NOISE: Final = re.compile(r"^(?:npm (?:error|ERR!)|WARNING:|ERROR:|fatal:|error:|remote:)\s*")


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why something could not be fetched."""

    id: str  # name of the diagnosis, as `qbuild doctor` gives it
    found: str  # what is wrong
    mend: str  # what can be done about it
    passing: bool  # whether another try may help
    said: str = ""  # the other program's own line that shows it; may be empty

    def __str__(self) -> str:
        return f"{self.found} ({self.said})" if self.said else self.found


class UnfetchedError(OriginError):
    """A program could not get what it was sent for.

    Args:
        cause: Why, where that is known.
    """

    def __init__(self, what: str, *, where: str, fix: str, cause: Cause | None) -> None:
        super().__init__(what, where=where, fix=fix)
        self.cause = cause


def cause_of(said: str) -> Cause | None:
    """Return the likeliest cause in what a program said, or nothing when it is not known.

    Args:
        said: All its output; the first lines tell more than the last.
    """
    whole = compact(said)
    hits = []
    for row, signatures in _rows():
        places = [found for each in signatures if (found := each.find(whole))]
        if places:
            first = min(places, key=lambda found: found.start)
            hits.append((int(row["tier"]), first.start, row, whole[first.start : first.end]))
    explained = {each for _, _, row, _ in hits for each in row.get("explains", ())}
    kept = [hit for hit in hits if hit[2]["id"] not in explained]
    if not kept:
        return None
    _, _, row, text = min(kept, key=lambda hit: hit[:2])
    return _cause(row, _line(said, text))


def known_cause(name: str, said: str = "") -> Cause:
    """Return a cause by its name, for what was seen without another program.

    Args:
        name: Row of the table.
        said: What shows it.
    """
    return next(_cause(row, said) for row, _ in _rows() if row["id"] == name)


def page_instead(url: str) -> Cause | None:
    """Look at an address: is what it gives a web page where files or data are expected?

    Args:
        url: What a program asked for in vain.
    """
    import http.client  # with TLS 30 ms, which a run that fetches nothing need not wait for
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_PAGE_TIMEOUT_S) as answer:  # noqa: S310
            kind = answer.headers.get_content_type()
            text = answer.read(_PAGE_MOST).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    if kind != "text/html" or _FILE.search(text):
        return None
    title = re.search(r"<title[^>]*>([^<]{1,80})", text, re.IGNORECASE)
    called = f" called {title[1].strip()!r}" if title else ""
    return known_cause("html-instead", f"{without_password(url)} gives a page{called}")


def without_password(url: str) -> str:
    """Return a URL as messages may show it."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", url)


def remedy(causes: list[Cause | None], otherwise: str) -> str:
    """Return what to do about several failures: each remedy once; where none is known, the rest."""
    told = dict.fromkeys(cause.mend for cause in causes if cause is not None)
    return "; ".join([*list(told)[:2], *([] if told else [otherwise])])


def _cause(row: dict[str, Any], said: str) -> Cause:
    return Cause(
        id=row["id"],
        found=row["found"],
        mend=row["mend"],
        passing=row.get("passing", False),
        said=textwrap.shorten(said, _LONGEST, placeholder=" …"),
    )


@cache
def _rows() -> tuple[tuple[dict[str, Any], tuple[Signature, ...]], ...]:
    return tuple(
        (row, tuple(signature(each) for each in row.get("log", ())))
        for row in resources.read_table(TABLE)["finding"]
    )


def _line(said: str, shows: str) -> str:
    """Return the line that holds a compact piece of text (or begins with it), without its label."""
    wanted = shows[:40]
    for line in said.splitlines():
        if wanted in compact(line):
            plain = _NOISE.sub("", " ".join(line.split()))
            return without_password(plain)
    return ""
