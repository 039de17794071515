"""Run by the Windows Python: a file is open while its folder is renamed and it is replaced.

Python opens files as a scanner does not: without leave to delete them. That is the hard case.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from qbuild import held
from qbuild.errors import StoreError
from qbuild.store import write_atomically


def main() -> None:
    """Say what happened to a file held for a moment, and to one that stays held."""
    folder = Path("held")
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(b"old")
    stream = (folder / "file").open("rb")
    threading.Timer(1.0, stream.close).start()
    started = time.monotonic()
    held.rename(folder, Path("moved"))
    print("folder renamed", time.monotonic() - started >= 0.9)
    stream = Path("moved/file").open("rb")  # noqa: SIM115
    threading.Timer(1.0, stream.close).start()
    write_atomically(Path("moved/file"), b"new")
    print("file replaced", Path("moved/file").read_bytes())
    with Path("moved/file").open("rb"):
        try:
            write_atomically(Path("moved/file"), b"newer")
        except StoreError as error:
            print("refused", error)
    print("file kept", Path("moved/file").read_bytes())
    print("files", sorted(path.name for path in Path("moved").iterdir()))


if __name__ == "__main__":
    main()
