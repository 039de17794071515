"""The pinned commit of llama.cpp, in a repository of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild.console import Reporter
from qbuild.recipe.lock import SourcePin
from qbuild.steps.base import Before, Kind, Request, Step, new_step
from qbuild.steps.options import Record

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell

FORMAT: Final = 1
KIND: Final = "source"

SIZE: Final = 40_000_000  # bytes of llama.cpp's objects at one commit, as measured


def source_step(pin: SourcePin) -> Step:
    """Return the step that fetches a pinned commit."""
    return new_step(KIND, {"format": FORMAT, "commit": pin.commit, "tree": pin.tree})


class SourceStep(Kind):
    """``repo.git``, which holds the pinned commit."""

    kind = KIND
    fetched = True

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any]:  # noqa: ARG002
        """Return commit and tree."""
        return source_step(ask.pin).inputs

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return which commit, and of what."""
        return f"{plan.pin.commit[:9]} of {plan.pin.url}"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """Fetch it from the first origin that delivers it.

        Raises:
            OriginError: No origin delivers it, or one delivers something else.
        """
        return fetch_pinned(
            build.plan.pin,
            dest,
            build.reporter,
            origins=build.options.origins,
            offline=build.options.offline,
            record=build.record,
        )

    def download(self, build: Builder, step: Step) -> tuple[int, int]:  # noqa: ARG002
        """Return what is fetched; the unpacked tree counts as the build's."""
        sdist = build.plan.pin.sdist
        return (sdist.size if sdist else SIZE), 0

    def script(self, plan: Plan, step: Step, out: Shell) -> None:  # noqa: ARG002
        """Write what fetches it by git."""
        pin = plan.pin
        out.note("Source: the pinned commit; compare the tree id that git prints with")
        out.note(pin.tree)
        out.run("git", "init", "-q", "src")
        out.run("git", "-C", "src", "config", "core.autocrlf", "false")
        out.run("git", "-C", "src", "fetch", "--depth", "1", pin.url, pin.commit)
        out.run("git", "-C", "src", "checkout", "-q", "FETCH_HEAD")
        out.run("git", "-C", "src", "log", "-1", "--format=%T")


def fetch_pinned(
    pin: SourcePin,
    dest: Path,
    reporter: Reporter,
    *,
    origins: Sequence[str],
    offline: bool,
    record: Record,
) -> dict[str, Any]:
    """Put a pinned commit into ``dest/repo.git`` and return facts.

    Raises:
        OriginError: No origin delivers it, or one delivers something else.
    """
    from qbuild.source.fetch import fetch_source  # a plan need not wait for it

    reporter.say(f"fetch: {pin.name} {pin.commit[:9]} ({_download_size(pin)})")
    fetched = fetch_source(
        pin, dest / "repo.git", origins=origins, offline=offline, reporter=reporter
    )
    record.origin = fetched.origin
    return {"commit": fetched.commit, "tree": fetched.tree}


def _download_size(pin: SourcePin) -> str:
    size = pin.sdist.size if pin.sdist else 0
    return f"about 40 MB by git, or {size / 1e6:.0f} MB from the sdist" if size else "by git"
