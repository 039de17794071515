"""Reading a patch: what is understood, and what is refused before git could see it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import unidiff

from qbuild.errors import PatchError
from qbuild.patches.lint import lint_path
from qbuild.patches.mail import Mail, normalise, parse
from support.patch_lab import DIFF, HEAD, TAIL


def read(text: str | bytes) -> Mail:
    return parse(text.encode() if isinstance(text, str) else text, "s/0001-a.patch")


def test_a_plain_patch() -> None:
    mail = read(HEAD + DIFF + TAIL)
    assert (mail.subject, mail.author) == ("one: change a line", "Ada <ada@example.org>")
    assert mail.message == "Because."
    (change,) = mail.files
    assert (change.kind, change.path, change.old_mode) == ("modify", "a.c", "100644")
    (hunk,) = change.hunks
    assert hunk.old == ("one\n", "two\n", "three\n")
    assert hunk.new == ("one\n", "TWO\n", "three\n")
    assert (hunk.leading, hunk.trailing, hunk.old_start) == (1, 1, 1)


@pytest.mark.parametrize("tail", ["", TAIL, "-- \n2.39.5\n", "-- \n", "\n"])
def test_with_and_without_signature(tail: str) -> None:
    assert read(HEAD + DIFF + tail).paths == ("a.c",)


def test_without_the_mbox_line() -> None:
    assert read((HEAD + DIFF).partition("\n")[2]).subject == "one: change a line"


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("[PATCH] x", "x"),
        ("[PATCH 3/7] x: y", "x: y"),
        ("[PATCH][RFC] x", "[RFC] x"),
        ("[RFC] x", "[RFC] x"),
        ("=?UTF-8?q?=5BPATCH=5D=20gr=C3=BC=C3=9Fe?=", "grüße"),
        ("[PATCH] long\n subject", "long subject"),
    ],
)
def test_subject_as_git_am_keeps_it(raw: str, wanted: str) -> None:
    assert read(HEAD.replace("[PATCH] one: change a line", raw) + DIFF).subject == wanted


def test_crlf_checkout_reads_the_same() -> None:
    lf = (HEAD + DIFF + TAIL).encode()
    assert parse(lf.replace(b"\n", b"\r\n"), "x") == parse(lf, "x")
    assert normalise(lf.replace(b"\n", b"\r\n"), "x") == lf


def test_no_newline_at_end_of_file() -> None:
    diff = DIFF.replace(" three\n", "-three\n\\ No newline at end of file\n+three\n")
    (hunk,) = read(HEAD + diff).files[0].hunks
    assert (hunk.old[-1], hunk.new[-1]) == ("three", "three\n")


def test_line_separators_inside_a_line_are_not_line_ends() -> None:
    odd = DIFF.replace("+TWO", "+T\x0bW\x0c\x1c\x85\u2028O")
    assert read(HEAD + odd).files[0].hunks[0].new[1] == "T\x0bW\x0c\x1c\x85\u2028O\n"


def test_added_deleted_and_renamed_files() -> None:
    added = (
        "diff --git a/n.c b/n.c\nnew file mode 100755\nindex 0000000..1111111\n"
        "--- /dev/null\n+++ b/n.c\n@@ -0,0 +1 @@\n+new\n"
    )
    gone = (
        "diff --git a/o.c b/o.c\ndeleted file mode 100644\nindex 1111111..0000000\n"
        "--- a/o.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
    )
    moved = "diff --git a/p.c b/q.c\nsimilarity index 100%\nrename from p.c\nrename to q.c\n"
    empty = "diff --git a/e.c b/e.c\nnew file mode 100644\nindex 0000000..e69de29\n"
    mail = read(HEAD + added + gone + moved + empty)
    assert [(c.kind, c.path) for c in mail.files] == [
        ("add", "n.c"), ("delete", "o.c"), ("rename", "p.c"), ("add", "e.c"),
    ]  # fmt: skip
    assert mail.paths == ("e.c", "n.c", "o.c", "p.c", "q.c")


def _swap(old: str, new: str) -> str:
    text = HEAD + DIFF + TAIL
    assert old in text
    return text.replace(old, new, 1)


TRADITIONAL = "--- a/etc\n+++ b/etc\n@@ -1 +1 @@\n-a\n+b\n"

BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "no `From:` header"),
    "not a mail": ("hello\n", "not a mail header"),
    "no diff": (HEAD, "changes no file"),
    "no from": (_swap("From: Ada <ada@example.org>\n", ""), "no `From:` header"),
    "no address": (_swap("Ada <ada@example.org>", "<>"), "no mail address"),
    "groups in groups": (_swap("Ada <ada@example.org>", "a:" * 600), "no mail address"),
    "no date": (_swap("Date: Thu, 1 Jan 2026 00:00:00 +0000\n", ""), "no `Date:` header"),
    "approximate date": (_swap("Thu, 1 Jan 2026 00:00:00 +0000", "yesterday"), "not a mail date"),
    "date without zone": (_swap(" +0000", ""), "not a mail date"),
    "no subject": (_swap("Subject: [PATCH] one: change a line\n", ""), "no `Subject:` header"),
    "two subjects": (_swap("Subject:", "Subject: x\nSubject:"), "appears twice"),
    "unknown header": (_swap("Subject:", "X-Evil: y\nSubject:"), "not a mail header"),
    "base64 body": (
        _swap("Subject:", "Content-Transfer-Encoding: base64\nSubject:"), "body is encoded",
    ),
    "quoted-printable body": (
        _swap("Subject:", "Content-Transfer-Encoding: quoted-printable\nSubject:"),
        "body is encoded",
    ),
    "html": (_swap("Subject:", "Content-Type: text/html\nSubject:"), "not plain UTF-8"),
    "latin-1": (
        _swap("Subject:", "Content-Type: text/plain; charset=iso-8859-1\nSubject:"),
        "not plain UTF-8",
    ),
    "in-body header": (_swap("Because.", "Date: now\n\nBecause."), "second set of mail headers"),
    "two mails": (HEAD + HEAD + DIFF, "more than one mail"),
    "diff in the message": (_swap("Because.", TRADITIONAL), "reads like a diff"),
    "diff after the stat": (_swap(" 1 file changed", TRADITIONAL + " 1 file"), "reads like a diff"),
    "index line in the message": (_swap("Because.", "Index: /etc/x"), "reads like a diff"),
    "diff after the signature": (HEAD + DIFF + "-- \n" + TRADITIONAL, "after the end"),
    "diff between sections": (HEAD + DIFF + TRADITIONAL, "stray line"),
    "prose between hunks": (HEAD + DIFF + "and now\n@@ -9 +9 @@\n-a\n+b\n", "stray line"),
    "count too low": (_swap("@@ -1,3 +1,3 @@", "@@ -1,2 +1,2 @@"), "stray line"),
    "count too high": (_swap("@@ -1,3 +1,3 @@", "@@ -1,4 +1,4 @@"), "stray line in hunk"),
    "count not equal": (_swap("@@ -1,3 +1,3 @@", "@@ -1,3 +1,2 @@"), "longer than its @@ line"),
    "truncated": ((HEAD + DIFF).removesuffix(" three\n"), "ends inside a hunk"),
    "context lost its blank": (_swap(" three\n", "\n"), "lost its leading blank"),
    "tab for a blank": (_swap(" three\n", "\tthree\n"), "stray line in hunk"),
    "only context": (_swap("-two\n+TWO\n", " two\n"), "only context"),
    "bad @@ line": (_swap("@@ -1,3 +1,3 @@", "@@ -1,3 @@"), "cannot read this @@ line"),
    "no hunk": ((HEAD + DIFF).partition("@@")[0], "has no hunk"),
    "hunks out of order": (
        HEAD + DIFF + "@@ -2,2 +2,2 @@\n-three\n+x\n four\n", "out of order",
    ),
    "other name in ---": (_swap("--- a/a.c", "--- a/b.c"), "expected `--- a/a.c`"),
    "other name in +++": (_swap("+++ b/a.c", "+++ b/../x"), "expected `+++ b/a.c`"),
    "dev null as name": (_swap("--- a/a.c", "--- /dev/null"), "expected `--- a/a.c`"),
    "two names, no rename": (_swap("a/a.c b/a.c", "a/a.c b/c.c"), "is no rename"),
    "rename of others": (
        HEAD + "diff --git a/p b/q\nsimilarity index 100%\nrename from x\nrename to q\n",
        "names other files",
    ),
    "quoted name": (_swap("a/a.c b/a.c", '"a/a.c" "b/a.c"'), "quoted file name"),
    "blank in name": (_swap("a/a.c b/a.c", "a/a b.c b/a b.c"), "cannot read the file names"),
    "no prefix": (_swap("a/a.c b/a.c", "a.c a.c"), "does not start with `a/`"),
    "unknown diff line": (_swap("index 1", "evil 1"), "not a line of a git diff"),
    "nothing changed": (
        HEAD + "diff --git a/a.c b/a.c\nindex 1111..2222 100644\n", "changes nothing",
    ),
    "mixed line ends": (_swap("+TWO\n", "+TWO\r\n"), "mixes CRLF and LF"),
    "lone CR": (_swap("+TWO\n", "+T\rWO\n"), "lone CR"),
    "NUL": (_swap("+TWO\n", "+T\0WO\n"), "NUL byte"),
    "not UTF-8": (_swap("+TWO\n", "+TWO\n").encode().replace(b"TWO", b"T\xffO"), "not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "diff between sections", "diff after the signature", "count too low", "only context",
        "context lost its blank", "bad @@ line", "no hunk", "hunks out of order",
        "rename of others", "unknown diff line", "nothing changed",
    ],
)  # fmt: skip
def test_what_unidiff_takes_for_right(name: str) -> None:
    """Why hunks are looked at before unidiff reads them; what it learns to refuse can go there."""
    text = BAD[name][0]
    assert isinstance(text, str)
    parsed = unidiff.PatchSet(io.StringIO(text))
    assert all(hunk.is_valid() for file in parsed for hunk in file)


@pytest.mark.parametrize("name", BAD)
def test_bad_mails_are_refused_with_file_and_place(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(PatchError) as caught:
        read(text)
    assert caught.value.exit_code == 6
    assert message in caught.value.what
    assert (caught.value.where or "").startswith("s/0001-a.patch")


@pytest.mark.parametrize(
    "path",
    [
        "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "C:/x", "a\\b", ".git/config",
        "a/.GIT/hooks/x", ".git./x", "git~1/x", ".gitattributes", "sub/.gitmodules", "nul",
        "a/COM1.txt", "a:b", "a.", "a\x07b", "a\u202e" * 600, "",
    ],
)  # fmt: skip
def test_unsafe_paths(path: str) -> None:
    assert lint_path(path) is not None


@pytest.mark.parametrize("path", ["a.c", "common/parsers/x.cpp", ".github/w.yml", ".gitignore"])
def test_safe_paths(path: str) -> None:
    assert lint_path(path) is None


def refused(data: str | bytes) -> tuple[str, str]:
    with pytest.raises(PatchError) as caught:
        read(data)
    return caught.value.what, caught.value.fix or ""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_what_powershell_writes_is_named(encoding: str, told: Callable[[str], None]) -> None:
    what, fix = refused((HEAD + DIFF + TAIL).encode(encoding))
    told(f"{what}; to do: {fix}")
    assert "UTF-16" in what
    assert "git format-patch" in fix
    assert "iconv" in fix


def test_a_byte_order_mark_is_taken() -> None:
    plain = (HEAD + DIFF + TAIL).encode()
    assert read(b"\xef\xbb\xbf" + plain) == read(plain)


@pytest.mark.parametrize(
    ("old", "new", "setting"),
    [
        ("i/", "w/", "diff.mnemonicPrefix"),
        ("c/", "i/", "diff.mnemonicPrefix"),
        ("", "", "noprefix"),
    ],
)
def test_other_prefixes_are_named_with_the_setting(
    old: str, new: str, setting: str, told: Callable[[str], None]
) -> None:
    text = HEAD + DIFF.replace("a/a.c", f"{old}a.c").replace("b/a.c", f"{new}a.c")
    what, fix = refused(text)
    told(f"{what}; to do: {fix}")
    assert setting in what
    assert "-c diff.mnemonicPrefix=false -c diff.noprefix=false format-patch" in fix


@pytest.mark.parametrize("first", ["diff --git a/a.c b/a.c\n", "Index: a.c\n", "--- a/a.c\n"])
def test_a_bare_diff_is_named(first: str, told: Callable[[str], None]) -> None:
    what, fix = refused(first + DIFF)
    told(f"{what}; to do: {fix}")
    assert "a bare diff" in what
    assert "git commit" in fix
    assert "patch edit" not in fix


def test_a_hunk_with_wrong_counts_says_the_right_ones(told: Callable[[str], None]) -> None:
    text = HEAD + DIFF.replace("@@ -1,3 +1,3 @@", "@@ -1,2 +1,3 @@") + TAIL
    what, fix = refused(text)
    told(f"{what}; to do: {fix}")
    assert "hunk" in what
    assert "@@ -1,3 +1,3 @@" in fix
    assert "patch edit" not in fix


def test_a_patch_for_a_crlf_file_is_named(told: Callable[[str], None]) -> None:
    lines = (HEAD + DIFF + TAIL).split("\n")
    crlf = "\n".join(
        f"{line}\r" if line[:1] in (" ", "-") and line[1:2] != "-" else line for line in lines
    )
    what, fix = refused(crlf)
    told(f"{what}; to do: {fix}")
    assert "whose lines end in CRLF: a.c" in what
    assert "cannot be patched" in fix
    half = (HEAD.replace("\n", "\r\n") + DIFF + TAIL).encode()
    what, fix = refused(half)
    assert "an editor or a mail program" in what
    assert "dos2unix" in fix
