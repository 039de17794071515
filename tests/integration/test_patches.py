"""Applying series with the real git, on small repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qbuild.errors import PatchError
from qbuild.patches import SeriesError, apply_series, load_series
from qbuild.source.gitenv import run_git
from support.patch_lab import Lab, numbered, write_series
from support.systems import WINDOWS

pytestmark = pytest.mark.integration

HAND = {
    "GIT_COMMITTER_NAME": "qbuild",
    "GIT_COMMITTER_EMAIL": "qbuild@qbuild.invalid",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+00:00",
}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


def _apply(lab: Lab, base: str, *names: str, work: str = "work", **kwargs):
    series = [load_series(lab.patches, name) for name in names]
    return apply_series(lab.repo, base, series, lab.root / work, **kwargs)


def _statuses(result) -> list[str]:
    return [patch.status for patch in result.patches]


def _hand_am(lab: Lab, base: str, *names: str) -> tuple[str, str]:
    """Apply by hand, as a person would: a clone, git am file by file."""
    clone = lab.root / "by-hand"
    assert (
        run_git(["clone", "--quiet", "--no-checkout", str(lab.repo), str(clone)], lab.root).rc == 0
    )
    assert run_git(["fetch", "--quiet", "origin", base], clone).rc == 0
    assert run_git(["checkout", "--quiet", "--detach", base], clone).rc == 0
    for name in names:
        series = load_series(lab.patches, name)
        files = [str(lab.patches / name / patch.file) for patch in series.patches]
        done = run_git(["am", "--3way", *files], clone, env=HAND)
        assert done.rc == 0, done.err
    return (
        run_git(["rev-parse", "HEAD"], clone).text,
        run_git(["rev-parse", "HEAD^{tree}"], clone).text,
    )


def test_clean_gives_the_ids_that_git_am_by_hand_gives(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered(), "run.sh": b"#!/bin/sh\n", "d/b.c": numbered(9)})
    (lab.repo / "run.sh").chmod(0o755)
    lab.git("update-index", "--chmod=+x", "run.sh")  # Windows keeps no bit
    base = lab.commit({}, "executable")
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")}),
                             ("second: y", {"d/new.c": b"new\n"})])  # fmt: skip
    head = lab.git("rev-parse", "HEAD")
    lab.series("two", head, [("third: z", {"a.c": numbered(line20="changed", line30="too")})])
    result = _apply(lab, base, "one", "two")
    assert _statuses(result) == ["clean", "clean", "clean"]
    work = lab.root / "work"
    assert (work / "a.c").read_bytes() == numbered(line20="changed", line30="too")
    assert (work / "d/new.c").read_bytes() == b"new\n"
    assert WINDOWS or os.access(work / "run.sh", os.X_OK)
    assert WINDOWS or not os.access(work / "a.c", os.X_OK)
    assert not (work / ".git").exists()
    assert (result.commit, result.tree) == _hand_am(lab, base, "one", "two")
    assert [n.rule for n in result.notes] == ["shared"]


def test_ids_do_not_depend_on_folder_user_or_clock(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    first = _apply(lab, base, "one")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\nname = Other\nemail = other@example.org\n[commit]\ngpgSign = true\n"
        "[core]\nautocrlf = true\nhooksPath = /nonexistent\n[am]\nmessageid = true\n"
        "[merge]\nconflictStyle = diff3\n"
    )
    for name, value in {
        "HOME": str(home),
        "TZ": "Asia/Tokyo",
        "LANG": "de_DE.UTF-8",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_COMMITTER_NAME": "Somebody",
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
    }.items():
        monkeypatch.setenv(name, value)
    second = _apply(lab, base, "one", work="deep er/other wörk")
    assert (first.commit, first.tree) == (second.commit, second.tree)


def test_the_source_repository_is_only_read(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])

    def snapshot() -> dict[str, bytes]:
        # git may freshen the time of an object it would have written again, no more
        return {str(p): p.read_bytes() for p in (lab.repo / ".git").rglob("*") if p.is_file()}

    before = snapshot()
    kept = lab.root / "kept.git"
    result = _apply(lab, base, "one", keep=kept)
    assert snapshot() == before
    assert run_git(["rev-parse", "patched^{commit}"], kept).text == result.commit
    assert sorted(p.name for p in lab.root.iterdir()) == ["kept.git", "patches", "source", "work"]


def test_times_of_the_store_do_not_change(lab: Lab) -> None:
    """Also when git would write an object that the pack has: the patch is upstream already."""
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    merged = lab.commit({"a.c": numbered(line20="changed", line5="more")}, onto=base)
    lab.git("branch", "tip", merged)
    bare = lab.root / "bare.git"
    clone = ["clone", "--quiet", "--bare", lab.repo.as_uri(), str(bare)]
    assert run_git(clone, lab.root).rc == 0
    assert run_git(["repack", "--quiet", "-a", "-d"], bare).rc == 0
    packs = list(bare.glob("objects/pack/*"))
    assert packs
    for pack in packs:
        os.utime(pack, (1_700_000_000, 1_700_000_000))
    for commit in (base, merged):
        apply_series(bare, commit, [load_series(lab.patches, "one")], lab.root / commit[:9])
    assert {pack.stat().st_mtime for pack in packs} == {1_700_000_000}


def test_offset_applies_and_says_so(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    moved = lab.commit({"a.c": b"// 1\n// 2\n" + numbered()}, onto=base)
    result = _apply(lab, moved, "one")
    assert _statuses(result) == ["offset"]
    assert "a.c hunk 1 by +2 lines" in result.patches[0].detail
    assert (lab.root / "work/a.c").read_bytes() == b"// 1\n// 2\n" + numbered(line20="changed")


def test_changed_context_is_merged_three_way(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    near = lab.commit({"a.c": numbered(line23="upstream was here")}, onto=base)
    result = _apply(lab, near, "one")
    assert _statuses(result) == ["offset"]
    assert "three-way" in result.patches[0].detail
    assert (lab.root / "work/a.c").read_bytes() == numbered(
        line20="changed", line23="upstream was here"
    )


def test_upstream_merged_is_recognised_with_advice(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered(), "b.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")}),
                             ("second: y", {"b.c": numbered(line3="other")})])  # fmt: skip
    merged = lab.commit({"a.c": numbered(line20="changed", line2="more")}, onto=base)
    result = _apply(lab, merged, "one")
    assert _statuses(result) == ["already upstream", "clean"]
    assert "drop the patch" in result.patches[0].detail
    assert result.patches[0].commit == ""


def test_neither_forward_nor_reverse_does_not_apply(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    other = lab.commit({"a.c": numbered(line20="changed otherwise")}, onto=base)
    with pytest.raises(SeriesError) as caught:
        _apply(lab, other, "one")
    assert caught.value.exit_code == 6
    assert "0001-first.patch does not apply (conflict)" in caught.value.what
    assert "a.c, hunk 1 (@@ -17,7 +17,7 @@" in caught.value.what
    assert "the file has no line `text of line 20`" in caught.value.what
    assert "already" not in caught.value.render()
    assert not (lab.root / "work").exists()


def test_half_way_leaves_nothing_and_reports_all_five(lab: Lab) -> None:
    names = ("a", "b", "c", "d", "e")
    base = lab.commit({f"{n}.c": numbered() for n in names})
    lab.series("five", base, [(f"{n}: x", {f"{n}.c": numbered(line20="mine")}) for n in names])
    other = lab.commit({"c.c": numbered(line20="theirs")}, onto=base)
    with pytest.raises(SeriesError) as caught:
        _apply(lab, other, "five")
    assert [p.status for p in caught.value.patches] == [
        "clean", "clean", "conflict", "not reached: would apply", "not reached: would apply",
    ]  # fmt: skip
    text = caught.value.render()
    for number, name in enumerate(names, 1):
        assert f"five/000{number}-{name}.patch: " in text
    assert "five/0001-a.patch: applied" in text
    assert sorted(p.name for p in lab.root.iterdir()) == ["patches", "source"]
    data = caught.value.as_json()
    assert len(data["patches"]) == 5  # type: ignore[arg-type]
    assert data["exit_code"] == 6


def test_gone_file_names_the_one_with_similar_content(lab: Lab) -> None:
    base = lab.commit({"common/parser.cpp": numbered(), "common/other.cpp": b"// nothing\n" * 50})
    lab.series("one", base, [("first: x", {"common/parser.cpp": numbered(line20="changed")})])
    moved = lab.commit(
        {"common/parser.cpp": None, "common/parsers/tools.cpp": numbered(line3="edited")},
        onto=base,
    )
    with pytest.raises(SeriesError) as caught:
        _apply(lab, moved, "one")
    assert [p.status for p in caught.value.patches] == ["file gone"]
    assert "common/parser.cpp: file gone" in caught.value.what
    assert "`common/parsers/tools.cpp` has similar content" in caught.value.what


def test_crlf_checkout_of_the_series_gives_the_same_ids(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed"), "n.c": b"new\n"})])
    digest = load_series(lab.patches, "one").digest
    first = _apply(lab, base, "one")
    for file in (lab.patches / "one").iterdir():
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert load_series(lab.patches, "one").digest == digest
    second = _apply(lab, base, "one", work="second")
    assert (first.commit, first.tree) == (second.commit, second.tree)
    assert b"\r" not in (lab.root / "second/a.c").read_bytes()


def test_attributes_of_the_tree_do_not_turn_lf_into_crlf(lab: Lab) -> None:
    base = lab.commit({
        ".gitattributes": b"*.c text eol=crlf\n*.h ident\n*.w working-tree-encoding=UTF-16\n",
    })  # fmt: skip
    blob = lab.git("hash-object", "-w", "--stdin", stdin=numbered())
    ident = lab.git("hash-object", "-w", "--stdin", stdin=b"$Id$\n")
    lab.git("update-index", "--add", "--cacheinfo", f"100644,{blob},a.c")
    lab.git("update-index", "--add", "--cacheinfo", f"100644,{ident},a.h")
    lab.git("update-index", "--add", "--cacheinfo", f"100644,{blob},a.w")
    lab.git("commit", "--quiet", "-m", "raw blobs")
    base = lab.git("rev-parse", "HEAD")
    plain = Lab(lab.root / "plain")
    base2 = plain.commit({"a.c": numbered()})
    mails = plain.mails(base2, [("first: x", {"a.c": numbered(line20="changed")})])
    write_series(lab.patches, "one", mails)
    _apply(lab, base, "one")
    assert (lab.root / "work/a.c").read_bytes() == numbered(line20="changed")
    assert (lab.root / "work/a.h").read_bytes() == b"$Id$\n"
    assert (lab.root / "work/a.w").read_bytes() == numbered()


def test_crlf_file_in_the_tree_is_refused_not_half_converted(lab: Lab) -> None:
    crlf = numbered().replace(b"\n", b"\r\n")
    base = lab.commit({"a.c": crlf})
    plain = Lab(lab.root / "plain")
    base2 = plain.commit({"a.c": numbered()})
    write_series(
        lab.patches, "one", plain.mails(base2, [("x", {"a.c": numbered(line20="changed")})])
    )
    with pytest.raises(SeriesError, match="CRLF line ends"):
        _apply(lab, base, "one")


def test_rename_with_edit_and_delete(lab: Lab) -> None:
    base = lab.commit({"old.c": numbered(), "dead.c": numbered(5)})
    lab.series("one", base, [
        ("move: x", {"old.c": None, "new.c": numbered(line20="changed")}),
        ("drop: y", {"dead.c": None}),
    ])  # fmt: skip
    assert load_series(lab.patches, "one").patches[0].mail.files[0].kind == "rename"
    result = _apply(lab, base, "one")
    assert _statuses(result) == ["clean", "clean"]
    assert sorted(p.name for p in (lab.root / "work").iterdir()) == ["new.c"]


def test_binary_hunk_is_refused_by_name(lab: Lab) -> None:
    base = lab.commit({"logo.png": bytes(range(256)), "a.c": numbered()})
    lab.series("one", base, [("logo: x", {"logo.png": bytes(range(255, -1, -1))})])
    with pytest.raises(PatchError, match=r"logo\.png: binary change"):
        _apply(lab, base, "one")


def test_inside_another_repository_the_patch_is_applied_for_real(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    outer = lab.root / "outer"
    outer.mkdir()
    assert run_git(["init", "--quiet"], outer).rc == 0
    (outer / ".gitignore").write_text("*\n")
    series = [load_series(lab.patches, "one")]
    work = outer / "build" / "src"
    apply_series(lab.repo, base, series, work)
    assert b"changed\n" in (work / "a.c").read_bytes()
    assert run_git(["status", "--porcelain"], outer).text == ""


def test_overlapping_patches_rerun_from_the_pristine_tree(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    steps = [(f"p{n}: x", {"a.c": numbered(line20=f"version {n}")}) for n in range(1, 6)]
    steps.append(("p6: again", {"a.c": numbered(line20="version 6", line21="next to it")}))
    lab.series("six", base, steps)
    first = _apply(lab, base, "six")
    again = _apply(lab, base, "six", work="again")
    assert (first.commit, first.tree) == (again.commit, again.tree)
    with pytest.raises(PatchError, match="not empty"):
        _apply(lab, base, "six")


def test_a_symlink_in_the_tree_is_not_followed(lab: Lab) -> None:
    lab.commit({"a.c": numbered(), "real/x.c": numbered()})
    blob = lab.git("hash-object", "-w", "--stdin", stdin=b"/tmp")
    lab.git("update-index", "--add", "--cacheinfo", f"120000,{blob},link")
    lab.git("commit", "--quiet", "-m", "link")
    base = lab.git("rev-parse", "HEAD")
    plain = Lab(lab.root / "plain")
    base2 = plain.commit({"z": b"z\n"})
    write_series(lab.patches, "one", plain.mails(base2, [("x", {"link/evil.txt": b"x\n"})]))
    with pytest.raises(PatchError, match="goes through `link`, a symbolic link"):
        _apply(lab, base, "one")


def test_unknown_commit_is_a_clear_error(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    with pytest.raises(PatchError):
        _apply(lab, "0" * 39 + "1", "one")


def test_shallow_source_is_enough(lab: Lab) -> None:
    lab.commit({"a.c": numbered(3)})
    base = lab.commit({"a.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    lab.git("branch", "pin", base)
    shallow = lab.root / "shallow.git"
    done = run_git(
        [
            "clone",
            "--quiet",
            "--bare",
            "--depth=1",
            "--branch=pin",
            lab.repo.as_uri(),
            str(shallow),
        ],
        lab.root,
    )
    assert done.rc == 0, done.err
    near = apply_series(shallow, base, [load_series(lab.patches, "one")], lab.root / "work")
    assert near.commit == _apply(lab, base, "one", work="full").commit


def test_no_series_gives_the_pin(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered()})
    result = _apply(lab, base)
    assert (result.commit, result.patches) == (base, ())
    assert (lab.root / "work/a.c").read_bytes() == numbered()


def test_many_mistakes_are_all_listed(lab: Lab) -> None:
    base = lab.commit({"a.c": numbered(), "b.c": numbered()})
    mails = lab.mails(base, [("x", {"a.c": numbered(line20="changed")})])
    write_series(lab.patches, "one", mails, touches={mails[0][0]: ["b.c"]})
    with pytest.raises(PatchError) as caught:
        _apply(lab, base, "one")
    assert "does not list it" in caught.value.render()
    assert "does not change it" in caught.value.render()


def test_windows_gnu_only_changes_windows() -> None:
    """Every line the series adds is behind MINGW or _WIN32, or is a comment."""
    from qbuild.resources import patches_dir

    series = load_series(patches_dir(), "windows-gnu")
    for patch in series.patches[:2]:
        for change in patch.mail.files:
            for hunk in change.hunks:
                gone = [line for line in hunk.old if line not in hunk.new]
                come = [line for line in hunk.new if line not in hunk.old]
                assert gone == ["#    if defined(_WIN32) && !defined(__MINGW32__)\n"]
                assert come == ["#    if defined(_WIN32)\n"]
    added = [
        line.strip()
        for patch in series.patches[2:]
        for change in patch.mail.files
        for hunk in change.hunks
        for line in hunk.new[hunk.leading : len(hunk.new) - hunk.trailing]
        if line.strip()
    ]
    guards = {"if (MINGW)", "if (DEFINED LLAMA_MTMD_SHARED)"}
    depth = 0
    for line in added:
        if line in guards:
            depth += 1
        elif line == "endif()":
            depth -= 1
        else:
            assert depth == 1 or line.startswith("#"), line
    assert depth == 0


def test_by_hand_and_by_qbuild_on_the_real_pin(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """git am of each series that ships, in order, gives qbuild's tree; needs a filled store."""
    from qbuild import resources
    from qbuild.patches import known_series
    from qbuild.patches.apply import run_series, scratch
    from qbuild.patches.export import requirements
    from qbuild.recipe.lock import load_lock
    from qbuild.steps.source import FORMAT
    from qbuild.store import step_key

    store = request.getfixturevalue("user_store")
    pin = load_lock(resources.lockfile()).source("llama.cpp")
    inputs = {"format": FORMAT, "commit": pin.commit, "tree": pin.tree}
    entry = store.find("source", step_key("source", inputs))
    if entry is None:
        pytest.skip("the store does not have the pin; a build or `qbuild patch status` fetches it")
    repo = entry.path / "repo.git"
    root = resources.patches_dir()
    clone = tmp_path / "by-hand"
    made = run_git(
        ["clone", "--quiet", "--shared", "--no-checkout", str(repo), str(clone)], tmp_path
    )
    assert made.rc == 0, made.err
    for name in known_series(root):
        series = load_series(root, name)
        group = [*requirements(root, series), series]
        with scratch(repo, pin.commit) as bench:
            ours = run_series(bench, pin.commit, group)
            tree = bench.must(["rev-parse", "HEAD^{tree}"])
        # Between two series of ours an offset is normal; anything else is not.
        assert {p.status for p in ours} <= {"clean", "offset"}, [p.detail for p in ours]
        assert run_git(["checkout", "--quiet", "--force", "--detach", pin.commit], clone).rc == 0
        files = [str(root / one.name / p.file) for one in group for p in one.patches]
        done = run_git(["am", "--3way", *files], clone, env=HAND)
        assert done.rc == 0, done.err
        assert run_git(["rev-parse", "HEAD^{tree}"], clone).text == tree


@pytest.mark.parametrize("harm", ["other bytes", "missing"])
def test_what_git_left_on_the_disk_is_compared_with_the_commit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """git reports success, and the disk has something else: that would be compiled."""
    from qbuild.patches import apply

    base = lab.commit({"a.c": numbered(), "b.c": numbered(9)})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    real = apply._check_export

    def disturbed(bench: apply.Bench, head: str) -> None:
        path = bench.tree / "b.c"
        path.write_bytes(b"x") if harm == "other bytes" else path.unlink()
        real(bench, head)

    monkeypatch.setattr(apply, "_check_export", disturbed)
    with pytest.raises(PatchError, match=r"did not write `b\.c`"):
        _apply(lab, base, "one")


def test_a_patch_that_changes_more_than_it_names_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lints saw what the mail names; git must not have done more."""
    from qbuild.patches import apply

    base = lab.commit({"a.c": numbered(), "b.c": numbered(9)})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")})])
    monkeypatch.setattr(apply, "_touched", lambda *_: {"a.c", "b.c"})
    with pytest.raises(PatchError, match=r"git changed `b\.c`, which patch"):
        _apply(lab, base, "one")
