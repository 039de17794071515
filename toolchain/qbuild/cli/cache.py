"""``qbuild cache size|prune|verify``."""

from __future__ import annotations

import argparse
import contextlib

from qbuild.cli.common import print_json, store
from qbuild.console import Reporter
from qbuild.errors import StoreError

RESULTS = ("tmp", "damaged", "work", "answers")
"""Folders of a store, besides the steps' own, that can be made again without a network. Only
folders known by name are pruned: --store may name a folder with other things in it."""

DEAR = ("cache",)  # what speeds up the next build: removed by ``--all`` only, as fetched inputs are


def prunable(*, everything: bool) -> list[str]:
    """Return the folders of a store that ``prune`` removes."""
    from qbuild.steps.order import KINDS

    kept = () if everything else tuple(kind.kind for kind in KINDS if kind.fetched)
    steps = [kind.kind for kind in KINDS if kind.kind not in kept]
    return [*RESULTS, *steps, *(DEAR if everything else ())]


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the action."""
    parser.add_argument(
        "action",
        choices=("size", "prune", "verify"),
        nargs="?",
        default="size",
        help="size: where the store lies and what it takes (default); prune: remove results, "
        "which can be made again; verify: read every entry again, name the damaged "
        "ones and set them aside",
    )
    parser.add_argument(
        "--all", action="store_true", help="prune: fetched inputs and compiler caches, too"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Show, free or check the store.

    Raises:
        StoreError: The store is no folder, or (verify) an entry was damaged.
    """
    root = store(args).root
    if root.exists() and not root.is_dir():
        raise StoreError(
            "the store is a file, not a folder",
            where=str(root),
            fix="name another place with --store, QBUILD_STORE or in the user configuration",
        )
    return {"size": _size, "prune": _prune, "verify": _verify}[args.action](args, reporter)


def _folder_size(path: object) -> int:
    from pathlib import Path

    total = 0
    for item in Path(str(path)).rglob("*"):
        try:
            if item.is_file() and not item.is_symlink():
                total += item.stat().st_size
        except OSError:
            continue
    return total


def _size(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    home = store(args)
    folders = sorted(p for p in home.root.iterdir() if p.is_dir()) if home.root.is_dir() else []
    sizes = {p.name: _folder_size(p) for p in folders}
    if args.json:
        print_json({"store": str(home.root), "bytes": sizes, "total": sum(sizes.values())})
        return 0
    print(home.root)
    for name, size in sizes.items():
        print(f"  {name:<12} {size / 1e6:10.1f} MB")
    print(f"  {'all':<12} {sum(sizes.values()) / 1e6:10.1f} MB")
    return 0


def _prune(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.held import remove_tree

    home = store(args)
    kinds = prunable(everything=args.all)
    freed = 0
    # Without a store there is nothing to hold, and asking must not make one.
    with home.unused() if home.root.exists() else contextlib.nullcontext():
        for path in (home.root / kind for kind in kinds):
            for item in sorted(path.iterdir()) if path.is_dir() else ():
                freed += _folder_size(item) if item.is_dir() else item.stat().st_size
                if item.is_dir():
                    remove_tree(item)
                else:
                    item.unlink()
    if args.json:
        print_json({"freed": freed})
    else:
        print(f"freed {freed / 1e6:.1f} MB in {home.root}")
    return 0


def _verify(args: argparse.Namespace, reporter: Reporter) -> int:
    home = store(args)
    entries = list(home.entries())
    bad = []
    with reporter.task("verify the store", total=len(entries), unit="items") as task:
        for number, entry in enumerate(entries, start=1):
            task.update(done=number, note=f"{entry.kind}/{entry.key[:12]}")
            if not home.damage(entry, thorough=True):
                continue
            # Another run may be mending it just now: look again when it is ours alone.
            with home.lock(entry.kind, entry.key, reporter):
                problem = home.remove_damaged(entry.kind, entry.key)
            if problem:
                bad.append({"kind": entry.kind, "key": entry.key, "problem": problem})
    if args.json:
        print_json({"entries": len(entries), "damaged": bad})
    else:
        for item in bad:
            print(f"set aside: {item['kind']}/{item['key'][:12]}: {item['problem']}")
        print(f"{len(entries)} entries, {len(bad)} damaged")
    if bad:
        if args.json:
            return StoreError.exit_code
        raise StoreError(
            f"{len(bad)} damaged {'entry' if len(bad) == 1 else 'entries'} set aside",
            where=str(home.root / "damaged"),
            fix="nothing: what is missing now is made again when it is needed",
        )
    return 0
