"""Bring the pinned commit of llama.cpp into a repository of ours, whatever place it comes from.

Origins are asked in order: the user's, llama.cpp's repository, the sdist that carries the same
commit. One that cannot deliver is skipped with a line that says why. One that delivers something
else than it claims ends the run and is named: going on to the next would hide that a mirror lies.

Proof of content: git hashes every object again as it enters (``transfer.fsckObjects``), a commit
id covers its tree id, a tree id covers every blob; both ids are then compared with the pin.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild.config import is_url, load_config
from qbuild.console import Reporter, Task
from qbuild.errors import LockError, OriginError, StoreError
from qbuild.gitenv import GitResult, run_git
from qbuild.lock import FilePin, SourcePin
from qbuild.quarantine import (
    Forged,
    Taken,
    Unusable,
    find_git_dir,
    take_from_git_dir,
    take_from_sdist,
)

BRANCH = "refs/heads/pin"
"""Ref of the one commit in a fetched repository; HEAD points at it."""

TRIES = 3
"""How often a network fetch is tried; the waits between are 1 s and 4 s."""

REACH_TIMEOUT_S = 10.0
"""Seconds for looking up a host and connecting to it. git itself would wait for minutes."""

FETCH_TIMEOUT_S = 1800.0
"""Seconds for one fetch; a stalled one (below 1 kB/s for 20 s) is ended by git long before."""

_LOCAL_TIMEOUT_S = 600.0
_PORTS = {"https": 443, "http": 80, "git": 9418, "ssh": 22}
_CHECKED = ("-c", "transfer.fsckObjects=true", "-c", "fetch.unpackLimit=1")
_RECEIVING = re.compile(r"(Receiving|Resolving) \w+:\s+\d+% \((\d+)/(\d+)\)")
_ABSENT = re.compile(
    r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref", re.IGNORECASE
)
_FOR_GOOD = re.compile(
    r"not found|Authentication failed|could not read Username|Permission denied|does not appear "
    r"to be a git repository|returned error: 4\d\d|not allowed|unable to find remote helper",
    re.IGNORECASE,
)
_LIES = re.compile(
    r"fsck|hash mismatch|did not send all necessary objects|missing (?:blob|tree|commit|necessary)"
    r"|bad object|corrupt|collision|inconsistent|object of unexpected type|index-pack failed",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"early EOF|unexpected disconnect|RPC failed|hung up|reset by peer|timed out|Broken pipe",
    re.IGNORECASE,
)

SdistFetcher = Callable[[FilePin], Path]


@dataclass(frozen=True, kw_only=True)
class FetchedSource:
    """Where the pinned commit came from.

    Args:
        origin: The place that delivered it, as the user or the lockfile spells it.
        commit: Its id, proved.
        tree: Its tree's id, proved.
        bytes: What was taken from the origin: size of the pack, objects or sdist.
    """

    origin: str
    commit: str
    tree: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What is asked of each origin.

    Args:
        commit: Full id of the wanted commit.
        git_dir: Where an sdist keeps the repository.
        sdist_name: File name of the sdist, for folders that hold it.
        dest: Where the bare repository goes.
    """

    commit: str
    git_dir: str
    sdist_name: str
    dest: Path
    reporter: Reporter


def fetch_source(
    pin: SourcePin,
    dest: Path,
    *,
    origins: Sequence[str] = (),
    offline: bool,
    reporter: Reporter,
    fetch_sdist: SdistFetcher | None = None,
) -> FetchedSource:
    """Fill ``dest`` with a bare repository that holds exactly the pinned commit.

    Args:
        pin: What is wanted.
        dest: The repository's folder; it must not exist or be empty.
        origins: The user's origins (paths or URLs); none given: those of the environment or
            the user configuration.
        offline: No network: local paths only, and an sdist from a mirror folder.
        reporter: Gets a bar and a warning for each origin that cannot deliver.
        fetch_sdist: Returns the file of an sdist pin; none: :func:`qbuild.wheels.fetch_file`.

    Raises:
        OriginError: No origin delivered, or one delivered something else. ``dest`` is gone then.
        LockError: The pin's tree id does not belong to its commit id.
        StoreError: The disk is full or cannot be written.
        ToolchainError: There is no git.
    """
    job = _Job(
        commit=pin.commit,
        git_dir=pin.git_dir,
        sdist_name=pin.sdist.filename if pin.sdist else "",
        dest=dest,
        reporter=reporter,
    )
    reasons: list[str] = []
    for origin, attempt in _attempts(pin, job, origins, fetch_sdist, offline=offline):
        fetched = _ask(origin, attempt, job, reasons)
        if fetched is not None:
            _check_tree(fetched, pin, dest)
            return fetched
    raise OriginError(
        f"no origin delivered {pin.name} {pin.short}"
        + (" (--offline: only local places were asked)" if offline else ""),
        where="; ".join(reasons) or "no origin given",
        fix="check the network, or name a clone, mirror or sdist of that commit with --origin",
    )


