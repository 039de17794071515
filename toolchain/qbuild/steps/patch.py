"""The patched source tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.steps.base import Before, Kind, Request, Step

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell

FORMAT: Final = 1


class PatchStep(Kind):
    """``tree``: the source with the recipe's series applied."""

    kind = "patch"

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:
        """Return the source and the digest of each series."""
        return {
            "format": FORMAT,
            "source": before["source"].key,
            "series": [[s.name, s.digest] for s in ask.series],
        }

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return the names of the series."""
        return ", ".join(s.name for s in plan.series) or "(no series)"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Apply the series, all or nothing.

        Raises:
            SeriesError: A patch does not fit.
        """
        from qbuild.patches import apply_series  # a plan need not wait for it

        plan = build.plan
        repo = build.result("source").path / "repo.git"
        build.reporter.say(f"patch: {', '.join(s.name for s in plan.series) or 'nothing'}")
        tree = apply_series(repo, plan.pin.commit, plan.series, dest / "tree")
        for applied in tree.patches:
            if applied.status != "clean":
                build.reporter.say(f"patch: {applied.series}/{applied.file}: {applied.status}")
        return {
            "commit": tree.commit,
            "tree": tree.tree,
            "patches": [
                {"series": p.series, "file": p.file, "subject": p.subject, "status": p.status}
                for p in tree.patches
            ],
        }

    def script(self, plan: Plan, step: Step, out: Shell) -> None:  # noqa: ARG002
        """Write a ``git am`` for each patch."""
        if not plan.series:
            return
        out.note("Patches, in the recipe's order (PATCHES is the `patches` folder of qbuild)")
        out.variable("PATCHES", "../patches")
        for series in plan.series:
            for patch in series.patches:
                out.run(
                    "git", "-C", "src", "-c", "user.name=me", "-c", "user.email=me@invalid",
                    "-c", "commit.gpgsign=false", "am", "--3way", "--keep-non-patch",
                    out.path_in("PATCHES", series.name, patch.file),
                )  # fmt: skip
