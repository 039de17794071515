"""A machine without git: the same source, the same ids, the same refusals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from integration import test_source as with_git
from integration.test_source import Lab, lab, pristine
from qbuild.errors import OriginError, PatchError
from qbuild.patches import apply_series, load_series
from qbuild.patches import gitless as patches_without_git
from qbuild.source import gitless
from support import patch_lab
from support.patch_lab import numbered

pytestmark = pytest.mark.integration

__all__ = ["lab", "pristine"]


@pytest.fixture
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH that finds no git, for qbuild; what the tests themselves run, they still find."""
    found = shutil.which
    monkeypatch.setattr(
        gitless.shutil, "which", lambda name, *rest: None if name == "git" else found(name, *rest)
    )


@pytest.mark.usefixtures("no_git")
@pytest.mark.parametrize("make", with_git.GOOD)
def test_every_good_origin_delivers_without_git(make: Callable[[Lab], object], lab: Lab) -> None:
    assert with_git.fetch(lab, origin := make(lab)) == str(origin)


@pytest.mark.usefixtures("no_git")
@pytest.mark.parametrize("make", [case[0] for case in with_git.REFUSED])
def test_a_lying_origin_is_refused_without_git(
    make: Callable[[Lab], object], lab: Lab, pristine: Lab
) -> None:
    origin = make(lab)
    with pytest.raises(OriginError) as caught:
        with_git.fetch(lab, origin, pristine.clone)
    assert caught.value.where == str(origin)
    assert "this origin is refused" in caught.value.what
    assert list((lab.root / "store").iterdir()) == []


@pytest.mark.usefixtures("no_git")
def test_only_urls_and_no_git_says_how_to_get_git(lab: Lab) -> None:
    import dataclasses

    bare = dataclasses.replace(lab, pin=dataclasses.replace(lab.pin, sdist=None))
    with pytest.raises(OriginError) as caught:
        with_git.fetch(bare, "https://nowhere.invalid/x.git")
    assert "there is no git on this machine" in str(caught.value)
    assert "winget install Git.Git" in str(caught.value)


@pytest.mark.usefixtures("no_git")
def test_without_git_the_ids_and_files_are_those_of_git_am(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = patch_lab.Lab(tmp_path / "lab")
    base = made.commit({"a.c": numbered(), "run.sh": b"#!/bin/sh\n", "gone.c": b"x\n",
                        "d/b.c": numbered(9), "d.c": b"after d/ in git's order\n"})  # fmt: skip
    (made.repo / "run.sh").chmod(0o755)
    base = made.commit({}, "executable")
    moved = numbered(line20="changed").replace(b"text of line 2\n", b"")
    made.series("one", base, [
        ("first: änderung  with  blanks", {"a.c": numbered(line20="changed")}),
        ("second: new, gone", {"d/new/n.c": b"new\n", "gone.c": None}),
        ("third: no line end", {"d/b.c": numbered(9) + b"no end"}),
        ("fourth: move", {"a.c": None, "e/a.c": moved}),
    ])  # fmt: skip
    series = [load_series(made.patches, "one")]
    without = patches_without_git.apply_series(made.repo, base, series, tmp_path / "without")
    monkeypatch.undo()
    wanted = apply_series(made.repo, base, series, tmp_path / "with")
    assert [p.commit for p in without.patches] == [p.commit for p in wanted.patches]
    assert (without.commit, without.tree) == (wanted.commit, wanted.tree)
    both = [
        {str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mode & 0o100)
         for p in root.rglob("*") if p.is_file()}
        for root in (tmp_path / "with", tmp_path / "without")
    ]  # fmt: skip
    assert both[0] == both[1]


@pytest.mark.usefixtures("no_git")
def test_a_patch_that_needs_a_merge_asks_for_git_and_writes_nothing(tmp_path: Path) -> None:
    made = patch_lab.Lab(tmp_path / "lab")
    base = made.commit({"a.c": numbered()})
    made.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    other = made.commit({"a.c": numbered(line21="moved on")}, onto=base)
    with pytest.raises(PatchError) as caught:
        apply_series(made.repo, other, [load_series(made.patches, "one")], tmp_path / "out")
    assert "three-way" in str(caught.value)
    assert "install git" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_projects_own_series_get_gits_ids_without_git(
    tmp_path: Path, user_store: object
) -> None:
    """Every commit that the recipes' series make of llama.cpp, when its source is in the store."""
    from qbuild import host, resources
    from qbuild.recipe.load import load_recipe
    from qbuild.recipe.lock import load_lock
    from qbuild.steps.plan import make_plan

    lock = load_lock(resources.lockfile())
    plan = make_plan(load_recipe("gtx1060"), lock, host=host.platform_key())
    entry = user_store.find("source", plan["source"].key)  # type: ignore[attr-defined]
    if entry is None:
        pytest.skip("the pinned source is not in the store: `qbuild lock` fetches it")
    commit = plan.pin.commit
    repo = entry.path / "repo.git"
    without = patches_without_git.apply_series(repo, commit, plan.series, tmp_path / "without")
    wanted = apply_series(repo, commit, plan.series, tmp_path / "with")
    assert [p.commit for p in without.patches] == [p.commit for p in wanted.patches]
    assert without.tree == wanted.tree
