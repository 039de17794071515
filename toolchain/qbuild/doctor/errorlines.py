"""Lines of a log that say that something failed, for logs of which nothing is known.

Not a diagnosis: a way to the place where one would start to read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from qbuild.doctor.log import LogText

MOST: Final = 5  # lines that are shown; the first errors are mostly the cause

_LONGEST: Final = 240  # characters of a line that are shown

# "error" in the languages of compilers, CMake, git and Windows, as a label: before a colon, a
# number or a bracket, or at the line's beginning.
_WORD: Final = (
    r"(?:fatal(?:er)?|errors?|err(?:no)?|fehler|erreur|errore|erro|błąd|fout|feil|fel|hata"
    r"|ошибка|错误|錯誤|エラー|오류|panic|critical|abgebrochen)"
)
_LABEL: Final = re.compile(
    rf"(?:^|[\s\[(<|]){_WORD}(?:\s+[a-z]{{1,5}}\d{{2,6}})?\s*(?:[:：!\])]|=|\s-\s)", re.IGNORECASE
)
_START: Final = re.compile(
    r"^(?:Traceback \(most recent call last\)|CMake Error|make.*\*\*\* |ninja: build stopped"
    r"|FAILED:|npm (?:error|ERR!)|E: |terminate called|Segmentation fault|Aborted|Bus error"
    r"|GGML_ASSERT|assert|[\w.]+(?:Error|Exception): )",
    re.IGNORECASE,
)
_INSIDE: Final = re.compile(
    r"core dumped|undefined reference to|unresolved external|cannot open shared object"
    r"|: No such file or directory|: Permission denied|: command not found|Unhandled exception"
    r"|panicked at|\bhas crashed\b|terminated unexpectedly|exited with (?:code|status) [1-9-]"
    r"|failed with exit code [1-9-]|Main process exited, code=(?:dumped|killed)",
    re.IGNORECASE,
)
_NOT: Final = re.compile(
    r"\b(?:0|no|without)\s+(?:fatal\s+)?(?:errors?|fehler|erreurs?|ошибок|个错误)\b|-Werror"
    r"|errors?:?\s*0\b|Performing Test|^\s*--\s|\bwarning\b"
    # llama.cpp's CMake asks git for a version, and goes on without one
    r"|not a git repository",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class ErrorLine:
    """A line that says that something failed."""

    number: int  # its number in the log, from 1
    text: str  # what it says, cut where it is long


def error_lines(text: str) -> tuple[ErrorLine, ...]:
    """Return the first lines of a log that say that something failed, each text once."""
    found: dict[str, ErrorLine] = {}
    log = LogText(text)
    for number, line in enumerate(log.plain, 1):
        stripped = line.strip()
        if len(stripped) < 4 or stripped in found or not _says_so(stripped):
            continue
        found[stripped] = ErrorLine(number=number, text=stripped[:_LONGEST])
        if len(found) == MOST:
            break
    return tuple(found.values())


def _says_so(line: str) -> bool:
    head = line[:2000]
    if _NOT.search(head):
        return False
    return bool(_START.search(head) or _LABEL.search(head) or _INSIDE.search(head))
