"""The verbs that keep series alive, on small repositories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.cli import patch as cli
from qbuild.errors import PatchError, UsageError
from qbuild.patches import apply_series, load_series
from qbuild.patches.export import edit_series, refresh, replace_series
from qbuild.patches.rebase import instructions, rebase_series
from qbuild.patches.status import UNKNOWN, drift, series_status
from qbuild.source.gitenv import run_git
from support.patch_lab import Lab, numbered

pytestmark = pytest.mark.integration


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def two(lab: Lab) -> str:
    """A series of two patches; returns the base."""
    base = lab.commit({"a.c": numbered(), "b.c": numbered(), "keep.c": numbered()})
    lab.series("one", base, [("first: x", {"a.c": numbered(line20="changed")}),
                             ("second: y", {"b.c": numbered(line3="other")})])  # fmt: skip
    return base


def _in(folder: Path, *args: str) -> str:
    who = {
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }
    done = run_git(list(args), folder, env=who)
    assert done.rc == 0, done.err
    return done.text


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def _edit(lab: Lab, base: str, name: str = "one", folder: str = "edit") -> Path:
    series = load_series(lab.patches, name)
    edit_series(lab.repo, base, series, [], lab.root / folder)
    return lab.root / folder


# -- status and check -------------------------------------------------------------------------


def test_status_tries_every_patch_also_after_a_failure(lab: Lab, two: str) -> None:
    broken = lab.commit({"a.c": numbered(line20="theirs"), "b.c": b"\n" + numbered()}, onto=two)
    status = series_status(lab.repo, broken, [load_series(lab.patches, "one")])
    assert [p.status for p in status.patches] == ["conflict", "offset"]
    assert not status.applies
    assert series_status(lab.repo, two, [load_series(lab.patches, "one")]).fresh


def test_drift_names_the_upstream_commit_per_hunk(lab: Lab, two: str) -> None:
    lab.commit({"keep.c": numbered(line1="noise")}, "unrelated work", onto=two)
    lab.commit({"a.c": numbered(line20="theirs")}, "rewrite line twenty")
    lab.commit({"a.c": numbered(line20="theirs", line40="late")}, "touch the end of a.c")
    head = lab.commit({"b.c": b"// licence\n" + numbered()}, "add a licence line")
    result = drift(lab.repo, two, lab.repo, head, [load_series(lab.patches, "one")])
    first, second = result.patches
    assert first.status == "conflict"
    assert first.files[0].hunks[0].upstream.endswith("rewrite line twenty")
    assert second.status == "offset"
    assert second.files[0].hunks[0].upstream.endswith("add a licence line")
    backwards = drift(lab.repo, head, lab.repo, two, [load_series(lab.patches, "one")])
    assert [p.status for p in backwards.patches] == ["clean", "clean"]


def test_drift_without_history_says_unknown(lab: Lab, two: str) -> None:
    lab.commit({"a.c": numbered(line20="theirs")}, "rewrite line twenty", onto=two)
    lab.git("branch", "tip")
    shallow = lab.root / "shallow.git"
    clone = ["clone", "--quiet", "--bare", "--depth=1", "--branch=tip", lab.repo.as_uri()]
    assert run_git([*clone, str(shallow)], lab.root).rc == 0
    commit = run_git(["rev-parse", "tip"], shallow).text
    result = drift(lab.repo, two, shallow, commit, [load_series(lab.patches, "one")])
    assert result.patches[0].files[0].hunks[0].upstream == UNKNOWN


@pytest.fixture
def command(lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `qbuild patch …` with the lab's repository as the pin."""
    monkeypatch.chdir(lab.root)

    def run(*words: str, pin: str = "", to: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(cli, "_source_repo", lambda args, reporter: (lab.repo, pin))
        monkeypatch.setattr(
            cli, "_other_repo", lambda ref, args, reporter, scratch: (lab.repo, to or ref)
        )
        code = main.run(["patch", *words, "--patches", str(lab.patches)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_status_and_check_exit_codes(lab: Lab, two: str, command) -> None:
    moved = lab.commit({"a.c": b"// up\n" + numbered()}, "a line on top", onto=two)
    broken = lab.commit({"b.c": numbered(line3="theirs")}, "break line three")
    code, out, _ = command("status", pin=two)
    assert (code, out.splitlines()[1:]) == (
        0, ["one/0001-first.patch: clean", "one/0002-second.patch: clean"],
    )  # fmt: skip
    assert command("check", "--against", moved, pin=two)[0] == 0
    assert command("check", "--against", moved, "--strict", pin=two)[0] == 6
    code, out, _ = command("check", "--against", broken, pin=two)
    assert code == 6
    assert "a.c, hunk 1 -17,7 +17,7: moved by +1 lines" in out
    assert "a line on top]" in out
    assert "b.c, hunk 1 -1,6 +1,6: conflict" in out
    assert "break line three]" in out
    code, out, _ = command("check", "--json", "--against", broken, pin=two)
    data = json.loads(out)
    assert (code, data["exit_code"]) == (6, 6)
    states = [p["status"] for p in data["results"][0]["patches"]]
    assert states == ["offset", "conflict"]
    assert data["results"][0]["patches"][1]["files"][0]["hunks"][0]["upstream"]


def test_status_advises_to_drop_what_is_upstream(lab: Lab, two: str, command) -> None:
    merged = lab.commit({"a.c": numbered(line20="changed")}, "the same fix", onto=two)
    code, out, _ = command("check", "--against", merged, pin=two)
    assert code == 0
    assert "already upstream\n  the source has this change already: drop the patch" in out
    assert "the same fix]" in out


def test_global_options_work_on_both_sides_of_the_verb(lab: Lab, two: str, command) -> None:
    for words in (["--json", "status"], ["status", "--json"]):
        code, out, _ = command(*words, pin=two)
        assert (code, json.loads(out)["exit_code"]) == (0, 0)


def test_explain(lab: Lab, two: str, command) -> None:
    for name in ("one/0002-second.patch", "0002-second", "one"):
        code, out, _ = command("explain", name)
        assert code == 0
        assert "0002-second.patch: second: y" in out
        assert "touches:   b.c" in out
    code, _, err = command("explain", "0002-secnd.patch")
    assert code == 6
    assert "did you mean `0002-second.patch`" in err
    _, out, _ = command("explain", "one", "--json")
    assert [p["file"] for p in json.loads(out)] == ["0001-first.patch", "0002-second.patch"]


# -- edit and refresh -------------------------------------------------------------------------


def test_edit_and_refresh_without_a_change_settle(lab: Lab, two: str) -> None:
    folder = _edit(lab, two)
    log = _in(folder, "log", "--format=%s", "-n", "2").splitlines()
    assert log == ["second: y", "first: x"]
    assert _in(folder, "status", "--porcelain") == ""
    refresh(folder, lab.patches)
    settled = _bytes(lab.patches / "one")
    assert refresh(folder, lab.patches) == []
    refresh(_edit(lab, two, folder="again"), lab.patches)
    assert _bytes(lab.patches / "one") == settled


def test_refresh_exports_deterministically(lab: Lab, two: str) -> None:
    folder = _edit(lab, two)
    (folder / "b.c").write_bytes(numbered(line3="other", line30="more"))
    (folder / "new.c").write_bytes(b"new\n")
    _in(folder, "add", "-A")
    _in(folder, "commit", "--quiet", "--amend", "--no-edit", "--date=2031-01-01T00:00:00Z")
    # the user's repository settings must not reach the export
    for key, value in {
        "diff.noprefix": "true", "diff.context": "9", "format.signature": "me",
        "diff.suppressBlankEmpty": "true", "core.abbrev": "4", "diff.algorithm": "patience",
        "format.subjectPrefix": "RFC", "format.from": "true",
    }.items():  # fmt: skip
        _in(folder, "config", key, value)
    assert refresh(folder, lab.patches) == [
        "0001-first.patch", "0002-second.patch", "series.toml",
    ]  # fmt: skip
    data = (lab.patches / "one/0002-second.patch").read_bytes()
    assert data.startswith(
        b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001"
    )
    assert b"\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n" in data
    assert b"\nSubject: [PATCH] second: y\n" in data
    assert b"\n-- \n" not in data
    assert b"\r" not in data
    index = [line for line in data.splitlines() if line.startswith(b"index ")]
    assert all(len(line.split()[1]) == 82 for line in index)
    series = load_series(lab.patches, "one")
    assert series.patches[1].entry.touches == ("b.c", "new.c")
    text = (lab.patches / "one/series.toml").read_text()
    assert text.startswith('name = "one"\nsummary = "a series for tests"\n')
    result = apply_series(lab.repo, two, [series], lab.root / "work")
    assert (lab.root / "work/new.c").read_bytes() == b"new\n"
    assert result.tree == _in(folder, "rev-parse", "HEAD^{tree}")


def test_refresh_lists_files_as_they_are_listed_by_hand(lab: Lab, two: str) -> None:
    folder = _edit(lab, two)
    for name in ("c.c", "d.c"):
        (folder / name).write_bytes(b"new\n")
    _in(folder, "add", "-A")
    _in(folder, "commit", "--quiet", "--amend", "--no-edit")
    refresh(folder, lab.patches)
    text = (lab.patches / "one/series.toml").read_text()
    assert 'touches = [\n  "b.c",\n  "c.c",\n  "d.c",\n]\n' in text


def test_refresh_takes_a_new_subject_for_the_same_patch(lab: Lab, two: str) -> None:
    folder = _edit(lab, two)
    _in(folder, "commit", "--quiet", "--amend", "-m", "second: said better")
    refresh(folder, lab.patches)
    series = load_series(lab.patches, "one")
    assert [p.mail.subject for p in series.patches] == ["first: x", "second: said better"]
    assert [p.file for p in series.patches] == ["0001-first.patch", "0002-second.patch"]


def _dirty(folder: Path) -> None:
    (folder / "a.c").write_bytes(b"dirty\n")


def _extra(folder: Path) -> None:
    (folder / "c.c").write_bytes(b"c\n")
    _in(folder, "add", "-A")
    _in(folder, "commit", "--quiet", "-m", "third: new thing")


def _fewer(folder: Path) -> None:
    _in(folder, "reset", "--quiet", "--hard", "HEAD~1")


def _swapped(folder: Path) -> None:
    second, first = _in(folder, "rev-list", "-n", "2", "HEAD").splitlines()
    _in(folder, "reset", "--quiet", "--hard", "HEAD~2")
    _in(folder, "cherry-pick", second, first)


def _binary(folder: Path) -> None:
    (folder / "x.bin").write_bytes(bytes(range(256)))
    _in(folder, "add", "-A")
    _in(folder, "commit", "--quiet", "--amend", "--no-edit")


def _mode(folder: Path) -> None:
    _in(folder, "update-index", "--chmod=+x", "keep.c")
    _in(folder, "commit", "--quiet", "--amend", "--no-edit")
    _in(folder, "reset", "--quiet", "--hard")


def _merge(folder: Path) -> None:
    _in(folder, "checkout", "--quiet", "-b", "side", "HEAD~1")
    _in(folder, "commit", "--quiet", "--allow-empty", "-m", "side")
    _in(folder, "checkout", "--quiet", "edit")
    _in(folder, "merge", "--quiet", "--no-ff", "-m", "merged", "side")


def _elsewhere(folder: Path) -> None:
    _in(folder, "checkout", "--quiet", "--orphan", "other")
    _in(folder, "commit", "--quiet", "-m", "rootless")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_dirty, "changes that are not committed"),
        (_extra, "commit `third: new thing` has no [[patch]] table"),
        (_fewer, "patch `0002-second.patch` has no commit any more"),
        (_swapped, "another order than the [[patch]] tables"),
        (_binary, "x.bin: binary change"),
        (_mode, "keep.c: changes the mode"),
        (_merge, "is a merge"),
        (_elsewhere, "does not start at its base"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refresh_refuses_and_writes_nothing(lab: Lab, two: str, spoil, message: str) -> None:
    folder = _edit(lab, two)
    before = _bytes(lab.patches / "one")
    spoil(folder)
    with pytest.raises(PatchError) as caught:
        refresh(folder, lab.patches)
    assert message in caught.value.render()
    assert _bytes(lab.patches / "one") == before
    assert [p.name for p in lab.patches.iterdir()] == ["one"]


def test_refresh_after_adding_the_table_it_asked_for(lab: Lab, two: str) -> None:
    folder = _edit(lab, two)
    _extra(folder)
    with pytest.raises(PatchError) as caught:
        refresh(folder, lab.patches)
    table = (caught.value.fix or "").partition("\n\n")[2]
    for empty, said in (('why = ""', 'why = "w"'), ('drop_when = ""', 'drop_when = "d"'),
                        ('value = ""', 'value = "v"')):  # fmt: skip
        table = table.replace(empty, said)
    file = lab.patches / "one" / "series.toml"
    file.write_text(file.read_text() + "\n" + table)
    assert "third-new-thing.patch" in refresh(folder, lab.patches)
    assert load_series(lab.patches, "one").patches[2].mail.subject == "third: new thing"


def test_refresh_wants_a_work_tree_of_ours(lab: Lab, two: str) -> None:
    with pytest.raises(UsageError, match="not a work tree"):
        refresh(lab.repo, lab.patches)


def test_edit_wants_a_free_folder(lab: Lab, two: str) -> None:
    (lab.root / "edit").mkdir()
    (lab.root / "edit" / "mine").write_text("x")
    with pytest.raises(PatchError, match="not empty"):
        _edit(lab, two)


def test_edit_on_top_of_a_required_series(lab: Lab, two: str) -> None:
    from qbuild.patches.export import requirements

    lab.git("checkout", "--quiet", "--detach", two)
    one = load_series(lab.patches, "one")
    patched = apply_series(lab.repo, two, [one], lab.root / "w", keep=lab.root / "k.git")
    lab.git("fetch", "--quiet", str(lab.root / "k.git"), "patched")
    steps = [("third: z", {"a.c": numbered(line20="changed", line21="and more")})]
    lab.series("two", patched.commit, steps, extra='requires = ["one"]')
    second = load_series(lab.patches, "two")
    below = requirements(lab.patches, second)
    assert [s.name for s in below] == ["one"]
    edit = edit_series(lab.repo, two, second, below, lab.root / "edit")
    assert edit.base == patched.commit
    refresh(lab.root / "edit", lab.patches)
    assert len(load_series(lab.patches, "two").patches) == 1


def test_a_killed_replacement_is_undone(lab: Lab, two: str) -> None:
    before = _bytes(lab.patches / "one")
    (lab.patches / "one").rename(lab.patches / ".one.old")
    (lab.patches / ".one.new").mkdir()
    replace_series(lab.patches, "one", dict(before))
    assert _bytes(lab.patches / "one") == before
    assert [p.name for p in lab.patches.iterdir()] == ["one"]


def test_a_bad_replacement_leaves_the_old_series(lab: Lab, two: str) -> None:
    before = _bytes(lab.patches / "one")
    with pytest.raises(PatchError):
        replace_series(lab.patches, "one", {**before, "series.toml": b"name = 1\n"})
    assert _bytes(lab.patches / "one") == before
    assert [p.name for p in lab.patches.iterdir()] == ["one"]


# -- rebase -----------------------------------------------------------------------------------


def test_rebase_carries_what_can_be_carried(lab: Lab, two: str, command) -> None:
    near = lab.commit(
        {"a.c": b"// up\n" + numbered(line23="upstream"), "b.c": b"// up\n" + numbered()}, onto=two
    )
    assert not series_status(lab.repo, near, [load_series(lab.patches, "one")]).fresh
    code, out, _ = command("rebase", "--to", near, pin=two)
    assert code == 0, out
    assert "one: carried over; wrote 0001-first.patch, 0002-second.patch" in out
    assert series_status(lab.repo, near, [load_series(lab.patches, "one")]).fresh


def test_rebase_leaves_a_conflict_with_instructions(lab: Lab, two: str, command) -> None:
    far = lab.commit({"a.c": numbered(line20="theirs")}, "rewrite", onto=two)
    before = _bytes(lab.patches / "one")
    code, out, _ = command("rebase", "one", "--to", far, "--dir", "rb", pin=two)
    assert code == 6
    assert "patches/ is untouched" in out
    assert "resolve a.c" in out
    assert "waiting: 0002-second.patch" in out
    assert _bytes(lab.patches / "one") == before
    tree = lab.root / "rb"
    text = (tree / "a.c").read_text()
    assert "<<<<<<<" in text and "theirs" in text and "changed" in text
    with pytest.raises(PatchError, match="git am is not finished"):
        refresh(tree, lab.patches)
    (tree / "a.c").write_bytes(numbered(line20="changed after theirs"))
    _in(tree, "add", "-A")
    _in(tree, "am", "--continue")
    refresh(tree, lab.patches)
    status = series_status(lab.repo, far, [load_series(lab.patches, "one")])
    assert status.fresh
    assert len(status.patches) == 2


def test_rebase_onto_a_commit_that_has_a_patch(lab: Lab, two: str) -> None:
    merged = lab.commit({"a.c": numbered(line20="changed")}, "the same", onto=two)
    series = load_series(lab.patches, "one")
    result = rebase_series(lab.repo, lab.repo, merged, series, below=[], folder=lab.root / "rb")
    assert [p.file for p in result.upstream] == ["0001-first.patch"]
    assert [p.file for p in result.carried] == ["0002-second.patch"]
    assert "0001-first.patch is upstream: remove" in instructions(result)


def test_rebase_with_a_gone_file(lab: Lab, two: str) -> None:
    gone = lab.commit({"a.c": None, "parsers/a.cpp": numbered()}, "move", onto=two)
    series = load_series(lab.patches, "one")
    result = rebase_series(lab.repo, lab.repo, gone, series, below=[], folder=lab.root / "rb")
    assert result.stopped is not None
    assert result.stopped.status == "file gone"
    assert "parsers/a.cpp" in instructions(result)
    assert (lab.root / "rb/.git/rebase-apply/patch").is_file()


def test_rebase_between_unrelated_shallow_repositories(lab: Lab, two: str) -> None:
    """Two sdists: no common history, yet the merge bases are in the pin's repository."""
    near = lab.commit({"a.c": numbered(line23="upstream")}, onto=two)
    lab.git("branch", "near", near)
    lab.git("branch", "base", two)
    repos = []
    for name in ("base", "near"):
        repo = lab.root / f"{name}.git"
        clone = ["clone", "--quiet", "--bare", "--depth=1", f"--branch={name}", lab.repo.as_uri()]
        assert run_git([*clone, str(repo)], lab.root).rc == 0
        repos.append(repo)
    series = load_series(lab.patches, "one")
    result = rebase_series(repos[0], repos[1], near, series, below=[], folder=lab.root / "rb")
    assert result.done
    assert (lab.root / "rb/a.c").read_bytes() == numbered(line20="changed", line23="upstream")


# -- refs that no pin names -------------------------------------------------------------------

LOCK = """\
schema = 1

[[source]]
name = "llama.cpp"
url = "https://example.invalid/llama.cpp.git"
commit = "{commit}"
tree = "{tree}"
date = "2026-10-01"
version = "1"
"""


def _with_lock(lab: Lab, pin: str) -> list[str]:
    file = lab.root / "qbuild.lock"
    tree = lab.git("rev-parse", f"{pin}^{{tree}}")
    file.write_text(LOCK.format(commit=pin, tree=tree))
    words = ["--lockfile", str(file), "--patches", str(lab.patches)]
    return [*words, "--store", str(lab.root / "store"), "--origin", str(lab.repo), "--offline"]


def test_check_against_any_ref_of_a_clone(lab: Lab, two: str, capsys) -> None:
    head = lab.commit({"a.c": numbered(line20="theirs")}, "rewrite line twenty", onto=two)
    lab.git("branch", "side", head)
    lab.commit({"a.c": b"elsewhere\n"}, onto=two)
    words = _with_lock(lab, two)
    assert main.run(["patch", "status", *words]) == 0
    for ref in (head, "side"):
        assert main.run(["patch", "check", "--against", ref, *words]) == 6
        out = capsys.readouterr().out
        assert f"against {head[:12]}" in out
        assert "rewrite line twenty]" in out
    # the other direction: the ref is older than the pin
    newer = _with_lock(lab, head)
    assert main.run(["patch", "check", "--against", two, *newer]) == 0


@pytest.mark.parametrize(
    ("ref", "code", "message"),
    [
        ("v9", 5, "v9"),
        ("0" * 40, 5, "0000"),
        ("a..b", 2, "is not a ref"),
        ("x y", 2, "is not a ref"),
        ("", 2, "is not a ref"),
        ("@{u}", 2, "is not a ref"),
    ],
)
def test_bad_refs(lab: Lab, two: str, ref: str, code: int, message: str, capsys) -> None:
    words = _with_lock(lab, two)
    assert main.run(["patch", "check", "--against", ref, *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["patch"], 2, "one of: status, check"),
        (["patch", "stauts"], 2, "stauts"),
        (["patch", "check"], 2, "--against"),
        (["patch", "rebase"], 2, "--to"),
        (["patch", "edit"], 2, "SERIES"),
        (["patch", "status", "nine"], 6, "there is no patch series `nine`"),
        (["patch", "status", "onee"], 6, "did you mean `one`?"),
        (["patch", "status", "one", "--recipe", "avx2"], 2, "not both"),
        (["patch", "status", "--recipe", "avx3"], 3, "avx3"),
        (["patch", "status", "--pin", "llama"], 4, "pins no source `llama`"),
        (["patch", "explain", "nothing"], 6, "there is no patch or series `nothing`"),
        (["patch", "refresh"], 2, "not a work tree"),
    ],
)
def test_bad_command_lines(
    lab: Lab, two: str, words: list[str], code: int, message: str, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(lab.root)
    extra = _with_lock(lab, two)
    if words[1:2] in (["explain"], ["refresh"]):
        extra = extra[:6]
    assert main.run([*words, *(extra if len(words) > 1 else [])]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_no_program_of_the_origins_is_run(lab: Lab, two: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for key in ("core.fsmonitor", "core.hooksPath", "uploadpack.packObjectsHook", "core.pager"):
        lab.git("config", key, f"touch {trap}; :")
    assert main.run(["patch", "check", "--against", two, *_with_lock(lab, two)]) == 0
    assert not trap.exists()
