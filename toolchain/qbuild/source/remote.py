"""Ask one origin on the network for one commit: reachable or not is known within seconds."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from qbuild import held
from qbuild.held import remove_tree
from qbuild.source.causes import Cause, cause_of, known_cause, page_instead, without_password
from qbuild.source.gitenv import GitResult, run_git
from qbuild.source.gitless import have_git
from qbuild.source.origins import (
    BRANCH,
    CHECKED,
    PLAIN,
    FetchedSource,
    Job,
    finish,
    init_bare,
    parent_of,
    progress_of,
    raise_if_disk,
    transfer,
    why_not,
)
from qbuild.source.quarantine import Forged, Taken, Unusable

TRIES = 3  # how often a network fetch is tried; the waits between are 1 s and 4 s

REACH_TIMEOUT_S = 10.0
"""Seconds for looking up a host and connecting to it. git itself would wait for minutes."""

FETCH_TIMEOUT_S = 1800.0
"""Seconds for one fetch; a stalled one (below 1 kB/s for 20 s) is ended by git long before."""

_PORTS = {"https": 443, "http": 80, "git": 9418, "ssh": 22}
_ABSENT = re.compile(
    r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref", re.IGNORECASE
)
_FOR_GOOD = re.compile(
    r"not found|Authentication failed|could not read Username|Permission denied|does not appear "
    r"to be a git repository|returned error: 4\d\d|not allowed|unable to find remote helper"
    r"|is not a git command",
    re.IGNORECASE,
)
_LIES = re.compile(
    r"fsck|hash mismatch|did not (?:send all necessary|receive expected) object|bad object|corrupt"
    r"|invalid index-pack|missing (?:blob|tree|commit|necessary)|collision|inconsistent"
    r"|object of unexpected type|index-pack failed",
    re.IGNORECASE,
)
_PLAIN_SERVER = re.compile(r"dumb http transport does not support", re.IGNORECASE)
_CUT = re.compile(
    r"early EOF|unexpected disconnect|RPC failed|hung up|reset by peer|timed out|Broken pipe",
    re.IGNORECASE,
)


def from_url(url: str, job: Job) -> FetchedSource:
    """Fetch a commit, and nothing else, from a URL.

    Raises:
        Unusable: It cannot be reached, or does not give the commit.
        Forged: What it gave does not hash to what was asked.
        StoreError: The disk is full.
    """
    shown = without_password(url)
    if not have_git():
        raise Unusable("there is no git on this machine to fetch with")
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
            _pause(wait)
        result = _fetch(url, commit, job.dest, job, "--depth=1")
        if _PLAIN_SERVER.search(result.err):
            return _from_plain_server(url, commit, job)
        if result.rc == 0:
            packs = (job.dest / "objects" / "pack").glob("*.pack")
            size = sum(path.stat().st_size for path in packs)
            return finish(shown, commit, size, job.dest)
        raise_if_disk(result, job.dest)
        cause, why = _told(result)
        if _ABSENT.search(result.err):
            raise Unusable(f"it does not hold commit {commit} or will not give it")
        if _LIES.search(result.err) and not _CUT.search(result.err):
            raise Forged(why)
        if _FOR_GOOD.search(result.err) or (cause is not None and not cause.passing):
            break
    raise Unusable(why, cause)


def _fetch(url: str, commit: str, repo: Path, job: Job, *options: str) -> GitResult:
    """Fetch one commit into a fresh repository."""
    remove_tree(repo)  # a clean restart: nothing of a cut transfer stays
    init_bare(repo)
    if not options:
        (repo / "shallow").write_text(f"{commit}\n", encoding="ascii", newline="\n")
    with job.reporter.task(f"fetch {commit[:9]}", unit="items") as task:
        return run_git(
            [*CHECKED, "fetch", "--progress", *options, "--no-tags",
             "--no-write-fetch-head", "--", url, f"+{commit}:{BRANCH}"],
            repo,
            env={**PLAIN, **_ssh()},
            timeout=FETCH_TIMEOUT_S,
            on_progress=progress_of(task),
        )  # fmt: skip


def _from_plain_server(url: str, commit: str, job: Job) -> FetchedSource:
    """Fetch from a web server that only hands out a repository's files.

    git then walks objects and packs itself and knows no depth: a repository that is told
    beforehand where its history ends stops there, too. What it took goes through a quarantine,
    because this way git does not check every object on arrival.
    """
    with held.scratch(".quarantine-", parent_of(job.dest)) as scratch:
        repo = scratch / "repo.git"
        result = _fetch(url, commit, repo, job)
        if result.rc:
            raise_if_disk(result, repo)
            page = page_instead(f"{url.rstrip('/')}/info/refs")
            raise Unusable(str(page), page) if page else _unusable(result)
        packs = (repo / "objects").rglob("*")
        size = sum(path.stat().st_size for path in packs if path.is_file())
        return transfer(repo, Taken(bytes=size), without_password(url), commit, job)


def _unusable(result: GitResult) -> Unusable:
    cause, why = _told(result)
    return Unusable(why, cause)


def _told(result: GitResult) -> tuple[Cause | None, str]:
    """Return the cause of git's failure, and all that is said about it."""
    cause, own = cause_of(result.err), why_not(result)
    return cause, f"{cause.found} (git: {own})" if cause else own


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def tree_of(url: str, commit: str, scratch: Path) -> str:
    """Return the tree id of a commit at a URL, fetching (where the server can) the commit alone.

    Args:
        url: The repository.
        commit: Full commit id.
        scratch: A folder that does not exist yet.

    Raises:
        Unusable: The URL cannot be reached or does not give the commit.
    """
    _reach(url)
    init_bare(scratch)
    fetch = ["fetch", "--quiet", "--depth=1", "--filter=tree:0", "--no-tags",
             "--no-write-fetch-head", "--", url, f"+{commit}:{BRANCH}"]  # fmt: skip
    result = run_git(fetch, scratch, env={**PLAIN, **_ssh()}, timeout=120)
    if result.rc:
        raise _unusable(result)
    shown = run_git(["cat-file", "commit", commit], scratch, env=PLAIN)
    if shown.rc or not shown.out.startswith(b"tree "):
        raise Unusable(f"it did not give commit {commit}: {why_not(shown)}")
    return shown.out[5:45].decode()


def _remote_ref(url: str, ref: str, job: Job) -> str:
    """Return the commit id a branch or tag has at a URL; an annotated tag is peeled."""
    result = run_git(
        ["ls-remote", "--", url, ref, f"{ref}^{{}}"],
        parent_of(job.dest),
        env={**PLAIN, **_ssh()},
        timeout=60,
    )
    if result.rc:
        raise _unusable(result)
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
    through = False
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname):
        hop = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if hop.hostname:
            place, through = (hop.hostname, hop.port or 80), True
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
        said = f"{place[0]} did not answer within {REACH_TIMEOUT_S:.0f} s"
        raise _unreached(said, None, through)
    if (failure := outcome[0]) is not None:
        said = f"{place[0]} cannot be reached ({failure.strerror or failure})"
        raise _unreached(said, failure, through)


def _unreached(said: str, failure: OSError | None, through_proxy: bool) -> Unusable:
    name = "name-not-resolved" if isinstance(failure, socket.gaierror) else "origin-unreachable"
    cause = known_cause("proxy-unreachable" if through_proxy else name, said)
    return Unusable(str(cause), cause)
