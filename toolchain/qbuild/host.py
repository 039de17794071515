"""Facts about the machine qbuild itself runs on, and what only Windows needs of it."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from qbuild.errors import UsageError

GIB = 1 << 30
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def system() -> str:
    """Return ``linux``, ``windows`` or ``darwin``."""
    return {"win32": "windows", "cygwin": "windows"}.get(sys.platform, sys.platform)


def platform_key() -> str:
    """Return how the lockfile names this host, e.g. ``linux-x86_64``."""
    if hasattr(os, "uname"):
        machine = os.uname().machine.lower()
    else:
        # not platform.machine(): that runs `cmd /c ver` or asks WMI (3.12), which takes seconds
        import sysconfig

        machine = sysconfig.get_platform().rpartition("-")[2]
    return f"{system()}-{_MACHINES.get(machine, machine)}"


def expand_user(text: str) -> Path:
    """Return a path with a leading ``~`` or ``~name`` replaced by that home folder.

    Raises:
        UsageError: It is not known: there is no such user, or HOME is not set for one whom the
            system does not know (a container that runs as any number).
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"nobody knows which home folder `{text}` means",
            where=text,
            fix="write the whole path, or set HOME",
        ) from None


def user_folder(kind: Literal["cache", "config"]) -> Path | None:
    """Return the user's folder for qbuild's caches or configuration; nothing without a home."""
    import platformdirs

    find = platformdirs.user_cache_dir if kind == "cache" else platformdirs.user_config_dir
    try:
        found = Path(find("qbuild", appauthor=False))
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def cpu_count() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Windows and macOS have no affinity call in Python 3.11
        return os.cpu_count() or 1


def available_memory() -> int:
    """Return bytes of memory that can be used without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)


def free_disk(path: str) -> int:
    """Return free bytes on the disk that holds ``path``."""
    return shutil.disk_usage(path).free


@cache
def default_jobs(bytes_per_job: int = 3 * GIB // 2) -> int:
    """Return how many compilers to run at once: processors, but no more than memory carries.

    Args:
        bytes_per_job: Peak memory of one compiler; llama.cpp's largest C++ files were seen to
            take up to 1.2 GiB with clang at -O3.
    """
    return max(1, min(cpu_count(), available_memory() // bytes_per_job))


def needed_variables(temporary: str) -> dict[str, str]:
    """Return what programs on Windows do not start or work without; nothing elsewhere.

    Args:
        temporary: Folder for their temporary files.
    """
    if system() != "windows":
        return {}
    keep = ("SYSTEMROOT", "COMSPEC", "PATHEXT", "NUMBER_OF_PROCESSORS")
    found = {name: os.environ[name] for name in keep if name in os.environ}
    return {**found, "TEMP": temporary, "TMP": temporary}


def program_name(name: str) -> str:
    """Return the file name of a program on this host."""
    return f"{name}.exe" if system() == "windows" else name


def key_letters() -> int:
    """Return how many letters of a key (of 64) name a folder of the store.

    Windows takes paths of 259 letters unless its owner has changed that. What lies in the store
    is up to 172 letters long below such a folder, and the folder of a user's caches up to 60.
    """
    return 24 if system() == "windows" else 64


def path_limit() -> int | None:
    """Return how many letters a path may have; nothing where that is no worry.

    Windows' own limit is MAX_PATH of <minwindef.h>, 260 with the closing NUL, for programs like
    CMake always, for Python unless LongPathsEnabled is set.
    """
    if system() != "windows":
        return None
    import winreg

    place = r"SYSTEM\CurrentControlSet\Control\FileSystem"
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:  # type: ignore[attr-defined]
            on, _ = winreg.QueryValueEx(key, "LongPathsEnabled")  # type: ignore[attr-defined]
    except OSError:
        return 259
    return None if on else 259


def awkward_letters(path: str) -> str:
    """Return the letters of a folder's name that programs of this host trip over; mostly none.

    On Windows compilers are called through batch files, whose interpreter gives these a meaning
    of its own even in a quoted path.
    """
    if system() != "windows":
        return ""
    return "".join(sorted(set(path) & set("&^%();,=")))


def search_path() -> str:
    r"""Return the PATH of programs that shall find the system's own only.

    Python's default for Windows names the current folder and ``C:\bin``, which anybody may make.
    """
    if system() != "windows":
        return os.defpath
    root = os.environ.get("SYSTEMROOT", r"C:\Windows")
    return f"{root}\\System32;{root}"
