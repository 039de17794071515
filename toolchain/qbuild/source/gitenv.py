"""How qbuild runs git: through GitPython, and deaf to everything around it.

A user's or a machine's git configuration can change line endings, run hooks, sign commits,
rewrite URLs and name programs. Tree and commit ids of a build must not depend on any of it, so
every git that qbuild starts gets the environment made here.

GitPython starts git; what it prints is read here. GitPython's own objects (``Repo``, ``Commit``)
are not used: they read through children that inherit ``os.environ``, where a variable such as
``GIT_OBJECT_DIRECTORY`` leads them to other objects, and each has to be hashed again anyway. Where
there is no git, dulwich reads (:mod:`qbuild.source.gitless`).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from qbuild.errors import OriginError, ToolchainError
from qbuild.source.gitless import GET_GIT, have_git

# Handed over as GIT_CONFIG_KEY_n / GIT_CONFIG_VALUE_n (git >= 2.31), so that git's own children
# (upload-pack, index-pack) hear it as well.
_CONFIG: tuple[tuple[str, str], ...] = (
    ("core.autocrlf", "false"),
    ("core.eol", "lf"),
    ("core.safecrlf", "false"),
    ("core.longpaths", "true"),
    ("core.fsmonitor", "false"),
    # Neither NOSYSTEM nor GLOBAL covers $XDG_CONFIG_HOME/git/{attributes,ignore}.
    ("core.attributesFile", os.devnull),
    ("core.excludesFile", os.devnull),
    ("core.hooksPath", os.devnull),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("commit.gpgSign", "false"),
    ("advice.detachedHead", "false"),
    ("init.defaultBranch", "main"),
    ("protocol.ext.allow", "never"),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("http.lowSpeedLimit", "1000"),  # bytes per second ...
    ("http.lowSpeedTime", "20"),  # ... for so many seconds: git gives up by itself
    # A store may be owned by another account (a CI cache, a container's bind mount). git runs
    # in qbuild's own repositories only, never in an origin's, so the owner does not matter.
    ("safe.directory", "*"),
)

# Variables that would point git at another repository, program or configuration.
_KEEP = frozenset({"GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSH", "GIT_SSH_COMMAND"})

_ENVIRON_LOCK = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class GitResult:
    """What one git command came back with."""

    rc: int  # exit status; negative when a signal ended it (POSIX)
    out: bytes  # standard output, as bytes: paths and blobs need not be UTF-8
    err: str  # standard error, decoded with replacement

    @property
    def text(self) -> str:
        """Standard output decoded as UTF-8 with replacement, without its last line end."""
        return self.out.decode("utf-8", "replace").rstrip("\n")

    @property
    def last_error(self) -> str:
        """The last line of standard error that says something, without git's prefix."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return told[-1].removeprefix("fatal: ").removeprefix("error: ") if told else ""


def git_env(ceiling: Path) -> dict[str, str]:
    """Return the variables that make git independent of user, machine and surroundings.

    Args:
        ceiling: Folder above which git never looks for a repository: the parent of the one
            it works in. A checkout of qbuild inside another repository stays apart from it.
    """
    env = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(ceiling.absolute()),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ADVICE": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    }
    for index, (key, value) in enumerate(_CONFIG):
        env[f"GIT_CONFIG_KEY_{index}"] = key
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    return env


@contextlib.contextmanager
def _without_git_variables() -> Iterator[None]:
    """Hide inherited ``GIT_*`` variables while a process starts.

    GitPython always starts from ``os.environ`` and can add to it but not take away, and an
    empty ``GIT_DIR`` is an error to git rather than the same as none.
    """
    with _ENVIRON_LOCK:
        hidden = {
            key: os.environ.pop(key)
            for key in list(os.environ)
            if key.startswith("GIT_") and key not in _KEEP
        }
        try:
            yield
        finally:
            os.environ.update(hidden)


def run_git(
    args: Sequence[str],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> GitResult:
    """Run ``git ARGS`` in ``cwd`` and return what it said; a non-zero status is no exception.

    Args:
        args: Arguments after ``git``.
        cwd: Folder to run in; its parent is the ceiling.
        env: Variables on top of :func:`git_env`'s.
        stdin: Bytes for standard input; none: it is empty.
        timeout: Seconds after which git is ended.
        on_progress: Called, from another thread, with each line git writes to standard error;
            a progress line counts each time it is redrawn.

    Raises:
        ToolchainError: There is no git on this machine.
        OriginError: The time limit passed.
    """
    merged = {**git_env(cwd.absolute().parent), **(env or {})}
    with _without_git_variables():
        try:
            handle = _git_class()(str(cwd)).execute(
                ["git", *args],
                as_process=True,
                istream=subprocess.PIPE if stdin is not None else None,
                env=merged,
            )
        except Exception as error:
            if type(error).__name__ == "GitCommandNotFound":
                raise _no_git() from error
            raise
    process, listener = handle.proc, None
    heard: list[bytes] = []
    if on_progress is not None:
        # communicate() then finds no standard error left to read
        listener = threading.Thread(
            target=_listen, args=(process.stderr, heard, on_progress), daemon=True
        )
        listener.start()
        process.stderr = None
    try:
        out, err = process.communicate(input=stdin, timeout=timeout)
        if listener is not None:
            listener.join()
            err = b"".join(heard)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise OriginError(
            f"git {args[0]} did not finish within {timeout:.0f} s", where=str(cwd)
        ) from error
    except BaseException:
        _end(process)
        raise
    return GitResult(rc=process.returncode, out=out, err=err.decode("utf-8", "replace"))


def _listen(stream: IO[bytes], heard: list[bytes], on_progress: Callable[[str], None]) -> None:
    """Read a child's standard error to its end; progress lines are told but not kept."""
    with stream:
        pending = b""
        while block := os.read(stream.fileno(), 1 << 16):
            *lines, pending = re.split(rb"(?<=[\r\n])", pending + block)
            for line in lines:
                if not line.endswith(b"\r"):
                    heard.append(line)
                on_progress(line.decode("utf-8", "replace").strip())
        heard.append(pending)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a git to stop (it removes its temporary files on SIGTERM), then make it."""
    process.terminate()
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _git_class() -> type:
    """Import GitPython; it runs ``git version`` at import and raises when there is no git."""
    try:
        from git.cmd import Git
    except ImportError as error:
        raise _no_git() from error
    return Git  # type: ignore[no-any-return]


def need_git() -> None:
    """Refuse at once what would otherwise fetch for minutes and then fail.

    Raises:
        ToolchainError: There is no git.
    """
    if not have_git():
        raise _no_git()


def _no_git() -> ToolchainError:
    return ToolchainError("git was not found", where="PATH", fix=GET_GIT)
