"""Make the plan's results: each step from the store when it is there, else from its inputs.

Work is pulled from the end: a bundle that exists needs no stage, a stage no compile, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from qbuild.console import Reporter
from qbuild.recipe.lock import WheelPin
from qbuild.steps.ensure import ensure
from qbuild.steps.object_cache import ObjectCache
from qbuild.steps.options import BuildOptions, Record
from qbuild.steps.order import BY_NAME
from qbuild.steps.pinned import fetch_wheel
from qbuild.steps.plan import Plan
from qbuild.steps.wheel import KIND as WHEEL
from qbuild.steps.work import check_place
from qbuild.store import Entry, Store

_BUILD_DISK: Final = 1_200_000_000
"""Bytes that source, patched tree, build tree and results take together, as measured."""

AfterCompile = Callable[[Path, Mapping[str, Path], Mapping[str, str]], None]
"""Called with the work folder, the build tools and the environment while the tree still stands."""


class Builder:
    """Runs a plan against a store.

    Raises:
        StoreError: No build can run where the store lies (:func:`qbuild.steps.work.check_place`).
    """

    def __init__(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> None:
        check_place(store.root)
        self.plan = plan
        self.store = store
        self.reporter = reporter
        self.options = options
        self.record = Record()
        self.objects = ObjectCache(plan, store, options, self.wheel)
        self._entries: dict[str, Entry] = {}
        self.after_compile: AfterCompile | None = None

    def result(self, kind: str) -> Entry:
        """Return the result of the plan's one step of a kind, making whatever is missing.

        Raises:
            QbuildError: It cannot be made; which error, the step's ``make`` says.
        """
        return self._ensure(self.plan[kind].key)

    def bundle(self) -> Entry:
        """Return the finished bundle, and record how its objects came about."""
        self._announce()
        made = self.result("bundle")
        compiled = self.store.find("compile", self.plan["compile"].key)
        if compiled is not None:  # also when an earlier run made them
            self.record.hermetic = compiled.facts.get("hermetic")
            self.record.shared = list(compiled.facts.get("shared", []))
            self.record.compiled_on = dict(compiled.facts.get("compiled_on", {}))
        return made

    def wheel(self, wheel: WheelPin) -> Entry:
        """Return an unpacked wheel, of this plan or another one."""
        for step in self.plan.steps:
            if step.kind == WHEEL and step.inputs["file"] == wheel.filename:
                return self._ensure(step.key)

        return fetch_wheel(
            wheel, self.store, self.reporter, offline=self.options.offline, record=self.record
        )

    def unpacked(self, project: str) -> Path:
        """Return the folder with the files of one of the plan's wheels."""
        return self.wheel(self.plan.wheel(project)).path / "files"

    def all_unpacked(self) -> dict[str, Path]:
        """Return project → folder of files, of all of the plan's wheels."""
        return {wheel.project: self.unpacked(wheel.project) for wheel in self.plan.wheels}

    def fetched(self) -> list[Entry]:
        """Return the results of all steps that the network is needed for."""
        return [self._ensure(s.key) for s in self.plan.steps if BY_NAME[s.kind].fetched]

    def _ensure(self, key: str) -> Entry:
        """Return a step's result; one run asks for the same step once."""
        if key not in self._entries:
            step = next(step for step in self.plan.steps if step.key == key)
            kind = BY_NAME[step.kind]
            self._entries[key] = ensure(
                step,
                lambda dest: kind.make(step, self, dest),
                self.store,
                self.reporter,
                self.record,
            )
        return self._entries[key]

    def _announce(self) -> None:
        """Say how much will be fetched and how much disk it takes, before anything is."""
        if self.store.find("compile", self.plan["compile"].key) is not None:
            return
        missing = [s for s in self.plan.steps if self.store.find(s.kind, s.key) is None]
        wheels = [step.inputs["file"] for step in missing if step.kind == WHEEL]
        if wheels and self.options.offline:
            # All that an offline build lacks, at once; mirrors may still deliver it.
            names = "".join(f"\n  {name}" for name in wheels)
            self.reporter.warn(f"--offline: the store lacks {len(wheels)} wheels:{names}")
        sizes = [BY_NAME[step.kind].download(self, step) for step in missing]
        download = sum(fetched for fetched, _ in sizes)
        disk = _BUILD_DISK + sum(unpacked for _, unpacked in sizes)
        if download and not self.options.offline:
            self.reporter.say(
                f"to fetch: up to {download / 1e6:.0f} MB; disk: about {disk / 1e9:.1f} GB "
                f"in {self.store.root}"
            )
