"""Read the diff part of a patch: unidiff reads the hunks, what it cannot read is read here.

unidiff knows the unified format. It reads neither modes nor blob ids nor where git's header ends,
takes text between hunks for nothing and an empty line for context, and its errors name no line. git
would act on all of that, so the lines are looked at here before unidiff gets them
(``test_patch_mail.py`` shows each of them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from qbuild.errors import PatchError

if TYPE_CHECKING:
    import unidiff

Kind = Literal["modify", "add", "delete", "rename", "copy"]

_SECTION = re.compile(r"diff --git (\S+) (\S+)")
_INDEX = re.compile(r"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_NO_EOL = "\\ No newline at end of file"


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """One changed place of a file."""

    number: int  # 1-based position within its file's diff
    header: str  # the ``@@`` line
    old_start: int  # 1-based first line in the file before the change (0: the file is empty)
    # lines before the change, each with its line end unless the file ends without one
    old: tuple[str, ...]
    new: tuple[str, ...]  # lines after the change
    leading: int  # how many context lines stand before the first change
    trailing: int  # how many stand after the last


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """What a patch does to one file."""

    kind: Kind
    old_path: str
    new_path: str
    old_mode: str | None = None
    new_mode: str | None = None
    mode_change: bool = False
    old_blob: str | None = None
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()
    line: int = 0

    @property
    def path(self) -> str:
        """The path a person knows the file by: where it is before the change, if it is."""
        return self.new_path if self.kind == "add" else self.old_path

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path the change names, each once."""
        return tuple(dict.fromkeys((self.old_path, self.new_path)))


ANEW = (
    "write it anew with git, from the commit it came from: `git format-patch -1 -o FOLDER COMMIT`"
)
"""What to do about a damaged patch; a series that cannot be read cannot be edited either."""

PLAIN_PREFIX = (
    "git's settings changed the names: `git -c diff.mnemonicPrefix=false -c diff.noprefix=false "
    "format-patch -1 -o FOLDER COMMIT`"
)


@dataclass
class Cursor:
    """The lines of a patch and how far they were read."""

    lines: Sequence[str]
    name: str
    at: int = 0

    def peek(self) -> str | None:
        """Return the next line without taking it."""
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        """Return the next line and step over it."""
        line = self.lines[self.at]
        self.at += 1
        return line

    def error(self, what: str, *, line: int | None = None, fix: str | None = None) -> PatchError:
        """Return an error that names the line read last, or ``line``."""
        number = self.at if line is None else line
        return PatchError(what, where=f"{self.name}, line {number}", fix=fix or ANEW)


def sections(cursor: Cursor) -> Iterator[FileChange]:
    """Yield every file's change, from the first ``diff --git`` to the end of the mail.

    Raises:
        PatchError: A line is not what a git diff has there.
    """
    while (line := cursor.peek()) is not None:
        if line.startswith("diff --git "):
            yield _section(cursor)
        elif line == "-- " or (line == "" and cursor.at == len(cursor.lines) - 1):
            _signature(cursor)
            return
        else:
            cursor.take()
            raise cursor.error(
                f"stray line between hunks: `{line[:60]}`",
                fix=f"the counts in an @@ line are wrong, or text was added by hand; {ANEW}",
            )


def _signature(cursor: Cursor) -> None:
    """Skip ``-- `` and git's version; more than that could be a diff again."""
    cursor.take()
    rest = [line for line in cursor.lines[cursor.at :] if line]
    if len(rest) > 1 or any(line.startswith(("diff ", "--- ", "+++ ", "@@ ")) for line in rest):
        raise cursor.error("text after the end of the patch")
    cursor.at = len(cursor.lines)


