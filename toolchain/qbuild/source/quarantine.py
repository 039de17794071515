"""Take git objects out of a place nobody vouches for, without running git there.

A repository's configuration can name programs and include files, its hooks are programs, and a
clone from a path copies objects unread: a forged blob under a right id passes. So only object
files and the list of shallow commits are copied, as bytes, into a bare repository of ours. What
comes out of that quarantine is hashed again by whoever fetches from it (:mod:`qbuild.source`).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from qbuild.source.causes import Cause

MAX_TAKEN = 8 << 30
"""Bytes of objects that are taken at most; llama.cpp's whole history is below 1 GiB."""

MAX_HEADER: Final = 4 << 20
"""Bytes of a tar that are read at once; an extended header holds a path or two."""

MAX_STREAM: Final = 32 << 30  # bytes a tar may inflate to, members that nobody wants included

_CHUNK = 1 << 20
_PACKED: Final = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
"""How a packed file begins, and what unpacks it."""

# What the standard library lets through on damaged input, seen by mutating archives.
_DAMAGED: Final = (
    tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError
)  # fmt: skip
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}")
_PACK = re.compile(r"pack/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:pack|idx)")
_SHALLOW = re.compile(rb"(?:[0-9a-f]{40}\n)*")
_SHA1 = 20  # bytes; a pack ends in the SHA-1 of all before


class Unusable(Exception):  # noqa: N818 - a reason to try the next origin, not a fault of ours
    """The place cannot deliver: it is missing, no repository, or lacks the commit.

    Args:
        why: The reason, for a person.
        cause: What the network did, where that is known.
    """

    def __init__(self, why: str, cause: Cause | None = None) -> None:
        super().__init__(why)
        self.cause = cause


class Forged(Exception):  # noqa: N818 - a verdict on an origin
    """The place delivers something else than it claims, by damage or on purpose."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What was copied."""

    bytes: int  # size of all object files
    # Ids of loose objects whose content has another hash. Not refused yet: they may have nothing to
    # do with the commit that is wanted.
    forged: tuple[str, ...] = ()


def find_git_dir(path: Path, inner: str) -> Path:
    """Return the folder that holds ``objects``: of a clone, bare repository or unpacked sdist.

    Args:
        path: What the user named.
        inner: Where an sdist keeps the repository, e.g. ``.git/modules/vendor/llama.cpp``.

    Raises:
        Unusable: There is none.
    """
    for candidate in (path / inner, path / ".git", path):
        found = _follow(candidate)
        if found is not None and (found / "objects").is_dir():
            return found
    raise Unusable("it is neither a git repository nor an sdist that carries one")


def _follow(candidate: Path) -> Path | None:
    """Follow the files by which worktrees and submodules point at their repository."""
    for _ in range(2):
        if candidate.is_file():
            text = candidate.read_bytes()[:4096].decode("utf-8", "replace")
            if not text.startswith("gitdir: "):
                return None
            candidate = candidate.parent / text.removeprefix("gitdir: ").strip()
        common = candidate / "commondir"
        if common.is_file():
            candidate = candidate / common.read_text(encoding="utf-8").strip()
    return candidate if candidate.is_dir() else None


def take_from_git_dir(git_dir: Path, repo: Path, on_bytes: Callable[[int, int], None]) -> Taken:
    """Copy objects and ``shallow`` from a git folder into the bare repository ``repo``.

    Args:
        git_dir: From :func:`find_git_dir`; nothing in it is run or configured from.
        repo: A fresh bare repository of ours.
        on_bytes: Told bytes done and bytes in all.

    Raises:
        Unusable: It borrows objects from elsewhere, or holds links in place of objects.
        Forged: A pack is damaged.
    """
    alternates = git_dir / "objects" / "info" / "alternates"
    if alternates.is_file() and (text := alternates.read_bytes().strip()):
        lender = text.splitlines()[0].decode("utf-8", "replace")
        raise Unusable(
            f"it borrows objects from {lender}: name that one, or run `git repack -a -d` in it"
        )
    files = [(path, name) for path, name in _objects(git_dir / "objects")]
    total = sum(path.stat().st_size for path, _ in files)
    taking = _Taking(repo=repo, total=total, on_bytes=on_bytes)
    for path, name in files:
        with path.open("rb") as stream:
            taking.add(name, stream, path.stat().st_size)
    shallow = git_dir / "shallow"
    if shallow.is_file():
        taking.shallow(shallow.read_bytes())
    return taking.finish()


