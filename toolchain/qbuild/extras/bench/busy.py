"""Is the machine doing something else while it is measured?"""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

_QUIET = 0.10  # share of all processors' time that others may take before figures are marked


@dataclass(frozen=True, kw_only=True)
class Idle:
    """What others took of the machine: share of the processors' time, 0 to 1."""

    others: float

    @property
    def busy(self) -> bool:
        """Whether figures measured meanwhile have to be marked."""
        return self.others > _QUIET

    def words(self) -> str:
        """Return it for people."""
        return f"other programs took {self.others:.0%} of the processor time"


class Watch:
    """Measures what others take between two moments.

    What this process and everything it started took is not counted, ended children included.
    """

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guest time is in user time already.
        fields = times._asdict()
        total = sum(value for name, value in fields.items() if not name.startswith("guest"))
        mine = os.times()
        own = mine.user + mine.system + mine.children_user + mine.children_system
        return total, idle, own

    def look(self, running: float = 0.0) -> Idle:
        """Return what others took since the watch was made.

        Args:
            running: Seconds of processor time of children that have not ended yet.
        """
        total, idle, own = (now - then for now, then in zip(self._now(), self._before, strict=True))
        if total <= 0:
            return Idle(others=0.0)
        return Idle(others=max(0.0, min(1.0, (total - idle - own - running) / total)))


def before(seconds: float = 1.0) -> Idle:
    """Return how busy the machine is before anything is measured; waits ``seconds``."""
    return Idle(others=psutil.cpu_percent(interval=seconds) / 100)