def _strip(path: str, prefix: str, cursor: Cursor) -> str:
    if path.startswith('"'):
        raise cursor.error(f"quoted file name {path}", fix="use plain names in patches")
    if not path.startswith(prefix):
        kind = "diff.mnemonicPrefix" if re.match(r"[iwco]/", path) else "diff.noprefix"
        raise cursor.error(
            f"file name `{path}` does not start with `{prefix}`: the patch was written with {kind}",
            fix=PLAIN_PREFIX,
        )
    return path[len(prefix) :]


def _section(cursor: Cursor) -> FileChange:
    """Read one file's extended header and hunks."""
    start = cursor.at + 1
    header = cursor.take()
    match = _SECTION.fullmatch(header)
    if not match:
        raise cursor.error("cannot read the file names", fix="no blanks or quotes in names")
    old_path = _strip(match[1], "a/", cursor)
    new_path = _strip(match[2], "b/", cursor)
    kind: Kind = "modify"
    old_mode = new_mode = old_blob = None
    mode_change = binary = False
    named: dict[str, str] = {}
    while (line := cursor.peek()) is not None:
        if line.startswith(("diff --git ", "--- ", "-- ", "@@ ")) or not line:
            break
        cursor.take()
        word, _, rest = line.partition(" mode ")
        if index := _INDEX.fullmatch(line):
            old_blob, mode = index[1], index[3]
            old_mode, new_mode = old_mode or mode, new_mode or mode
        elif word == "new file":
            kind, new_mode = "add", rest
        elif word == "deleted file":
            kind, old_mode = "delete", rest
        elif word == "old":
            mode_change, old_mode = True, rest
        elif word == "new":
            mode_change, new_mode = True, rest
        elif line.startswith(("rename from ", "rename to ", "copy from ", "copy to ")):
            verb, side, path = line.split(" ", 2)
            kind = "rename" if verb == "rename" else "copy"
            named[side] = path
        elif line.startswith(("similarity index ", "dissimilarity index ")):
            pass
        elif line == "GIT binary patch" or line.startswith("Binary files "):
            binary = True
            _skip_binary(cursor)
            break
        else:
            raise cursor.error(f"`{line[:60]}` is not a line of a git diff")
    if kind in ("rename", "copy") and (named.get("from"), named.get("to")) != (old_path, new_path):
        raise cursor.error("rename names other files than its diff line", line=start)
    if kind not in ("rename", "copy") and old_path != new_path:
        raise cursor.error("diff names two files but is no rename", line=start)
    hunks = () if binary else _hunks(cursor, kind, old_path, new_path)
    if not (hunks or binary or mode_change or kind != "modify"):
        raise cursor.error(f"diff of `{old_path}` changes nothing", line=start)
    return FileChange(
        kind=kind,
        old_path=old_path,
        new_path=new_path,
        old_mode=old_mode,
        new_mode=new_mode,
        mode_change=mode_change,
        old_blob=old_blob,
        binary=binary,
        hunks=hunks,
        line=start,
    )


def _skip_binary(cursor: Cursor) -> None:
    """Skip what a binary diff holds; the lints refuse it by name."""
    while (line := cursor.peek()) is not None and not line.startswith("diff --git "):
        if line == "-- ":
            break
        cursor.take()


def _hunks(cursor: Cursor, kind: Kind, old_path: str, new_path: str) -> tuple[Hunk, ...]:
    """Read ``---``, ``+++`` and the hunks."""
    line = cursor.peek()
    if line is None or not line.startswith("--- "):
        return ()
    first = cursor.at
    expected = (
        "--- /dev/null" if kind == "add" else f"--- a/{old_path}",
        "+++ /dev/null" if kind == "delete" else f"+++ b/{new_path}",
    )
    for wanted in expected:
        line = cursor.peek()
        if line is None or line.split("\t")[0] != wanted:
            cursor.at += 1
            raise cursor.error(f"expected `{wanted}`, found `{(line or '')[:80]}`")
        cursor.take()
    spans: list[tuple[int, int]] = []
    while (line := cursor.peek()) is not None and line.startswith("@@ "):
        begin = cursor.at
        _take_hunk(cursor)
        spans.append((begin, cursor.at))
    if not spans:
        raise cursor.error(f"diff of `{new_path}` has no hunk", line=first + 1)
    hunks = tuple(
        _hunk(number, hunk, cursor.lines[begin], cursor, begin)
        for number, (hunk, (begin, _)) in enumerate(
            zip(_by_unidiff(cursor, first), spans, strict=True), 1
        )
    )
    ends = 0
    for hunk, (begin, _) in zip(hunks, spans, strict=True):
        if hunk.old_start < ends:
            raise cursor.error("hunks overlap or are out of order", line=begin + 1)
        ends = hunk.old_start + len(hunk.old)
    return hunks