def _attempts(
    pin: SourcePin,
    job: _Job,
    origins: Sequence[str],
    fetch_sdist: SdistFetcher | None,
    *,
    offline: bool,
) -> list[tuple[str, Callable[[], FetchedSource]]]:
    """Return the origins in their order, each with the function that asks it."""
    found: list[tuple[str, Callable[[], FetchedSource]]] = []
    for origin in tuple(origins) or load_config().origins:
        if not is_url(origin) or origin.lower().startswith("file://"):
            found.append((origin, lambda origin=origin: _from_path(origin, job)))  # type: ignore[misc]
        elif not offline:
            found.append((origin, lambda origin=origin: _from_url(origin, job)))  # type: ignore[misc]
    if not offline:
        found.append((pin.url, lambda: _from_url(pin.url, job)))
    if (sdist := pin.sdist) is not None:
        label = f"sdist {sdist.filename}"
        found.append((label, lambda: _from_pinned_sdist(sdist, label, job, fetch_sdist, offline)))
    return found


def fetch_commit(
    origin: str, ref: str, dest: Path, *, git_dir: str, reporter: Reporter
) -> FetchedSource:
    """Fill ``dest`` with the commit that ``ref`` names at one origin (``qbuild lock --pin``).

    Args:
        origin: Path or URL.
        ref: Commit id, branch or tag; a local origin also takes an abbreviated id.
        dest: The repository's folder; it must not exist or be empty.
        git_dir: Where an sdist keeps the repository.
        reporter: Gets the progress.

    Raises:
        OriginError: The origin has no such ref, cannot be reached, or is damaged.
        StoreError: The disk is full or cannot be written.
    """
    job = _Job(commit=ref, git_dir=git_dir, sdist_name="", dest=dest, reporter=reporter)
    local = not is_url(origin) or origin.lower().startswith("file://")

    def attempt() -> FetchedSource:
        return _from_path(origin, job) if local else _from_url(origin, job)

    reasons: list[str] = []
    fetched = _ask(origin, attempt, job, reasons)
    if fetched is None:
        raise OriginError(
            f"`{ref}` could not be fetched: {reasons[0].removeprefix(f'{origin}: ')}",
            where=origin,
            fix="check the spelling, or name another place with --origin",
        )
    return fetched


def _ask(
    origin: str, attempt: Callable[[], FetchedSource], job: _Job, reasons: list[str]
) -> FetchedSource | None:
    """Ask one origin; note why it cannot deliver, refuse it when it lies."""
    from qbuild.store import remove_tree

    done = False
    try:
        fetched = attempt()
        done = True
    except Unusable as reason:
        reasons.append(f"{origin}: {reason}")
        job.reporter.warn(f"origin {origin} cannot deliver: {reason}")
        return None
    except Forged as reason:
        raise OriginError(
            f"this origin is refused, it does not hold what it claims: {reason}",
            where=origin,
            fix="do not use it until that is explained; without it the next origin is asked",
        ) from reason
    except OSError as error:
        raise _disk_error(error, job.dest) from error
    finally:
        if not done:
            remove_tree(job.dest)
    return fetched


def _check_tree(fetched: FetchedSource, pin: SourcePin, dest: Path) -> None:
    from qbuild.store import remove_tree

    if fetched.tree != pin.tree:
        remove_tree(dest)
        raise LockError(
            f"the pinned tree id {pin.tree[:12]}… does not belong to commit {pin.short}, "
            f"whose tree is {fetched.tree}",
            where=f"source {pin.name}, as {fetched.origin} and its hashes prove",
            fix="correct `tree` in the lockfile, or move the pin with `qbuild lock --pin`",
        )


