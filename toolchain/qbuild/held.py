"""Files that another program holds open: Windows refuses to rename or delete them meanwhile.

A virus scanner, the search indexer or a backup looks into every file that was just written, for
tenths of a second up to some seconds. Whoever renames or removes what was written asks through
:func:`patiently`. On other systems the function is simply called: there open files have no say.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

HELD: Final = frozenset({5, 32, 33})
"""Windows' error numbers of a file in use: ERROR_ACCESS_DENIED (what renaming a folder with an
open file in it gives), ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION."""

WAITS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 4.0)
"""Seconds between the tries, ten in all: longer than a scanner was ever said to take."""


def is_held(error: OSError) -> bool:
    """Tell whether Windows refused because of another program's open file."""
    return getattr(error, "winerror", None) in HELD


def why(error: OSError) -> str:
    """Return what the system said, and in plain words when a file is held open."""
    said = error.strerror or str(error)
    if not is_held(error):
        return said
    return f"{said} (another program holds it open: a virus scanner, an editor, a backup?)"


def patiently(
    do: Callable[[], Result],
    *,
    waits: tuple[float, ...] = WAITS_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Return what ``do`` returns; while a file is held open, wait and call it again.

    Args:
        do: Renames or removes something; calling it again must do no harm.
        waits: Seconds before each further try.
        sleep: What waits.

    Raises:
        OSError: It failed for another reason, or the file was still held after the last try.
    """
    for wait in waits:
        try:
            return do()
        except OSError as error:
            if not is_held(error):
                raise
        sleep(wait)
    return do()


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder to a name that is free.

    Raises:
        OSError: See :func:`patiently`.
    """
    patiently(lambda: source.rename(target))


def replace(source: Path, target: Path) -> None:
    """Put a file in the place of another one, in one step.

    Raises:
        OSError: See :func:`patiently`.
    """
    patiently(lambda: source.replace(target))


def remove_tree(path: Path) -> None:
    """Remove a folder even when files in it are read-only, as git's are; missing is fine.

    Only what is in the folder may change its mode on the way: not the folder that it lies in
    (which may be everybody's, as /tmp is), nor what a link in it leads to.
    """

    def writable_then_again(function: Callable[..., Any], name: str, _: object) -> None:
        inside = Path(name)
        with contextlib.suppress(OSError):
            if inside != path:
                inside.parent.chmod(0o700)
            if not inside.is_symlink():
                inside.chmod(0o700)
            patiently(lambda: function(name))

    shutil.rmtree(path, onerror=writable_then_again)


@contextlib.contextmanager
def scratch(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """Give an empty folder that is gone when the context ends.

    As tempfile.TemporaryDirectory, which fails at its end when a scanner holds a file in it: on
    Windows it calls itself until a RecursionError, even where it is told to ignore errors.

    Args:
        prefix: What its name begins with.
        within: Folder to make it in; the default is the system's for temporary files.
    """
    import tempfile  # a slow import, which most runs need not

    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield folder
    finally:
        remove_tree(folder)
