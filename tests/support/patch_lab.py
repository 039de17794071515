"""A small source repository and patch series made from it, for the patch tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qbuild.source.gitenv import run_git

WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-02-03T04:05:06+00:00",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_COMMITTER_DATE": "2026-02-03T04:05:06+00:00",
}
# One mail in three parts.
HEAD = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Ada <ada@example.org>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] one: change a line

Because.
---
 a.c | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

"""
DIFF = """\
diff --git a/a.c b/a.c
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/a.c
+++ b/a.c
@@ -1,3 +1,3 @@ int main()
 one
-two
+TWO
 three
"""
TAIL = "-- \n2.39.5\n\n"

Files = Mapping[str, bytes | None]


def numbered(count: int = 40, **changed: str) -> bytes:
    """Return ``count`` distinct lines; ``line12="…"`` replaces line 12."""
    return "".join(
        changed.get(f"line{n}", f"text of line {n}") + "\n" for n in range(1, count + 1)
    ).encode()


class Lab:
    """One repository to patch and one folder of series."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = root / "source"
        self.patches = root / "patches"
        self.patches.mkdir(parents=True)
        self.repo.mkdir()
        self.git("init", "--quiet", "--template=")

    def git(self, *args: str, stdin: bytes | None = None) -> str:
        done = run_git(list(args), self.repo, env=WHO, stdin=stdin)
        assert done.rc == 0, f"git {args}: {done.err}"
        return done.text

    def commit(self, files: Files, message: str = "upstream", *, onto: str | None = None) -> str:
        """Write the files, commit, return the id."""
        if onto:
            self.git("checkout", "--quiet", "--detach", "--force", onto)
        for name, data in files.items():
            path = self.repo / name
            if data is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def mails(self, base: str, steps: Sequence[tuple[str, Files]]) -> list[tuple[str, bytes]]:
        """Return a mail per step, each step committed onto the one before."""
        self.git("checkout", "--quiet", "--detach", "--force", base)
        made = []
        for number, (subject, files) in enumerate(steps, 1):
            self.commit(files, subject)
            mail = self.format_patch()
            made.append((f"{number:04d}-{subject.split(':')[0].replace(' ', '-')}.patch", mail))
        return made

    def format_patch(self) -> bytes:
        done = run_git(
            ["format-patch", "-1", "--stdout", "--full-index", "--zero-commit", "--no-signature",
             "--binary", "-M", "HEAD"],
            self.repo,
            env=WHO,
        )  # fmt: skip
        assert done.rc == 0, done.err
        return done.out

    def series(
        self, name: str, base: str, steps: Sequence[tuple[str, Files]], *, extra: str = ""
    ) -> str:
        """Write a series made from the steps; return its name."""
        write_series(self.patches, name, self.mails(base, steps), extra=extra)
        return name


def paths_of(mail: bytes) -> list[str]:
    """Return the paths a mail's diff lines name."""
    found: set[str] = set()
    for line in mail.decode("utf-8", "replace").splitlines():
        if line.startswith("diff --git "):
            _, _, old, new = line.split(" ")[:4]
            found |= {old[2:], new[2:]}
    return sorted(found)


def write_series(
    root: Path,
    name: str,
    mails: Sequence[tuple[str, bytes]],
    *,
    extra: str = "",
    touches: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write ``root/name`` with a series.toml for the mails; return the folder."""
    folder = root / name
    folder.mkdir(parents=True)
    text = [f'name = "{name}"', 'summary = "a series for tests"', 'author-note = "tests"', extra]
    for file, mail in mails:
        (folder / file).write_bytes(mail)
        listed = (touches or {}).get(file, paths_of(mail))
        quoted = ", ".join(f'"{path}"' for path in listed)
        text += [
            "[[patch]]",
            f'file = "{file}"',
            'why = "to see it applied"',
            "upstream = []",
            'drop_when = "never"',
            f"touches = [{quoted}]",
            'tests = ["this one"]',
            'probe = { kind = "string", value = "x", in = "llama" }',
        ]
    (folder / "series.toml").write_text("\n".join(text) + "\n", newline="\n")
    return folder
