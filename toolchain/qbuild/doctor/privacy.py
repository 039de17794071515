"""Folders without what is personal in them: same shape, other letters.

What the checks look at stays: length, blanks, letters outside ASCII, and the names that say
which program a folder belongs to. Everything else (user names, projects, companies) goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_KNOWN: Final = frozenset(
    """
    users home program files (x86) programdata appdata local locallow roaming qbuild cache .cache
    nvidia gpu computing toolkit cuda usr opt mnt media var tmp temp srv root lib lib64 library
    share microsoft visual studio 18 2017 2019 2022 2026 community professional enterprise
    buildtools preview vc tools msvc bin hostx64 hostx86 x64 x86 git cmd mingw64 mingw32 ucrt64
    clang64 msys64 msys2 strawberry c mingw tdm-gcc-64 w64devkit cygwin64 cygwin winlibs windows
    system32 wsl$ wsl.localhost kits
    """.split()  # noqa: SIM905 - a list would be one word per line
)
_VERSIONED: Final = re.compile(r"(?i)(v|cuda-|gcc-|msvc-)?\d{1,2}(\.\d{1,6}){0,3}")


def mask_path(path: str, personal: Collection[str] = ()) -> str:
    """Return a folder's name with its unknown parts masked, letter for letter.

    Args:
        path: A folder of any system.
        personal: Names that are masked even where they look like a known one.
    """
    never = {each.lower() for each in personal if each}
    parts = re.split(r"([\\/]+)", path)
    return "".join(
        part if re.fullmatch(r"[\\/]*", part) else _mask_part(part, never) for part in parts
    )


def _mask_part(part: str, never: Collection[str]) -> str:
    if re.fullmatch(r"[A-Za-z]:", part):
        return part
    lowered = part.lower()
    if lowered not in never:
        words = lowered.split()
        if _VERSIONED.fullmatch(part) or (words and all(word in _KNOWN for word in words)):
            return part
        if len(part) == 1 and part.isascii():  # /mnt/c
            return part
    return "".join(_mask_letter(letter) for letter in part)


def _mask_letter(letter: str) -> str:
    if not letter.isascii():
        return "é"
    if letter.isalpha():
        return "x"
    return "0" if letter.isdigit() else letter


def kernel_release(text: str) -> str:
    """Return a kernel's release without what its builder added: the numbers, and WSL's mark."""
    numbers = re.match(r"[0-9.]+", text)
    mark = re.search(r"(?i)microsoft(-standard)?(-WSL\d)?", text)
    return (numbers[0] if numbers else "") + (f"-{mark[0]}" if mark else "")
