"""Three small Windows libraries that the machine needs, built by the pinned zig of this system.

They hand what they export on to another library (forwarders in a .def file). One stands between an
altered copy of zig.exe and Wine's ntdll.dll, one is the python3.dll of the stable ABI, which the
jar from Maven Central lacks, one the bcryptprimitives.dll of Rust's programs, which Wine 8 lacks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NTDLL, SHIM = b"\0ntdll.dll\0", b"\0ntqbw.dll\0"
"""The name in zig.exe of the library below it, and of the one that stands before it in Wine."""

OWN = ("NtLockFile", "NtUnlockFile", "NtQueryAttributesFile", "NtSetInformationFile")
"""What wine_shim.c does itself, as Shim…"""

REAL = ("NtOpenFile", "NtQueryInformationFile", "NtClose",
        "RealSetInformationFile==NtSetInformationFile",
        "RealQueryAttributesFile==NtQueryAttributesFile")  # fmt: skip
"""What wine_shim.c calls of the real ntdll.dll: a name of its own where it exports the same."""


BRIDGE_CALLS = {
    "kernel32": (
        "GetProcessHeap", "HeapAlloc", "HeapReAlloc", "WideCharToMultiByte", "CreateFileW",
        "GetFileSize", "ReadFile", "WriteFile", "CloseHandle", "GetCommandLineW", "Sleep",
        "GetCurrentProcessId", "GetTickCount", "GetCurrentDirectoryW", "GetModuleFileNameW",
        "lstrlenW", "lstrcpyW", "CreateProcessW", "ExitProcess", "GetStdHandle", "DeleteFileW",
    ),
    "user32": ("wsprintfW",),
    "shell32": ("CommandLineToArgvW",),
}  # fmt: skip
"""What zig_bridge.c calls."""


@dataclass(frozen=True, kw_only=True)
class Builder:
    """zig of this system, and a folder for what it keeps."""

    zig: Path
    cache: Path

    def run(self, folder: Path, *words: str) -> None:
        """Run zig in a folder."""
        places = {f"ZIG_{kind}_CACHE_DIR": str(self.cache) for kind in ("GLOBAL", "LOCAL")}
        subprocess.run(
            [str(self.zig), *words], cwd=folder, env={**os.environ, **places}, check=True
        )

    def library(self, target: Path, lines: Sequence[str], source: Path, *more: str) -> None:
        """Build a library that exports what the lines of a .def file say."""
        work = self.cache / "libraries" / target.stem
        work.mkdir(parents=True, exist_ok=True)
        text = "\n".join([f"LIBRARY {target.name}", "EXPORTS", *lines, ""])
        (work / f"{target.stem}.def").write_text(text)
        self.run(
            work, "cc", "-target", "x86_64-windows-gnu", "-O1", "-nostdlib", "-shared", "-s",
            "-Wl,-e,DllMain", "-o", target.name, str(source), f"{target.stem}.def", *more,
        )  # fmt: skip
        target.write_bytes((work / target.name).read_bytes())

    def alter_zig(self, folder: Path) -> None:
        """Make the zig.exe in a folder load the shim, and put the shim beside it."""
        program = folder / "zig.exe"
        data = program.read_bytes()
        if data.count(NTDLL) != 1:
            raise RuntimeError("zig.exe does not name ntdll.dll once, as it did")
        names = _imports(data, b"ntdll.dll")
        program.unlink()  # it may be a hard link to the pinned file
        program.write_bytes(data.replace(NTDLL, SHIM))
        work = self.cache / "libraries" / "ntqbw"
        work.mkdir(parents=True, exist_ok=True)
        (work / "real.def").write_text("\n".join(["LIBRARY ntdll.dll", "EXPORTS", *REAL, ""]))
        self.run(work, "dlltool", "-m", "i386:x86-64", "-d", "real.def", "-l", "libreal.a")
        lines = [
            f"{name} = Shim{name.removeprefix('Nt')}" if name in OWN else f"{name} = ntdll.{name}"
            for name in names
        ]
        self.library(folder / "ntqbw.dll", lines, HERE / "wine_shim.c", "libreal.a")

    def bridge(self, folder: Path, cache: Path) -> None:
        """Put a zig.exe into a folder that hands everything to this system's zig.

        Args:
            folder: The wheel's ``ziglang``.
            cache: That zig's cache folder.
        """
        work = self.cache / "libraries" / "bridge"
        work.mkdir(parents=True, exist_ok=True)
        for library, names in BRIDGE_CALLS.items():
            text = "\n".join([f"LIBRARY {library}.dll", "EXPORTS", *names, ""])
            (work / f"{library}.def").write_text(text)
            self.run(work, "dlltool", "-m", "i386:x86-64", "-d", f"{library}.def",
                     "-l", f"lib{library}.a")  # fmt: skip
        headers = self.zig.parent / "lib"
        self.run(
            work, "cc", "-target", "x86_64-windows-gnu", "-O1", "-nostdlib", "-s",
            "-fno-stack-protector", "-fno-builtin", "-mno-stack-arg-probe",
            "-isystem", str(headers / "libc" / "include" / "any-windows-any"),
            "-isystem", str(headers / "include"), "-Wl,-e,start", "-o", "zig.exe",
            str(HERE / "zig_bridge.c"), *(f"lib{library}.a" for library in BRIDGE_CALLS),
        )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zig.exe").write_bytes((work / "zig.exe").read_bytes())
        places = " ".join(f"ZIG_{kind}_CACHE_DIR='{cache}'" for kind in ("GLOBAL", "LOCAL"))
        (folder / "zig.txt").write_text(f"export {places}\n'{self.zig}'")

    def stable_abi(self, folder: Path, name: str) -> None:
        """Write python3.dll beside ``name``.dll, e.g. python311.dll."""
        lines = [f"{each} = {name}.{each}" for each in _exports(folder / f"{name}.dll")]
        self.library(folder / "python3.dll", lines, HERE / "empty.c")

    def random_bytes(self, folder: Path) -> None:
        """Write bcryptprimitives.dll: without it no extension module made by Rust 1.78+ loads.

        Its one function takes a buffer and a size, as advapi32's RtlGenRandom does, whose exported
        name is SystemFunction036. Wine has the library since version 9.
        """
        lines = ["ProcessPrng = advapi32.SystemFunction036"]
        self.library(folder / "bcryptprimitives.dll", lines, HERE / "empty.c")


def _image(data: bytes, directory: int) -> Any:
    import pefile

    image = pefile.PE(data=data, fast_load=True)
    image.parse_data_directories(directories=[directory])
    return image


def _imports(data: bytes, library: bytes) -> list[str]:
    image = _image(data, 1)  # IMAGE_DIRECTORY_ENTRY_IMPORT
    (found,) = (each for each in image.DIRECTORY_ENTRY_IMPORT if each.dll.lower() == library)
    return [each.name.decode() for each in found.imports]


def _exports(path: Path) -> list[str]:
    image = _image(path.read_bytes(), 0)  # IMAGE_DIRECTORY_ENTRY_EXPORT
    return [each.name.decode() for each in image.DIRECTORY_ENTRY_EXPORT.symbols if each.name]
