"""Ask one origin for one commit: a clone, a bare repository, an sdist, packed or unpacked.

Git runs in repositories of ours only. What was taken into a quarantine is fetched out of it with
``transfer.fsckObjects``, which hashes every object on arrival and follows every link.
The network is asked in :mod:`qbuild.source.remote`.
"""

from __future__ import annotations

import errno
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbuild import held, host
from qbuild.console import Reporter, Task
from qbuild.errors import OriginError, StoreError
from qbuild.recipe.lock import FilePin
from qbuild.source import gitless
from qbuild.source.causes import without_password
from qbuild.source.gitenv import GitResult, run_git
from qbuild.source.quarantine import (
    Forged,
    Taken,
    Unusable,
    find_git_dir,
    take_from_git_dir,
    take_from_sdist,
)
from qbuild.source.wheels import OtherBytesError, fetch_file
from qbuild.store import disk_error

BRANCH = "refs/heads/pin"  # ref of the one commit in a fetched repository; HEAD points at it

CHECKED = ("-c", "transfer.fsckObjects=true", "-c", "fetch.unpackLimit=1")
"""Options of every fetch: each object is hashed and checked, and stays in one pack."""

PLAIN = {"GIT_CONFIG_PARAMETERS": "'core.commitGraph=false' 'core.multiPackIndex=false'"}
"""Environment of every git here: caches that restate what objects say are not read."""

SdistFetcher = Callable[[FilePin], Path]

_LOCAL_TIMEOUT_S = 600.0
_NO_ROOM = 1 << 20  # bytes
_RECEIVING = re.compile(r"(Receiving|Resolving) \w+:\s+\d+% \((\d+)/(\d+)\)")


@dataclass(frozen=True, kw_only=True)
class FetchedSource:
    """Where the pinned commit came from."""

    origin: str  # the place that delivered it, as the user or the lockfile spells it
    commit: str  # its id, proved
    tree: str  # its tree's id, proved
    bytes: int  # what was taken from the origin: size of the pack, objects or sdist


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is asked of each origin."""

    commit: str  # full id of the wanted commit
    git_dir: str  # where an sdist keeps the repository
    sdist_name: str  # file name of the sdist, for folders that hold it
    dest: Path  # where the bare repository goes
    reporter: Reporter  # gets the progress
    also: tuple[str, ...] = ()  # commits taken along where a local origin has them
    history: bool = False  # whether the commit's history is wanted, as far as a local origin has it


def from_path(origin: str, job: Job) -> FetchedSource:
    """Ask a local clone, bare repository, sdist, or a folder that holds the sdist."""
    path = _local_path(origin)
    if not path.exists():
        raise Unusable("there is no such file or folder")
    if path.is_dir() and job.sdist_name and (path / job.sdist_name).is_file():
        path = path / job.sdist_name
    if path.is_file():
        return _from_archive(path, origin, job)
    if not path.is_dir():
        raise Unusable("it is neither a folder nor a file")
    git_dir = find_git_dir(path, job.git_dir)
    with held.scratch(".quarantine-", parent_of(job.dest)) as scratch:
        repo = init_bare(scratch / "repo.git")
        with job.reporter.task(f"take {path.name}", unit="bytes") as task:
            taken = take_from_git_dir(
                git_dir, repo, lambda done, total: task.update(done=done, total=total)
            )
        wanted = _read_ref(git_dir, job.commit) or job.commit
        return transfer(repo, taken, origin, wanted, job)


def _from_archive(path: Path, origin: str, job: Job) -> FetchedSource:
    with held.scratch(".quarantine-", parent_of(job.dest)) as scratch:
        repo = init_bare(scratch / "repo.git")
        with job.reporter.task(f"read {path.name}", unit="bytes") as task:
            taken = take_from_sdist(
                path, job.git_dir, repo, lambda done, total: task.update(done=done, total=total)
            )
        return transfer(repo, taken, origin, job.commit, job)


def from_pinned_sdist(
    pin: FilePin, label: str, job: Job, fetcher: SdistFetcher | None, offline: bool
) -> FetchedSource:
    """Fetch the sdist of a pin and take the commit out of it."""
    with held.scratch(".sdist-", parent_of(job.dest)) as scratch:
        try:
            if fetcher is not None:
                path = fetcher(pin)
            else:
                path = fetch_file(pin, scratch, offline=offline, reporter=job.reporter)
        except OtherBytesError:
            raise
        except OriginError as error:
            raise Unusable(error.what, getattr(error, "cause", None)) from error
        fetched = _from_archive(path, label, job)
        return FetchedSource(
            origin=label, commit=fetched.commit, tree=fetched.tree, bytes=path.stat().st_size
        )


def _without_git(repo: Path, taken: Taken, origin: str, wanted: str, job: Job) -> FetchedSource:
    """Do what :func:`transfer` does on a machine that has no git."""
    job.reporter.say(f"no git here: {Path(origin).name} is read without it")
    with job.reporter.task("check every object", unit="items") as task:
        tree = gitless.take_commit(
            repo,
            taken,
            wanted,
            job.dest,
            branch=BRANCH,
            on_object=lambda done, total: task.update(done=done, total=total),
        )
    return FetchedSource(origin=origin, commit=wanted, tree=tree, bytes=taken.bytes)


def transfer(repo: Path, taken: Taken, origin: str, wanted: str, job: Job) -> FetchedSource:
    """Fetch one commit out of a quarantine into ``dest``; every object is hashed on arrival."""
    if not gitless.have_git():
        return _without_git(repo, taken, origin, wanted, job)
    named = run_git(["rev-parse", "--verify", "-q", f"{wanted}^{{commit}}"], repo, env=PLAIN)
    commit = named.text
    if named.rc or not re.fullmatch(r"[0-9a-f]{40}", commit):
        if wanted in taken.forged:
            raise Forged(f"object {wanted} has other content")
        if named.err.strip() and "Needed a single revision" not in named.err:
            raise Forged(named.last_error)
        raise Unusable(f"it does not hold commit {wanted}")
    # A blob that is absent (a partial clone) is no lie; one that is there under a wrong id is.
    listed = run_git(
        ["rev-list", "--objects", "--no-walk", "--missing=print", commit], repo, env=PLAIN
    )
    absent = [line[1:] for line in listed.text.splitlines() if line.startswith("?")]
    if absent and not listed.rc:
        raise Unusable(
            f"{len(absent)} objects of commit {commit[:9]} are absent (a partial clone?), "
            f"e.g. {absent[0]}"
        )
    run_git(["update-ref", "--no-deref", BRANCH, commit], repo, env=PLAIN)
    wants = [f"+{BRANCH}:{BRANCH}"]
    for number, extra in enumerate(job.also):
        ref = f"refs/also/{number}"
        if run_git(["cat-file", "-e", f"{extra}^{{commit}}"], repo, env=PLAIN).rc == 0:
            run_git(["update-ref", "--no-deref", ref, extra], repo, env=PLAIN)
            wants.append(f"+{ref}:{ref}")
    depth = "--update-shallow" if job.history else "--depth=1"
    init_bare(job.dest)
    with job.reporter.task("check every object", unit="items") as task:
        result = run_git(
            [*CHECKED, "fetch", "--quiet", "--progress", depth, "--no-tags",
             "--no-write-fetch-head", repo.absolute().as_uri(), *wants],
            job.dest,
            env=PLAIN,
            timeout=_LOCAL_TIMEOUT_S,
            on_progress=progress_of(task),
        )  # fmt: skip
    if result.rc:
        raise_if_disk(result, job.dest)
        named_bad = f"; object {taken.forged[0]} has other content" if taken.forged else ""
        raise Forged(f"{why_not(result)}{named_bad}")
    return finish(origin, commit, taken.bytes, job.dest)


def finish(origin: str, commit: str, size: int, dest: Path) -> FetchedSource:
    """Point HEAD at the commit, walk everything it reaches, and read its tree's id."""
    run_git(["symbolic-ref", "HEAD", BRANCH], dest, env=PLAIN)
    head = run_git(["rev-parse", f"{BRANCH}^{{commit}}", f"{BRANCH}^{{tree}}"], dest, env=PLAIN)
    walked = run_git(["rev-list", "--objects", "--quiet", BRANCH], dest, env=PLAIN)
    ids = head.text.split()
    if head.rc or walked.rc or len(ids) != 2 or ids[0] != commit:
        raise Forged(
            f"what arrived is not commit {commit}: {why_not(walked if walked.rc else head)}"
        )
    return FetchedSource(origin=origin, commit=ids[0], tree=ids[1], bytes=size)


