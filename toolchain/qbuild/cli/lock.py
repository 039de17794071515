"""``qbuild lock``: check the pins, renew wheels, move the source to another commit."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import re
from pathlib import Path
from typing import Any

from qbuild import held, host
from qbuild.cli.common import print_json
from qbuild.console import Reporter
from qbuild.errors import LockError, OriginError, UsageError
from qbuild.recipe.lock import FilePin, Lock, SourcePin, WheelPin

_SDIST = re.compile(r"(?P<project>[A-Za-z0-9_.-]+)-(?P<version>\d[\w.!+]*)\.tar\.gz")
_PIPS_AT_ONCE = 4  # pip spends its time waiting for the index


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the actions; none of them: check."""
    parser.epilog = (
        "Without --update and --pin every pin is asked for and nothing is written. A source whose "
        "repository cannot be reached is fetched as an sdist for that (some 75 MB each)."
    )
    parser.add_argument(
        "--update",
        action="append",
        default=[],
        metavar="PROJECT[==VERSION]",
        help="pin the newest (or this) version of a wheel, for every platform it is pinned for",
    )
    parser.add_argument("--pin", metavar="REF", help="move the source to a commit, branch or tag")
    parser.add_argument(
        "--source", metavar="NAME", default="llama.cpp", help="source that --pin moves (llama.cpp)"
    )
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="PATH|URL",
        help="take REF from here (clone, bare repository, sdist, URL)",
    )
    parser.add_argument(
        "--offline", action="store_true", help="check the lockfile itself, ask nobody"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, write nothing"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Check, update or move pins."""
    from qbuild import resources
    from qbuild.recipe import lock

    path = Path(args.lockfile) if args.lockfile else resources.lockfile()
    if args.pin is not None and not args.pin.strip():
        raise UsageError("--pin takes a commit, a branch or a tag", fix="e.g. --pin master")
    if args.update and args.pin:
        raise UsageError("--update and --pin are two steps", fix="run one after the other")
    if args.update:
        if args.offline:
            raise UsageError("--update asks an index, --offline forbids it")
        return _update(args, path, reporter)
    if args.pin:
        return _move(args, path, reporter)
    return _check(args, lock.load_lock(path), reporter)


# -- check --------------------------------------------------------------------------------------


def _check(args: argparse.Namespace, found: Lock, reporter: Reporter) -> int:
    from concurrent.futures import ThreadPoolExecutor

    rows: list[dict[str, Any]] = [
        {"pin": s.name, "what": f"commit {s.short}", "bytes": s.sdist.size if s.sdist else None}
        for s in found.sources
    ] + [
        {"pin": f"{w.project} {w.version}", "what": w.platform, "bytes": w.size}
        for w in found.wheels
    ]
    pins: list[SourcePin | WheelPin] = [*found.sources, *found.wheels]
    if not args.offline:
        with (
            reporter.task("ask for every pin", total=len(pins), unit="items") as task,
            ThreadPoolExecutor(_PIPS_AT_ONCE) as pool,
        ):
            answers = pool.map(lambda pin: _resolves(pin, reporter), pins)
            for number, (row, pin, answer) in enumerate(zip(rows, pins, answers, strict=True)):
                row["by"], row["problem"] = answer
                task.update(done=number + 1, note=pin.version)
    bad = [row for row in rows if row.get("problem")]
    if args.json:
        code = OriginError.exit_code if bad else 0
        print_json({"lockfile": found.path, "pins": rows, "asked": not args.offline, "exit": code})
        return code
    print(found.path)
    for row in rows:
        size = f"{row['bytes'] / 1e6:8.1f} MB" if row["bytes"] else " " * 11
        told = "" if args.offline else f"  {row['problem'] or row['by']}"
        print(f"  {row['pin']:<24} {row['what']:<18} {size}{told}")
    if bad:
        raise OriginError(
            f"{len(bad)} of {len(rows)} pins do not resolve",
            where=", ".join(f"{row['pin']} {row['what']}" for row in bad),
            fix="check the network and pip's index settings, or move them with --update or --pin",
        )
    how = "sound; nobody was asked for them (--offline)" if args.offline else "all of them resolve"
    print(f"{len(rows)} pins, {how}")
    return 0


def _resolves(pin: SourcePin | WheelPin, reporter: Reporter) -> tuple[str, str]:
    """Return who delivers a pin, and what is wrong when nobody does."""
    from qbuild.source.wheels import fetch_file, resolve

    try:
        if isinstance(pin, WheelPin):
            resolve(pin)
            return "pip", ""
        problem = _commit_there(pin)
        if not problem:
            return "repository", ""
        if pin.sdist is None:
            return "", problem
        with held.scratch("qbuild-lock-") as scratch:
            fetch_file(pin.sdist, scratch, offline=False, reporter=reporter)
        return f"sdist (repository: {problem})", ""
    except OriginError as error:
        return "", error.what


def _commit_there(pin: SourcePin) -> str:
    """Return nothing when the repository gives the commit with the pinned tree, else why not."""
    from qbuild.source.gitless import have_git
    from qbuild.source.quarantine import Unusable
    from qbuild.source.remote import tree_of

    if not have_git():
        return "there is no git on this machine to ask it with"
    with held.scratch("qbuild-lock-") as scratch:
        try:
            tree = tree_of(pin.url, pin.commit, scratch / "repo.git")
        except Unusable as reason:
            return str(reason)
    if tree != pin.tree:
        raise OriginError(f"commit {pin.short} has tree {tree}, not the pinned {pin.tree}")
    return ""


# -- update -------------------------------------------------------------------------------------


def _update(args: argparse.Namespace, path: Path, reporter: Reporter) -> int:
    from qbuild.recipe import lock, lockedit
    from qbuild.source.wheels import latest

    text = lock.LOCKFILE.read(path)
    found = lock.parse_lock(text, str(path))
    changes: list[dict[str, str]] = []
    fresh: list[WheelPin] = []
    for wanted in args.update:
        project, _, version = wanted.partition("==")
        old = [w for w in found.wheels if lock.normalise(w.project) == lock.normalise(project)]
        if not old:
            found.wheel(project, "any")  # says what is pinned and what may have been meant
        if len({pin.version for pin in old}) > 1:
            raise LockError(
                f"several versions of {project} are pinned on purpose: "
                + ", ".join(sorted({pin.version for pin in old})),
                where=str(path),
                fix="edit the lockfile by hand, and the table that says what each is for",
            )
        new = []
        for pin in old:
            reporter.say(f"ask pip for {wanted} ({pin.platform}); now {pin.size / 1e6:.0f} MB")
            with held.scratch("qbuild-lock-") as scratch:
                got = latest(pin.project, version or None, pin.platform, scratch)
            new.append(dataclasses.replace(got, project=pin.project))
        if len({pin.version for pin in new}) > 1:
            raise LockError(
                f"the newest {project} differs by platform: "
                + ", ".join(f"{pin.version} for {pin.platform}" for pin in new),
                where=str(path),
                fix=f"name one version: --update {project}==VERSION",
            )
        for before, after in zip(old, new, strict=True):
            changes += _differences(f"{before.project} {before.platform}", before, after)
        fresh += new
    if changes and not args.dry_run:
        lockedit.write(path, lockedit.with_wheels(text, fresh))
    return _tell(args, path, changes, {})


# -- move the source ----------------------------------------------------------------------------


def _move(args: argparse.Namespace, path: Path, reporter: Reporter) -> int:
    from qbuild.recipe import config, lock, lockedit
    from qbuild.source.fetch import fetch_commit
    from qbuild.source.gitenv import need_git

    need_git()
    text = lock.LOCKFILE.read(path)
    old = lock.parse_lock(text, str(path)).source(args.source)
    origins = [*config.source_origins(args.origin)]
    if not args.origin and not args.offline:
        origins.append(old.url)
    with held.scratch("qbuild-lock-") as scratch:
        repo = scratch / "repo.git"
        got = fetch_commit(origins, args.pin, repo, git_dir=old.git_dir, reporter=reporter)
        date, version = _facts(repo, got.commit)
        new = dataclasses.replace(
            old,
            commit=got.commit,
            tree=got.tree,
            date=date,
            version=version,
            build_number=old.build_number if got.commit == old.commit else None,
            sdist=old.sdist if got.commit == old.commit else _sdist_at(got.origin),
        )
        changes = _differences(old.name, old, new)
        extra = {
            "commit": got.commit,
            "tree": got.tree,
            "origin": got.origin,
            "patches": _patches(args, repo, got.commit),
        }
    if old.sdist is not None and new.sdist is None:
        reporter.warn(
            "no sdist is known that carries the new commit: machines that cannot reach "
            f"{old.url} need --origin"
        )
    if changes and not args.dry_run:
        lockedit.write(path, lockedit.with_source(text, new))
    return _tell(args, path, changes, extra)


def _facts(repo: Path, commit: str) -> tuple[str, str]:
    """Return the commit's day (UTC) and what the source calls itself."""
    from qbuild.source.gitenv import run_git

    seconds = int(run_git(["show", "-s", "--format=%ct", commit], repo).text)
    date = datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
    return date, version_in(run_git(["show", f"{commit}:CMakeLists.txt"], repo).text)


def version_in(cmakelists: str) -> str:
    """Return the version a llama.cpp ``CMakeLists.txt`` sets; ``0`` from before it had one.

    Upstream sets ``LLAMA_VERSION_MAJOR``, ``_MINOR`` and ``_PATCH``, and appends ``-dev`` unless
    ``LLAMA_BUILD_IS_DEV`` is turned off.
    """
    numbers = [
        match.group(1)
        for part in ("MAJOR", "MINOR", "PATCH")
        if (match := re.search(rf"set\(LLAMA_VERSION_{part}\s+(\d+)\)", cmakelists))
    ]
    if len(numbers) != 3:
        return "0"
    dev = re.search(r"option\(LLAMA_BUILD_IS_DEV\s+\"[^\"]*\"\s+ON\)", cmakelists)
    return ".".join(numbers) + ("-dev" if dev else "")


def _sdist_at(origin: str) -> FilePin | None:
    """Return a pin of the sdist the commit was taken from, when it was taken from one."""
    from qbuild.hashing import sha256_file
    from qbuild.recipe.lock import normalise

    file = host.expand_user(origin)
    match = _SDIST.fullmatch(file.name)
    if match is None or not file.is_file():
        return None
    return FilePin(
        project=normalise(match["project"]),
        version=match["version"],
        filename=file.name,
        sha256=sha256_file(file),
        size=file.stat().st_size,
    )


def _patches(args: argparse.Namespace, repo: Path, commit: str) -> list[dict[str, Any]]:
    """Return how each series, on top of those it requires, fits the commit."""
    from qbuild import resources
    from qbuild.patches import known_series, load_series
    from qbuild.patches.export import requirements
    from qbuild.patches.outcome import lines
    from qbuild.patches.status import series_status

    root = Path(args.patches) if args.patches else resources.patches_dir()
    found = []
    for name in known_series(root):
        one = load_series(root, name)
        status = series_status(repo, commit, [*requirements(root, one), one])
        mine = [patch for patch in status.patches if patch.series == name]
        found.append(
            {
                "series": name,
                "applies": status.applies,
                "patches": [patch.as_json() for patch in mine],
                "lines": [line for patch in mine for line in lines(patch)],
            }
        )
    return found


# -- what changed -------------------------------------------------------------------------------


def _differences(name: str, old: Any, new: Any) -> list[dict[str, str]]:
    """Return the fields in which two pins differ, in the order the lockfile has them."""
    found = []
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        if isinstance(before, FilePin) and isinstance(after, FilePin):
            found += _differences(f"{name} {field.name}", before, after)
            continue
        texts = [
            "none" if v is None else v.filename if isinstance(v, FilePin) else str(v)
            for v in (before, after)
        ]
        found.append({"pin": name, "key": field.name, "old": texts[0], "new": texts[1]})
    return found


def _tell(
    args: argparse.Namespace, path: Path, changes: list[dict[str, str]], extra: dict[str, Any]
) -> int:
    written = bool(changes) and not args.dry_run
    if args.json:
        patches = [
            {key: value for key, value in item.items() if key != "lines"}
            for item in extra.get("patches", [])
        ]
        data = {"lockfile": str(path), "changes": changes, "written": written, **extra}
        print_json({**data, "patches": patches} if "patches" in extra else data)
        return 0
    for change in changes:
        print(f"{change['pin']} {change['key']}: {change['old']} -> {change['new']}")
    for item in extra.get("patches", []):
        print(f"patches/{item['series']}: {'applies' if item['applies'] else 'DOES NOT APPLY'}")
        print("".join(f"  {line}\n" for line in item["lines"]), end="")
    if not changes:
        print(f"{path}: nothing to change")
    else:
        print(f"{path}: {'written' if written else 'not written (--dry-run)'}")
    return 0