# -- local places -------------------------------------------------------------------------------


def _from_path(origin: str, job: _Job) -> FetchedSource:
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
    with tempfile.TemporaryDirectory(dir=_parent(job.dest), prefix=".quarantine-") as scratch:
        repo = _init(Path(scratch) / "repo.git")
        with job.reporter.task(f"take {path.name}", unit="bytes") as task:
            taken = take_from_git_dir(
                git_dir, repo, lambda done, total: task.update(done=done, total=total)
            )
        wanted = _read_ref(git_dir, job.commit) or job.commit
        return _transfer(repo, taken, origin, wanted, job)


def _from_archive(path: Path, origin: str, job: _Job) -> FetchedSource:
    with tempfile.TemporaryDirectory(dir=_parent(job.dest), prefix=".quarantine-") as scratch:
        repo = _init(Path(scratch) / "repo.git")
        with job.reporter.task(f"read {path.name}", unit="bytes") as task:
            taken = take_from_sdist(
                path, job.git_dir, repo, lambda done, total: task.update(done=done, total=total)
            )
        return _transfer(repo, taken, origin, job.commit, job)


def _from_pinned_sdist(
    pin: FilePin, label: str, job: _Job, fetcher: SdistFetcher | None, offline: bool
) -> FetchedSource:
    from qbuild.wheels import fetch_file

    with tempfile.TemporaryDirectory(dir=_parent(job.dest), prefix=".sdist-") as scratch:
        try:
            if fetcher is not None:
                path = fetcher(pin)
            else:
                path = fetch_file(pin, Path(scratch), offline=offline, reporter=job.reporter)
        except OriginError as error:
            if "other bytes" in error.what:
                raise
            raise Unusable(error.what) from error
        fetched = _from_archive(path, label, job)
        return FetchedSource(
            origin=label, commit=fetched.commit, tree=fetched.tree, bytes=path.stat().st_size
        )


def _transfer(repo: Path, taken: Taken, origin: str, wanted: str, job: _Job) -> FetchedSource:
    """Fetch one commit out of a quarantine into ``dest``; every object is hashed on arrival."""
    named = run_git(["rev-parse", "--verify", "-q", f"{wanted}^{{commit}}"], repo, env=_PLAIN)
    commit = named.text
    if named.rc or not re.fullmatch(r"[0-9a-f]{40}", commit):
        if wanted in taken.forged:
            raise Forged(f"object {wanted} has other content")
        if named.err.strip() and "Needed a single revision" not in named.err:
            raise Forged(named.last_error)
        raise Unusable(f"it does not hold commit {wanted}")
    # A blob that is absent (a partial clone) is no lie; one that is there under a wrong id is.
    listed = run_git(
        ["rev-list", "--objects", "--no-walk", "--missing=print", commit], repo, env=_PLAIN
    )
    absent = [line[1:] for line in listed.text.splitlines() if line.startswith("?")]
    if absent and not listed.rc:
        raise Unusable(
            f"{len(absent)} objects of commit {commit[:9]} are absent (a partial clone?), "
            f"e.g. {absent[0]}"
        )
    run_git(["update-ref", "--no-deref", BRANCH, commit], repo, env=_PLAIN)
    _init(job.dest)
    with job.reporter.task("check every object", unit="items") as task:
        result = run_git(
            [*_CHECKED, "fetch", "--quiet", "--progress", "--depth=1", "--no-tags",
             "--no-write-fetch-head", repo.absolute().as_uri(), f"+{BRANCH}:{BRANCH}"],
            job.dest,
            env=_PLAIN,
            timeout=_LOCAL_TIMEOUT_S,
            on_progress=_progress(task),
        )  # fmt: skip
    if result.rc:
        _raise_if_disk(result, job.dest)
        named_bad = f"; object {taken.forged[0]} has other content" if taken.forged else ""
        raise Forged(f"{_why(result)}{named_bad}")
    return _finish(origin, commit, taken.bytes, job.dest)


_PLAIN = {"GIT_CONFIG_PARAMETERS": "'core.commitGraph=false' 'core.multiPackIndex=false'"}


