"""The bundle: one zip, with everything that its papers say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.steps import written_by
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.steps.bundle_facts import static_facts

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan


class BundleStep(Kind):
    """The zip."""

    kind = "bundle"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return the binaries, everything the papers say, and what writes bundles.

        What the papers say comes from the one function that they are written from: nothing can be
        printed and missing here.
        """
        provided = ask.toolchain.provides()
        facts = static_facts(ask, before["configure"])
        return {
            "stage": before["stage"].key,
            "zip": facts.zip_name,
            "facts": dataclasses.asdict(facts),
            "provided": {name: list(where) for name, where in provided.items()},
            "bundled": [step.kind for step in before.values() if step.bundled],
            "writer": written_by.digest(),
        }

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return what is in it."""
        return "what the import tables ask for, licences, manifest, provenance, SBOM"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Write the zip.

        Raises:
            BundleError: Something the binaries need is missing or forbidden.
        """
        from qbuild.steps.write_bundle import write_bundle  # a plan need not wait for it

        unpacked = build.all_unpacked()
        for kind in build.plan.bundled():
            unpacked[kind.kind] = kind.in_bundle(build.result(kind.kind))
        build.reporter.say(f"bundle: {step.inputs['zip']}")
        return write_bundle(
            build.plan,
            build.plan["configure"],
            step,
            made={kind: build.result(kind) for kind in ("stage", "patch", "compile")},
            unpacked=unpacked,
            dest=dest,
        )
