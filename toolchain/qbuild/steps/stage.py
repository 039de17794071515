"""Stage: pick from the build tree what the targets are made of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.errors import BundleError
from qbuild.steps.base import Before, Kind, Request, Step

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan

FORMAT: Final = 1


class StageStep(Kind):
    """``bin``: executables and libraries."""

    kind = "stage"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what was compiled."""
        return {"format": FORMAT, "compile": before["compile"].key}

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return what it picks."""
        return "executables and libraries"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Pick them.

        Raises:
            BundleError: A target has no executable.
        """
        recipe = build.plan.recipe
        names = stage(
            build.result("compile").path / "bin",
            dest,
            targets=recipe.build.targets,
            windows=recipe.target.os == "windows",
        )
        return {"files": names}


def stage(built: Path, dest: Path, *, targets: Sequence[str], windows: bool) -> list[str]:
    """Copy the targets' executables and every shared library beside them into ``dest/bin``.

    Which of the libraries ship is decided later, by import tables. A library's versioned links
    become one file named as its users name it.

    Args:
        built: Folder of the build's binaries.
        dest: Empty folder that gets ``bin/``.
        targets: CMake targets, one executable each.
        windows: Whether the target is Windows.

    Returns:
        Names below ``bin/``, sorted.

    Raises:
        BundleError: A target has no executable.
    """
    out = dest / "bin"
    out.mkdir(parents=True)
    names = []
    for target in targets:
        name = f"{target}.exe" if windows else target
        if not (built / name).is_file():
            raise BundleError(
                f"target `{target}` built no executable `{name}`",
                where="build.targets",
                fix="only targets that are programs can ship",
            )
        names.append(name)
    for path in sorted(built.iterdir()):
        library = path.suffix == ".dll" if windows else ".so" in path.suffixes
        if library and path.is_file():
            names.append(path.name)
    for name in names:
        shutil.copyfile(built / name, out / name)
        (out / name).chmod(0o755)
    return sorted(names)
