"""The work folder of an unfinished build: source, wrappers, toolchain, environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qbuild import host
from qbuild.bundle.launch.profile import profiles_of
from qbuild.bundle.launch.source_options import check_in_tree
from qbuild.errors import StoreError
from qbuild.held import remove_tree
from qbuild.steps.pinned import program
from qbuild.store import link_tree, same_files, write_atomically
from qbuild.toolchains.base import CUDA_TREE, Prepared, WorkTree

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder

_MARGIN: Final = 1 << 30  # bytes that must stay free on the store's disk while a build tree grows


_LONGEST: Final = 512
"""Bytes of the store's path. CMake gives objects other names when a path has more than 1,000, and
the longest below a work folder has about 300."""

_FORBIDDEN: Final = re.compile(r"""["\[\]:;|\\\x00-\x1f\x7f]|\$[A-Za-z_{(]|/\*""")
"""What one of CMake, ninja, zig and shells splits, expands or escapes in a path; tried for each
character, alone, twice, first and last in a name. With brackets CMake went on without recognising
the compiler; where a name begins with ``*`` CMake 4.4.5 ends with a segmentation fault."""


def check_place(root: Path) -> None:
    """Check that a build can run below a folder and give the bytes it gives anywhere.

    Raises:
        StoreError: The folder's path, or what it is a link to, is too long or has a character that
            a build tool takes for something else.
    """
    for path in dict.fromkeys((str(root), os.path.realpath(root))):
        text = os.path.splitdrive(path)[1].replace(os.sep, "/")  # on Windows without the drive
        if found := _FORBIDDEN.search(text):
            problem = f"holds {found[0]!r}, which build tools do not take in a path"
        elif path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") != path:
            problem = "is not UTF-8"
        elif len(path.encode()) > _LONGEST:
            problem = f"is longer than {_LONGEST} bytes"
        else:
            continue
        raise StoreError(
            f"no build can run in this store: its path {problem}",
            where=repr(path) if len(path) < 300 else f"{path[:300]!r}…",
            fix="choose another folder with --store or QBUILD_STORE",
        )


@dataclass(frozen=True, kw_only=True)
class Work:
    """A work folder that is ready for CMake."""

    folder: Path  # where ``src`` and ``build`` lie
    prepared: Prepared  # the toolchain
    tools: Mapping[str, Path]  # ``cmake`` and ``ninja`` → program
    env: Mapping[str, str]  # the whole environment of configure and compile: nothing of the user's
    log: Path  # file that gets all output


def lay_out(build: Builder, folder: Path) -> Work:
    """Lay out a work folder, or take it as an interrupted run left it.

    Raises:
        StoreError: The disk is too full for a build tree.
        RecipeError: A launch profile names an option that the patched source does not have.
    """
    _check_space(build, folder)
    plan = build.plan
    unpacked = build.all_unpacked()
    if plan.find(CUDA_TREE) is not None:
        unpacked[CUDA_TREE] = build.result(CUDA_TREE).path / "tree"
    _link_source(build, folder)
    cache = build.store.root / "cache"
    prepared = plan.toolchain.prepare(WorkTree(unpacked=unpacked, work=folder, cache_dir=cache))
    return Work(
        folder=folder,
        prepared=prepared,
        tools={name: program(unpacked[name], name) for name in ("cmake", "ninja")},
        env=_environment(build, prepared, folder),
        log=folder / "build.log",
    )


def _link_source(build: Builder, folder: Path) -> None:
    """Fill ``src``, or keep it and what was built of it if it still holds what it should.

    An unfinished tree may be days old, and may hold what an entry held that was damaged: its
    files are hashed, as everything is that goes into a zip.
    """
    patched = build.result("patch")
    recipe = build.plan.recipe
    check_in_tree(recipe, profiles_of(recipe), patched.path / "tree")  # a moment, not a build
    parts = [(patched, "", patched.path / "tree")]
    for kind in build.plan.feeding():
        entry = build.result(kind.kind)
        parts += [(entry, place, path) for place, path in kind.in_source(entry).items()]
    marker = folder / "src.complete"
    feeding = [build.plan[kind.kind].key for kind in build.plan.feeding()]
    stamp = build.plan["patch"].key + "".join(feeding)
    if marker.exists() and marker.read_text(encoding="utf-8") == stamp:
        if all(same_files(entry, path, folder / "src" / place) for entry, place, path in parts):
            return
        build.reporter.warn("the unfinished build's source was damaged; building from the start")
    remove_tree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Links, not copies: a build only reads its source, and a file that it changed after all would
    # show as damage of the store's entry the next time.
    for _, place, path in parts:
        link_tree(path, folder / "src" / place)
    write_atomically(marker, stamp.encode())


def _environment(build: Builder, prepared: Prepared, folder: Path) -> dict[str, str]:
    env = {
        "PATH": host.search_path(),
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "LC_ALL": "C",
        "TZ": "UTC",
        **prepared.env,
    }
    (folder / "tmp").mkdir(exist_ok=True)
    env |= host.needed_variables(env["TMPDIR"])
    return env | build.objects.environment(folder)


def _check_space(build: Builder, folder: Path) -> None:
    root = build.store.root
    root.mkdir(parents=True, exist_ok=True)
    free = host.free_disk(str(root))
    if free < _MARGIN and not folder.exists():
        raise StoreError(
            f"{free / 1e9:.1f} GB are free; a build tree needs {_MARGIN / 1e9:.1f} GB",
            where=str(root),
            fix="free some space, or choose another disk with --store",
        )
