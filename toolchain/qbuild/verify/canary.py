"""A Windows program of one AVX2 instruction, to see whether an emulated CPU is really in force.

Wine under qemu-user is only worth something if the program itself runs on the emulated CPU and not,
through some exec() in between, on the real one. The canary must die on a CPU without AVX2 and live
on one with it: nothing but working emulation does both.

Layout by Microsoft's "PE Format"; no imports, no sections but its code.
"""

from __future__ import annotations

import struct
from typing import Final

VPADDD_YMM: Final = bytes.fromhex("c5edfec1")  # vpaddd ymm0, ymm2, ymm1
RETURN_ZERO: Final = bytes.fromhex("31c0c3")  # xor eax, eax; ret: Windows ends the thread

OLD_CPU: Final = "Nehalem"
NEW_CPU: Final = "Haswell"

_FILE_ALIGNMENT, _PAGE = 0x200, 0x1000
_EXECUTABLE, _LARGE_ADDRESS_AWARE = 0x2, 0x20
_AMD64, _PE32_PLUS, _CONSOLE = 0x8664, 0x20B, 3
_CODE_EXECUTE_READ = 0x60000020


def program() -> bytes:
    """Return the canary as a PE file of one KiB."""
    code = VPADDD_YMM + RETURN_ZERO
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    header = b"PE\0\0" + struct.pack(
        "<2H3I2H", _AMD64, 1, 0, 0, 0, 240, _EXECUTABLE | _LARGE_ADDRESS_AWARE
    )
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        _PE32_PLUS, 14, 0, _FILE_ALIGNMENT, 0, 0, _PAGE, _PAGE, 0x140000000, _PAGE,
        _FILE_ALIGNMENT, 6, 0, 0, 0, 6, 0, 0, 2 * _PAGE, _FILE_ALIGNMENT, 0, _CONSOLE, 0x100,
        1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16,
    ) + bytes(16 * 8)  # fmt: skip
    section = struct.pack(
        "<8s6I2HI", b".text", len(code), _PAGE, _FILE_ALIGNMENT, _FILE_ALIGNMENT, 0, 0, 0, 0,
        _CODE_EXECUTE_READ,
    )  # fmt: skip
    head = dos + header + optional + section
    return head.ljust(_FILE_ALIGNMENT, b"\0") + code.ljust(_FILE_ALIGNMENT, b"\0")