def _finish(origin: str, commit: str, size: int, dest: Path) -> FetchedSource:
    """Point HEAD at the commit, walk everything it reaches, and read its tree's id."""
    run_git(["symbolic-ref", "HEAD", BRANCH], dest, env=_PLAIN)
    head = run_git(["rev-parse", f"{BRANCH}^{{commit}}", f"{BRANCH}^{{tree}}"], dest, env=_PLAIN)
    walked = run_git(["rev-list", "--objects", "--quiet", BRANCH], dest, env=_PLAIN)
    ids = head.text.split()
    if head.rc or walked.rc or len(ids) != 2 or ids[0] != commit:
        raise Forged(f"what arrived is not commit {commit}: {_why(walked if walked.rc else head)}")
    return FetchedSource(origin=origin, commit=ids[0], tree=ids[1], bytes=size)


def _init(repo: Path) -> Path:
    """Make a bare repository without hooks or any other template."""
    repo.mkdir(parents=True, exist_ok=True)
    result = run_git(["init", "--bare", "--quiet", "--template=", "."], repo)
    if result.rc:
        _raise_if_disk(result, repo)
        raise StoreError(f"git cannot make a repository: {result.last_error}", where=str(repo))
    return repo


def _local_path(origin: str) -> Path:
    if origin.lower().startswith("file://"):
        return Path(urllib.request.url2pathname(urllib.parse.urlsplit(origin).path))
    return Path(origin).expanduser()


def _parent(dest: Path) -> Path:
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


# -- the network --------------------------------------------------------------------------------


def _from_url(url: str, job: _Job) -> FetchedSource:
    from qbuild.store import remove_tree

    shown = _without_password(url)
    if re.search(r"\.(tar(\.\w+)?|tgz|zip|whl)$", urllib.parse.urlsplit(url).path):
        raise Unusable("it is a file, not a repository: download it and name the file")
    _reach(url)
    commit = job.commit
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        commit = _remote_ref(url, commit, job)
    why = ""
    for attempt in range(TRIES):
        if attempt:
            wait = 4 ** (attempt - 1)
            job.reporter.warn(f"{shown}: {why}; trying again in {wait} s")
            time.sleep(wait)
        remove_tree(job.dest)  # a clean restart: nothing of a cut transfer stays
        _init(job.dest)
        with job.reporter.task(f"fetch {commit[:9]}", unit="items") as task:
            result = run_git(
                [*_CHECKED, "fetch", "--progress", "--depth=1", "--no-tags",
                 "--no-write-fetch-head", "--", url, f"+{commit}:{BRANCH}"],
                job.dest,
                env={**_PLAIN, **_ssh()},
                timeout=FETCH_TIMEOUT_S,
                on_progress=_progress(task),
            )  # fmt: skip
        if result.rc == 0:
            packs = (job.dest / "objects" / "pack").glob("*.pack")
            size = sum(path.stat().st_size for path in packs)
            return _finish(shown, commit, size, job.dest)
        _raise_if_disk(result, job.dest)
        why = _why(result)
        if _ABSENT.search(result.err):
            raise Unusable(f"it does not hold commit {commit} or will not give it")
        if _LIES.search(result.err) and not _CUT.search(result.err):
            raise Forged(why)
        if _FOR_GOOD.search(result.err):
            break
    raise Unusable(why)


def _remote_ref(url: str, ref: str, job: _Job) -> str:
    """Return the commit id a branch or tag has at a URL; an annotated tag is peeled."""
    result = run_git(
        ["ls-remote", "--", url, ref, f"{ref}^{{}}"],
        _parent(job.dest),
        env={**_PLAIN, **_ssh()},
        timeout=60,
    )
    if result.rc:
        raise Unusable(_why(result))
    pairs = {name: sha for sha, _, name in (x.partition("\t") for x in result.text.splitlines())}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        if name in pairs:
            return pairs[name]
    raise Unusable(f"it has no branch or tag `{ref}`")