def _objects(objects: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, name below ``objects``) of loose objects, packs and their indexes."""
    for folder in sorted(objects.iterdir()):
        if not (re.fullmatch(r"[0-9a-f]{2}|pack", folder.name) and folder.is_dir()):
            continue
        for path in sorted(folder.iterdir()):
            name = f"{folder.name}/{path.name}"
            if not (_LOOSE.fullmatch(name) or _PACK.fullmatch(name)):
                continue
            if path.is_symlink() or not path.is_file():
                raise Unusable(f"objects/{name} is a link or a special file")
            # git ignores an index or a pack alone, and so do we
            partner = path.with_suffix(".pack" if path.suffix == ".idx" else ".idx")
            if _LOOSE.fullmatch(name) or partner.is_file():
                yield path, name


def take_from_sdist(
    archive: Path, inner: str, repo: Path, on_bytes: Callable[[int, int], None]
) -> Taken:
    """Copy objects and ``shallow`` out of a packed sdist; nothing else of it is unpacked.

    Args:
        archive: A tar, compressed or not.
        inner: Where below its top folder the repository lies.
        repo: A fresh bare repository of ours.
        on_bytes: Told bytes of the archive read, and its size.

    Raises:
        Unusable: It is no tar, is cut short, or has no repository at ``inner``.
        Forged: A member climbs out of the archive, a link stands in place of an object, a pack
            is damaged, or a header or the whole is larger than any honest one.
    """
    size = archive.stat().st_size
    taking = _Taking(repo=repo, total=0, on_bytes=lambda _done, _total: None)
    found = False
    try:
        with archive.open("rb") as raw, _open_tar(raw) as tar:
            for member in tar:
                on_bytes(raw.tell(), size)
                name = _inner_name(member, inner)
                if name is None:
                    continue
                found = True
                if not (name == "shallow" or name.startswith("objects/")) or member.isdir():
                    continue
                if not member.isreg():
                    raise Forged(f"member {member.name!r} is a link or a special file")
                stream = tar.extractfile(member)
                if stream is None or member.size > MAX_TAKEN:
                    raise Forged(f"member {member.name!r} claims {member.size} bytes")
                if name == "shallow":
                    taking.shallow(stream.read(1 << 20))
                elif _LOOSE.fullmatch(name[8:]) or _PACK.fullmatch(name[8:]):
                    taking.add(name[8:], stream, member.size)
    except _DAMAGED as error:
        raise Unusable(f"it is no tar archive, or is cut short ({error})") from error
    except OSError as error:
        if error.errno is None:  # gzip's own complaint, not the disk's
            raise Unusable(f"it is no tar archive, or is cut short ({error})") from error
        raise
    if not found:
        raise Unusable(f"it carries no git repository at {inner}")
    return taking.finish()


def _open_tar(raw: IO[bytes]) -> tarfile.TarFile:
    """Open a tar, compressed or not, so that it is read within bounds."""
    start = raw.read(6)
    raw.seek(0)
    unpack = next((open_ for magic, open_ in _PACKED if start.startswith(magic)), None)
    stream = _Bounded(cast("IO[bytes]", unpack(raw)) if unpack else raw)
    return tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:")


class _Bounded:
    """A stream as tarfile uses one, read in bounded pieces and to a bounded end.

    The standard library reads an extended header of any size whole, and walks through members
    that nobody wants for as long as there are some.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise Forged(f"it has a header of {size} bytes")
        data = self._stream.read(size)
        self.tell()
        return data

    def seek(self, position: int) -> int:
        if position > MAX_STREAM:
            raise Forged(f"it unpacks to more than {MAX_STREAM >> 30} GiB")
        return self._stream.seek(position)

    def tell(self) -> int:
        position = self._stream.tell()
        if position > MAX_STREAM:
            raise Forged(f"it unpacks to more than {MAX_STREAM >> 30} GiB")
        return position


def _inner_name(member: tarfile.TarInfo, inner: str) -> str | None:
    """Return a member's path below the carried repository, or none when it lies elsewhere."""
    parts = member.name.split("/")
    if member.name.startswith(("/", "\\")) or ".." in parts or "\0" in member.name:
        raise Forged(f"member {member.name!r} climbs out of the archive")
    below = "/".join(parts[1:])
    return below.removeprefix(f"{inner}/") if below.startswith(f"{inner}/") else None


class _Taking:
    """One copy in progress."""

    def __init__(self, *, repo: Path, total: int, on_bytes: Callable[[int, int], None]) -> None:
        self._objects = repo / "objects"
        self._repo, self._total, self._on_bytes = repo, total, on_bytes
        self._done = 0
        self._forged: list[str] = []

    def add(self, name: str, stream: IO[bytes], size: int) -> None:
        """Copy one object file; packs must match their checksum, loose ones are judged."""
        if self._done + size > MAX_TAKEN:
            raise Unusable(f"it holds more than {MAX_TAKEN >> 30} GiB of objects")
        target = self._objects / name
        target.parent.mkdir(exist_ok=True)
        judge = _Loose() if not name.startswith("pack/") else None
        digest, tail = hashlib.sha1(usedforsecurity=False), b""
        with target.open("wb") as out:
            while block := stream.read(_CHUNK):
                out.write(block)
                self._done += len(block)
                self._on_bytes(self._done, self._total)
                if judge is not None:
                    judge.feed(block)
                elif name.endswith(".pack"):
                    held = tail + block
                    digest.update(held[:-_SHA1])
                    tail = held[-_SHA1:]
        if name.endswith(".pack") and digest.digest() != tail:
            raise Forged(f"objects/{name} is damaged or cut short (its checksum does not match)")
        if judge is not None and judge.object_id() != name.replace("/", ""):
            self._forged.append(name.replace("/", ""))

    def shallow(self, data: bytes) -> None:
        """Keep the list of commits whose parents are absent."""
        if not _SHALLOW.fullmatch(data):
            raise Unusable("its list of shallow commits is damaged")
        (self._repo / "shallow").write_bytes(data)

    def finish(self) -> Taken:
        """Return what was copied."""
        return Taken(bytes=self._done, forged=tuple(self._forged))


class _Loose:
    """Hashes a loose object: the SHA-1 of what its zlib stream holds is its id."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj()
        self._digest = hashlib.sha1(usedforsecurity=False)
        self._sound = True

    def feed(self, block: bytes) -> None:
        while block and self._sound:
            try:
                self._digest.update(self._inflate.decompress(block, _CHUNK))
            except zlib.error:
                self._sound = False
            block = self._inflate.unconsumed_tail

    def object_id(self) -> str | None:
        return self._digest.hexdigest() if self._sound and self._inflate.eof else None
