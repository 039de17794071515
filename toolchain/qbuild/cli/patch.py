"""``qbuild patch``: see how the series fit, edit them, carry them over."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild import held
from qbuild.cli.common import add_verbs, load_lock, print_json, store
from qbuild.console import Reporter
from qbuild.errors import PatchError, UsageError

if TYPE_CHECKING:
    from qbuild.patches import Series
    from qbuild.patches.status import SeriesStatus

_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
_NAMES_HELP = "series; none named: the recipe's, or all"


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verb = add_verbs(parser)
    status = verb("status", "how each patch fits the pin", _status)
    _add_names(status)
    _add_source(status)
    check = verb("check", "how each patch fits another commit, and what upstream did to it", _check)
    _add_names(check)
    _add_source(check)
    check.add_argument("--against", required=True, metavar="REF", help="pin name, ref or commit")
    check.add_argument(
        "--strict", action="store_true", help="also fail when a patch moved or is upstream already"
    )
    edit = verb("edit", "make a work tree with a series as commits", _edit)
    edit.add_argument("series", metavar="SERIES")
    edit.add_argument("--dir", metavar="DIR", help="the work tree (default: SERIES-edit)")
    _add_source(edit)
    refresh = verb("refresh", "write a work tree's commits back as the series", _refresh)
    refresh.add_argument("--dir", metavar="DIR", default=".", help="the work tree (default: .)")
    rebase = verb("rebase", "carry series over to another commit", _rebase)
    _add_names(rebase)
    _add_source(rebase)
    rebase.add_argument("--to", required=True, metavar="REF", help="pin name, ref or commit")
    rebase.add_argument("--dir", metavar="DIR", help="the work tree (default: SERIES-rebase)")
    explain = verb("explain", "why a patch is there, what it touches, what proves it", _explain)
    explain.add_argument("name", metavar="NAME", help="series, SERIES/FILE or FILE")


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="SERIES", help=_NAMES_HELP)
    parser.add_argument("--recipe", metavar="R", help="the series of this recipe, in its order")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pin", metavar="NAME", help="source pin of the lockfile")
    parser.add_argument(
        "--origin", action="append", default=[], metavar="PATH|URL", help="get the source here"
    )
    parser.add_argument("--offline", action="store_true", help="use only what the store has")


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Run the verb."""
    if args.verb != "explain":
        from qbuild.source.gitenv import need_git

        need_git()
    if args.verb in ("refresh", "explain"):  # they need no source, so no store
        return int(args.run(args, reporter))
    with store(args).in_use():
        return int(args.run(args, reporter))


# -- what the verbs work on -------------------------------------------------------------------


def _root(args: argparse.Namespace) -> Path:
    from qbuild import resources

    return Path(args.patches) if args.patches else resources.patches_dir()


def _recipe(args: argparse.Namespace) -> Any:
    from qbuild.recipe.load import load_recipe

    return load_recipe(args.recipe) if getattr(args, "recipe", None) else None


def _groups(args: argparse.Namespace) -> list[list[Series]]:
    """Return the series to try together: the recipe's, or each named one on what it requires."""
    from qbuild.patches import known_series, load_series
    from qbuild.patches.export import requirements

    root = _root(args)
    recipe = _recipe(args)
    if recipe is not None:
        if args.names:
            raise UsageError("name series or a recipe, not both")
        return [[load_series(root, name) for name in recipe.series]]
    names = args.names or known_series(root)
    loaded = [load_series(root, name) for name in names]
    return [[*requirements(root, one), one] for one in loaded]


def _source_repo(args: argparse.Namespace, reporter: Reporter) -> tuple[Path, str]:
    """Return a repository of ours with the pin, and the pin's commit."""
    recipe = _recipe(args)
    name = args.pin or (recipe.source.pin if recipe is not None else "llama.cpp")
    return _pinned(name, args, reporter)


def _pinned(name: str, args: argparse.Namespace, reporter: Reporter) -> tuple[Path, str]:
    from qbuild.recipe.config import source_origins
    from qbuild.steps.pinned import fetch_pin

    pin = load_lock(args).source(name)
    entry = fetch_pin(
        pin, store(args), reporter, origins=source_origins(args.origin), offline=args.offline
    )
    return entry.path / "repo.git", pin.commit


def _other_repo(
    ref: str, args: argparse.Namespace, reporter: Reporter, scratch: Path
) -> tuple[Path, str]:
    """Return a repository of ours with another pin or any upstream ref, and its commit.

    A ref needs an origin that has it; what comes is checked object by object by git's fsck, but
    no pin vouches for it: it is tried, never built.
    """
    from qbuild.recipe.config import source_origins
    from qbuild.source.fetch import fetch_commit

    lock = load_lock(args)
    if ref in [pin.name for pin in lock.sources]:
        return _pinned(ref, args, reporter)
    if args.offline and not args.origin:
        raise UsageError(
            f"`{ref}` is no pin of the lockfile and --offline forbids fetching it",
            fix=f"one of the pins: {', '.join(p.name for p in lock.sources)}; or --origin PATH",
        )
    if not _REF.fullmatch(ref) or ".." in ref:
        raise UsageError(f"`{ref}` is not a ref, a commit id or the name of a pin")
    recipe = _recipe(args)
    pin = lock.source(args.pin or (recipe.source.pin if recipe is not None else "llama.cpp"))
    places = [*source_origins(args.origin), *([] if args.offline else [pin.url])]
    got = fetch_commit(
        places,
        ref,
        scratch / "ref.git",
        git_dir=pin.git_dir,
        reporter=reporter,
        # the way from the pin to the ref names the commits that made a series drift
        also=[pin.commit],
        history=True,
    )
    return scratch / "ref.git", got.commit