def _ssh() -> dict[str, str]:
    """Make ssh ask nothing and give up soon, unless the user chose a command of their own."""
    if "GIT_SSH_COMMAND" in os.environ or "GIT_SSH" in os.environ:
        return {}
    return {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=15"}


def _reach(url: str) -> None:
    """Look up and connect to the URL's host, or the proxy in front of it.

    Raises:
        Unusable: It cannot be reached within :data:`REACH_TIMEOUT_S`.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _PORTS:
        return  # ssh's short form: the name may be an alias that only ssh resolves
    if parts.hostname is None:
        raise Unusable("the URL names no host")
    try:
        place = (parts.hostname, parts.port or _PORTS[parts.scheme])
    except ValueError as error:
        raise Unusable(f"the URL's port is wrong: {error}") from error
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname):
        hop = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if hop.hostname:
            place = (hop.hostname, hop.port or 80)
    outcome: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection(place, timeout=REACH_TIMEOUT_S).close()
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    # getaddrinfo takes no time limit, so it gets a thread that may be left behind
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(REACH_TIMEOUT_S)
    if not outcome:
        raise Unusable(f"{place[0]} did not answer within {REACH_TIMEOUT_S:.0f} s")
    if (failure := outcome[0]) is not None:
        raise Unusable(f"{place[0]} cannot be reached ({failure.strerror or failure})")


def _without_password(url: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]*@", "", url)


def _progress(task: Task) -> Callable[[str], None]:
    """Return a reader of git's progress lines."""

    def read(line: str) -> None:
        if match := _RECEIVING.search(line):
            task.update(done=int(match[2]), total=int(match[3]), note=match[1].lower())

    return read


def _why(result: GitResult) -> str:
    return _without_password(result.last_error) or f"git ended with status {result.rc}"


def _raise_if_disk(result: GitResult, dest: Path) -> None:
    if "No space left on device" in result.err:
        raise StoreError("the disk is full", where=str(dest), fix="free some space and run again")


def _disk_error(error: OSError, dest: Path) -> StoreError:
    return StoreError(
        f"the source cannot be kept: {error.strerror or error}",
        where=str(error.filename or dest),
        fix="check the disk's free space and the folder's permissions",
    )


# -- work trees ---------------------------------------------------------------------------------


def checkout_tree(repo: Path, commit: str, dest: Path) -> None:
    """Write a commit's files into a new folder, byte for byte as the blobs have them.

    The repository is only read: index and attributes live in a scratch folder, so that no
    ``.gitattributes`` converts line ends or runs a filter.

    Args:
        repo: Bare repository, or the ``.git`` of one of ours.
        commit: Commit or tree id.
        dest: Folder to fill; it must not exist or be empty.

    Raises:
        OriginError: The commit is absent, or holds a link that leads out of the tree.
        StoreError: The disk is full or ``dest`` is not empty.
    """
    dest.mkdir(parents=True, exist_ok=True)
    if any(dest.iterdir()):
        raise StoreError("files are only written into an empty folder", where=str(dest))
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=".checkout-") as scratch:
        own = _init(Path(scratch) / "own.git")
        (own / "info").mkdir(exist_ok=True)
        (own / "info" / "attributes").write_text(
            "* -text -ident -filter -working-tree-encoding -eol\n", encoding="utf-8"
        )
        env = {
            **_PLAIN,
            "GIT_DIR": str(own.absolute()),
            "GIT_OBJECT_DIRECTORY": str((repo / "objects").absolute()),
            "GIT_WORK_TREE": str(dest.absolute()),
        }
        read = run_git(["read-tree", "--no-sparse-checkout", commit], dest, env=env)
        if read.rc:
            raise OriginError(f"commit {commit} cannot be read: {_why(read)}", where=str(repo))
        _check_links(dest, env)
        wrote = run_git(["checkout-index", "--all", "--quiet"], dest, env=env)
        if wrote.rc:
            _raise_if_disk(wrote, dest)
            raise StoreError(f"files cannot be written: {_why(wrote)}", where=str(dest))


def _check_links(dest: Path, env: dict[str, str]) -> None:
    """Refuse symbolic links that lead out of the tree."""
    listed = run_git(["ls-files", "--stage", "-z"], dest, env=env)
    for line in listed.out.split(b"\0"):
        if not line.startswith(b"120000 "):
            continue
        head, _, raw = line.partition(b"\t")
        name = raw.decode("utf-8", "surrogateescape")
        target = run_git(["cat-file", "blob", head.split()[1].decode()], dest, env=env).text
        depth = 0
        for part in [*name.split("/")[:-1], *target.split("/")]:
            depth += -1 if part == ".." else 0 if part in ("", ".") else 1
            if depth < 0:
                break
        if depth < 0 or target.startswith(("/", "\\")) or target[1:2] == ":":
            raise OriginError(
                f"link {name!r} leads out of the source tree, to {target!r}", where=name
            )