def init_bare(repo: Path) -> Path:
    """Make a bare repository without hooks or any other template."""
    if not gitless.have_git():
        return gitless.make_bare(repo)
    repo.mkdir(parents=True, exist_ok=True)
    result = run_git(["init", "--bare", "--quiet", "--template=", "."], repo)
    if result.rc:
        raise_if_disk(result, repo)
        raise StoreError(f"git cannot make a repository: {result.last_error}", where=str(repo))
    return repo


def _local_path(origin: str) -> Path:
    if origin.lower().startswith("file://"):
        return Path(urllib.request.url2pathname(urllib.parse.urlsplit(origin).path))
    return host.expand_user(origin)


def parent_of(dest: Path) -> Path:
    """Return the folder of ``dest``, made when needed."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    return dest.parent


def _read_ref(git_dir: Path, name: str) -> str | None:
    """Return the id a branch or tag has in a git folder, read as data."""
    if re.fullmatch(r"[0-9a-f]{4,40}", name) or not re.fullmatch(r"[\w./+-]+", name):
        return None
    if ".." in name or name.startswith("/"):
        return None
    wanted = [name] if name == "HEAD" or name.startswith("refs/") else []
    wanted += [f"refs/{kind}/{name}" for kind in ("tags", "heads", "remotes", "remotes/origin")]
    packed = git_dir / "packed-refs"
    lines = packed.read_text(encoding="utf-8", errors="replace") if packed.is_file() else ""
    known = {p[1]: p[0] for line in lines.splitlines() if len(p := line.split(" ")) == 2}
    for ref in wanted:
        loose = git_dir / ref
        text = known.get(ref, "")
        if loose.is_file():
            text = loose.read_bytes()[:4096].decode("utf-8", "replace").strip()
        if text.startswith("ref: ") and text != f"ref: {name}":
            return _read_ref(git_dir, text.removeprefix("ref: "))
        if re.fullmatch(r"[0-9a-f]{40}", text):
            return text
    raise Unusable(f"it has no branch or tag `{name}`")


def progress_of(task: Task) -> Callable[[str], None]:
    """Return a reader of git's progress lines."""

    def read(line: str) -> None:
        if match := _RECEIVING.search(line):
            task.update(done=int(match[2]), total=int(match[3]), note=match[1].lower())

    return read


def why_not(result: GitResult) -> str:
    """Return git's own reason for failing: its first complaint; the later ones only repeat it."""
    lines = [line.strip() for line in result.err.splitlines()]
    told = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    text = told[0].partition(": ")[2] if told else result.last_error
    return without_password(text) or f"git ended with status {result.rc}"


def raise_if_disk(result: GitResult, dest: Path) -> None:
    """Raise a StoreError when git failed for want of room; it does not always say so itself."""
    full = "No space left on device" in result.err
    if full or (dest.exists() and host.free_disk(str(dest)) < _NO_ROOM):
        raise disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), dest)
