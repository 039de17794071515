"""A CUDA toolkit from NVIDIA's redistributable component archives, without their installer.

NVIDIA publishes, per release, one ``redistrib_<release>.json`` that names each component's archive
with path, size and sha256. Who pins that one file by its own sha256 has pinned everything.
Nothing is run and nothing is installed: the archives' files are laid into one folder, which
``CUDA_HOME`` then names.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import lzma
import os
import re
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild import bounds, held, host
from qbuild.binary.names import check_name
from qbuild.console import Reporter
from qbuild.errors import ArchiveError, OriginError, ToolchainError
from qbuild.hashing import sha256_file
from qbuild.held import remove_tree

NEEDED: Final = ("cuda_nvcc", "cuda_cudart", "cuda_cccl", "libcublas")
"""Components that a build of ggml-cuda cannot do without."""

SINCE_13: Final = ("cuda_crt", "libnvvm")
"""Components that were part of ``cuda_nvcc`` before CUDA 13: taken where the release has them."""

MAX_INDEX: Final = 4 << 20
MAX_ARCHIVE: Final = 4 << 30
MAX_UNPACKED: Final = 16 << 30
TRIES: Final = 3
_TIMEOUT: Final = 60.0
_CHUNK: Final = 1 << 20
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, kw_only=True)
class Component:
    """One archive of a release."""

    name: str  # ``cuda_nvcc``
    version: str  # its own version: ``12.9.86``
    path: str  # where it lies, relative to the JSON file
    sha256: str  # of the archive
    size: int  # bytes of the archive


@dataclass(frozen=True, kw_only=True)
class Release:
    """What one ``redistrib_*.json`` says for one platform."""

    label: str  # ``12.9.1``
    components: tuple[Component, ...]  # the needed ones


def parse(data: bytes, *, where: str, platform: str = "linux-x86_64") -> Release:
    """Read a ``redistrib_*.json`` and check every value that is used.

    Args:
        data: The file.
        where: Its name, for messages.
        platform: NVIDIA's name of the platform.

    Raises:
        ToolchainError: It is no such file, lacks a component, or a value is not what it must be.
    """

    def wrong(what: str) -> ToolchainError:
        return ToolchainError(
            what, where=where, fix="take redistrib_<release>.json as NVIDIA publishes it"
        )

    try:
        top = bounds.load_json(data)
    except ValueError as error:
        raise wrong(f"it is no JSON ({error})") from error
    if not isinstance(top, dict):
        raise wrong("it holds no components")
    label = top.get("release_label")
    if not isinstance(label, str) or not re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", label):
        raise wrong(f"`release_label` is not a release: {label!r}")
    wanted = [*NEEDED, *(name for name in SINCE_13 if name in top)]
    return Release(
        label=label,
        components=tuple(_component(name, top.get(name), platform, wrong) for name in wanted),
    )


def _component(name: str, row: Any, platform: str, wrong: Any) -> Component:
    if not isinstance(row, dict):
        raise wrong(f"the release has no component {name}")
    archive = row.get(platform)
    if not isinstance(archive, dict):
        raise wrong(f"component {name} has no archive for {platform}")
    version, path, sha256 = row.get("version"), archive.get("relative_path"), archive.get("sha256")
    size = archive.get("size")
    if isinstance(size, str) and re.fullmatch(r"[0-9]{1,12}", size):
        size = int(size)  # NVIDIA writes it as text
    if not isinstance(version, str) or not re.fullmatch(r"[0-9][0-9A-Za-z.]{0,30}", version):
        raise wrong(f"{name}: its version is not one: {version!r}")
    if not isinstance(sha256, str) or not _HEX64.fullmatch(sha256):
        raise wrong(f"{name}: sha256 is not 64 lower-case hex digits: {sha256!r}")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_ARCHIVE:
        raise wrong(f"{name}: size is not a number of bytes: {size!r}")
    if (
        not isinstance(path, str)
        or not path.endswith(".tar.xz")
        or not all(_PART.fullmatch(part) for part in path.split("/"))
    ):
        raise wrong(f"{name}: relative_path is not a plain path to a .tar.xz: {path!r}")
    return Component(name=name, version=version, path=path, sha256=sha256, size=size)


def assemble(
    url: str, folder: Path, *, reporter: Reporter, sha256: str = "", platform: str = "linux-x86_64"
) -> Release:
    """Fetch a release's components and lay them into one folder, which is a toolkit then.

    Args:
        url: Of a ``redistrib_*.json`` (https, http or file).
        folder: Must not exist, or be empty; it appears whole or not at all.
        reporter: Told of each archive.
        sha256: Of the JSON file; "": its own word is taken, and its hash is said.
        platform: NVIDIA's name of the platform.

    Raises:
        ToolchainError: The JSON file is no such file.
        OriginError: Something cannot be fetched, or has other bytes than it must have.
        ArchiveError: An archive is damaged or unsafe, or the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArchiveError(
            "a toolkit is only laid into an empty folder",
            where=str(folder),
            fix="choose a new folder",
        )
    if urllib.parse.urlsplit(url).scheme not in ("https", "http", "file"):
        raise OriginError(f"{url} is no URL", fix="https://…/redistrib_<release>.json, or file://…")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f"{folder.name}.part")
    remove_tree(aside)
    aside.mkdir()
    try:
        index = aside / "redistrib.json"
        found = fetch(url, index, sha256=sha256, limit=MAX_INDEX)
        if not sha256:
            reporter.warn(f"{Path(urllib.parse.urlsplit(url).path).name} was not pinned: {found}")
        release = parse(index.read_bytes(), where=url, platform=platform)
        for component in release.components:
            reporter.say(
                f"fetch: {component.name} {component.version} ({component.size / 1e6:.0f} MB)"
            )
            archive = aside / "archive.tar.xz"
            fetch(
                urllib.parse.urljoin(url, component.path),
                archive,
                sha256=component.sha256,
                limit=component.size,
            )
            unpack(archive, aside / "cuda", name=component.path)
            archive.unlink()
        if (aside / "cuda" / "lib").is_dir():  # nvcc.profile says lib64
            (aside / "cuda" / "lib64").symlink_to("lib")
        _write_versions(release, aside / "cuda" / "version.json")
        if folder.exists():
            folder.rmdir()
        held.rename(aside / "cuda", folder)
    finally:
        remove_tree(aside)
    return release


