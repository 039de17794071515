"""Does the bundle stay within the CPU level it names? By disassembly."""

from __future__ import annotations

from collections.abc import Iterator

from qbuild.verify.binaries import Images
from qbuild.verify.model import Check, not_run
from qbuild.verify.structure import Unpacked


def level_checks(
    images: Images, unpacked: Unpacked, *, level: str, isa: tuple[str, ...]
) -> Iterator[Check]:
    """Yield the checks."""
    yield not_run("cpu", "stays within its CPU level", "the disassembler is not there yet")
