"""Writes the fuzzers' corpus: one small file of each kind that a reader meets, and old bombs.

    PYTHONPATH=tests python -m support.fuzz_corpus

The files lie in ``tests/data/fuzz/<reader>/``; what a fuzzer found is added to them by hand.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

from qbuild import resources
from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.store import Store, step_key
from support import gguf_files, report_zips, tiny_fatbin
from support.tiny_coff import make_import, make_library, make_object, make_private_object
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe

CORPUS = Path(__file__).resolve().parent.parent / "data" / "fuzz"

PATCH = b"""\
From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001
From: A <a@example.invalid>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] one: change a line

Why.
---
 a.c | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/a.c b/a.c
index 1111111..2222222 100644
--- a/a.c
+++ b/a.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
--\x20
2.39.5
"""


def _zips(folder: Path) -> dict[str, bytes]:
    plain = folder / "plain.zip"
    entries = [ZipEntry(name=name, source=data, executable=name == "a/tool") for name, data in
               (("a/tool", b"x" * 900), ("b.txt", b""), ("deep/er/c", bytes(5000)))]  # fmt: skip
    write_zip(plain, entries)
    return {"plain": plain.read_bytes(), "bundle": report_zips.make(folder / "z").read_bytes()}


def _tars() -> dict[str, bytes]:
    """An sdist whose repository, as the reader is told, lies at ``r``."""
    out = io.BytesIO()
    blob = zlib.compress(b"blob 600\0" + b"x" * 600)
    files = (
        ("p/" + "l" * 120, b""),
        ("p/r/shallow", b"a" * 40 + b"\n"),
        ("p/r/objects/a4/" + "b" * 38, blob),
        ("p/r/objects/pack/pack-1.pack", b"y"),
    )
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return {"plain": gzip.compress(out.getvalue(), mtime=0)}


def _binaries() -> dict[str, dict[str, bytes]]:
    fat = tiny_fatbin.container(
        tiny_fatbin.entry(tiny_fatbin.cubin(["kernel_a", "kernel_b"])),
        tiny_fatbin.entry(b".version 8\n.entry k(\n)", kind=1),
    )
    code = bytes.fromhex("c5fc58c1488d050000000048630481ffe090c3") * 20
    return {
        "pe": {
            "exe": make_pe({"KERNEL32.dll": ["ExitProcess", "Sleep"], "b.dll": ["f"]}, code=code),
            "dll": make_pe(exports=["one", "two"], dll="x.dll", repro=True, pdb="x.pdb"),
        },
        "elf": {
            "exe": make_elf(("libc.so.6",), imports=["puts"], code=code),
            "so": make_elf(("libm.so.6",), exports=["one", "two"], soname="libx.so.0",
                           versions={"libc.so.6": ["GLIBC_2.28"]}, runpath="$ORIGIN"),
        },
        "coff": {
            "object": make_object("/DEFAULTLIB:LIBCMT /FAILIFMISMATCH:\"a=b\""),
            "big": make_object("/DEFAULTLIB:MSVCRT", big=True),
            "private": make_private_object(),
            "library": make_library(
                {"a.obj": make_object("/x"), "b" * 30: make_import("f", "a.dll")}
            ),
        },
        "fatbin": {
            "elf": make_elf(("libc.so.6",), sections={".nv_fatbin": fat}),
            "pe": make_pe({"KERNEL32.dll": ["f"]}, sections={".nv_fatb": fat}),
        },
    }  # fmt: skip


def _texts(folder: Path) -> dict[str, dict[str, bytes]]:
    lock = resources.lockfile().read_bytes()
    recipe = b'schema = 1\nname = "small"\nsummary = "S"\nextends = "avx2"\n[build]\n'
    recipe += b'targets = ["llama-cli"]\noptions = { GGML_LLAMAFILE = false, A.B = 1 }\n'
    bundle = report_zips.make(folder / "b")
    report_zips.add_records(bundle, Store(folder / "s"))
    inputs = {"a": 1}

    def fill(dest: Path) -> dict[str, Any]:
        (dest / "f").write_text("x")
        return {}

    entry = Store(folder / "e").put("thing", step_key("thing", inputs), inputs, fill)
    from qbuild.binary.zip_reader import open_zip

    with open_zip(bundle) as view:
        manifest = view.read("manifest.json")
    return {
        "toml": {"recipe": recipe, "lock": lock[:6000], "dots": b".".join([b"a"] * 3000) + b" = 1"},
        "recipe": {"small": recipe}, "lock": {"lock": lock}, "patch": {"one": PATCH},
        "manifest": {"manifest": manifest},
        "verdict": {"verdict": bundle.with_name(f"{bundle.name}.verdict.json").read_bytes()},
        "entry": {"entry": (entry.path / "entry.json").read_bytes()},
        "facts": {"facts": json.dumps({"os": "linux", "cpu_count": 4, "path": ["/bin"]}).encode()},
    }  # fmt: skip


def main() -> None:
    """Write every file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys, tensors = gguf_files.llama(layers=2)
        gguf = gguf_files.write(folder / "x.gguf", keys, tensors).read_bytes()[: 64 << 10]
        zips = _zips(folder)
        many = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)[:46]
        kinds = {
            "zip": {**zips, "directory": many * 50}, "verify": {"bundle": zips["bundle"]},
            "tar": _tars(), "gguf": {"llama": gguf}, **_binaries(), **_texts(folder),
        }  # fmt: skip
        for kind, files in kinds.items():
            (CORPUS / kind).mkdir(parents=True, exist_ok=True)
            for label, data in files.items():
                (CORPUS / kind / label).write_bytes(data)


if __name__ == "__main__":
    main()
