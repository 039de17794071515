"""Read one patch file, a git-am mailbox of exactly one mail, into plain frozen data.

The reader is stricter than git on purpose: whatever git could understand differently from what
is checked here is refused, so that the lints see all that git would act on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qbuild.errors import PatchError
from qbuild.patches.diff import ANEW, Cursor, FileChange, sections

_HEADERS = frozenset(
    {"from", "date", "subject", "mime-version", "content-type", "content-transfer-encoding",
     "message-id", "in-reply-to", "references"}
)  # fmt: skip
_MBOX_SEPARATOR = re.compile(r"From \S+ .*\d\d:\d\d:\d\d \d{4}")


@dataclass(frozen=True, kw_only=True)
class Mail:
    """One patch: who, why and what."""

    subject: str
    author: str
    date: str
    message: str
    files: tuple[FileChange, ...]
    body: bytes = field(repr=False, default=b"")
    """The whole mail with LF line ends: what git is given and what the digest covers."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path the patch names, sorted."""
        return tuple(sorted({path for change in self.files for path in change.paths}))


def normalise(data: bytes, name: str) -> bytes:
    """Return the patch with LF line ends, without a mark of its encoding.

    A checkout on Windows may turn every line end of the series into CRLF; that is undone. A
    file that holds both kinds was damaged or patches a CRLF file: git would keep or drop the
    CRs by its own rules, so it is refused.

    Raises:
        PatchError: The file is UTF-16, mixes line ends, or holds a NUL or a lone CR.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or _every_second_is_zero(data):
        raise PatchError(
            "the patch is UTF-16, not UTF-8: PowerShell 5 writes that with `>`",
            where=name,
            fix="let git write the file: `git format-patch -1 -o FOLDER COMMIT`, not `>`; or turn "
            "this one: `iconv -f UTF-16 -t UTF-8 OLD > NEW` (Linux, Git Bash)",
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data:
        raise PatchError("patch holds a NUL byte", where=name, fix=f"patches are text; {ANEW}")
    crlf = data.count(b"\r\n")
    if crlf and crlf != data.count(b"\n"):
        raise _mixed(data, name)
    data = data.replace(b"\r\n", b"\n")
    if b"\r" in data:
        number = data[: data.index(b"\r")].count(b"\n") + 1
        raise PatchError("patch holds a lone CR", where=f"{name}, line {number}")
    return data if data.endswith(b"\n") else data + b"\n"


def _every_second_is_zero(data: bytes) -> bool:
    head = data[:200]
    return len(head) >= 8 and max(head[::2].count(0), head[1::2].count(0)) > len(head) // 4


def _mixed(data: bytes, name: str) -> PatchError:
    """Return the error for a file with both kinds of line ends: damaged, or for a CRLF file."""
    lines = data.split(b"\n")
    number = next(
        i for i, line in enumerate(lines, 1) if line.endswith(b"\r") != lines[0].endswith(b"\r")
    )
    path = b""
    for line in lines:
        if line.startswith(b"+++ "):
            path = line[4:].strip().removeprefix(b"b/")
        elif path and line.endswith(b"\r") and line[:1] in (b" ", b"-"):
            # git writes its own lines with LF: only text of the source still has its CR
            return PatchError(
                f"the patch is for a file whose lines end in CRLF: {path.decode(errors='replace')}",
                where=f"{name}, line {number}",
                fix="such files of the source cannot be patched by a series (git keeps or drops "
                "their CRs by its own rules), and `qbuild patch refresh` cannot help: change "
                "what calls it, or add a file of your own beside it",
            )
    return PatchError(
        "patch mixes CRLF and LF line ends: an editor or a mail program turned some of them",
        where=f"{name}, line {number}",
        fix=f"`dos2unix FILE`; or {ANEW}",
    )


def parse(data: bytes, name: str) -> Mail:
    """Return the patch as data.

    Args:
        data: The file's bytes.
        name: How messages call the file, e.g. ``windows-gnu/0001-x.patch``.

    Raises:
        PatchError: It is not one well-formed git mail; the message names file and line.
    """
    body = normalise(data, name)
    cursor = _cursor(body, name)
    headers = _headers(cursor)
    _check(headers, cursor)
    message = _message(cursor)
    files = tuple(sections(cursor))
    if not files:
        raise cursor.error("patch changes no file")
    return Mail(
        subject=_subject(headers["subject"]),
        author=headers["from"],
        date=headers["date"],
        message=message,
        files=files,
        body=body,
    )


def subject_of(body: bytes, name: str) -> str:
    """Return a mail's subject without reading the rest: what a plan says of a patch.

    Args:
        body: What :func:`normalise` made of the file's bytes.
        name: How messages call the file.

    Raises:
        PatchError: Its header is none of a mail.
    """
    return _subject(_headers(_cursor(body.partition(b"\n\n")[0] + b"\n", name))["subject"])


def _cursor(body: bytes, name: str) -> Cursor:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(
            "patch is not UTF-8",
            where=f"{name}, byte {error.start}",
            fix=f"save it as UTF-8; or {ANEW}",
        ) from None
    return Cursor(text.split("\n")[:-1], name)


def _subject(raw: str) -> str:
    """Return the subject as ``git am --keep-non-patch`` makes it: without ``[PATCH n/m]``."""
    text = raw
    if "=?" in raw:  # RFC 2047: git writes letters beyond ASCII so
        import email.header

        text = "".join(
            part.decode(charset or "utf-8", "replace") if isinstance(part, bytes) else part
            for part, charset in email.header.decode_header(raw)
        )
    return re.sub(r"^(?:\s*\[[^\]]*PATCH[^\]]*\])+\s*", "", text).strip()


def name_and_address(author: str) -> tuple[str, str]:
    """Return who wrote a mail and where answers go; both are empty when it does not say so.

    The standard library's parser follows groups in groups as deep as a stranger nests them.
    """
    import email.utils  # a plan only looks at subjects

    try:
        return email.utils.parseaddr(author)
    except RecursionError:
        return "", ""


def _headers(cursor: Cursor) -> dict[str, str]:
    """Read the mail's header; only what ``git format-patch`` writes is known."""
    if (first := cursor.peek()) is not None and _MBOX_SEPARATOR.match(first):
        cursor.take()
    headers: dict[str, str] = {}
    last = ""
    while (line := cursor.peek()) is not None and line:
        cursor.take()
        if line[0] in " \t" and last:
            headers[last] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        last = key.lower()
        if not headers and line.startswith(("diff -", "Index: ", "--- ", "*** ")):
            raise cursor.error(
                "a bare diff, not a mail: it does not say who made the change, when and why",
                fix="in a clone at the pinned commit: `git apply FILE`, `git add -A`, "
                "`git commit`, then `git format-patch -1 -o FOLDER`",
            )
        if not colon or last not in _HEADERS:
            raise cursor.error(f"`{line[:60]}` is not a mail header that qbuild knows")
        if last in headers:
            raise cursor.error(f"header `{key}` appears twice")
        headers[last] = value.strip()
    for key in ("from", "date", "subject"):
        if not headers.get(key):
            # without them git would fill in the clock or the user, and ids would differ
            raise cursor.error(f"patch has no `{key.title()}:` header")
    return headers