def _write_versions(release: Release, path: Path) -> None:
    versions = {c.name: {"name": c.name, "version": c.version} for c in release.components}
    versions["cuda"] = {"name": "CUDA", "version": release.label}
    text = json.dumps(versions, indent=1, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def fetch(url: str, dest: Path, *, sha256: str, limit: int) -> str:
    """Fetch one file and return its sha256; a broken connection is tried again.

    Args:
        url: Of the file.
        dest: Where to.
        sha256: What it must be; "" takes anything.
        limit: Most bytes.

    Raises:
        OriginError: It cannot be fetched, is larger, or has another sha256.
    """
    for attempt in range(TRIES):
        if attempt:
            time.sleep(4 ** (attempt - 1))
        try:
            _download(url, dest, limit)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == TRIES - 1:
                raise OriginError(
                    f"the server answers {error.code} {error.reason}",
                    where=url,
                    fix="check the URL",
                ) from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == TRIES - 1:
                raise OriginError(
                    f"it cannot be fetched: {getattr(error, 'reason', error)}",
                    where=url,
                    fix="check the connection, or copy the files and use a file:// URL",
                ) from error
    found = sha256_file(dest)
    if sha256 and found != sha256:
        raise OriginError(
            f"other bytes than pinned: sha256 {found}, not {sha256}",
            where=url,
            fix="do not use it; find out who changed it",
        )
    return found


def _download(url: str, dest: Path, limit: int) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, dest.open("wb") as out:  # noqa: S310
        done = 0
        while piece := answer.read(_CHUNK):
            done += len(piece)
            if done > limit:
                raise OriginError(
                    f"more than the {limit} bytes that it must have",
                    where=url,
                    fix="do not use it; find out who changed it",
                )
            out.write(piece)


def unpack(archive: Path, folder: Path, *, name: str) -> None:
    """Lay an archive's files into a folder, without the folder that NVIDIA puts around them.

    Links are kept where they lead to another file of the same folder (``libcublas.so``); files
    that several archives have (``LICENSE``) keep the first one's bytes.

    Raises:
        ArchiveError: It is damaged, or holds something that is not laid down.
    """
    try:
        with tarfile.open(archive, "r:xz") as tar:
            _lay(tar, folder, name)
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, OverflowError) as error:
        raise ArchiveError(
            f"{name} is damaged or no .tar.xz ({error})", where=name, fix="fetch it again"
        ) from error


def _lay(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    def refuse(member: str, why: str) -> ArchiveError:
        return ArchiveError(
            f"{member!r}: {why}", where=name, fix="get the archive from its publisher"
        )

    left = MAX_UNPACKED
    for member in tar:
        _, _, inner = member.name.removeprefix("./").partition("/")
        if not inner or member.isdir():
            continue
        check_name(inner, archive=name, portable=host.system() != "linux")
        dest = folder.joinpath(*inner.split("/"))
        _plain_parents(dest.parent, folder, refuse, member.name)
        if member.issym():
            if not _PART.fullmatch(member.linkname):
                raise refuse(member.name, f"a link to {member.linkname!r}")
            if not os.path.lexists(dest):
                dest.symlink_to(member.linkname)
            continue
        if not member.isreg():
            raise refuse(member.name, "it is neither a file nor a link beside one")
        left -= member.size
        if left < 0:
            raise refuse(member.name, f"with it more than {MAX_UNPACKED} bytes are unpacked")
        if os.path.lexists(dest):
            continue
        source = tar.extractfile(member)
        assert source is not None
        with source, dest.open("xb") as out:
            while piece := source.read(_CHUNK):
                out.write(piece)
        dest.chmod(0o755 if member.mode & 0o111 else 0o644)


def _plain_parents(parent: Path, folder: Path, refuse: Any, member: str) -> None:
    """Make the folders above a file; none of them may be a link or a file."""
    for part in reversed([parent, *parent.parents]):
        if part == folder or folder in part.parents:
            if part.is_symlink() or (part.exists() and not part.is_dir()):
                raise refuse(member, "it lies behind a link or a file")
            part.mkdir(parents=True, exist_ok=True)


def digest(release: Release) -> str:
    """Return one sha256 over what a toolkit was put together from."""
    rows: Sequence[Mapping[str, object]] = [vars(c) for c in release.components]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
