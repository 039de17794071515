"""A finished zip as a Python wheel: ``pip install`` it and ``llama-cli`` is a command.

The wheel holds the very files of the zip, unpacked below one package, and a small module that
starts them; scikit-build-core builds it. Nothing is compiled and nothing looks at the machine:
platform, name and version come from the zip's manifest, so equal zips give equal wheels.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbuild import bounds
from qbuild.binary.zip_reader import open_zip
from qbuild.binary.zip_writer import WrittenZip, ZipEntry, write_zip
from qbuild.errors import BundleError, UsageError
from qbuild.store import write_atomically

_EPOCH = "315532800"
"""Seconds: 1980-01-01, the oldest time a zip can hold; the bundles' own time stamp."""

_LAUNCH = '''\
"""Starts the programs that lie beside this module."""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "bundle"


def start(name):
    """Become the program, with this process's arguments."""
    program = str(FOLDER / name)
    if os.name == "nt":
        import subprocess

        sys.exit(subprocess.call([program, *sys.argv[1:]]))
    os.execv(program, [program, *sys.argv[1:]])
'''

_CMAKE = """\
# Copies files only: no language, no compiler.
cmake_minimum_required(VERSION 3.24)
project({name} LANGUAGES NONE)
install(DIRECTORY bundle DESTINATION {package} USE_SOURCE_PERMISSIONS)
install(FILES __init__.py launch.py DESTINATION {package})
"""

_BUILD = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"


@dataclass(frozen=True, kw_only=True)
class Described:
    """What the wheel says about itself."""

    project: str  # name for ``pip install``, e.g. ``qbuild-llama-avx2``
    version: str  # PEP 440 version, e.g. ``0.5.0.dev0+g0c1e57098``
    platform: str  # platform tag, e.g. ``manylinux_2_28_x86_64``
    programs: Mapping[str, str]  # command → file in the bundle
    licence: str  # SPDX expression of everything inside; empty: not all of it has one
    summary: str  # one line for people

    @property
    def package(self) -> str:
        """Return the importable name."""
        return self.project.replace("-", "_")

    @property
    def filename(self) -> str:
        """Return the wheel's file name."""
        return f"{self.package}-{self.version}-py3-none-{self.platform}.whl"


def describe(manifest: Mapping[str, Any], sbom: Mapping[str, Any]) -> Described:
    """Return what a wheel of this bundle is called and holds.

    Raises:
        BundleError: The bundle holds no program, or is for a machine wheels have no tag for.
    """
    recipe = re.sub(r"[^a-z0-9]+", "-", str(manifest["recipe"]))
    target = manifest["target"]
    programs = {
        Path(f["path"]).name.removesuffix(".exe"): f["path"]
        for f in manifest["files"]
        if f["executable"]
    }
    if not programs:
        raise BundleError("the zip holds no program", where=str(manifest["name"]))
    return Described(
        project=f"qbuild-llama-{recipe}",
        version=_version(manifest),
        platform=_platform(target),
        programs=programs,
        licence=_licence(sbom),
        summary=f"llama.cpp {manifest['version']} for {target['os']}, {target['cpu']} "
        f"(recipe {manifest['recipe']})",
    )


def _version(manifest: Mapping[str, Any]) -> str:
    """Return upstream's version with the exact build behind it, as PEP 440 writes it."""
    from packaging.version import InvalidVersion, Version

    try:
        base = Version(str(manifest["source"]["version"])).public
    except InvalidVersion:
        base = "0"
    return str(Version(f"{base}+{manifest['version']}"))


def _platform(target: Mapping[str, Any]) -> str:
    """Return the platform tag; a Linux bundle's glibc floor was checked by ``verify``."""
    if target["os"] == "windows" and target["arch"] == "x86_64":
        return "win_amd64"
    if target["os"] == "linux" and target.get("glibc"):
        return f"manylinux_{str(target['glibc']).replace('.', '_')}_{target['arch']}"
    raise BundleError(f"there is no wheel tag for {target['os']} on {target['arch']}")


