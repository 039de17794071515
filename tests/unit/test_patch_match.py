"""Where hunks fit: clean, moved, upstream, in conflict, gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbuild.patches.mail import parse
from qbuild.patches.match import Fit, fit, join, most_similar, split
from support.patch_lab import HEAD


def lines(count: int, **changed: str) -> list[str]:
    return [changed.get(f"l{n}", f"line {n}") + "\n" for n in range(1, count + 1)]


def mail(diff: str):
    return parse((HEAD + diff).encode(), "s/x.patch")


def hunk(at: int, old: list[str], new: list[str], context: int = 3, source: int = 40) -> str:
    """Return a diff of a.c that replaces the lines at ``at`` (1-based) by ``new``."""
    first = max(1, at - context)
    before = [f" line {n}\n" for n in range(first, at)]
    last = min(source, at + len(old) + context - 1)
    after = [f" line {n}\n" for n in range(at + len(old), last + 1)]
    a, b = len(before) + len(old) + len(after), len(before) + len(new) + len(after)
    body = "".join([*before, *(f"-{o}\n" for o in old), *(f"+{n}\n" for n in new), *after])
    return (
        "diff --git a/a.c b/a.c\nindex 1111111..2222222 100644\n--- a/a.c\n+++ b/a.c\n"
        f"@@ -{first},{a} +{first},{b} @@\n{body}"
    )


def run(diff: str, files: dict[str, list[str] | None]) -> Fit:
    content = {p: None if text is None else join(text) for p, text in files.items()}
    return fit(mail(diff), content.get)


CHANGE = hunk(20, ["line 20"], ["changed"])


@pytest.mark.parametrize(
    ("tree", "state", "reason"),
    [
        (lines(40), "clean", ""),
        (["new\n", *lines(40)], "offset", ""),
        (lines(40)[5:], "offset", ""),
        (lines(40, l20="changed"), "already upstream", ""),
        (["new\n", *lines(40, l20="changed")], "already upstream", ""),
        (lines(40, l20="theirs"), "conflict", "the file has no line `line 20`"),
        (lines(40, l18="theirs"), "conflict", "the file has no line `line 18`"),
        (lines(19), "conflict", "the file has no line `line 20`"),
        (sorted(lines(40), reverse=True), "conflict", "the lines exist but not together"),
        ([line.replace("\n", "\r\n") for line in lines(40)], "conflict", "CRLF"),
        ([], "conflict", "no line `line 17`"),
        (None, "file gone", "no such file"),
    ],
)
def test_one_hunk(tree: list[str] | None, state: str, reason: str) -> None:
    result = run(CHANGE, {"a.c": tree})
    assert result.state == state
    text = result.files[0].reason + " ".join(h.reason for h in result.files[0].hunks)
    assert reason in text
    assert bool(result.after) == (state in ("clean", "offset"))


def test_neither_way_is_never_called_upstream() -> None:
    result = run(CHANGE, {"a.c": lines(40, l20="third way")})
    assert result.state == "conflict"
    assert result.files[0].hunks[0].reason.startswith("does not apply")


def test_half_upstream_is_a_conflict_for_plain_apply() -> None:
    two = CHANGE + hunk(33, ["line 33"], ["other"]).partition("b/a.c\n@@")[2].join(["@@", ""])
    assert run(two, {"a.c": lines(40)}).state == "clean"
    half = run(two, {"a.c": lines(40, l20="changed")})
    assert half.state == "conflict"
    assert [h.state for h in half.files[0].hunks] == ["already upstream", "clean"]


def test_offset_is_relative_to_what_earlier_hunks_did() -> None:
    first = hunk(10, ["line 10"], ["a", "b", "c"])
    both = first + hunk(30, ["line 30"], ["x"]).partition("b/a.c\n@@")[2].join(["@@", ""])
    result = run(both, {"a.c": lines(40)})
    assert [h.state for h in result.files[0].hunks] == ["clean", "clean"]
    moved = run(both, {"a.c": [*lines(20), "in between\n", *lines(40)[20:]]})
    assert [(h.state, h.offset) for h in moved.files[0].hunks] == [("clean", 0), ("offset", 1)]


def test_a_hunk_at_the_end_only_fits_at_the_end() -> None:
    end = hunk(41, [], ["appended"])
    assert run(end, {"a.c": lines(40)}).state == "clean"
    # after the change was merged the context is still there, followed by the new line
    assert run(end, {"a.c": [*lines(40), "appended\n"]}).state == "already upstream"
    assert run(end, {"a.c": [*lines(40), "else\n"]}).state == "conflict"


NEW = (
    "diff --git a/n.c b/n.c\nnew file mode 100644\nindex 0000000..1111111\n"
    "--- /dev/null\n+++ b/n.c\n@@ -0,0 +1,2 @@\n+a\n+b\n"
)
GONE = (
    "diff --git a/o.c b/o.c\ndeleted file mode 100644\nindex 1111111..0000000\n"
    "--- a/o.c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
)
MOVED = "diff --git a/p.c b/q.c\nsimilarity index 100%\nrename from p.c\nrename to q.c\n"
AB = ["a\n", "b\n"]


@pytest.mark.parametrize(
    ("diff", "files", "state"),
    [
        (NEW, {}, "clean"),
        (NEW, {"n.c": AB}, "already upstream"),
        (NEW, {"n.c": ["other\n"]}, "conflict"),
        (GONE, {"o.c": AB}, "clean"),
        (GONE, {}, "already upstream"),
        (GONE, {"o.c": ["a\n", "b\n", "c\n"]}, "conflict"),
        (GONE, {"o.c": ["z\n"]}, "conflict"),
        (MOVED, {"p.c": AB}, "clean"),
        (MOVED, {"q.c": AB}, "already upstream"),
        (MOVED, {}, "file gone"),
        (MOVED, {"p.c": AB, "q.c": AB}, "conflict"),
        (NEW + GONE, {"n.c": AB}, "already upstream"),
        (NEW + GONE, {"n.c": AB, "o.c": AB}, "conflict"),
    ],
)
def test_whole_files(diff: str, files: dict[str, list[str] | None], state: str) -> None:
    assert run(diff, files).state == state


def test_after_holds_what_the_next_patch_sees() -> None:
    assert run(MOVED + NEW, {"p.c": AB}).after == {
        "p.c": None, "q.c": b"a\nb\n", "n.c": b"a\nb\n",
    }  # fmt: skip


@given(st.binary(max_size=200))
def test_split_and_join_keep_any_bytes(data: bytes) -> None:
    assert join(split(data)) == data


def test_most_similar() -> None:
    wanted = [f"unique text {n}" for n in range(20)]
    whole = "\n".join(wanted).encode()
    found = most_similar(
        "common/parser.cpp",
        wanted,
        [
            ("z/first.cpp", b"nothing"),
            ("common/parsers/other.cpp", whole),
            ("common/parsers/parser.cpp", whole),
            ("common/half.cpp", b"\n".join(whole.split(b"\n")[:12])),
        ],
    )
    assert found == "common/parsers/parser.cpp"
    assert most_similar("a.c", wanted, [("b.c", b"unique text 1\n")]) is None
    assert most_similar("a.c", ["", "  ", "}"], [("b.c", b"}\n")]) is None


def test_the_series_that_ship_are_read(request: pytest.FixtureRequest) -> None:
    root = Path(request.config.rootpath) / "patches"
    for file in sorted(root.glob("*/*.patch")):
        assert parse(file.read_bytes(), file.name).files


def test_blanks_that_the_patch_lost_are_named(told: Callable[[str], None]) -> None:
    diff = hunk(17, ["line 17"], ["new"])
    for change, words in (
        ("{}  \n", ("white space only", "the patch lost them", "git format-patch")),
        ("{}\r\n", ("CRLF", "cannot help")),
        ("\t{}\n", ("tabs and blanks", "git format-patch")),
    ):
        tree = [change.format(line[:-1]) for line in lines(40)]
        (report,) = run(diff, {"a.c": tree}).files
        told(report.reason)
        for word in words:
            assert word in report.reason
