"""An unpacked bundle: is everything still there that its manifest names, unchanged?

What a zip cannot show happens after it was unpacked: a virus scanner takes a library away, a
synchronising folder drops permissions and turns links into texts, files of two versions mix. Files
that the manifest does not name (models, settings of one's own, logs) are nobody's business here;
a file of settings may be changed, that is what it is for.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qbuild import bounds, held, host
from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.bundle.manifest import FILE_NAME as MANIFEST
from qbuild.bundle.manifest import Manifest, load_manifest
from qbuild.console import Reporter
from qbuild.errors import QbuildError, UsageError, VerifyError
from qbuild.hashing import sha256_file
from qbuild.verify.static import verify_zip
from qbuild.verify.verdict import Check, Verdict, judge, not_run

_SKIPPED: Final = (".gguf", ".log", ".part")
_MOST: Final = 3000  # files that a zip of programs may have


def verify_folder(folder: Path, *, reporter: Reporter, gpu: str = "") -> Verdict:
    """Check an unpacked zip, or a folder of programs that others made.

    Args:
        folder: Where it was unpacked; it is only read.
        reporter: Where progress goes.
        gpu: A GPU's name or compute capability.

    Raises:
        UsageError: The folder holds nothing that could be checked, or far too much.
        VerifyError: It cannot be read.
    """
    manifest = _manifest(folder)
    files = _files(folder, manifest)
    if not files:
        raise UsageError(
            "there is nothing to check in this folder",
            where=str(folder),
            fix="name the folder that the zip was unpacked into, the one with the programs",
        )
    first = [] if manifest is None else [_complete(folder, manifest)]
    with held.scratch("qbuild-verify-") as scratch:
        name = manifest.name if manifest else folder.resolve().name
        packed = scratch / f"{name.removesuffix('.zip')}.zip"
        entries = [
            ZipEntry(name=name, source=path, executable=_executable(path, name, manifest))
            for name, path in files.items()
        ]
        write_zip(packed, entries)
        if first and first[0].status == "failed":
            rest = not_run("contents", "what is inside", "the folder is not what was unpacked")
            return Verdict(zip_name=folder.name, sha256="-", checks=(*first, rest))
        verdict = verify_zip(packed, reporter=reporter, gpu=gpu)
    # how a zip is packed and called is no question about a folder
    kept = [each for each in verdict.checks if each.id not in ("packing", "unpacking")]
    return Verdict(zip_name=f"{folder.name}/", sha256="-", checks=(*first, *kept))


def _manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return load_manifest(bounds.read_bytes(path, bounds.JSON))
    except OSError as error:
        raise VerifyError(
            f"{MANIFEST} cannot be read: {error.strerror}", where=str(path)
        ) from error
    except QbuildError as error:
        raise VerifyError(
            f"{MANIFEST} is damaged: {error.what}", where=str(path), fix="unpack the zip again"
        ) from error


def _files(folder: Path, manifest: Manifest | None) -> dict[str, Path]:
    """Return name → file: what the manifest names, or every file where there is none."""
    if manifest is not None:
        names = [MANIFEST, *(entry.path for entry in manifest.files)]
        return {name: path for name in names if (path := folder / name).is_file()}
    found: dict[str, Path] = {}
    try:
        for root, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(root) / name
                with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                    if path.suffix not in _SKIPPED and stat.S_ISREG(path.lstat().st_mode):
                        found[path.relative_to(folder).as_posix()] = path
            if len(found) + len(folders) > _MOST:
                raise UsageError(
                    f"this folder holds more than {_MOST} files: that is no unpacked zip",
                    where=str(folder),
                    fix="name one zip, not the folder it lies in, or the folder it was unpacked to",
                )
    except OSError as error:
        raise VerifyError(f"it cannot be read: {error.strerror}", where=str(folder)) from error
    return found


def _executable(path: Path, name: str, manifest: Manifest | None) -> bool:
    if manifest is not None:
        return any(each.path == name and each.executable for each in manifest.files)
    return bool(path.stat().st_mode & stat.S_IXUSR)


def _complete(folder: Path, manifest: Manifest) -> Check:
    problems = list(_problems(folder, manifest))
    return judge(
        "folder", "every file of the zip is there, unchanged", problems,
        f"{len(manifest.files)} files with size and sha256",
    )  # fmt: skip


def _problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    windows = str(manifest.target.get("os")) == "windows"
    gone = []
    for entry in manifest.files:
        path = folder / entry.path
        if not path.is_file():
            gone.append(entry)
            continue
        if entry.role == "data" and entry.path.startswith("config-"):
            continue
        size = path.stat().st_size
        if size != entry.size or sha256_file(path) != entry.sha256:
            if size < 256 and ".so" in entry.path:
                yield f"{entry.path}: is a text of {size} bytes: a link that became a file"
            else:
                yield f"{entry.path}: is not the one of the zip (other content)"
        elif entry.executable and not windows and host.system() != "windows" and not _runs(path):
            yield f"{entry.path}: is not executable any more; to do: chmod +x {entry.path}"
    for entry in gone:
        by = f", which {', '.join(entry.needed_by[:3])} needs" if entry.needed_by else ""
        yield f"{entry.path}: is missing{by}"
    if gone:
        yield (
            "to do: unpack the zip again; when a file goes missing again, a virus scanner took it: "
            "look into its quarantine list"
        )


def _runs(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)
