"""What the scripts share that write a table from llama.cpp's patched source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def write_or_compare(make: Callable[[Path], str], out: Path) -> int:
    """Write a table, or with ``--check`` among the words compare it; return the exit status.

    Args:
        make: Returns the table's text for the source's folder, the first word that is no option.
        out: The table in this repository.
    """
    text = make(Path(next(word for word in sys.argv[1:] if not word.startswith("-"))))
    if "--check" in sys.argv:
        same = out.read_text(encoding="utf-8") == text
        print(f"{out.name} is the source's" if same else f"stale: {out}")
        return 0 if same else 1
    out.write_text(text, encoding="utf-8")
    print(f"wrote {out.name}: {len(text)} bytes")
    return 0
