"""Compares what a server says on two backends: tokens, and how far its numbers are apart.

CPU and GPU round differently, so equal text cannot be asked for everywhere. It is asked for
wherever the CPU's margin between its first and its second choice is larger than twice the measured
difference: a margin lies between two numbers, and each may be off by as much, one up and one down.
Of a token that it took from a draft the server tells no second choice and no probability: such a
token can be compared, but it measures nothing.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

NEAR: Final = 0.05
"""A margin below which rounding may decide, also where no token before it was measured."""

FAR: Final = 1.0  # a difference of log-probabilities that no rounding explains


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token that was generated greedily."""

    id: int  # its number
    # Number → log-probability of the likeliest tokens, itself included. One alone: it was taken
    # from a draft, and its log-probability says nothing.
    choices: dict[int, float]

    @property
    def second(self) -> int | None:
        """The likeliest token behind this one, which was chosen; unknown where none is told.

        The server tells probabilities as they were before the request forbade tokens: what is
        likelier than the chosen one was forbidden, and no choice.
        """
        mine = self.choices[self.id]
        behind = {id: value for id, value in self.choices.items() if id != self.id}
        behind = {id: value for id, value in behind.items() if value <= mine}
        return max(behind, key=lambda each: behind[each]) if behind else None

    @property
    def margin(self) -> float | None:
        """Log-probability between the chosen token and the second; unknown without a second."""
        second = self.second
        return None if second is None else self.choices[self.id] - self.choices[second]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two answers side by side."""

    equal: int  # tokens until the first that differs
    total: int  # tokens of the shorter answer
    error: float  # largest difference of a log-probability in the part that is equal
    margin: float | None  # the CPU's margin at the first token that differs, if it is known

    @property
    def bound(self) -> float:
        """A margin up to which the two backends' rounding may decide, as log-probability."""
        return max(2 * self.error, NEAR)

    @property
    def unmeasured(self) -> bool:
        """Whether the very first token differs, and nothing says how far the backends are apart."""
        return self.equal == 0 < self.total and self.error == 0.0

    @property
    def by_few(self) -> bool:
        """Whether few tokens before the first that differs, or none, are what it is judged by."""
        measured = self.error <= FAR  # which a NaN is not
        wrong = self.margin is not None and self.margin > self.bound
        return measured and (wrong or self.unmeasured)

    @property
    def problem(self) -> str:
        """What is wrong, or ""."""
        if math.isnan(self.error):
            return "the GPU's numbers are not numbers"
        if self.error > FAR:
            return f"log-probabilities of equal tokens differ by {self.error:.3g}"
        if self.equal == self.total:
            return ""
        if self.margin is None:
            return f"token {self.equal + 1} differs, and the CPU's second choice there is not known"
        if self.margin > self.bound:
            return (
                f"token {self.equal + 1} differs though the CPU prefers its own by "
                f"{self.margin:.3f}; log-probabilities of equal tokens differ by "
                f"{self.error:.3g} at most"
            )
        if self.unmeasured:
            return "the first token differs, and no equal one says how far the backends are apart"
        return ""


def read_answer(text: str) -> tuple[Token, ...]:
    """Read llama-server's answer to ``/completion`` with ``n_probs`` and ``return_tokens``.

    The server leaves out the probabilities of a token that ends within a character. What comes
    behind such a token is not read: whether it was the same on both sides cannot be seen.

    Raises:
        ValueError: It is none.
    """
    data = json.loads(text)
    found = []
    for row in data["completion_probabilities"]:
        choices = {int(each["id"]): _number(each["logprob"]) for each in row["top_logprobs"]}
        choices[int(row["id"])] = _number(row["logprob"])
        found.append(Token(id=int(row["id"]), choices=choices))
    every = [int(each) for each in data.get("tokens") or [token.id for token in found]]
    seen = zip(found, every, strict=False)
    return tuple(
        token for token, _ in itertools.takewhile(lambda both: both[0].id == both[1], seen)
    )


def drafted(text: str) -> int:
    """Return how many tokens of an answer to ``/completion`` a draft proposed."""
    return int(json.loads(text).get("timings", {}).get("draft_n", 0))


def _number(value: Any) -> float:
    return float(value) if value is not None else math.nan


def _broken(*both: Token) -> bool:
    return any(math.isnan(value) for token in both for value in token.choices.values())


def compare(cpu: Sequence[Token], gpu: Sequence[Token]) -> Compared:
    """Compare two answers to one prompt."""
    total, equal, error = min(len(cpu), len(gpu)), 0, 0.0
    margin: float | None = 0.0
    for mine, other in zip(cpu, gpu, strict=False):
        if mine.id != other.id:
            margin = mine.margin
            break
        equal += 1
        if None in (mine.second, other.second) and not _broken(mine, other):
            continue
        # Unlikely tokens differ by more and decide nothing: only the CPU's first two count.
        for each in (mine.id, mine.second):
            if each in other.choices:
                difference = abs(mine.choices[each] - other.choices[each])
                error = math.nan if math.isnan(difference) else max(error, difference)
    return Compared(equal=equal, total=total, error=error, margin=margin)


def judged_together(one: Compared, others: Sequence[Compared]) -> Compared:
    """Return an answer with the difference that was measured on all of them.

    Where another one is wrong by that, it is returned in its place.
    """
    every = (one, *others)
    errors = [each.error for each in every]
    error = math.nan if any(math.isnan(each) for each in errors) else max(errors)
    together = [replace(each, error=error) for each in every]
    return next((each for each in together if each.problem), together[0])
