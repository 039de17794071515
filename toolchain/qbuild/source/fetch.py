"""Bring the pinned commit of llama.cpp into a repository of ours, whatever place it comes from.

Origins are asked in order: the user's, llama.cpp's repository, the sdist that carries the same
commit. One that cannot deliver is skipped with a line that says why. One that delivers something
else than it claims ends the run and is named: going on to the next would hide that a mirror lies.

Proof of content: git hashes every object again as it enters (``transfer.fsckObjects``), a commit
id covers its tree id, a tree id covers every blob; both ids are then compared with the pin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild import held
from qbuild.console import Reporter
from qbuild.errors import LockError, OriginError, StoreError
from qbuild.held import remove_tree
from qbuild.recipe.config import is_url, load_config
from qbuild.recipe.lock import SourcePin
from qbuild.source.causes import Cause, remedy, without_password
from qbuild.source.gitenv import run_git
from qbuild.source.gitless import GET_GIT, have_git
from qbuild.source.origins import (
    BRANCH,
    PLAIN,
    FetchedSource,
    Job,
    SdistFetcher,
    from_path,
    from_pinned_sdist,
    init_bare,
    raise_if_disk,
    why_not,
)
from qbuild.source.quarantine import Forged, Unusable
from qbuild.source.remote import from_url
from qbuild.store import disk_error

__all__ = ["BRANCH", "FetchedSource", "checkout_tree", "fetch_commit", "fetch_source"]


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
        fetch_sdist: Returns the file of an sdist pin; none:
            :func:`qbuild.source.wheels.fetch_file`.

    Raises:
        OriginError: No origin delivered, or one delivered something else. ``dest`` is gone then.
        LockError: The pin's tree id does not belong to its commit id.
        StoreError: The disk is full or cannot be written.
        ToolchainError: There is no git.
    """
    job = Job(
        commit=pin.commit,
        git_dir=pin.git_dir,
        sdist_name=pin.sdist.filename if pin.sdist else "",
        dest=dest,
        reporter=reporter,
    )
    reasons: list[Refusal] = []
    for origin, attempt in _attempts(pin, job, origins, fetch_sdist, offline=offline):
        fetched = _ask(origin, attempt, job, reasons)
        if fetched is not None:
            _check_tree(fetched, pin, dest)
            return fetched
    raise OriginError(
        f"no origin delivered {pin.name} {pin.short}"
        + (" (--offline: only local places were asked)" if offline else ""),
        where=_places(reasons),
        fix=remedy([each.cause for each in reasons], "check the network")
        + "; or name a clone, mirror or sdist of that commit with --origin"
        + ("" if have_git() else f"; or {GET_GIT}"),
    )


def _attempts(
    pin: SourcePin,
    job: Job,
    origins: Sequence[str],
    fetch_sdist: SdistFetcher | None,
    *,
    offline: bool,
) -> list[tuple[str, Callable[[], FetchedSource]]]:
    """Return the origins in their order, each with the function that asks it."""
    found: list[tuple[str, Callable[[], FetchedSource]]] = []
    for origin in tuple(origins) or load_config().origins:
        if _is_local(origin) or not offline:
            found.append((origin, functools.partial(_from_origin, origin, job)))
    if not offline:
        found.append((pin.url, lambda: from_url(pin.url, job)))
    if (sdist := pin.sdist) is not None:
        label = f"sdist {sdist.filename}"
        found.append((label, lambda: from_pinned_sdist(sdist, label, job, fetch_sdist, offline)))
    return found


