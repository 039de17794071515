"""Answers that cost more than the rest of a command, kept in the user's cache folder.

A file that is missing, damaged or cannot be written costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from qbuild import bounds, host

FOLDER: Final = "answers"


def remembered(depends: Sequence[str], work: Callable[[], str]) -> str:
    """Return what ``work()`` returns, from an earlier run where one asked the very same.

    Args:
        depends: Everything that can change the answer. It is kept with the answer and compared
            as it is: no hash, so no mistake, and no library for one.
        work: Gives the answer.
    """
    asked = list(depends)
    root = host.user_folder("cache")
    if root is None:
        return work()
    name = zlib.crc32("\0".join(asked).encode("utf-8", "surrogatepass"))
    path = root / FOLDER / f"{name:08x}.json"
    with contextlib.suppress(OSError, ValueError):
        kept = bounds.load_json(bounds.read_bytes(path, bounds.JSON))
        if isinstance(kept, dict) and kept.get("asked") == asked:
            found = kept.get("answer")
            if isinstance(found, str):
                return found
    answer = work()
    from qbuild.errors import StoreError
    from qbuild.store import write_atomically  # a slow import, for the first time only

    with contextlib.suppress(StoreError):
        write_atomically(path, json.dumps({"asked": asked, "answer": answer}).encode())
    return answer
