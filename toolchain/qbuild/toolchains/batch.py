r"""Wrappers for Windows: batch files that name no folder, whatever the folders are called.

cmd reads a batch file in the console's code page, so a name like ``C:\Users\Jürgen`` or ``C:\构建``
cannot stand in one, and a ``%`` in a name would be taken for a variable. A wrapper finds its own
place when it runs (``%~dp0``) and everything else from there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Final

from qbuild.errors import ToolchainError

_ANCHOR: Final = re.compile(r"[A-Za-z]:[/\\]")
_BACK, _SLASHES = "QBUILD_ROOT", "QBUILD_ROOT_SLASHES"


def batch_text(path: str, command: Sequence[str]) -> str:
    """Return the batch file at ``path`` that runs ``command`` plus its own arguments.

    Args:
        path: Where the file will lie; it can be moved together with what it names.
        command: Program and arguments; paths of this machine are full ones.

    Raises:
        ToolchainError: An argument holds what a batch file cannot: a quote, a percent sign or
            a letter outside ASCII that is not part of a folder which the file shares.
    """
    folder = PureWindowsPath(path).parent
    anchor = _shared(folder, command)
    lines = ["@setlocal"]
    words = list(command)
    if anchor is not None:
        up = "\\".join([".."] * len(folder.relative_to(anchor).parts)) or "."
        lines += [
            f'@for %%d in ("%~dp0{up}") do @set "{_BACK}=%%~fd"',
            f'@set "{_SLASHES}=%{_BACK}:\\=/%"',
        ]
        words = [_named(word, anchor) for word in words]
    for word in words:
        plain = word.replace(f"%{_BACK}%", "").replace(f"%{_SLASHES}%", "")
        if not plain.isascii() or '"' in plain or "%" in plain:
            raise ToolchainError(
                "a batch file cannot hold this argument of a compiler",
                where=word,
                fix="choose another folder with --store, with plain letters in its name",
            )
    lines.append("@" + " ".join(f'"{word}"' for word in words) + " %*")
    return "\r\n".join(lines) + "\r\n"


def write_batch(path: Path, command: Sequence[str]) -> None:
    """Write a wrapper; see :func:`batch_text`."""
    path.write_bytes(batch_text(str(path.absolute()), command).encode("ascii"))


def _shared(folder: PureWindowsPath, command: Sequence[str]) -> PureWindowsPath | None:
    """Return the deepest folder that holds the wrapper and everything the command names nearby."""
    found = _parts(folder)
    for word in command:
        for match in _ANCHOR.finditer(word):
            named = _parts(PureWindowsPath(re.split(r"[=;]", word[match.start() :])[0]))
            if named[:2] == found[:2]:  # the drive alone is not near
                both = zip(found, named, strict=False)
                found = [
                    one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both)
                ]
    return PureWindowsPath(*folder.parts[: len(found)]) if len(found) > 1 else None


def _parts(path: PureWindowsPath) -> list[str]:
    return [part.lower() for part in path.parts]


def _named(word: str, anchor: PureWindowsPath) -> str:
    """Return a word with the anchor's name replaced by the variable, in both spellings."""
    for name, variable in ((str(anchor), _BACK), (anchor.as_posix(), _SLASHES)):
        pieces = re.split(re.escape(name) + r"(?=[/\\=;]|$)", word, flags=re.IGNORECASE)
        word = f"%{variable}%".join(pieces)
    return word
