"""The questions that a capture asks of a machine, and the real machine that answers them.

Captures are pure functions of a :class:`Probe`; tests hand them a machine made of dictionaries,
Windows machines too. :class:`HostProbe` is the only part that touches the real one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from qbuild import bounds, host
from qbuild.doctor.machine_facts import Disk, GpuFacts

RegistryValue = str | int | None
_POWER = "/sys/class/power_supply"  # Linux: Documentation/ABI/testing/sysfs-class-power
_TIMEOUT = 10.0  # seconds for `gcc -dumpfullversion` and the like


class Probe(Protocol):
    """A machine that can be asked."""

    def system(self) -> str:
        """Return ``linux``, ``windows`` or ``darwin``."""

    def machine(self) -> str:
        """Return the machine, e.g. ``x86_64``."""

    def release(self) -> str:
        """Return the kernel's release (Linux) or the version of Windows."""

    def read(self, path: str) -> str | None:
        """Return a small text file, or ``None``."""

    def listing(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder; nothing if there is none."""

    def env(self, name: str) -> str | None:
        """Return an environment variable; an empty one counts as unset."""

    def which(self, program: str) -> str | None:
        """Return where PATH finds a program."""

    def output(self, command: Sequence[str]) -> str | None:
        """Return what a program prints, or ``None`` if it fails."""

    def registry(self, key: str, value: str) -> RegistryValue:
        """Return a value below HKEY_LOCAL_MACHINE, or ``None``."""

    def registry_keys(self, key: str) -> tuple[str, ...]:
        """Return the names of the keys below a key of HKEY_LOCAL_MACHINE."""

    def processor_features(self, numbers: Sequence[int]) -> dict[int, bool]:
        """Return what IsProcessorFeaturePresent says (Windows)."""

    def code_page(self) -> int | None:
        """Return the ANSI code page (Windows)."""

    def nvml(self) -> tuple[GpuFacts, ...] | None:
        """Return NVIDIA's cards; ``None`` without a driver."""

    def cores(self) -> int | None:
        """Return the number of physical cores."""

    def threads(self) -> int | None:
        """Return the number of hardware threads."""

    def memory(self) -> int:
        """Return bytes of memory."""

    def battery(self) -> bool:
        """Return whether there is a battery."""

    def free_disk(self, path: str) -> int | None:
        """Return free bytes where a folder is or would be."""

    def disk(self, path: str) -> Disk | None:
        """Return the kind of disk where a folder is or would be."""


class HostProbe:
    """The machine that qbuild runs on."""

    def system(self) -> str:
        """See :class:`Probe`."""
        return host.system()

    def machine(self) -> str:
        """See :class:`Probe`."""
        return host.platform_key().partition("-")[2]

    def release(self) -> str:
        """See :class:`Probe`."""
        if hasattr(os, "uname"):
            return os.uname().release
        import platform  # see host.platform_key for why not at the top

        return platform.version()

    def read(self, path: str) -> str | None:
        """See :class:`Probe`."""
        try:
            return bounds.read_bytes(Path(path), bounds.JSON).decode("utf-8", "replace")
        except OSError:
            return None

    def listing(self, path: str) -> tuple[str, ...]:
        """See :class:`Probe`."""
        try:
            return tuple(sorted(each.name for each in Path(path).iterdir()))
        except OSError:
            return ()

    def env(self, name: str) -> str | None:
        """See :class:`Probe`."""
        return os.environ.get(name) or None

    def which(self, program: str) -> str | None:
        """See :class:`Probe`."""
        return shutil.which(program)

    def output(self, command: Sequence[str]) -> str | None:
        """See :class:`Probe`."""
        try:
            done = subprocess.run(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.decode("utf-8", "replace")

    def registry(self, key: str, value: str) -> RegistryValue:
        """See :class:`Probe`."""
        with contextlib.suppress(ImportError, OSError):
            winreg: Any = importlib.import_module("winreg")
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
                found = winreg.QueryValueEx(opened, value)[0]
                return found if isinstance(found, str | int) else None
        return None

    def registry_keys(self, key: str) -> tuple[str, ...]:
        """See :class:`Probe`."""
        names: list[str] = []
        with contextlib.suppress(ImportError, OSError):
            winreg: Any = importlib.import_module("winreg")
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
                while True:  # ends with OSError behind the last
                    names.append(winreg.EnumKey(opened, len(names)))
        return tuple(names)

    def processor_features(self, numbers: Sequence[int]) -> dict[int, bool]:
        """See :class:`Probe`."""
        kernel = _kernel32()
        if kernel is None:
            return {}
        return {each: bool(kernel.IsProcessorFeaturePresent(each)) for each in numbers}

    def code_page(self) -> int | None:
        """See :class:`Probe`."""
        kernel = _kernel32()
        return None if kernel is None else int(kernel.GetACP())

    def nvml(self) -> tuple[GpuFacts, ...] | None:
        """See :class:`Probe`."""
        from qbuild.doctor.detect import nvml

        return nvml.cards(nvml.load(self.system()))

    def cores(self) -> int | None:
        """See :class:`Probe`."""
        import psutil

        return psutil.cpu_count(logical=False)

    def threads(self) -> int | None:
        """See :class:`Probe`."""
        return os.cpu_count()

    def memory(self) -> int:
        """See :class:`Probe`."""
        if hasattr(os, "sysconf"):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        import psutil  # takes longer to load than everything else here

        return int(psutil.virtual_memory().total)

    def battery(self) -> bool:
        """See :class:`Probe`."""
        if self.system() == "linux":
            return any(self._carries_it(f"{_POWER}/{name}") for name in self.listing(_POWER))
        import psutil

        try:
            return psutil.sensors_battery() is not None
        except (AttributeError, OSError, ValueError):  # not on every system
            return False

    def _carries_it(self, supply: str) -> bool:
        """Tell whether a power supply is a battery of the machine, and not of its mouse."""
        said = {name: (self.read(f"{supply}/{name}") or "").strip() for name in ("type", "scope")}
        return said["type"] == "Battery" and said["scope"] != "Device"

    def free_disk(self, path: str) -> int | None:
        """See :class:`Probe`."""
        folder = _existing(path)
        return host.free_disk(str(folder)) if folder else None

    def disk(self, path: str) -> Disk | None:
        """See :class:`Probe`."""
        folder = _existing(path)
        if folder is None:
            return None
        if self.system() == "windows":
            return _windows_disk(folder)
        device = folder.stat().st_dev
        block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        try:
            real = block.resolve(strict=True)
        except OSError:
            return None  # an overlay, a network drive
        for candidate in (real, real.parent):  # a partition's queue is its disk's
            text = self.read(str(candidate / "queue" / "rotational"))
            if text is not None:
                if "nvme" in str(real):
                    return "nvme"
                return "hdd" if text.strip() == "1" else "ssd"
        return None


def _existing(path: str) -> Path | None:
    folder = Path(path)
    return next((each for each in (folder, *folder.parents) if each.is_dir()), None)


def _kernel32() -> Any | None:
    import ctypes

    loader = getattr(ctypes, "windll", None)
    return None if loader is None else loader.kernel32


def _windows_disk(folder: Path) -> Disk | None:
    """Return whether seeking costs time on the disk of a folder: hdd, else ssd.

    IOCTL_STORAGE_QUERY_PROPERTY with StorageDeviceSeekPenaltyProperty (winioctl.h); the handle
    asks for no access, so that no administrator is needed. Never run on a real Windows.
    """
    import ctypes

    kernel = _kernel32()
    if kernel is None or not folder.drive.endswith(":"):
        return None
    query, property_id, open_existing, share = 0x002D1400, 7, 3, 3
    kernel.CreateFileW.restype = ctypes.c_void_p
    handle = kernel.CreateFileW(rf"\\.\{folder.drive}", 0, share, None, open_existing, 0, None)
    if handle in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        request = (ctypes.c_ulong * 3)(property_id, 0, 0)
        answer = (ctypes.c_ubyte * 12)()
        got = ctypes.c_ulong(0)
        done = kernel.DeviceIoControl(
            ctypes.c_void_p(handle),
            query,
            ctypes.byref(request),
            ctypes.sizeof(request),
            ctypes.byref(answer),
            ctypes.sizeof(answer),
            ctypes.byref(got),
            None,
        )
        if not done or got.value < 9:
            return None
        return "hdd" if answer[8] else "ssd"
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))
