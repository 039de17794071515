"""The plan: every step of a build with its inputs and key, worked out before anything runs.

Pure: reads the recipe, the lockfile and the patch series; no network, no subprocess, no look at
the machine: what has to be known of that was captured before (:mod:`qbuild.steps.captured`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from qbuild import resources
from qbuild.bundle.launch.profile import profiles_of
from qbuild.bundle.launch.source_options import check_by_table
from qbuild.patches import load_series
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.recipe.model import Recipe
from qbuild.steps.base import Kind, Request, Step
from qbuild.steps.captured import Captured
from qbuild.steps.order import BY_NAME, KINDS
from qbuild.toolchains import get_toolchain
from qbuild.toolchains.base import Context


@dataclass(frozen=True, kw_only=True)
class Plan(Request):
    """What was asked for, with all its steps."""

    # in the order they run; ``verify`` follows and is keyed by the zip's bytes
    steps: tuple[Step, ...]

    def find(self, kind: str) -> Step | None:
        """Return the one step of a kind; nothing when this recipe needs none."""
        return next((step for step in self.steps if step.kind == kind), None)

    def __getitem__(self, kind: str) -> Step:
        """Return the one step of a kind.

        Raises:
            KeyError: This recipe needs none.
        """
        step = self.find(kind)
        if step is None:
            raise KeyError(kind)
        return step

    def feeding(self) -> tuple[Kind, ...]:
        """Return the kinds of this plan that configure takes something from."""
        return tuple(BY_NAME[step.kind] for step in self.steps if step.configures)

    def bundled(self) -> tuple[Kind, ...]:
        """Return the kinds of this plan that the bundle takes files of."""
        return tuple(BY_NAME[step.kind] for step in self.steps if step.bundled)

    def wheel(self, project: str) -> WheelPin:
        """Return the pinned wheel of a project that this plan uses.

        Raises:
            KeyError: It uses none.
        """
        for wheel in self.wheels:
            if wheel.project == project:
                return wheel
        raise KeyError(project)

    @property
    def zip_name(self) -> str:
        """``llama-<version>-<recipe>-<os>-<arch>.zip``."""
        return str(self["bundle"].inputs["zip"])


def make_plan(
    recipe: Recipe,
    lock: Lock,
    *,
    host: str,
    patches_root: Path | None = None,
    tests: tuple[str, ...] = (),
    captured: Captured | None = None,
    device_code: bool = True,
    mails: bool = True,
) -> Plan:
    """Return the plan of a recipe.

    Args:
        recipe: The resolved recipe.
        lock: All pins.
        host: The build machine as the lockfile names it, e.g. ``linux-x86_64``.
        patches_root: Folder of the series; the default is qbuild's own.
        tests: Test programs to build instead of the recipe's targets (``qbuild test``).
        captured: What was found on the machine; recipes that take all from pins need none.
        device_code: Compile the CUDA kernels; without them the result runs on the emulated GPU
            only (clang-cuda).
        mails: Read the patches to their end; see :func:`qbuild.patches.load_series`.

    Raises:
        LockError: A pin is missing.
        PatchError: A series is missing or malformed.
        ToolchainError: The toolchain cannot build this recipe.
    """
    found = captured or Captured()
    pin = lock.source(recipe.source.pin)
    check_by_table(recipe, profiles_of(recipe), pin.commit)
    root = patches_root or resources.patches_dir()
    context = Context(
        recipe=recipe, lock=lock, host=host, installed=found.installed, device_code=device_code
    )
    ask = Request(
        recipe=recipe,
        lock=lock,
        pin=pin,
        host=host,
        series=tuple(load_series(root, name, mails=mails) for name in recipe.series),
        toolchain=get_toolchain(context),
        captured=found,
        tests=tests,
    )
    # From the last to the first, which is the order that provenance has always had them in.
    wheels = tuple(wheel for kind in reversed(KINDS) for wheel in kind.wheels(ask))
    entries = {name: value for kind in KINDS for name, value in kind.cache_entries(recipe).items()}
    ask = dataclasses.replace(ask, wheels=wheels, entries=entries)
    steps: dict[str, Step] = {}
    planned: list[Step] = []
    for kind in KINDS:
        for step in kind.plan(ask, steps):
            planned.append(step)
            steps[step.kind] = step
    return Plan(**vars(ask), steps=tuple(planned))