def _licence(sbom: Mapping[str, Any]) -> str:
    """Return one expression for all components, or nothing when a part has only a text."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    found: set[str] = set()
    for part in sbom.get("components", []):
        for item in part.get("licenses", []):
            said = item.get("expression") or item.get("license", {}).get("id")
            if not said:
                return ""
            found.add(f"({said})" if " OR " in said else said)
    try:
        return str(canonicalize_license_expression(" AND ".join(sorted(found)))) if found else ""
    except InvalidLicenseExpression:
        return ""


def project_files(what: Described) -> dict[str, str]:
    """Return name → text of the project that scikit-build-core builds."""
    functions = "".join(
        f'\n\ndef {_function(command)}():\n    """Start {command}."""\n    start("{file}")\n'
        for command, file in sorted(what.programs.items())
    )
    scripts = "".join(
        f'{json.dumps(command)} = "{what.package}.launch:{_function(command)}"\n'
        for command in sorted(what.programs)
    )
    licence = f"license = {json.dumps(what.licence)}\n" if what.licence else ""
    return {
        "pyproject.toml": f"""\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"

[project]
name = "{what.project}"
version = "{what.version}"
description = {json.dumps(what.summary)}
readme = {{ file = "bundle/README.txt", content-type = "text/plain" }}
requires-python = ">=3.8"
{licence}license-files = ["bundle/licenses/*"]

[project.scripts]
{scripts}
[tool.scikit-build]
wheel.packages = []
wheel.py-api = "py3"
""",
        "CMakeLists.txt": _CMAKE.format(name=what.package, package=what.package),
        "__init__.py": f'"""{what.summary}."""\n',
        "launch.py": _LAUNCH + functions,
    }


def _function(command: str) -> str:
    return re.sub(r"\W", "_", command)


def make_wheel(zip_path: Path, dist: Path, work: Path, *, programs: Sequence[Path]) -> Path:
    """Return the wheel of a zip, built into ``dist``.

    Args:
        zip_path: A verified zip of qbuild's.
        dist: Where the wheel and its hash go.
        work: Empty folder to work in.
        programs: Folders that hold CMake and ninja.

    Raises:
        ArchiveError: The zip is damaged.
        BundleError: The wheel cannot be made.
        UsageError: The zip is not one of qbuild's.
    """
    with open_zip(zip_path) as view:
        if not {"manifest.json", "sbom.cdx.json"} <= set(view.names):
            raise UsageError(
                "the zip has no manifest", where=str(zip_path), fix="use a zip that qbuild made"
            )
        what = describe(
            bounds.load_json(view.read("manifest.json", most=bounds.JSON)),
            bounds.load_json(view.read("sbom.cdx.json", most=bounds.JSON)),
        )
        view.extract_to(work / "bundle")
        programs_inside = {name for name in view.names if view.member(name).executable}
    for name, text in project_files(what).items():
        (work / name).write_text(text, encoding="utf-8", newline="\n")
    built = _built(work, what, programs)
    dist.mkdir(parents=True, exist_ok=True)
    target = dist / what.filename
    inside = f"{what.package}/bundle/"
    written = _repacked(
        built, target, work / "unpacked", programs={inside + name for name in programs_inside}
    )
    line = f"{written.sha256}  {target.name}\n"
    write_atomically(target.with_name(target.name + ".sha256"), line.encode())
    return target


def _repacked(built: Path, target: Path, work: Path, *, programs: Set[str]) -> WrittenZip:
    """Write the wheel as qbuild writes its zips: the same bytes from every system.

    On Windows the library knows of no file in the zip that it is a program, on every system it
    compresses with another zlib, and it walks a set: RECORD's lines are put in order.

    Args:
        built: What the library wrote.
        target: The wheel to write.
        work: Folder to unpack into; it is made.
        programs: Names in the wheel that may be run.
    """
    with open_zip(built) as view:
        view.extract_to(work)
        names = view.names
    entries = []
    for name in names:
        source: Path | bytes = work / name
        if name.endswith(".dist-info/RECORD"):
            source = b"".join(sorted((work / name).read_bytes().splitlines(keepends=True)))
        entries.append(ZipEntry(name=name, source=source, executable=name in programs))
    return write_zip(target, entries)


def _built(work: Path, what: Described, programs: Sequence[Path]) -> Path:
    """Return the wheel that scikit-build-core makes of the project in a folder."""
    env = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)]),
        "CMAKE_GENERATOR": "Ninja",
        "SOURCE_DATE_EPOCH": _EPOCH,
        "PYTHONHASHSEED": "0",  # scikit-build-core walks a set: the order in the wheel is its own
        "_PYTHON_HOST_PLATFORM": what.platform,
    }
    made = work / "made"
    made.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(made)],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    built = made / what.filename
    if done.returncode != 0 or not built.is_file():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise BundleError(
            "scikit-build-core made no wheel",
            where=said[0] if said else ", ".join(p.name for p in made.iterdir()) or str(work),
            fix="run again with --debug and report what it prints",
        )
    return built
