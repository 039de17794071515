"""How a build shall run, and what happened in one: neither changes the result's bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from qbuild.steps.shared import Shared


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How to build; nothing here changes the result's bytes."""

    jobs: int | None = None
    offline: bool = False
    origins: tuple[str, ...] = ()
    compiler_cache: bool = True
    keep_work: bool = False
    cut_network: bool = True
    shared: Shared = field(default_factory=Shared)

    @property
    def network(self) -> bool:
        """Whether configure and compile keep the network."""
        return not self.cut_network or self.shared.needs_network


@dataclass(kw_only=True)
class Record:
    """What happened in this run: goes beside the zip, never into it."""

    seconds: dict[str, float] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    origin: str | None = None
    hermetic: bool | None = None
    shared: list[str] = field(default_factory=list)
    compiled_on: dict[str, int] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)
