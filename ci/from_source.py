"""What the scripts share that write a table from llama.cpp's patched source."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path


def write_or_compare(make: Callable[[Path], Mapping[Path, str]]) -> int:
    """Write tables, or with ``--check`` among the words compare them; return the exit status.

    Args:
        make: Returns file → text for the source's folder, the first word that is no option. In a
            folder that holds several of them nothing else may lie.
    """
    texts = make(Path(next(word for word in sys.argv[1:] if not word.startswith("-"))))
    folders = [each for each, count in Counter(path.parent for path in texts).items() if count > 1]
    beside = {path for folder in folders for path in folder.glob("*")} - set(texts)
    if "--check" in sys.argv:
        stale = [path for path in texts if not path.is_file() or _read(path) != texts[path]]
        for path in sorted({*stale, *beside}):
            print(f"stale: {path}")
        print(f"{len(texts) - len(stale)} of {len(texts)} are the source's")
        return 1 if stale or beside else 0
    for path in beside:
        path.unlink()
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {len(texts)} files, {sum(map(len, texts.values()))} bytes")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
