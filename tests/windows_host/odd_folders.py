"""Run by the Windows Python: the store, a wrapper, a lock and a zip in folders with odd names.

Prints one line of JSON per folder: name, and ``right`` or the error that qbuild would print.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from qbuild.binary.zip_reader import open_zip
from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.cli.common import store as chosen
from qbuild.console import Silent
from qbuild.errors import QbuildError
from qbuild.store import step_key
from qbuild.toolchains.base import write_wrapper

NAMES = (
    "plain", "with blank", "two  blanks", "Jürgen Groß", "ÄÖÜ ß", "é à ç", "naïve œuvre", "中文",
    "构建 目录", "日本語", "한국어", "Привет", "Ελληνικά", "עברית", "العربية", "ไทย", "emoji 🚀",
    "a&b", "a^b", "a%b", "100%", "%PATH%", "a!b", "!x!", "(x86)", "it's", "semi;colon", "comma,x",
    "equal=x", "plus+x", "at@x", "hash#x", "dollar$x", "tilde~x", "`tick`", "[brackets]",
    "{braces}", "dot.dot", ".hidden", "-dash", "UPPER lower", "x" * 120, "deep/" * 12 + "end",
)  # fmt: skip


def work_in(folder: Path) -> None:
    """Do in a folder what a build does: lock, put, find, check, call a wrapper, write a zip."""
    store = chosen(argparse.Namespace(store=str(folder / "store")))
    inputs = {"folder": "any"}
    key = step_key("odd", inputs)

    def fill(dest: Path) -> dict[str, str]:
        (dest / "file.txt").write_bytes(b"content\n")
        return {}

    with store.in_use(), store.lock("odd", key, Silent()):
        store.put("odd", key, inputs, fill)
    entry = store.get("odd", key, Silent())
    assert entry is not None and store.damage(entry, thorough=True) is None
    assert [each.key for each in store.entries()] == [key]
    # sys.executable stands in for the compiler: the wrapper names it and a folder beside itself.
    inner = store.root / "work" / "src"
    code = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode('utf-8'))"
    wrapper = write_wrapper(
        store.root / "work" / "tools" / "cc",
        [sys.executable, "-c", code, f"-map={inner.as_posix()}=."],
    )
    said = subprocess.run([str(wrapper), "a b", "-DX=1"], capture_output=True, check=True)
    wanted = [f"-map={inner.as_posix()}=.", "a b", "-DX=1"]
    assert said.stdout.decode("utf-8") == repr(wanted), said.stdout
    archive = folder / "made.zip"
    write_zip(archive, [ZipEntry(name="file.txt", source=entry.path / "file.txt")])
    with open_zip(archive) as view:
        assert view.read("file.txt") == b"content\n"


def main(root: Path) -> None:
    """Try every name."""
    for name in NAMES:
        try:
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            work_in(folder)
            said = "right"
        except QbuildError as error:
            said = f"refused: {error.what}"
        except Exception as error:
            said = f"WRONG: {type(error).__name__}: {error}"
        print(json.dumps([name, said]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
