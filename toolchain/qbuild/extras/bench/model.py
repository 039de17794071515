"""What a measurement is made of, as plain frozen data; times are seconds, memory is bytes."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FORMAT = 1  # version of the JSON that ``qbuild bench --json`` prints and writes beside the zip


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Several measurements of one thing."""

    median: float  # the middle one
    low: float  # the smallest
    high: float  # the largest
    count: int  # how many there were


@dataclass(frozen=True, kw_only=True)
class Alone:
    """One run of ``llama-bench``: tokens per second of prompt and answer, most memory in use."""

    prompt: float
    answer: float
    memory: int


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One request of one user."""

    first: float | None  # seconds until the first piece of the answer arrived; ``None``: none did
    whole: float  # seconds until the end
    prompt: int  # tokens of the prompt, as the server counts them
    answer: int  # tokens of the answer
    error: str = ""  # what went wrong, or ""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The server under one load."""

    users: int  # requests that were under way at any time
    tools: bool  # whether the requests offered tools
    seconds: float  # how long the load lasted
    replies: tuple[Reply, ...]  # every request that ended within it
    memory: int  # most memory that the server took

    @property
    def good(self) -> tuple[Reply, ...]:
        """Replies that were answered."""
        return tuple(each for each in self.replies if not each.error)

    @property
    def rate(self) -> float:
        """Tokens of answers per second, of all users together."""
        return sum(each.answer for each in self.good) / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the figures that people ask for."""
        firsts = [each.first for each in self.good if each.first is not None]
        wholes = [each.whole for each in self.good]
        return {
            "users": self.users,
            "tools": self.tools,
            "seconds": round(self.seconds, 2),
            "requests": len(self.replies),
            "errors": len(self.replies) - len(self.good),
            "first_errors": sorted({each.error for each in self.replies if each.error})[:3],
            "tokens_per_second": round(self.rate, 2),
            "prompt_tokens": sum(each.prompt for each in self.good),
            "first_token_p50": _rounded(percentile(firsts, 50)),
            "first_token_p95": _rounded(percentile(firsts, 95)),
            "whole_p50": _rounded(percentile(wholes, 50)),
            "whole_p95": _rounded(percentile(wholes, 95)),
            "memory": self.memory,
        }


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything measured about one zip, round by round."""

    zip_name: str
    sha256: str
    alone: tuple[Alone, ...]
    loaded: tuple[Loaded, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as a machine reads it."""
        return {
            "zip": self.zip_name,
            "sha256": self.sha256,
            "alone": {
                "prompt": dataclasses.asdict(spread([run.prompt for run in self.alone])),
                "answer": dataclasses.asdict(spread([run.answer for run in self.alone])),
                "memory": max((run.memory for run in self.alone), default=0),
                "rounds": [dataclasses.asdict(run) for run in self.alone],
            },
            "loaded": [each.as_json() for each in self.loaded],
        }


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How much faster one zip is than another, from paired rounds."""

    median: float  # of the rounds' ratios
    low: float  # lower end of the 95 % interval of the geometric mean
    high: float  # upper end
    rounds: int  # pairs that were measured


def spread(values: Sequence[float]) -> Spread:
    """Return median and extremes; zeros when nothing was measured."""
    if not values:
        return Spread(median=0.0, low=0.0, high=0.0, count=0)
    return Spread(
        median=round(statistics.median(values), 3),
        low=round(min(values), 3),
        high=round(max(values), 3),
        count=len(values),
    )


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the nearest-rank percentile; ``None`` when there are no values.

    Args:
        values: In any order.
        percent: Above 0, up to 100.
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


# Two-sided 95 % points of Student's t for 1 to 10 degrees of freedom; 1.96 is the limit.
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Return ours/theirs of paired rounds; ``None`` when there is no pair.

    The rounds alternate, so a machine that slows down slows both; ratios are averaged as
    logarithms, so that twice and half as fast cancel.
    """
    pairs = [a / b for a, b in zip(ours, theirs, strict=False) if a > 0 and b > 0]
    if not pairs:
        return None
    logs = [math.log(each) for each in pairs]
    middle = statistics.fmean(logs)
    reach = 0.0
    if len(logs) > 1:
        t = _T95[len(logs) - 2] if len(logs) - 2 < len(_T95) else 1.96
        reach = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(
        median=round(statistics.median(pairs), 4),
        low=round(math.exp(middle - reach), 4),
        high=round(math.exp(middle + reach), 4),
        rounds=len(pairs),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
