"""Does the bundle stay within the CPU level it names? By disassembly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from qbuild.errors import QbuildError
from qbuild.verify.binaries import Images, mapped
from qbuild.verify.model import Check, judge, not_run
from qbuild.verify.structure import Unpacked

_SHOWN = 5


def level_checks(
    images: Images, unpacked: Unpacked, *, level: str, isa: tuple[str, ...]
) -> Iterator[Check]:
    """Yield the check of every binary against a level, and what dispatchers hold above it.

    Args:
        images: The binaries.
        unpacked: Their bytes.
        level: psABI level that the bundle names, or "" when it names none.
        isa: Extensions beyond it.
    """
    id, title = "cpu", "stays within its CPU level"
    if not level:
        yield not_run(id, title, "the zip names no level")
        return
    from qbuild.binary import isa as reader

    started = time.monotonic()
    problems: list[str] = []
    dispatched: list[str] = []
    functions = instructions = 0
    for name, image in images.every.items():
        if image.machine != "x86_64":
            continue
        try:
            with mapped(unpacked, name) as data:
                report = reader.scan(image, data, level=level, isa=isa)
        except QbuildError as error:
            problems.append(f"{name}: {error.what}")
            continue
        functions += report.functions
        instructions += report.instructions
        if not report.findings:
            continue
        if reason := reader.dispatcher_reason(PurePosixPath(name).name):
            dispatched.append(
                f"{name}: {len(report.findings)} functions use "
                f"{', '.join(report.features)} where the CPU has it: {reason}"
            )
            continue
        problems += [f"{name}: {finding}" for finding in report.findings[:_SHOWN]]
        if len(report.findings) > _SHOWN:
            more = len(report.findings) - _SHOWN
            problems.append(f"{name}: {more} more functions above {level}")
    extra = f" with {', '.join(isa)}" if isa else ""
    seen = f"{functions} functions, {instructions} instructions within {level}{extra}"
    yield judge(id, title, problems, seen, *dispatched, seconds=time.monotonic() - started)