def fetch_commit(
    origins: Sequence[str],
    ref: str,
    dest: Path,
    *,
    git_dir: str,
    reporter: Reporter,
    also: Sequence[str] = (),
    history: bool = False,
) -> FetchedSource:
    """Fill ``dest`` with the commit that ``ref`` names (``qbuild lock --pin``, drift checks).

    No pin vouches for it: every object is hashed, but whether it is llama.cpp's is for a person
    to say.

    Args:
        origins: Paths or URLs, asked in order until one delivers.
        ref: Commit id, branch or tag; a local origin also takes an abbreviated id.
        dest: The repository's folder; it must not exist or be empty.
        git_dir: Where an sdist keeps the repository.
        reporter: Gets the progress, and a warning for each origin that cannot deliver.
        also: Further commit ids that are taken along where a local origin has them.
        history: Take the commit's history, too, as far as a local origin has it.

    Raises:
        OriginError: No origin delivers such a ref, or one is damaged or lies.
        StoreError: The disk is full or cannot be written.
    """
    job = Job(
        commit=ref,
        git_dir=git_dir,
        sdist_name="",
        dest=dest,
        reporter=reporter,
        also=tuple(also),
        history=history,
    )
    reasons: list[Refusal] = []
    for origin in origins:
        fetched = _ask(origin, functools.partial(_from_origin, origin, job), job, reasons)
        if fetched is not None:
            return fetched
    raise OriginError(
        f"no origin delivered `{ref}`",
        where=_places(reasons),
        fix=remedy([each.cause for each in reasons], "check the spelling")
        + "; or name another place with --origin",
    )


def _from_origin(origin: str, job: Job) -> FetchedSource:
    """Ask one of the user's origins, by its kind: another kind of origin is another line here.

    How an origin may be spelled is :func:`qbuild.recipe.config.is_url`'s to say.

    Raises:
        Unusable: It cannot deliver.
        Forged: It does not hold what it claims.
        OSError: The disk is full or cannot be written.
    """
    return from_path(origin, job) if _is_local(origin) else from_url(origin, job)


def _is_local(origin: str) -> bool:
    return not is_url(origin) or origin.lower().startswith("file://")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why one origin did not deliver."""

    origin: str
    why: str
    cause: Cause | None


def _places(reasons: Sequence[Refusal]) -> str:
    """Return one line for each origin and why it did not deliver."""
    lines = [f"{each.origin}: {each.why}" for each in reasons]
    return "\n         ".join(lines) or "no origin given"


def _ask(
    origin: str, attempt: Callable[[], FetchedSource], job: Job, reasons: list[Refusal]
) -> FetchedSource | None:
    """Ask one origin; note why it cannot deliver, refuse it when it lies."""
    shown = without_password(origin)
    done = False
    try:
        fetched = attempt()
        done = True
    except Unusable as reason:
        reasons.append(Refusal(origin=shown, why=str(reason), cause=reason.cause))
        job.reporter.warn(f"origin {shown} cannot deliver: {reason}")
        return None
    except Forged as reason:
        raise OriginError(
            f"this origin is refused, it does not hold what it claims: {reason}",
            where=shown,
            fix="do not use it until that is explained; without it the next origin is asked",
        ) from reason
    except OSError as error:
        raise disk_error(error, job.dest) from error
    finally:
        if not done:
            remove_tree(job.dest)
    return fetched


def _check_tree(fetched: FetchedSource, pin: SourcePin, dest: Path) -> None:
    if fetched.tree != pin.tree:
        remove_tree(dest)
        raise LockError(
            f"the pinned tree id {pin.tree[:12]}… does not belong to commit {pin.short}, "
            f"whose tree is {fetched.tree}",
            where=f"source {pin.name}, as {fetched.origin} and its hashes prove",
            fix="correct `tree` in the lockfile, or move the pin with `qbuild lock --pin`",
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
    with held.scratch(".checkout-", dest.parent) as scratch:
        own = init_bare(scratch / "own.git")
        (own / "info").mkdir(exist_ok=True)
        (own / "info" / "attributes").write_text(
            "* -text -ident -filter -working-tree-encoding -eol\n", encoding="utf-8", newline="\n"
        )
        env = {
            **PLAIN,
            "GIT_DIR": str(own.absolute()),
            "GIT_OBJECT_DIRECTORY": str((repo / "objects").absolute()),
            "GIT_WORK_TREE": str(dest.absolute()),
        }
        read = run_git(["read-tree", "--no-sparse-checkout", commit], dest, env=env)
        if read.rc:
            raise OriginError(f"commit {commit} cannot be read: {why_not(read)}", where=str(repo))
        _check_links(dest, env)
        wrote = run_git(["checkout-index", "--all", "--quiet"], dest, env=env)
        if wrote.rc:
            try:
                raise_if_disk(wrote, dest)
            finally:
                remove_tree(dest)
            raise StoreError(f"files cannot be written: {why_not(wrote)}", where=str(dest))


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