# -- the verbs --------------------------------------------------------------------------------


def _status(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.patches.status import series_status

    groups = _groups(args)
    repo, commit = _source_repo(args, reporter)
    results = [series_status(repo, commit, group) for group in groups]
    return _report(args, commit, groups, results, strict=False)


def _check(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.patches.status import drift

    groups = _groups(args)
    repo, pin = _source_repo(args, reporter)
    with held.scratch("qbuild-ref-") as scratch:
        other, commit = _other_repo(args.against, args, reporter, scratch)
        results = [drift(repo, pin, other, commit, group) for group in groups]
    return _report(args, commit, groups, results, strict=args.strict)


def _report(
    args: argparse.Namespace,
    commit: str,
    groups: list[list[Series]],
    results: list[SeriesStatus],
    *,
    strict: bool,
) -> int:
    from qbuild.patches import outcome

    good = all(r.fresh if strict else r.applies for r in results)
    code = 0 if good else PatchError.exit_code
    if args.json:
        data = [
            {"series": [one.name for one in group], **result.as_json()}
            for group, result in zip(groups, results, strict=True)
        ]
        print_json({"commit": commit, "exit_code": code, "results": data})
        return code
    print(f"against {commit[:12]}")
    for group, result in zip(groups, results, strict=True):
        # what a series merely stands on is reported with that series
        shown = {one.name for one in (group if args.recipe else group[-1:])}
        for patch in result.patches:
            if patch.series in shown:
                print("\n".join(outcome.lines(patch)))
        for note in result.notes:
            print(f"  note: {note.patch}: {note.file}: {note.message}")
    if not good:
        print(
            "\n`qbuild patch rebase --to REF` carries a series over; see docs/how-to/own-patch.md"
        )
    return code


def _edit(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.patches import load_series
    from qbuild.patches.export import check_free, edit_series, requirements

    root = _root(args)
    series = load_series(root, args.series)
    folder = Path(args.dir or f"{series.name}-edit")
    check_free(folder)
    repo, commit = _source_repo(args, reporter)
    edit = edit_series(repo, commit, series, requirements(root, series), folder)
    if args.json:
        print_json({"series": edit.series, "base": edit.base, "folder": str(folder)})
        return 0
    count = len(series.patches)
    print(f"{folder}: {count} patch{'es' if count != 1 else ''} of {series.name} as commits")
    print("change them with git (commit --amend, rebase -i); then:")
    print(f"  qbuild patch refresh --dir {folder}")
    return 0


def _refresh(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.patches.export import read_mark, refresh

    folder = Path(args.dir)
    changed = refresh(folder, _root(args))
    name = read_mark(folder).series
    if args.json:
        print_json({"series": name, "changed": changed})
        return 0
    print(f"{name}: " + (f"wrote {', '.join(changed)}" if changed else "up to date"))
    return 0


def _rebase(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.patches.export import refresh
    from qbuild.patches.rebase import instructions, rebase_series

    groups = _groups(args)
    if args.recipe:
        groups = [group[: index + 1] for group in groups for index in range(len(group))]
    if args.dir and len(groups) > 1:
        raise UsageError("--dir is for one series", fix="name the series, or leave out --dir")
    repo, _ = _source_repo(args, reporter)
    results: list[dict[str, object]] = []
    code = 0
    with held.scratch("qbuild-ref-") as scratch:
        other, commit = _other_repo(args.to, args, reporter, scratch)
        for group in groups:
            series = group[-1]
            folder = Path(args.dir or f"{series.name}-rebase")
            result = rebase_series(repo, other, commit, series, below=group[:-1], folder=folder)
            written: list[str] = []
            if result.done and not result.upstream:
                written = refresh(folder, _root(args))
            else:
                code = PatchError.exit_code
            results.append({"series": series.name, "written": written, **result.as_json()})
            if not args.json:
                _tell(series.name, written, "" if result.done and not result.upstream else
                      instructions(result))  # fmt: skip
    if args.json:
        print_json({"commit": commit, "exit_code": code, "results": results})
    return code


def _tell(name: str, written: list[str], todo: str) -> None:
    if todo:
        print(f"{name}: not finished; patches/ is untouched\n{todo}")
    else:
        print(f"{name}: carried over; " + (f"wrote {', '.join(written)}" if written else "as is"))


def _explain(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.patches import known_series, load_series, outcome
    from qbuild.recipe.convert import suggest

    root = _root(args)
    wanted: str = args.name
    series_name, _, file = wanted.partition("/")
    names = [series_name] if file or series_name in known_series(root) else known_series(root)
    loaded = [load_series(root, name) for name in names]
    found = [
        (one, patch)
        for one in loaded
        for patch in one.patches
        if wanted == one.name or (file or wanted) in (patch.file, patch.file.removesuffix(".patch"))
    ]
    if not found:
        everything = [p.file for one in loaded for p in one.patches] + list(known_series(root))
        raise PatchError(
            f"there is no patch or series `{wanted}`",
            where=str(root),
            fix=suggest(file or wanted, everything) or "see `qbuild patch status`",
        )
    if args.json:
        from dataclasses import asdict

        print_json(
            [
                {"series": one.name, "subject": patch.subject, **asdict(patch.entry)}
                for one, patch in found
            ]
        )
        return 0
    for one in dict.fromkeys(one.name for one, _ in found):
        series = next(s for s, _ in found if s.name == one)
        print(f"{series.name}: {series.summary}")
        if series.author_note:
            print(f"  by: {series.author_note}")
        for patch in [p for s, p in found if s.name == one]:
            print("\n".join(outcome.explained(patch)))
    return 0
