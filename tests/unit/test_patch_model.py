"""series.toml: what loads, and how wrong keys are told."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from qbuild.cli.main import run
from qbuild.errors import PatchError
from qbuild.patches import known_series, lint_series, load_series
from qbuild.patches.bench import Leaf
from qbuild.patches.lint import lint_against_tree, lint_patch, refuse
from qbuild.patches.series import MAX_PATCH, Patch
from qbuild.resources import patches_dir
from support.patch_lab import DIFF, HEAD, write_series

GOOD = """\
name = "one"
summary = "a series for tests"
author-note = "tests"

[[patch]]
file = "0001-a.patch"
why = "because"
upstream = ["https://example.org/issues/1"]
drop_when = "never"
touches = ["a.c"]
tests = ["t"]

[patch.probe]
kind = "export"
value = "llama_x"
in = "llama"
"""


def write(root: Path, text: str = GOOD, mail: str = HEAD + DIFF) -> Path:
    folder = root / "one"
    folder.mkdir()
    (folder / "series.toml").write_text(text)
    (folder / "0001-a.patch").write_bytes(mail.encode())
    return folder


def test_a_good_series(tmp_path: Path) -> None:
    write(tmp_path)
    series = load_series(tmp_path, "one")
    (patch,) = series.patches
    assert (series.summary, series.author_note, series.requires) == (
        "a series for tests", "tests", (),
    )  # fmt: skip
    assert (patch.label, patch.entry.probe.place) == ("one/0001-a.patch", "llama")
    assert len(series.digest) == 64
    assert known_series(tmp_path) == ("one",)
    assert lint_series([series]) == []


def test_the_digest_covers_what_changes_a_build_and_nothing_else(tmp_path: Path) -> None:
    digests = {}
    for name, (text, mail) in {
        "plain": (GOOD, HEAD + DIFF),
        "prose": (GOOD.replace("because", "said better"), HEAD + DIFF),
        "crlf": (GOOD.replace("\n", "\r\n"), (HEAD + DIFF).replace("\n", "\r\n")),
        "diff": (GOOD, HEAD + DIFF.replace("TWO", "2")),
        "message": (GOOD, HEAD.replace("Because", "Why") + DIFF),
    }.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, text, mail)
        digests[name] = load_series(tmp_path / name, "one").digest
    assert digests["plain"] == digests["prose"] == digests["crlf"]
    assert len({digests["plain"], digests["diff"], digests["message"]}) == 3


def test_the_digest_covers_order_and_file_names(tmp_path: Path) -> None:
    mail = (HEAD + DIFF).encode()
    other = mail.replace(b"a.c", b"b.c")
    for root, files in {
        "ab": [("1.patch", mail), ("2.patch", other)],
        "ba": [("2.patch", other), ("1.patch", mail)],
        "named": [("1.patch", mail), ("3.patch", other)],
    }.items():
        write_series(tmp_path / root, "one", files)
    found = {load_series(tmp_path / root, "one").digest for root in ("ab", "ba", "named")}
    assert len(found) == 3


BAD: dict[str, tuple[str, str, str, int | None]] = {
    # name: (replace, by, message, line)
    "unknown top key": ('summary = "a', 'sumary = "x"\nsummary = "a', "`sumary` is not a key", 2),
    "unknown patch key": ('why = "b', 'whi = "x"\nwhy = "b', "`patch[0].whi` is not a key", 7),
    "unknown probe key": ("value =", 'vlaue = "x"\nvalue =', "`patch[0].probe.vlaue`", 15),
    "python spelling": ("author-note", "author_note", "`author_note` is not a key", 3),
    "python spelling of in": ('in = "llama"', 'place = "llama"', "`patch[0].probe.place`", 16),
    "missing why": ('why = "because"\n', "", "`patch[0].why` is required", 5),
    "missing probe": (GOOD[GOOD.index("[patch.probe]") :], "", "`patch[0].probe` is required", 5),
    "missing summary": ('summary = "a series for tests"\n', "", "`summary` is required", None),
    "why is a list": ('why = "because"', "why = []", "`patch[0].why` must be string, not list", 7),
    "tests is a string": ('tests = ["t"]', 'tests = "t"', "must be a list of string", 11),
    "tests of numbers": ('tests = ["t"]', "tests = [1]", "`patch[0].tests[0]` must be string", 11),
    "touches nothing": ('touches = ["a.c"]', "touches = []", "must list the files", 10),
    "probe kind": ('"export"', '"exprot"', "`patch[0].probe.kind` must be", 14),
    "probe is a string": (
        '[patch.probe]\nkind = "export"\nvalue = "llama_x"\nin = "llama"', 'probe = "x"',
        "`patch[0].probe` must be a table", 13,
    ),
    "empty probe value": ('"llama_x"', '""', "`patch[0].probe.value` must not be empty", 15),
    "empty probe place": ('in = "llama"', 'in = ""', "`patch[0].probe.in` must not be empty", 16),
    "star without absent": ('"llama_x"', '"*"', "needs kind `export` and `absent`", 15),
    "probe os": ('in = "llama"', 'in = "llama"\nos = "macos"', "`patch[0].probe.os` must be", 17),
    "absent is a string": ('in = "llama"', 'in = "llama"\nabsent = "no"', "true or false", 17),
    "empty why": ('"because"', '" "', "`patch[0].why` must say something", 7),
    "http link": ("https://", "http://", "is not an https link", 8),
    "name is another": ('name = "one"', 'name = "two"', "is `two` but the folder is `one`", 1),
    "summary of two lines": ('"a series for tests"', '"a\\nb"', "must be one line", 2),
    "path as file": ('"0001-a.patch"', '"../0001-a.patch"', "is not a plain name", 6),
    "missing file": ('"0001-a.patch"', '"0001-b.patch"', "`0001-b.patch` is missing", None),
    "requires itself": ("author-note", 'requires = ["one"]\nauthor-note', "not the name of", 3),
    "patch is a table": ("[[patch]]", "[patch]", "`patch` must be a list of table", None),
    "no patch": (GOOD[GOOD.index("[[patch]]") :], "", "must list at least one", None),
    "not TOML": ("[[patch]]", "[[patch", "not valid TOML", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_series_files(tmp_path: Path, name: str) -> None:
    old, new, message, line = BAD[name]
    assert old in GOOD
    write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(PatchError) as caught:
        load_series(tmp_path, "one")
    assert caught.value.exit_code == 6
    assert message in caught.value.what
    where = caught.value.where or ""
    assert "series.toml" in where
    if line is not None:
        assert where.endswith(f"series.toml:{line}")


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('why = "b', 'whi = "x"\nwhy = "b', "did you mean `why`?"),
        ('"export"', '"exprot"', "did you mean `export`?"),
        ("author-note", "author_note", "did you mean `author-note`?"),
        ("author-note", "authors-note", "did you mean `author-note`?"),
        ('in = "llama"', 'place = "llama"', "did you mean `in`?"),
        ('"0001-a.patch"', '"0001-aa.patch"', "did you mean `0001-a.patch`?"),
    ],
)
def test_did_you_mean(tmp_path: Path, old: str, new: str, hint: str) -> None:
    write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(PatchError) as caught:
        load_series(tmp_path, "one")
    assert caught.value.fix == hint


def test_unknown_series_and_unlisted_mail(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for name in ("onee", "../one", "one/", ""):
        with pytest.raises(PatchError, match="there is no patch series"):
            load_series(tmp_path, name)
    (folder / "0002-b.patch").write_text("x")
    with pytest.raises(PatchError, match=r"`0002-b\.patch` is not listed"):
        load_series(tmp_path, "one")


def test_not_utf8(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "series.toml").write_bytes(b'name = "\xff"\n')
    with pytest.raises(PatchError, match="not UTF-8"):
        load_series(tmp_path, "one")


def test_a_mail_may_be_read_later_and_is_the_same_then(tmp_path: Path) -> None:
    write(tmp_path)
    first, later = load_series(tmp_path, "one"), load_series(tmp_path, "one", mails=False)
    assert first == later
    assert later.patches[0].subject == first.patches[0].mail.subject
    assert later.patches[0].mail == first.patches[0].mail


@pytest.mark.parametrize("harm", [("@@ -", "@@ +"), ("Date:", "Dote:"), ("From: Ada", "From: ")])
def test_a_damaged_mail_is_refused_before_a_build_fetches_anything(
    tmp_path: Path, harm: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    series = tmp_path / "patches" / "windows-gnu"
    shutil.copytree(patches_dir(), tmp_path / "patches")
    mail = next(iter(sorted(series.glob("*.patch"))))
    text = mail.read_bytes()
    old, new = (part.encode() for part in harm)
    if old.startswith(b"From: "):
        old = next(line for line in text.splitlines() if line.startswith(b"From: "))
    assert old in text
    mail.write_bytes(text.replace(old, new, 1))
    store, dist = tmp_path / "store", tmp_path / "dist"
    words = ["--recipe", "avx2", "--patches", str(tmp_path / "patches")]
    assert run([*words, "--store", str(store), "--dist", str(dist)]) == PatchError.exit_code
    assert mail.name in capsys.readouterr().err
    assert not store.exists()
    assert not dist.exists()


def _patches(name: str) -> tuple[Patch, ...]:
    return load_series(patches_dir(), name).patches


@pytest.mark.parametrize("name", known_series(patches_dir()))
def test_what_is_said_to_prove_a_patch_is_there(name: str) -> None:
    """A named test is a file here (with a test of that name), or a program that a patch adds."""
    root = Path(__file__).parents[2]
    added = [p.body for each in known_series(patches_dir()) for p in _patches(each)]
    for patch in _patches(name):
        for named in patch.entry.tests:
            path, _, function = named.partition("::")
            if "/" not in named:
                assert any(f"/{named}.cpp".encode() in body for body in added), named
            else:
                assert f"def {function}" in (root / path).read_text(encoding="utf-8"), named


def test_a_plan_loads_series_without_git_and_lints() -> None:
    """The run that finds nothing to do imports as little as it can."""
    import qbuild.patches

    assert set(qbuild.patches.__all__) == set(qbuild.patches._MODULES)
    for name in qbuild.patches.__all__:
        assert getattr(qbuild.patches, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = qbuild.patches.nothing


# -- lints ------------------------------------------------------------------------------------


def _diff(
    path: str, body: str = "--- a/{p}\n+++ b/{p}\n@@ -1 +1 @@\n-a\n+b\n", head: str = ""
) -> str:
    head = head or "index 1111111..2222222 100644\n"
    return f"diff --git a/{path} b/{path}\n{head}" + body.replace("{p}", path)


def _new(path: str, mode: str = "100644") -> str:
    return _diff(
        path,
        "--- /dev/null\n+++ b/{p}\n@@ -0,0 +1 @@\n+x\n",
        f"new file mode {mode}\nindex 0000000..1111111\n",
    )


LINTS: dict[str, tuple[str, str, str]] = {
    "traversal": (_diff("../../x"), "path", "climbs out of its folder"),
    "absolute": (_diff("/etc/passwd"), "path", "absolute path"),
    "git folder": (_new(".git/hooks/post-checkout"), "path", "inside git's own folder"),
    "attributes": (_new(".gitattributes"), "path", "changes how git reads the tree"),
    "device": (_new("aux.c"), "path", "device on Windows"),
    "symlink": (_new("link", "120000"), "symlink", "symbolic links are not allowed"),
    "changed symlink": (
        _diff("link", head="index 1111111..2222222 120000\n"), "symlink", "not allowed",
    ),
    "submodule": (_new("sub", "160000"), "submodule", "submodules are not allowed"),
    "odd mode": (_new("a", "100666"), "mode", "100666 is not allowed"),
    "mode change": (
        "diff --git a/a.sh b/a.sh\nold mode 100644\nnew mode 100755\n",
        "mode", "from 100644 to 100755",
    ),
    "mode change with text": (
        _diff("a.sh", head="old mode 100644\nnew mode 100755\nindex 1111111..2222222\n"),
        "mode", "not allowed",
    ),
    "binary": (
        _diff("a.png", "GIT binary patch\nliteral 3\nKcmZQzWB>#J00IC1\n\n"),
        "binary", "binary change",
    ),
    "binary without data": (
        _diff("a.png", "Binary files a/a.png and b/a.png differ\n"), "binary", "binary change",
    ),
    "copy": (
        "diff --git a/p b/q\nsimilarity index 100%\ncopy from p\ncopy to q\n", "copy", "is a copy",
    ),
    "twice": (_diff("a.c") + _diff("a.c"), "twice", "changes this file twice"),
    "case": (_new("A.c") + _new("a.c"), "path", "cannot exist beside"),
    "file as folder": (_new("a") + _new("a/b"), "path", "cannot exist beside"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINTS)
def test_lints_refuse_by_name(tmp_path: Path, name: str) -> None:
    diff, rule, message = LINTS[name]
    write_series(tmp_path, "one", [("0001-a.patch", (HEAD + diff).encode())])
    series = load_series(tmp_path, "one")
    found = lint_patch(series.patches[0])
    assert (rule, "error") in [(f.rule, f.severity) for f in found]
    with pytest.raises(PatchError) as caught:
        refuse(lint_series([series]))
    assert caught.value.exit_code == 6
    assert message in caught.value.render()
    assert "one/0001-a.patch" in caught.value.what


def test_a_symlink_then_a_file_through_it(tmp_path: Path) -> None:
    write_series(
        tmp_path, "one", [("1.patch", (HEAD + _new("link", "120000") + _new("link/x")).encode())]
    )
    rules = {f.rule for f in lint_patch(load_series(tmp_path, "one").patches[0])}
    assert rules == {"symlink", "path"}


def test_links_of_the_tree_are_not_followed(tmp_path: Path) -> None:
    write_series(tmp_path, "one", [("1.patch", (HEAD + _new("d/link/x")).encode())])
    series = [load_series(tmp_path, "one")]
    assert lint_against_tree(series, {"d/other": Leaf(mode="120000", blob="0")}) == []
    for mode in ("120000", "160000"):
        (found,) = lint_against_tree(series, {"d/link": Leaf(mode=mode, blob="0")})
        assert "goes through `d/link`" in found.message


def test_touches_is_checked_both_ways(tmp_path: Path) -> None:
    mails = [("1.patch", (HEAD + DIFF).encode())]
    write_series(tmp_path, "one", mails, touches={"1.patch": ["b.c"]})
    messages = [f.message for f in lint_series([load_series(tmp_path, "one")])]
    assert messages == [
        "the diff changes it but `touches` does not list it",
        "`touches` lists it but the diff does not change it",
    ]


def test_ownership(tmp_path: Path) -> None:
    write_series(tmp_path, "one", [("1.patch", (HEAD + _new("n.c") + _diff("a.c")).encode())])
    write_series(tmp_path, "two", [("1.patch", (HEAD + _diff("n.c")).encode())])
    write_series(tmp_path, "three", [("1.patch", (HEAD + _diff("a.c")).encode())])
    extra = 'requires = ["one"]'
    write_series(tmp_path, "four", [("1.patch", (HEAD + _diff("n.c")).encode())], extra=extra)
    one, two, three, four = (load_series(tmp_path, n) for n in ("one", "two", "three", "four"))
    (found,) = lint_series([one, two])
    assert (found.severity, found.rule) == ("error", "owner")
    assert "belongs to series `one`" in found.message
    (found,) = lint_series([one, three])
    assert (found.severity, found.message) == ("note", "series `one` changes it, too")
    (found,) = lint_series([one, four])
    assert found.severity == "note"
    (found,) = lint_series([four])
    assert (found.severity, found.message) == ("error", "needs series `one` applied before it")
    assert "needs series" in lint_series([four, one])[0].message


def test_the_series_that_ship_pass_the_lints() -> None:
    root = patches_dir()
    for name in known_series(root):
        series = load_series(root, name)
        alone = [f for patch in series.patches for f in lint_patch(patch)]
        assert alone == []


def test_where_there_is_no_series_at_all(tmp_path: Path) -> None:
    with pytest.raises(PatchError) as caught:
        load_series(tmp_path, "zzz")
    assert caught.value.fix == "one of: (none)" and caught.value.where == str(tmp_path)
    write(tmp_path)
    with pytest.raises(PatchError) as caught:
        load_series(tmp_path, "zzz")
    assert caught.value.fix == "one of: one"


def test_a_mail_or_a_table_that_is_a_folder(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "0001-a.patch").unlink()
    (folder / "0001-a.patch").mkdir()
    with pytest.raises(PatchError, match=r"cannot be read: (Is a|Permission)") as caught:
        load_series(tmp_path, "one")
    assert caught.value.where == "one/0001-a.patch"


def test_a_patch_that_is_listed_twice(tmp_path: Path) -> None:
    entry = GOOD[GOOD.index("[[patch]]") :].replace("because", "once more")
    write(tmp_path, GOOD + "\n" + entry)
    with pytest.raises(PatchError, match=r"`patch\[1\]\.file` `0001-a\.patch` is listed twice"):
        load_series(tmp_path, "one")


def test_mails_are_read_to_their_end_unless_a_plan_needs_only_their_key(tmp_path: Path) -> None:
    write(tmp_path, mail=HEAD + DIFF.replace("@@ -1", "@@ -x", 1))
    with pytest.raises(PatchError):
        load_series(tmp_path, "one")
    series = load_series(tmp_path, "one", mails=False)
    with pytest.raises(PatchError):
        series.read_mails()


def test_what_a_table_leaves_out(tmp_path: Path) -> None:
    write(tmp_path)
    found = load_series(tmp_path, "one")
    (patch,) = found.patches
    assert patch.entry.probe.absent is False and MAX_PATCH == 16_777_216
    assert found == dataclasses.replace(found, path=Path("elsewhere")), "where it lies is no part"
