"""What ``qbuild bench`` measured of a zip, as the report shows it: bars for each load.

The file beside the zip is data of unknown origin: read within bounds, shown, and only when it is
about these very bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild.verify.papers import dig

_LARGEST: Final = 1 << 20  # bytes of a record that are still read; one of ours has a few thousand

_MOST: Final = 24


@dataclass(frozen=True, kw_only=True)
class Load:
    """The server under one load: rates in tokens per second, times in seconds."""

    label: str
    rate: float
    first: float
    first_p95: float
    errors: int


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured."""

    note: str = ""  # why there is nothing, or what has to be said about it
    model: str = ""  # file name of the model
    alone: tuple[tuple[str, float], ...] = ()  # llama-bench: (what, tokens per second)
    loads: tuple[Load, ...] = ()  # the server, load by load
    busy: bool = False  # whether the machine did something else meanwhile

    @property
    def highest(self) -> float:
        """The highest rate of all loads, at least a little."""
        return max((load.rate for load in self.loads), default=0.0) or 1.0

    @property
    def longest(self) -> float:
        """The longest time to a first token."""
        return max((load.first_p95 for load in self.loads), default=0.0) or 1.0


def speed_beside(path: Path, sha256: str) -> Speed | None:
    """Return what was measured of a zip; ``None`` when there is no record beside it."""
    beside = path.with_name(f"{path.name}.bench.json")
    try:
        if not beside.is_file():
            return None
        if beside.stat().st_size > _LARGEST:
            return Speed(note=f"{beside.name} is too large to be a record of qbuild bench")
        data = json.loads(beside.read_text(encoding="utf-8"))
        zips = dig(data, "zips")
        mine = [
            each
            for each in (zips if isinstance(zips, list) else [])
            if isinstance(each, Mapping) and each.get("sha256") == sha256
        ]
        if not mine:
            return Speed(note=f"{beside.name} is about another file (other sha256)")
        return _speed(data, mine[0])
    except (OSError, ValueError, RecursionError):
        return Speed(note=f"{beside.name} cannot be read")


def _speed(data: Any, mine: Mapping[str, Any]) -> Speed:
    loads = mine.get("loaded")
    found = [_load(each) for each in (loads if isinstance(loads, list) else [])[:_MOST]]
    wish = dig(data, "wish")
    return Speed(
        model=str(dig(data, "model") or "")[:200],
        alone=tuple(
            (f"{what} of {int(_number(dig(wish, what)))} tokens",
             _number(dig(mine, "alone", what, "median")))
            for what in ("prompt", "answer")
        ),
        loads=tuple(each for each in found if each is not None),
        busy=dig(data, "machine_busy") is not False,
    )  # fmt: skip


def _load(data: Any) -> Load | None:
    if not isinstance(data, Mapping):
        return None
    users = int(_number(data.get("users")))
    label = "1 user" if users == 1 else f"{users} users"
    return Load(
        label=f"{label}, tools" if data.get("tools") is True else label,
        rate=_number(data.get("tokens_per_second")),
        first=_number(data.get("first_token_p50")),
        first_p95=_number(data.get("first_token_p95")),
        errors=int(_number(data.get("errors"))),
    )


def _number(value: Any) -> float:
    """Return a number that can be drawn; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e9 else 0.0  # NaN is neither
