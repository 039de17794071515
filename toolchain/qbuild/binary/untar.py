"""Unpack a ``.tar.gz`` (an sdist) without trusting it: plain files only, inside one folder.

The standard library's parser is used, its extraction is not: what that refuses depends on the
Python version and a ``filter`` argument.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from qbuild import host
from qbuild.binary.names import Folders, check_name
from qbuild.errors import ArchiveError

MAX_BYTES: Final = 4 << 30
"""Bytes one archive may unpack to: fifty times the llama.cpp sdist's 80 MB of files."""

MAX_MEMBERS: Final = 100_000
"""Files one archive may unpack to; the llama.cpp sdist has 3,000."""

MAX_STREAM: Final = 8 << 30
"""Bytes the whole archive may inflate to, members that are skipped included."""

MAX_HEADER: Final = 4 << 20
"""Bytes that are read at once; extended headers hold a path or two."""

_CHUNK: Final = 1 << 20


def extract_tar(
    path: Path, folder: Path, *, under: str = "", max_bytes: int = MAX_BYTES
) -> tuple[Path, ...]:
    """Unpack the files below one folder of a ``.tar.gz`` and return what was written.

    Modes are 0755 for programs and 0644 for the rest. Members outside ``under`` are skipped
    unread, whatever they are; a link or device below it is refused.

    Args:
        path: The archive.
        folder: Where to; must be empty or not exist yet.
        under: Folder inside the archive whose content is wanted, e.g. ``pkg-1.0/src``; its own
            path is cut off. Empty: everything.
        max_bytes: Most bytes the wanted files may unpack to.

    Raises:
        ArchiveError: The archive cannot be read, is damaged, holds nothing below ``under``, or
            holds an unsafe, colliding or linked member there, which is named; or ``folder`` is
            not empty or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ArchiveError(
                f"{path.name} is only unpacked into an empty folder",
                where=str(folder),
                fix="choose a new folder",
            )
        written = list(_extract(path, folder, under.strip("/"), max_bytes))
    # What tarfile lets through on damaged input, seen by mutating archives.
    except (
        tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, OverflowError
    ) as error:  # fmt: skip
        raise ArchiveError(
            f"{path.name} is damaged or no .tar.gz ({error})",
            where=path.name,
            fix="get the archive again and compare its sha256",
        ) from error
    except OSError as error:
        raise ArchiveError(
            f"{path.name} cannot be unpacked: {error.strerror or error}",
            where=str(error.filename or path),
        ) from error
    if not written:
        raise ArchiveError(f"{path.name} holds no files below {under!r}", where=path.name)
    return tuple(written)


class _Bounded:
    """A stream as tarfile uses one, read in bounded pieces and to a bounded end.

    The standard library reads an extended header of any size whole, and walks through members
    that nobody wants for as long as there are some.
    """

    def __init__(self, stream: gzip.GzipFile, name: str) -> None:
        self._stream, self._name = stream, name
        self.name = name

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise self._refuse(f"it has a header of {size} bytes")
        data = self._stream.read(size)
        self.tell()
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        if position > MAX_STREAM:
            raise self._refuse(f"it unpacks to more than {MAX_STREAM} bytes")
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        position = self._stream.tell()
        if position > MAX_STREAM:
            raise self._refuse(f"it unpacks to more than {MAX_STREAM} bytes")
        return position

    def _refuse(self, why: str) -> ArchiveError:
        return ArchiveError(
            f"{self._name} is refused: {why}",
            where=self._name,
            fix="get the archive again from its publisher",
        )


def _extract(path: Path, folder: Path, under: str, max_bytes: int) -> Iterator[Path]:
    def refuse(why: str, member: str) -> ArchiveError:
        return ArchiveError(
            f"{member!r}: {why}",
            where=f"{path.name}: {member!r}",
            fix="get the archive again from its publisher",
        )

    left = max_bytes
    folders, files = Folders(path.name), 0
    with (
        gzip.open(path) as inflated,
        tarfile.open(fileobj=_Bounded(inflated, path.name), mode="r:") as archive,  # type: ignore[call-overload,unused-ignore]
    ):
        for member in archive:
            name = member.name.removeprefix("./")
            if under and not name.startswith(f"{under}/"):
                continue
            name = name[len(under) + 1 :] if under else name
            if member.isdir() and name in ("", "."):
                continue
            check_name(name, archive=path.name, portable=host.system() != "linux")
            if member.isdir():
                continue
            if not member.isreg():
                raise refuse("it is a link or a device", member.name)
            folders.add(name)
            files += 1
            if files > MAX_MEMBERS:
                raise refuse(f"with it more than {MAX_MEMBERS} files are unpacked", member.name)
            left -= member.size
            if left < 0:
                raise refuse(f"with it more than {max_bytes} bytes are unpacked", member.name)
            stream = archive.extractfile(member)
            dest = folder.joinpath(*name.split("/"))
            yield _write(cast("BinaryIO", stream), dest, program=bool(member.mode & 0o111))


def _write(source: BinaryIO, dest: Path, *, program: bool) -> Path:
    dest.parent.mkdir(parents=True, exist_ok=True)
    with source, dest.open("xb") as out:  # x: a second member of one name is refused
        while piece := source.read(_CHUNK):
            out.write(piece)
    dest.chmod(0o755 if program else 0o644)
    return dest
