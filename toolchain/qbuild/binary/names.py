"""Which member names an archive may carry: rules shared by the zip writer and the readers.

Every rule is checked on every host: a zip made or accepted on Linux must unpack on Windows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from qbuild.errors import ArchiveError

MAX_PART: Final = 255
"""Bytes of UTF-8 in one path component: the limit of ext4, XFS and (in characters) NTFS."""

MAX_NAME: Final = 1024
"""Bytes of UTF-8 in a whole member name; Linux stops at 4096 for the whole path."""

MAX_DEPTH: Final = 32
"""Folders that a member may lie in; the deepest file of a pinned wheel lies in twelve."""

MAX_FOLDERS: Final = 10_000
"""Folders that an archive may make; the wheel with most of them makes 1,283."""

# Names that Windows gives to devices, with or without an extension, in any folder.
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{kind}{number}" for kind in ("com", "lpt") for number in "123456789¹²³"}
)
_WINDOWS_FORBIDDEN: Final = frozenset('<>"|?*')


def _refuse(archive: str, name: str, why: str) -> ArchiveError:
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    return ArchiveError(
        f"unsafe member name {shown!r}: {why}",
        where=f"{archive}: {shown!r}",
        fix="do not unpack this archive; get it again from where it was published",
    )


def check_name(name: str, *, archive: str, portable: bool = True) -> None:
    """Check that a file member's name is a plain relative path below the archive's root.

    Args:
        name: Member name as stored, without a trailing ``/``.
        archive: Name of the archive, for messages.
        portable: Also refuse what Windows cannot create. Off for wheels and other foreign
            archives that are only unpacked on the host they were chosen for.

    Raises:
        ArchiveError: The name is unsafe; the message says which rule it breaks.
    """
    if not name:
        raise _refuse(archive, name, "it is empty")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise _refuse(archive, name, "it is not valid Unicode") from None
    if "\0" in name:
        raise _refuse(archive, name, "it holds a NUL")
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise _refuse(archive, name, "it holds a control character")
    if len(encoded) > MAX_NAME:
        raise _refuse(archive, name, f"it is longer than {MAX_NAME} bytes")
    if "\\" in name:
        raise _refuse(archive, name, "it holds a backslash")
    if name.startswith("/"):
        raise _refuse(archive, name, "it is an absolute path")
    if len(name) > 1 and name[1] == ":":
        raise _refuse(archive, name, "it starts with a drive letter")
    if name.count("/") > MAX_DEPTH:
        raise _refuse(archive, name, f"it lies in more than {MAX_DEPTH} folders")
    for part in name.split("/"):
        _check_part(part, name, archive, portable=portable)


def _check_part(part: str, name: str, archive: str, *, portable: bool) -> None:
    if part == "..":
        raise _refuse(archive, name, "it climbs out of its folder")
    if part in ("", "."):
        raise _refuse(archive, name, "it has an empty or '.' component")
    if len(part.encode()) > MAX_PART:
        raise _refuse(archive, name, f"a component is longer than {MAX_PART} bytes")
    if not portable:
        return
    if ":" in part:
        raise _refuse(archive, name, "it holds a colon (a stream of another file on Windows)")
    if part[-1] in ". ":
        raise _refuse(archive, name, "a component ends in a dot or blank, which Windows drops")
    if part.split(".", maxsplit=1)[0].rstrip(" ").lower() in _DEVICES:
        raise _refuse(archive, name, f"{part!r} is a device on Windows")
    if bad := sorted(_WINDOWS_FORBIDDEN.intersection(part)):
        raise _refuse(archive, name, f"it holds {bad[0]!r}, which Windows forbids")


class Folders:
    """Counts the folders that an archive's members lie in.

    Args:
        archive: Name of the archive, for messages.
        most: How many it may make.
    """

    def __init__(self, archive: str, most: int = MAX_FOLDERS) -> None:
        self._archive, self._most = archive, most
        self._seen: set[str] = set()

    def add(self, name: str) -> None:
        """Count the folders of one member.

        Raises:
            ArchiveError: With it the archive makes too many.
        """
        folder = name.rpartition("/")[0]
        while folder and folder not in self._seen:
            self._seen.add(folder)
            folder = folder.rpartition("/")[0]
        if len(self._seen) > self._most:
            raise ArchiveError(
                f"{self._archive} makes more than {self._most} folders",
                where=self._archive,
                fix="do not unpack this archive; get it again from where it was published",
            )


def fold(name: str) -> str:
    """Return the key under which file systems that ignore case and Unicode form see a name."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def collisions(names: Iterable[str], *, portable: bool = True) -> tuple[str, str] | None:
    """Return the first two names that cannot both be unpacked, or ``None``.

    Names collide when they are equal, when they differ only in case or Unicode form
    (``portable``), or when one is needed as a folder by the other.
    """
    key = fold if portable else str
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        folded = key(name)
        if clash := files.get(folded) or folders.get(folded):
            return clash, name
        files[folded] = name
        while "/" in folded:
            folded = folded.rpartition("/")[0]
            if folded in files:
                return files[folded], name
            folders.setdefault(folded, name)
    return None
