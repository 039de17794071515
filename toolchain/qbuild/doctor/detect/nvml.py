"""NVIDIA cards, asked of the driver's own management library (NVML) through ctypes.

Function names and structures: NVIDIA's public nvml.h. The library comes with the driver; where it
is missing there is no driver.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from qbuild.doctor.machine_facts import GpuFacts

LIBRARIES: Final = {
    "linux": ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"),
    "windows": ("nvml.dll",),
}
_GIB: Final = 1 << 30
_NAME: Final = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
_VERSION: Final = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def load(system: str) -> Any | None:
    """Return the library, or ``None`` where there is none."""
    for name in LIBRARIES.get(system, ()):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def cards(library: Any | None) -> tuple[GpuFacts, ...] | None:
    """Return the cards the driver knows; ``None``: there is no driver, or it does not answer.

    Args:
        library: NVML as :func:`load` gives it (or something that behaves like it).
    """
    if library is None or library.nvmlInit_v2() != 0:
        return None
    try:
        version = ctypes.create_string_buffer(_VERSION)
        library.nvmlSystemGetDriverVersion(version, ctypes.c_uint(_VERSION))
        count = ctypes.c_uint(0)
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        driver = version.value.decode("ascii", "replace") or None
        return tuple(
            card for i in range(count.value) if (card := _card(library, i, driver)) is not None
        )
    finally:
        library.nvmlShutdown()


def _card(library: Any, index: int, driver: str | None) -> GpuFacts | None:
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return None
    name = ctypes.create_string_buffer(_NAME)
    library.nvmlDeviceGetName(handle, name, ctypes.c_uint(_NAME))
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    answered = library.nvmlDeviceGetCudaComputeCapability(
        handle, ctypes.byref(major), ctypes.byref(minor)
    )
    memory = _Memory()
    has_memory = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return GpuFacts(
        name=name.value.decode("utf-8", "replace") or None,
        vendor="nvidia",
        capability=f"{major.value}.{minor.value}" if answered == 0 and major.value else None,
        vram_gb=round(memory.total / _GIB, 1) if has_memory and memory.total else None,
        driver=driver,
    )