def _take_hunk(cursor: Cursor) -> None:
    """Step over a hunk, and say which line of it is wrong."""
    start = cursor.at
    match = _HUNK.fullmatch(cursor.take())
    if not match:
        raise cursor.error("cannot read this @@ line")
    old, new = int(match[2] or 1), int(match[4] or 1)
    while old > 0 or new > 0 or cursor.peek() == _NO_EOL:
        line = cursor.peek()
        if line is None:
            raise cursor.error("patch ends inside a hunk", fix=_right_counts(cursor, start))
        cursor.take()
        if line == _NO_EOL:
            continue
        if line[:1] not in ("+", "-", " "):
            what = "blank context line lost its leading blank" if not line else "stray line in hunk"
            raise cursor.error(
                f"{what}: `{line[:60]}`", fix=_right_counts(cursor, start) if line else None
            )
        old -= line[0] != "+"
        new -= line[0] != "-"
    if old or new:
        raise cursor.error("hunk is longer than its @@ line says", fix=_right_counts(cursor, start))


def _right_counts(cursor: Cursor, start: int) -> str:
    """Say what the @@ line at ``start`` would have to be for the lines that follow it."""
    head = _HUNK.fullmatch(cursor.lines[start])
    assert head is not None
    old = new = 0
    for line in cursor.lines[start + 1 :]:
        if line[:1] not in ("+", "-", " ") or line == "-- ":
            break
        old += line[0] != "+"
        new += line[0] != "-"
    return (
        f"its lines are {old} old and {new} new ones, which is written "
        f"`@@ -{head[1]},{old} +{head[3]},{new} @@`: if no line is missing, correct that by hand; "
        f"else {ANEW}"
    )


def _by_unidiff(cursor: Cursor, first: int) -> Sequence[unidiff.Hunk]:
    """Return the hunks of the file whose ``---`` line is at ``first``."""
    import unidiff

    lines = [line + "\n" for line in cursor.lines[first : cursor.at]]
    try:
        parsed = unidiff.PatchSet(iter(lines))
    except unidiff.UnidiffParseError as error:
        raise cursor.error(f"not a unified diff: {error}", line=first + 1) from None
    if len(parsed) != 1 or not all(hunk.is_valid() for hunk in parsed[0]):
        raise cursor.error("hunk counts do not match their lines", line=first + 1)
    return list(parsed[0])


def _hunk(number: int, parsed: unidiff.Hunk, header: str, cursor: Cursor, begin: int) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    kinds: list[str] = []
    for line in parsed:
        if line.line_type == "\\":  # "\ No newline at end of file"
            for side, marks in ((old, " -"), (new, " +")):
                if kinds and kinds[-1] in marks:
                    side[-1] = side[-1].removesuffix("\n")
            continue
        kinds.append(line.line_type)
        if not line.is_added:
            old.append(line.value)
        if not line.is_removed:
            new.append(line.value)
    changed = [i for i, mark in enumerate(kinds) if mark != " "]
    if not changed:
        raise cursor.error("hunk holds only context", line=begin + 1)
    return Hunk(
        number=number,
        header=header,
        old_start=parsed.source_start,
        old=tuple(old),
        new=tuple(new),
        leading=changed[0],
        trailing=len(kinds) - 1 - changed[-1],
    )
