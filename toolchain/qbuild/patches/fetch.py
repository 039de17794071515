"""Get an upstream ref that no pin names, to try series on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from qbuild.console import Reporter
from qbuild.errors import OriginError, UsageError
from qbuild.gitenv import run_git

_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")

# A server may refuse ids that no ref points at; for a clone of the user's own they are as good.
# Objects are hashed and checked as they come in; nothing of the origin's configuration is used.
_FETCH = (
    "-c", "transfer.fsckObjects=true",
    "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
)  # fmt: skip
_LOCAL = (
    "--update-shallow",
    "--upload-pack=git -c uploadpack.allowAnySHA1InWant=true upload-pack",
)


def fetch_ref(
    ref: str, origins: Sequence[str], dest: Path, pin: str, reporter: Reporter
) -> tuple[Path, str]:
    """Fetch ``ref`` from the first origin that has it into a new bare repository.

    As much history as the origin gives is taken when it is a local one, so that drift can be
    blamed on commits; from a server only the commit itself.

    Args:
        ref: Branch, tag or full commit id.
        origins: Paths or URLs, in order of preference.
        dest: Folder to make the repository in.
        pin: The pin's commit: fetched, too, where the origin has it, for the history between.
        reporter: For progress.

    Returns:
        The repository and the commit's id.

    Raises:
        UsageError: ``ref`` cannot be a ref.
        OriginError: No origin has it.

    """
    if not _REF.fullmatch(ref) or ".." in ref:
        raise UsageError(f"`{ref}` is not a ref, a commit id or the name of a pin")
    repo = dest / "ref.git"
    repo.mkdir(parents=True)
    made = run_git(["init", "--quiet", "--bare", "--template="], repo)
    if made.rc:
        raise OriginError(f"git init failed: {made.last_error}", where=str(repo))
    problems: list[str] = []
    for origin in origins:
        local = Path(origin).is_dir()
        address = Path(origin).absolute().as_uri() if local else origin
        reporter.say(f"fetch: {ref} from {origin}")
        how = _LOCAL if local else ("--depth=1",)
        done = run_git([*_FETCH, *how, address, f"{ref}:refs/qbuild/ref"], repo)
        if done.rc:
            problems.append(f"{origin}: {done.last_error}")
            continue
        if local:
            run_git([*_FETCH, *how, address, f"{pin}:refs/qbuild/pin"], repo)
        return repo, run_git(["rev-parse", "--verify", "refs/qbuild/ref^{commit}"], repo).text
    raise OriginError(
        f"no origin has `{ref}`",
        where="; ".join(problems),
        fix="name a clone that has it with --origin, or a pin of the lockfile",
    )
