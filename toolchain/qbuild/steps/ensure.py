"""A step's result: from the store when it is there, else made and put there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from qbuild import process
from qbuild.console import Reporter
from qbuild.steps.base import Step
from qbuild.steps.options import Record
from qbuild.store import Entry, Store

ALTERED: Final = "altered"
"""Fact of a store entry that a test has put there in place of the pinned files: what and why."""


def ensure(
    step: Step,
    make: Callable[[Path], Mapping[str, Any]],
    store: Store,
    reporter: Reporter,
    record: Record,
) -> Entry:
    """Return a step's checked result, making it when the store has none.

    Two runs that need the same step take turns: the second finds the first one's result.

    A store that a test has filled may hold an altered copy of a pinned program (Wine cannot run
    every one as it is). The entry says so itself, and so does every build with it: it warns, and
    the build record names it. No setting makes one; any other change is damage to the store.
    """
    process.check_stop()
    entry = store.sound(step.kind, step.key)
    if entry is None:
        with store.lock(step.kind, step.key, reporter):
            entry = store.get(step.kind, step.key, reporter)
            if entry is None:
                started = time.monotonic()
                entry = store.put(step.kind, step.key, step.inputs, make)
                record.seconds[step.label] = round(time.monotonic() - started, 2)
                record.made.append(step.label)
                return entry
    record.reused.append(step.label)
    if altered := entry.facts.get(ALTERED):
        label = f"{step.label} is not the pinned one: {altered}"
        if label not in record.altered:
            record.altered.append(label)
            reporter.warn(label)
    return entry
