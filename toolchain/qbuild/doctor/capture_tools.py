"""Compilers, SDKs, CUDA toolkits and the order of PATH, through a probe."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from qbuild.doctor.probe import Probe

_VSWHERE: Final = "C:\\Program Files (x86)\\Microsoft Visual Studio\\Installer\\vswhere.exe"
_SDKS: Final = "SOFTWARE\\Microsoft\\Windows Kits\\Installed Roots"
_WINDOWS_CUDA: Final = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA"
_LOOKED_FOR: Final = ("gcc.exe", "cl.exe", "link.exe", "gcc", "clang", "nvcc", "nvcc.exe")
_TOOLS: Final = ("git", "cmake", "ninja")


def capture_tools(probe: Probe) -> dict[str, Any]:
    """Return the facts about compilers and tools, as keywords of ``Facts``."""
    windows = probe.system() == "windows"
    values: dict[str, Any] = {
        "tools": {name: _version(probe, name) for name in _TOOLS},
        "generator": probe.env("CMAKE_GENERATOR"),
        "path": _path(probe, windows),
        **_cuda(probe, windows),
    }
    if windows:
        values |= _visual_studio(probe, values["generator"])
    else:
        values["gcc"] = _first_line(probe, ("gcc", "-dumpfullversion"))
        values["clang"] = _number(_first_line(probe, ("clang", "--version")))
    return values


def _version(probe: Probe, name: str) -> str | None:
    return _number(_first_line(probe, (name, "--version")))


def _first_line(probe: Probe, command: tuple[str, ...]) -> str | None:
    found = probe.which(command[0])
    text = probe.output((found, *command[1:])) if found else None
    return text.strip().splitlines()[0].strip() if text and text.strip() else None


def _number(text: str | None) -> str | None:
    """Return the first dotted number: "git version 2.39.5" → "2.39.5"."""
    match = re.search(r"\d+(\.\d+)+", text or "")
    return match[0] if match else None


def _path(probe: Probe, windows: bool) -> tuple[str, ...]:
    """Return the folders on PATH that hold a compiler or a linker, in order."""
    separator = ";" if windows else ":"
    folders = [each.strip('"') for each in (probe.env("PATH") or "").split(separator) if each]
    held = []
    for folder in dict.fromkeys(folders):
        names = {each.lower() for each in probe.listing(folder)}
        if names.intersection(_LOOKED_FOR):
            held.append(folder)
    return tuple(held)


def release_of(text: str | None) -> str | None:
    """Return the release in ``nvcc --version``: "…release 12.4, V12.4.131" → "12.4.131"."""
    match = re.search(r"release (\d+\.\d+)(?:, V([\d.]+))?", text or "")
    return (match[2] or match[1]) if match else None


def toolkit_version(probe: Probe, folder: str, separator: str) -> str | None:
    """Return the version of a CUDA folder by its version.json (since 11.1) or version.txt."""
    text = probe.read(f"{folder}{separator}version.json")
    if text:
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            return None
    return _number(probe.read(f"{folder}{separator}version.txt"))


def _cuda(probe: Probe, windows: bool) -> dict[str, Any]:
    separator = "\\" if windows else "/"
    nvcc = probe.which("nvcc")
    on_path = release_of(probe.output((nvcc, "--version"))) if nvcc else None
    named = probe.env("CUDA_PATH") or probe.env("CUDA_HOME")
    named_version = toolkit_version(probe, named, separator) if named else None
    roots = [_WINDOWS_CUDA] if windows else ["/usr/local"]
    installed = []
    for root in roots:
        for name in probe.listing(root):
            if match := re.fullmatch(r"(?:v|cuda-)(\d+\.\d+)", name):
                installed.append(match[1])
    return {
        "nvcc": on_path,
        "cuda": named_version or on_path,
        "cuda_path": named,
        "cuda_path_version": named_version,
        "cuda_toolkits": tuple(installed),
    }


def parse_vswhere(text: str) -> list[tuple[str, str]]:
    """Return (version, folder) of each Visual Studio in ``vswhere -format json``, newest first."""
    try:
        rows = json.loads(text)
    except ValueError:
        return []
    found = [
        (str(row["installationVersion"]), str(row["installationPath"]))
        for row in rows
        if isinstance(row, dict) and "installationVersion" in row and "installationPath" in row
    ]
    return sorted(found, key=lambda row: _key(row[0]), reverse=True)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _visual_studio(probe: Probe, generator: str | None) -> dict[str, Any]:
    """Return Visual Studios, MSVC toolsets, SDKs and CUDA's files in the newest of them."""
    command = (_VSWHERE, "-all", "-products", "*", "-format", "json", "-utf8")
    text = probe.output(command)
    studios = parse_vswhere(text) if text else []
    toolsets: list[str] = []
    customizations: tuple[str, ...] | None = None
    for version, folder in studios:
        names = probe.listing(f"{folder}\\VC\\Tools\\MSVC")
        toolsets += [_two(name) for name in names if re.fullmatch(r"\d+\.\d+[\d.]*", name)]
        if customizations is None:
            target = f"{folder}\\MSBuild\\Microsoft\\VC\\v{version.split('.')[0]}0"
            files = probe.listing(f"{target}\\BuildCustomizations")
            customizations = tuple(each for each in files if each.upper().startswith("CUDA"))
    toolsets = sorted(dict.fromkeys(toolsets), key=_key, reverse=True)
    active = probe.env("VCToolsVersion")  # set by vcvars: what this prompt would use
    toolset = _two(active) if active else (toolsets[0] if toolsets else None)
    sdks = tuple(each for each in probe.registry_keys(_SDKS) if each.startswith("10."))
    return {
        "visual_studio": tuple(version for version, _ in studios),
        "toolset": toolset,
        "other_toolsets": tuple(each for each in toolsets if each != toolset),
        "windows_sdks": sdks,
        "vs_buildcustomizations": customizations,
        "generator": generator,
    }


def _two(version: str) -> str:
    return ".".join(version.split(".")[:2])
