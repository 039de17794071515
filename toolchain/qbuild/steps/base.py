"""What every step is made of: a :class:`Kind` in its own module, a :class:`Step` in a plan.

A kind says what its result is made from (:meth:`Kind.inputs`, pure: the plan calls it), makes it
(:meth:`Kind.make`) and writes the commands that make the same by hand (:meth:`Kind.script`). What
later steps take from a result is said here as well, so that configure and bundle need not know who
feeds them. To add a step, write its module and name its kind in :mod:`qbuild.steps.order`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from qbuild.store import step_key

if TYPE_CHECKING:
    from qbuild.patches.series import Series
    from qbuild.recipe.lock import Lock, SourcePin, WheelPin
    from qbuild.recipe.model import CmakeValue, Recipe
    from qbuild.steps.builder import Builder
    from qbuild.steps.captured import Captured
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell
    from qbuild.store import Entry
    from qbuild.toolchains.base import Toolchain


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a plan is asked for: everything that a step's inputs may come from."""

    recipe: Recipe  # the resolved recipe
    lock: Lock  # all pins
    pin: SourcePin  # the recipe's source
    host: str  # the build machine as the lockfile names it, e.g. ``linux-x86_64``
    series: tuple[Series, ...]  # the recipe's patch series, in their order
    toolchain: Toolchain  # what compiles
    captured: Captured  # what was found on the machine
    wheels: tuple[WheelPin, ...] = ()  # all wheels of all steps
    # CMake cache entries that steps ask for, see :meth:`Kind.cache_entries`
    entries: Mapping[str, CmakeValue] = field(default_factory=dict)
    tests: tuple[str, ...] = ()  # test programs to build instead of the recipe's targets

    @property
    def version(self) -> str:
        """The version in names: the build number when known, else ``g<sha9>``."""
        pin = self.pin
        return f"b{pin.build_number}" if pin.build_number else f"g{pin.commit[:9]}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a plan: what it is made from, and therefore its key."""

    kind: str
    label: str
    key: str
    inputs: Mapping[str, Any]
    configures: bool = False  # whether configure takes something from it
    bundled: bool = False  # whether the bundle takes files of it

    @property
    def short(self) -> str:
        """First characters of the key, for people."""
        return self.key[:12]


def new_step(kind: str, inputs: Mapping[str, Any], label: str | None = None) -> Step:
    """Return a step; equal kind and inputs give an equal key."""
    return Step(kind=kind, label=label or kind, key=step_key(kind, inputs), inputs=inputs)


Before = Mapping[str, Step]
"""Kind → step, of the steps that are planned already; of several of one kind, the last."""


class Kind(ABC):
    """One kind of step."""

    kind: ClassVar[str]  # name of its folder in the store
    label: ClassVar[str] = ""  # what people call it; the kind, unless said

    fetched: ClassVar[bool] = False
    """Whether making it again takes the network: `qbuild cache prune` then keeps it."""

    # -- the plan: pure -------------------------------------------------------------------------

    def wheels(self, ask: Request) -> tuple[WheelPin, ...]:  # noqa: ARG002 - for subclasses
        """Return the pinned wheels that it needs.

        Raises:
            LockError: The lockfile lacks one.
        """
        return ()

    @abstractmethod
    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any] | None:
        """Return everything that can change its result's bytes; nothing when not needed."""

    def plan(self, ask: Request, before: Before) -> Iterator[Step]:
        """Yield the steps of this kind: one, or none."""
        inputs = self.inputs(ask, before)
        if inputs is not None:
            step = new_step(self.kind, inputs, self.label)
            yield dataclasses.replace(step, configures=self.configures, bundled=self.bundled)

    def cache_entries(self, recipe: Recipe) -> Mapping[str, CmakeValue]:  # noqa: ARG002
        """Return CMake cache entries that a recipe with this step is configured with."""
        return {}

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return one line about it for a person who reads the plan."""
        return ""

    # -- making it ------------------------------------------------------------------------------

    @abstractmethod
    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Write its result into a folder and return facts about it (JSON-able)."""

    def script(self, plan: Plan, step: Step, out: Shell) -> None:  # noqa: B027 - optional
        """Write the commands that make the same by hand; nothing where there is nothing to do."""

    def download(self, build: Builder, step: Step) -> tuple[int, int]:  # noqa: ARG002
        """Return how many bytes are fetched, and how many the disk must have, when it is made."""
        return 0, 0

    # -- what later steps take from its result ----------------------------------------------------

    configures: ClassVar[bool] = False
    """Whether configure takes something from it: then its key is part of configure's."""

    def in_source(self, entry: Entry) -> Mapping[str, Path]:  # noqa: ARG002
        """Return folders that the compiled source has besides its own: place in it → folder."""
        return {}

    def in_cmake(self, entry: Entry) -> Mapping[str, CmakeValue]:  # noqa: ARG002
        """Return CMake cache entries that name files of the result."""
        return {}

    bundled: ClassVar[bool] = False  # whether the bundle takes files of it

    def in_bundle(self, entry: Entry) -> Path:
        """Return the folder where licences are looked for under this kind's name.

        A folder ``bin`` in it holds libraries that the bundle takes when something asks for them.
        """
        return entry.path

    def script_options(self, out: Shell, recipe: Recipe) -> tuple[str, ...]:  # noqa: ARG002
        """Return words for CMake's command line in a script."""
        return ()

    def script_libraries(self, recipe: Recipe) -> tuple[str, ...]:  # noqa: ARG002
        """Return libraries that a script puts beside the programs."""
        return ()
