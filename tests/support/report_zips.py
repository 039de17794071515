"""Zips for the tests of ``qbuild report``: real papers by qbuild's own bundler, small binaries."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from qbuild.bundle.facts import PatchFacts, SeriesFacts
from qbuild.bundle.make import make_bundle
from qbuild.hashing import sha256_file
from qbuild.recipe.isa import switches
from qbuild.recipe.model import Build, Os
from qbuild.store import Store, step_key
from support.bundles import facts, source_tree, zig_wheel
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe

SERIES = (
    SeriesFacts(
        name="qwen3-mtp",
        summary="Tool calls of Qwen3",
        digest="3" * 64,
        patches=(
            PatchFacts(
                file="0001-history.patch",
                subject="chat: keep malformed arguments in the history",
                why="One malformed call in the history was HTTP 500 on every later request.",
                sha256="4" * 64,
            ),
            PatchFacts(
                file="0002-stream.patch",
                subject="chat: salvage calls while streaming",
                why="A slightly malformed call ended the stream.",
                sha256="5" * 64,
            ),
        ),
    ),
)


VERSION = b"0c1e57098\0"
"""What ``--version`` prints of the commit."""


def _elf(size: int, needed: tuple[str, ...], **more: Any) -> bytes:
    more.setdefault("sections", {".rodata": VERSION})
    code = bytes.fromhex("62f17c4858c1") * more.pop("code_above", False) + b"\xc3" * size  # AVX-512
    return make_elf(needed, code=code, runpath="$ORIGIN", **more)


def linux_files(scale: int = 1) -> dict[str, bytes]:
    """Return a staged shared build: three programs and the libraries they load."""
    system = ("libc.so.6", "libm.so.6")
    return {
        "bin/llama-cli": _elf(9000 * scale, ("libllama.so.0", "libggml.so.0", *system)),
        "bin/llama-server": _elf(30000 * scale, ("libllama.so.0", "libmtmd.so.0", *system)),
        "bin/llama-bench": _elf(4000 * scale, ("libllama.so.0", *system)),
        "lib/libllama.so.0": _elf(22000 * scale, ("libggml.so.0", *system), soname="libllama.so.0"),
        "lib/libmtmd.so.0": _elf(
            7000 * scale, ("libllama.so.0", "libggml.so.0", "libc.so.6"), soname="libmtmd.so.0"
        ),
        "lib/libggml.so.0": _elf(
            2000 * scale, ("libggml-base.so.0", "libggml-cpu.so.0", *system), soname="libggml.so.0"
        ),
        "lib/libggml-cpu.so.0": _elf(
            12000 * scale, ("libggml-base.so.0", *system), soname="libggml-cpu.so.0"
        ),
        "lib/libggml-base.so.0": _elf(6000 * scale, system, soname="libggml-base.so.0"),
    }


def windows_files() -> dict[str, bytes]:
    """Return a staged static build for Windows."""
    loads = ["KERNEL32.dll", "WS2_32.dll"]
    loads += [f"api-ms-win-crt-{name}-l1-1-0.dll" for name in ("heap", "math", "stdio")]
    return {
        f"bin/llama-{name}.exe": make_pe(loads, code=b"\xc3" * size, extra=VERSION)
        for name, size in (("cli", 9000), ("server", 30000), ("bench", 5000))
    }


def make(root: Path, os: Os = "linux", *, cpu: str = "x86-64-v3", **changes: Any) -> Path:
    """Write a bundle with everything a bundle has, and return the zip."""
    files = changes.pop("files", None) or (windows_files() if os == "windows" else linux_files())
    stage = root / "stage"
    for name, data in files.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_bytes(data)
    source = source_tree(root / "src")
    linkage = "static" if os == "windows" else "shared"
    given = {
        "series": SERIES,
        "build": Build(linkage=linkage, options={"LLAMA_TOOL_CALL_PARSER": True}),
        "cmake": {**switches(cpu, ()), "GGML_NATIVE": False},
        "lock": {
            "source": {"commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f"},
            "wheels": [{"project": "ziglang", "version": "0.17.1", "sha256": "5" * 64,
                        "filename": "ziglang-0.17.1-py3-none-any.whl", "size": 1}],
        },
    }  # fmt: skip
    result = make_bundle(
        stage=stage,
        source_tree=source,
        toolchain_licences={"ziglang": zig_wheel(root / "zig")},
        facts=facts(os, **{**given, **changes}),
        dest_dir=root / "dist",
    )
    return result.zip


EDGES = [
    ["tools/server/CMakeFiles/server.dir/server.cpp.o", 3000, 48000],
    ["ggml/src/CMakeFiles/ggml-cpu.dir/ops.cpp.o", 0, 21500],
    ["src/CMakeFiles/llama.dir/llama-model.cpp.o", 21500, 60200],
    ["common/CMakeFiles/common.dir/chat.cpp.o", 48000, 61000],
    ["bin/llama-server", 61000, 61900],
]


def add_records(zip_path: Path, store: Store, *, edges: Any = EDGES, ok: bool = True) -> None:
    """Write the verdict and the build record beside a zip, and the store's entries of its steps."""
    compiled = {"format": 1, "targets": ["llama-server"]}
    stage = {"compile": step_key("compile", compiled)}
    bundle = {"stage": step_key("stage", stage)}

    def fill(dest: Path) -> dict[str, Any]:
        (dest / "timeline.json").write_text(json.dumps(edges))
        return {}

    store.put("compile", step_key("compile", compiled), compiled, fill)
    store.put("stage", step_key("stage", stage), stage, lambda dest: {})
    store.put("bundle", step_key("bundle", bundle), bundle, lambda dest: {})
    digest = sha256_file(zip_path)
    checks = [
        {"id": "archive", "title": "the archive is sound", "status": "passed",
         "details": ["14 files"]},
        {"id": "run.native.version", "title": "llama-cli: prints its version (natively)",
         "status": "passed"},
        {"id": "run.wine", "title": "runs in Wine", "status": "not-run",
         "details": ["Wine is not installed"]},
    ]  # fmt: skip
    if not ok:
        checks.append({"id": "cpu", "title": "runs on its processor level", "status": "failed",
                       "details": ["llama-cli: vpdpbusd at 0x1000"]})  # fmt: skip
    verdict = {"format": 1, "zip": zip_path.name, "sha256": digest, "ok": ok, "checks": checks}
    record = {
        "bundle": step_key("bundle", bundle),
        "zip": {"name": zip_path.name, "sha256": digest},
        "host": "linux-x86_64",
        "hermetic": True,
        "origin": "the sdist",
        "made": ["patch", "compile"],
        "reused": ["source"],
        "seconds": {"patch": 2.5, "configure": 14.0, "ninja": 62.1, "compile": 80.0, "stage": 0.2,
                    "bundle": 1.4, "verify": 5.5},
    }  # fmt: skip
    for suffix, data in (("verdict", verdict), ("build", record)):
        zip_path.with_name(f"{zip_path.name}.{suffix}.json").write_text(json.dumps(data))


def fat_elf(needed: tuple[str, ...], archs: tuple[int, ...]) -> bytes:
    """Return a library that holds machine code for GPUs; only its size and place are real."""
    from qbuild.binary.fatbin import MAGIC

    body = b""
    for arch in archs:
        code = b"\x7fELF" + bytes(2044)
        body += struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(code), 0, 0, 7, 1, arch, 0, 0,
                            0x11, 0, 0) + code  # fmt: skip
    data = struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body
    return make_elf(
        needed, soname="libggml-cuda.so", runpath="$ORIGIN", sections={".nv_fatbin": data}
    )
