"""Making facts of a machine: ``qbuild doctor`` looks at them, ``--capture`` prints them."""

from __future__ import annotations

import contextlib
import getpass
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.doctor.capture_tools import capture_tools
from qbuild.doctor.detect.hardware import capture_hardware
from qbuild.doctor.machine_facts import Facts
from qbuild.doctor.privacy import kernel_release, mask_path
from qbuild.doctor.probe import HostProbe, Probe

if TYPE_CHECKING:
    from qbuild.recipe.model import Recipe

GIB: Final = 1 << 30
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_CA_FILES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
)


def capture(
    *, store: str, jobs: int, cwd: str, probe: Probe | None = None, personal: Collection[str] = ()
) -> Facts:
    """Return the facts of a machine, with its folders masked.

    Args:
        store: Folder of the store.
        jobs: Compilers that would run at once.
        cwd: Folder of the checkout.
        probe: The machine; this one by default.
        personal: Names to mask everywhere, e.g. the user's.
    """
    asked = probe or HostProbe()
    system = asked.system()
    release = asked.release()
    free = asked.free_disk(store)
    values: dict[str, Any] = {
        "schema": 1,
        "os": system,
        "kernel": kernel_release(release) if system == "linux" else None,
        "os_version": _os_version(asked),
        "jobs": jobs,
        "free_disk_gb": None if free is None else round(free / GIB, 1),
        "build_root": store,
        "store": store,
        "cwd": cwd,
        **capture_hardware(asked),
        **capture_tools(asked),
        **_network(asked),
    }
    if system == "windows":
        values |= _windows(asked, store)
    wsl = "microsoft" in release.lower()
    kind = asked.disk(store)
    # a virtual disk calls itself rotating whatever lies beneath
    values["disk"] = None if kind == "hdd" and (values["virtual"] or wsl) else kind
    for name in ("build_root", "store", "cwd", "cuda_path"):
        if values.get(name):
            values[name] = mask_path(values[name], personal)
    values["path"] = tuple(mask_path(each, personal) for each in values["path"])
    return Facts(**values)


def personal_names() -> tuple[str, ...]:
    """Return the names of this machine's user and of the machine itself."""
    import socket

    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(RuntimeError):  # a user without a home
        names.add(Path.home().name)
    with contextlib.suppress(KeyError, OSError, ImportError):  # a user without a name
        names.add(getpass.getuser())
    return tuple(sorted(each for each in names if each))


def with_recipe(facts: Facts, recipe: Recipe) -> Facts:
    """Return facts with what a recipe asks for.

    What the facts say themselves (``architectures`` of a captured build) stays.
    """
    cuda = getattr(recipe, "cuda", None)
    named = getattr(cuda, "architectures", ()) if cuda is not None else ()
    return replace(
        facts,
        recipe=recipe.name,
        recipe_os=recipe.target.os,
        recipe_cpu=recipe.target.cpu,
        toolchain=recipe.toolchain.name,
        architectures=facts.architectures or tuple(str(each) for each in named),
    )


def _os_version(probe: Probe) -> str | None:
    if probe.system() == "linux":
        text = probe.read("/etc/os-release") or ""
        fields = dict(re.findall(r'^(ID|VERSION_ID)="?([\w.-]+)"?$', text, re.MULTILINE))
        return " ".join(fields[key] for key in ("ID", "VERSION_ID") if key in fields) or None
    match = re.match(r"[\d.]+", probe.release())
    return match[0] if match else None


def _network(probe: Probe) -> dict[str, Any]:
    """Return names of variables; their values may hold passwords and are never taken."""
    names: list[str] = []
    differing: list[str] = []
    # Windows knows one spelling only: its variables have no letter case
    both = probe.system() != "windows"
    for name in _PROXIES:
        lower = probe.env(name)
        upper = probe.env(name.upper()) if both else None
        names += [each for each, value in ((name, lower), (name.upper(), upper)) if value]
        if lower and upper and lower != upper:
            differing.append(name)
    missing = [
        name for name in _CA_FILES if (value := probe.env(name)) and not _is_there(probe, value)
    ]
    return {
        "proxy": tuple(names),
        "proxy_differs": tuple(differing),
        "missing_ca_files": tuple(missing),
    }


def _is_there(probe: Probe, path: str) -> bool:
    """Return whether a file or folder of certificates exists."""
    return probe.read(path) is not None or bool(probe.listing(path))


def _windows(probe: Probe, store: str) -> dict[str, Any]:
    """Return what only Windows has: long paths, code page, Defender."""
    file_system = "SYSTEM\\CurrentControlSet\\Control\\FileSystem"
    long_paths = probe.registry(file_system, "LongPathsEnabled")
    defender = "SOFTWARE\\Microsoft\\Windows Defender"
    disabled = probe.registry(f"{defender}\\Real-Time Protection", "DisableRealtimeMonitoring")
    known = bool(probe.registry_keys(defender))
    return {
        "long_paths_enabled": bool(long_paths) if long_paths is not None else None,
        "code_page": probe.code_page(),
        # the exclusions can be read by administrators only, so "not excluded" is never known here
        "defender_realtime": not disabled if known else None,
        "defender_excluded": True
        if known and _excluded(probe, f"{defender}\\Exclusions\\Paths", store)
        else None,
    }


def _excluded(probe: Probe, key: str, store: str) -> bool:
    """Return whether the store or a folder above it is a value of the exclusions' key."""
    parts = store.replace("/", "\\").split("\\")
    folders: Iterable[str] = ("\\".join(parts[:n]) for n in range(1, len(parts) + 1))
    return any(probe.registry(key, folder) is not None for folder in folders)
