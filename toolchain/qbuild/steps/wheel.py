"""The pinned wheels of all steps, each unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.console import Reporter
from qbuild.cuda.tree import TARGET_WHEELS
from qbuild.held import remove_tree
from qbuild.recipe.lock import WheelPin
from qbuild.source.pipcall import platform_options
from qbuild.steps.base import Before, Kind, Request, Step, new_step
from qbuild.steps.tools import OPENBLAS
from qbuild.store import Store
from qbuild.toolchains.zig import adjust, adjustments_digest

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell

FORMAT: Final = 1
KIND: Final = "wheel"

UNPACKED: Final = 4  # how much larger an unpacked wheel is: the compiler's 101 MB become 411 MB

_FOREIGN: Final = (*TARGET_WHEELS, OPENBLAS)
"""Wheels of libraries: those of the machine the bundle is for."""


def wheel_step(wheel: WheelPin) -> Step:
    """Return the step that fetches and unpacks one wheel."""
    inputs: dict[str, Any] = {"format": FORMAT, "file": wheel.filename, "sha256": wheel.sha256}
    if wheel.project == "ziglang":
        inputs["adjustments"] = adjustments_digest()
    return new_step(KIND, inputs, f"wheel {wheel.project}")


class WheelStep(Kind):
    """``files``: an unpacked wheel."""

    kind = KIND
    fetched = True

    def inputs(self, ask: Request, before: Before) -> None:
        """Return nothing: there is a step for each wheel, see :meth:`plan`."""

    def plan(self, ask: Request, before: Before) -> Iterator[Step]:  # noqa: ARG002
        """Yield a step for each wheel."""
        for wheel in ask.wheels:
            yield wheel_step(wheel)

    def about(self, plan: Plan, step: Step) -> str:
        """Return version and size."""
        wheel = self._pin(plan, step)
        return f"{wheel.version}, {wheel.size / 1e6:.0f} MB"

    def _pin(self, plan: Plan, step: Step) -> WheelPin:
        return next(w for w in plan.wheels if w.filename == step.inputs["file"])

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Fetch and unpack it.

        Raises:
            OriginError: No index or mirror delivers the pinned file.
        """
        wheel = self._pin(build.plan, step)
        return unpack_pin(wheel, dest, build.store, build.reporter, offline=build.options.offline)

    def download(self, build: Builder, step: Step) -> tuple[int, int]:
        """Return its size, packed and unpacked."""
        size = self._pin(build.plan, step).size
        return size, UNPACKED * size

    def script(self, plan: Plan, step: Step, out: Shell) -> None:
        """Write pip's command for it."""
        wheel = self._pin(plan, step)
        if wheel == plan.wheels[0]:
            out.note("Tools, as pinned")
        # A library of the target is another platform's wheel when the script cross compiles.
        foreign = ["--only-binary=:all:", *platform_options(wheel)]
        out.run(
            "python" if out.windows else "python3", "-m", "pip", "install", "--no-deps", "--target",
            f"tools/{wheel.project}", *(foreign if wheel.project in _FOREIGN else []),
            f"{wheel.project}=={wheel.version}",
        )  # fmt: skip


def unpack_pin(
    wheel: WheelPin, dest: Path, store: Store, reporter: Reporter, *, offline: bool
) -> dict[str, Any]:
    """Fetch a pinned wheel, unpack it into ``dest/files`` and return facts.

    Raises:
        OriginError: No index or mirror delivers the pinned file, or ``offline`` forbids asking.
    """
    from qbuild.source.wheels import check_room, fetch_file, unpack_wheel  # a plan need not wait

    check_room([wheel], store.root, unpacked=UNPACKED * wheel.size)
    verb = "look for" if offline else "fetch"
    reporter.say(f"{verb}: {wheel.filename} ({wheel.size / 1e6:.0f} MB)")
    aside = dest.with_name(dest.name + "-file")
    try:
        path = fetch_file(wheel, aside, offline=offline, reporter=reporter)
        unpack_wheel(path, dest / "files")
    finally:
        remove_tree(aside)
    if wheel.project == "ziglang":
        adjust(dest / "files")
    return {"project": wheel.project, "version": wheel.version}
