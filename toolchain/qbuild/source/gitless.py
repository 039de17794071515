"""The pinned source on a machine without git: objects read by dulwich, each hashed here again.

Only what a build needs: one commit out of a local clone or the pinned sdist, and its files.
:mod:`qbuild.patches.gitless` puts the series in. Moving pins, writing patches and fetching from a
URL need git. The ids that come out are those that git gives: they are functions of the content.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild.source.quarantine import Forged, Taken, Unusable

GET_GIT: Final = (
    "install git 2.31 or newer (Windows: `winget install Git.Git`, or git-scm.com; "
    "Debian: `apt install git`), open a new terminal, and run again"
)
"""What to do where nothing can stand in for git."""

_KINDS: Final = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}  # as packs number them
_HEX: Final = re.compile(r"[0-9a-f]{40}")
_FOLDER: Final = "40000"
_ROOT: Final = ".git"


def have_git() -> bool:
    """Tell whether PATH finds a git."""
    return shutil.which("git") is not None


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a tree: its mode as git writes it, and the id of its content."""

    mode: str
    blob: str


def object_id(kind: bytes, data: bytes) -> str:
    """Return the id (hex SHA-1) that git gives an object."""
    digest = hashlib.sha1(kind + b" %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


class Objects:
    """A folder of git objects, packed or loose; what is read is hashed.

    Args:
        folder: The repository's ``objects``.
    """

    def __init__(self, folder: Path) -> None:
        from dulwich.object_store import DiskObjectStore

        self._store: Any = DiskObjectStore(str(folder))

    def close(self) -> None:
        """Let go of the packs: Windows removes no file that is mapped."""
        self._store.close()

    def read(self, name: str, kind: bytes) -> bytes:
        """Return an object's content.

        Raises:
            Unusable: It is not there.
            Forged: It has another content than its id says, or is of another kind.
        """
        trouble = ""
        number, data = 0, b""
        try:
            number, data = self._store.get_raw(name.encode())
        except KeyError:
            raise Unusable(f"object {name} is absent (a partial clone?)") from None
        except Exception as error:  # whatever the library meets in a damaged pack
            trouble = str(error) or type(error).__name__
        if trouble:  # not from within: the error's traceback would keep the pack open
            raise Forged(f"object {name} cannot be read: {trouble}")
        if _KINDS.get(number) != kind or object_id(kind, data) != name:
            raise Forged(f"object {name} has other content")
        return bytes(data)

    def tree_of(self, commit: str) -> str:
        """Return the id of a commit's tree.

        Raises:
            Unusable: The commit is not there.
            Forged: It is damaged.
        """
        first = self.read(commit, b"commit").split(b"\n", 1)[0].decode("ascii", "replace")
        word, _, tree = first.partition(" ")
        if word != "tree" or not _HEX.fullmatch(tree):
            raise Forged(f"commit {commit} names no tree")
        return tree

    def files(self, tree: str) -> dict[str, File]:
        """Return path → file of everything below a tree, in git's order.

        Raises:
            Unusable: A folder is absent.
            Forged: A folder is damaged, or a name leads out of it.
        """
        return dict(self._walk(tree, ""))

    def _walk(self, tree: str, prefix: str) -> Iterator[tuple[str, File]]:
        for mode, name, inner in _entries(self.read(tree, b"tree"), tree):
            if mode == _FOLDER:
                yield from self._walk(inner, f"{prefix}{name}/")
            else:
                yield prefix + name, File(mode=mode, blob=inner)

    def folders(self, tree: str) -> Iterator[str]:
        """Yield the id of a tree and of every folder below it."""
        yield tree
        for mode, _, inner in _entries(self.read(tree, b"tree"), tree):
            if mode == _FOLDER:
                yield from self.folders(inner)

    def add(self, objects: list[tuple[bytes, bytes]]) -> None:
        """Write (kind, content) of objects into one new pack."""
        from dulwich.objects import ShaFile

        numbers = {kind: number for number, kind in _KINDS.items()}
        made = [(ShaFile.from_raw_string(numbers[kind], data), None) for kind, data in objects]
        self._store.add_objects(made)


def _entries(data: bytes, tree: str) -> Iterator[tuple[str, str, str]]:
    """Yield (mode, name, id) of a folder's content."""
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        mode, _, raw = data[at:end].partition(b" ")
        inner = data[end + 1 : end + 21]
        if end < 0 or len(inner) != 20 or not re.fullmatch(rb"[0-7]{5,6}", mode):
            raise Forged(f"folder {tree} is damaged")
        name = raw.decode("utf-8", "surrogateescape")
        if name in ("", ".", "..") or name.lower() == _ROOT or re.search(r'[/\\:*?"<>|]', name):
            raise Forged(f"folder {tree} holds a file named {name!r}")
        yield mode.decode(), name, inner.hex()
        at = end + 21


def write_tree(files: Mapping[str, File]) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return the id of the tree that holds these files, and the folders' objects."""
    made: list[tuple[bytes, bytes]] = []

    def write(below: Mapping[str, Any]) -> str:
        rows = []
        for name, value in below.items():
            raw = name.encode("utf-8", "surrogateescape")
            if isinstance(value, File):
                rows.append((raw, value.mode.encode(), value.blob))
            else:  # git sorts a folder as if its name ended in a slash
                rows.append((raw + b"/", _FOLDER.encode(), write(value)))
        data = b"".join(
            mode + b" " + raw.removesuffix(b"/") + b"\0" + bytes.fromhex(inner)
            for raw, mode, inner in sorted(rows)
        )
        made.append((b"tree", data))
        return object_id(b"tree", data)

    nested: dict[str, Any] = {}
    for path, file in files.items():
        *parents, name = path.split("/")
        folder = nested
        for parent in parents:
            folder = folder.setdefault(parent, {})
        folder[name] = file
    return write(nested), made


def make_bare(repo: Path) -> Path:
    """Make an empty bare repository that any git can read."""
    for name in ("objects/pack", "objects/info", "refs/heads"):
        (repo / name).mkdir(parents=True, exist_ok=True)
    (repo / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (repo / "config").write_bytes(b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    return repo


def take_commit(
    quarantine: Path,
    taken: Taken,
    commit: str,
    dest: Path,
    *,
    branch: str,
    on_object: Callable[[int, int], None],
) -> str:
    """Copy one commit with all it reaches into a new bare repository; return its tree's id.

    Args:
        quarantine: Repository of ours that holds what an origin gave.
        taken: What was copied into it.
        commit: Full id.
        dest: The repository to make.
        branch: Ref that names the commit, e.g. ``refs/heads/pin``.
        on_object: Told objects done and objects in all.

    Raises:
        Unusable: The commit, or something it reaches, is absent.
        Forged: An object has another content than its id says.
    """
    if not _HEX.fullmatch(commit):
        raise Unusable(f"without git only a full commit id can be asked for, not `{commit}`")
    if commit in taken.forged:
        raise Forged(f"object {commit} has other content")
    make_bare(dest)
    source, target = Objects(quarantine / "objects"), Objects(dest / "objects")
    try:
        try:
            tree = source.tree_of(commit)
        except Unusable:
            raise Unusable(f"it does not hold commit {commit}") from None
        files = source.files(tree)
        wanted = [(b"commit", commit), *((b"tree", each) for each in source.folders(tree))]
        wanted += [(b"blob", each.blob) for each in files.values() if each.mode != "160000"]
        unique = dict.fromkeys(wanted)
        found = []
        for number, (kind, name) in enumerate(unique, 1):
            found.append((kind, source.read(name, kind)))
            on_object(number, len(unique))
        target.add(found)
    finally:
        source.close()
        target.close()
    (dest / branch).parent.mkdir(parents=True, exist_ok=True)
    (dest / branch).write_bytes(f"{commit}\n".encode())
    (dest / "shallow").write_bytes(f"{commit}\n".encode())
    (dest / "HEAD").write_bytes(f"ref: {branch}\n".encode())
    return tree