def _check(headers: dict[str, str], cursor: Cursor) -> None:
    """Check what the header says: a sender, a time with its zone, plain text."""
    import email.utils  # a plan only looks at subjects

    if not name_and_address(headers["from"])[1]:
        raise cursor.error("`From:` has no mail address")
    try:
        when = email.utils.parsedate_to_datetime(headers["date"])
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise cursor.error("`Date:` is not a mail date with a time zone")
    kind = headers.get("content-type", "text/plain; charset=utf-8").lower().replace('"', "")
    if not kind.startswith("text/plain") or (
        "charset=" in kind and not re.search(r"charset=(utf-8|us-ascii)\b", kind)
    ):
        raise cursor.error(f"`Content-Type: {kind}` is not plain UTF-8 text")
    if headers.get("content-transfer-encoding", "8bit").lower() not in ("7bit", "8bit"):
        # git would decode the body, and what it decodes to was not checked
        raise cursor.error("the mail's body is encoded")


def _message(cursor: Cursor) -> str:
    """Read the commit message and the diffstat, up to the first ``diff --git``."""
    lines: list[str] = []
    in_stat = False
    while (line := cursor.peek()) is not None and not line.startswith("diff --git "):
        cursor.take()
        if line == "---":
            in_stat = True
        elif _MBOX_SEPARATOR.match(line):
            raise cursor.error("file holds more than one mail")
        elif line.startswith(("diff -", "Index: ", "--- ", "+++ ", "@@ ", "diff ")):
            raise cursor.error(f"`{line[:60]}` in the message reads like a diff")
        elif not in_stat:
            if not any(lines) and re.match(r"(from|date|subject):", line, re.IGNORECASE):
                raise cursor.error("a second set of mail headers in the message")
            lines.append(line)
    return "\n".join(lines).strip()
