"""Read files out of a commit, and a scratch repository to run git am in.

The pin's repository is only read. What git writes goes into a repository of its own that borrows
the pin's objects, so a damaged or interrupted run cannot touch the store's copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild.errors import PatchError
from qbuild.source.gitenv import GitResult, run_git

IDENTITY_NAME = "qbuild"
IDENTITY_EMAIL = "qbuild@qbuild.invalid"
IDENTITY_DATE = "2026-01-01T00:00:00+00:00"

# Highest of all attribute sources: whatever .gitattributes the tree carries, bytes in the
# object store and bytes on disk are the same.
_ATTRIBUTES = "* -text !eol -ident -filter !working-tree-encoding !merge !diff\n"

# Rename detection would carry a patch over to a file that only looks alike.
_SETTINGS: tuple[str, ...] = (
    "-c", "merge.renames=false",
    "-c", "merge.directoryRenames=false",
    "-c", "merge.conflictStyle=merge",
    "-c", "diff.algorithm=myers",
    "-c", "rerere.enabled=false",
    "-c", "i18n.commitEncoding=UTF-8",
    "-c", "core.symlinks=true",
    "-c", "core.bare=false",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One entry of a tree."""

    mode: str
    blob: str


class Bench:
    """A repository of ours that borrows another's objects, with its own index and work tree.

    Args:
        git_dir: Where to make the repository.
        tree: The work tree; made when it is missing.
        sources: Repositories of ours to borrow from; the first holds the pin.
    """

    def __init__(self, git_dir: Path, tree: Path, *sources: Path) -> None:
        self.git_dir = git_dir.absolute()
        self.tree = tree.absolute()
        self.sources = tuple(source.absolute() for source in sources)

    def create(self) -> None:
        """Make the repository.

        Raises:
            PatchError: git could not make it.
        """
        self.git_dir.mkdir(parents=True)
        self.tree.mkdir(parents=True, exist_ok=True)
        done = run_git(["init", "--quiet", "--bare", "--template=", str(self.git_dir)],
                       self.git_dir.parent)  # fmt: skip
        if done.rc:
            raise PatchError(f"git init failed: {done.last_error}", where=str(self.git_dir))
        info = self.git_dir / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        folders = [object_dir(source) for source in self.sources]
        (info / "alternates").write_bytes(
            b"".join(os.fsencode(folder.as_posix()) + b"\n" for folder in folders)
        )
        borders = {
            line
            for folder in folders
            if (folder.parent / "shallow").is_file()
            for line in (folder.parent / "shallow").read_bytes().split()
        }
        if borders:
            (self.git_dir / "shallow").write_bytes(b"\n".join(sorted(borders)) + b"\n")
        (self.git_dir / "info").mkdir(exist_ok=True)
        (self.git_dir / "info" / "attributes").write_text(
            _ATTRIBUTES, encoding="utf-8", newline="\n"
        )

    def start(self, commit: str) -> None:
        """Make ``commit`` the pristine state: HEAD and index; the work tree stays as it is.

        Raises:
            PatchError: The repository does not have the commit.
        """
        # A bare name could be a ref; ids were resolved by the caller.
        self.must(["update-ref", "--no-deref", "HEAD", commit])
        self.must(["read-tree", "--reset", commit])

    def run(
        self,
        args: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
    ) -> GitResult:
        """Run git on this repository, whatever repository the folder happens to lie in."""
        merged = {
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_COMMITTER_NAME": IDENTITY_NAME,
            "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
            "GIT_COMMITTER_DATE": IDENTITY_DATE,
            **(env or {}),
        }
        return run_git([*_SETTINGS, *args], self.tree, env=merged, stdin=stdin)

    def must(self, args: Sequence[str], *, stdin: bytes | None = None) -> str:
        """Run git and return its text.

        Raises:
            PatchError: It failed.
        """
        done = self.run(args, stdin=stdin)
        if done.rc:
            raise PatchError(f"git {args[0]} failed: {done.last_error}", where=str(self.git_dir))
        return done.text

    def must_detached(self, commit: str) -> None:
        """Leave the repository so that others can fetch from it: a branch, no index.

        Raises:
            PatchError: git failed.
        """
        self.must(["update-ref", "refs/heads/patched", commit])
        self.must(["symbolic-ref", "HEAD", "refs/heads/patched"])
        (self.git_dir / "index").unlink(missing_ok=True)

    def head(self) -> str:
        """Return the commit that HEAD is at."""
        return self.must(["rev-parse", "--verify", "HEAD^{commit}"])

    def leaves(self, commit: str) -> dict[str, Leaf]:
        """Return path → entry of every file in the commit."""
        done = self.run(["ls-tree", "-r", "-z", "--full-tree", commit])
        if done.rc:
            raise PatchError(
                f"the repository does not have {commit[:12]}: {done.last_error}",
                where=str(self.sources[0]),
            )
        leaves: dict[str, Leaf] = {}
        for record in done.out.split(b"\0"):
            if record:
                meta, _, path = record.partition(b"\t")
                mode, _, blob = meta.decode().split(" ")
                leaves[path.decode("utf-8", "surrogateescape")] = Leaf(mode=mode, blob=blob)
        return leaves

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Return the content of each blob that the repository has, in one git run."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        done = self.run(["cat-file", "--batch"], stdin="".join(f"{i}\n" for i in wanted).encode())
        found: dict[str, bytes] = {}
        at = 0
        for _ in wanted:
            end = done.out.find(b"\n", at)
            if end < 0:
                break
            parts = done.out[at:end].split(b" ")
            at = end + 1
            if parts[-1] == b"missing":
                continue
            size = int(parts[2])
            if parts[1] == b"blob":
                found[parts[0].decode()] = done.out[at : at + size]
            at += size + 1
        return found


def object_dir(repo: Path) -> Path:
    """Return the object folder of a bare repository or of a work tree.

    Raises:
        PatchError: The folder is no git repository.
    """
    for candidate in (repo / "objects", repo / ".git" / "objects"):
        if candidate.is_dir():
            return candidate.absolute()
    raise PatchError("not a git repository", where=str(repo))
