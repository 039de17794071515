"""Every error qbuild raises on purpose, one class (and one exit code) per kind of failure.

A user meets these as three short lines: what went wrong, where, and what to do about it.
The exit codes are a promise to scripts and CI; ``docs/reference/exit-codes.md`` is generated
from this module.
"""

from __future__ import annotations

from typing import ClassVar


class QbuildError(Exception):
    """Base of all expected failures.

    Args:
        what: One sentence that says what went wrong.
        where: File, key path, line, step or archive member it went wrong in.
        fix: What the user can do about it.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(self.render())

    def render(self) -> str:
        """Return the message as the lines a person reads."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  to do: {self.fix}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Return the message as a machine reads it under ``--json``."""
        return {
            "error": self.kind,
            "exit_code": self.exit_code,
            "what": self.what,
            "where": self.where,
            "fix": self.fix,
        }


class UsageError(QbuildError):
    """The command line is wrong."""

    exit_code = 2
    kind = "usage"


class RecipeError(QbuildError):
    """A recipe is unknown, malformed, or asks for something impossible."""

    exit_code = 3
    kind = "recipe"


class LockError(QbuildError):
    """The lockfile is missing, malformed, or lacks a pin that the recipe needs."""

    exit_code = 4
    kind = "lock"


class OriginError(QbuildError):
    """No origin could deliver a pin, or an origin delivered something else."""

    exit_code = 5
    kind = "origin"


class PatchError(QbuildError):
    """A patch series is malformed or does not apply."""

    exit_code = 6
    kind = "patch"


class ToolchainError(QbuildError):
    """A compiler or tool is missing, unsupported, or cannot build for the target."""

    exit_code = 7
    kind = "toolchain"


class ConfigureError(QbuildError):
    """CMake did not configure the tree."""

    exit_code = 8
    kind = "configure"


class CompileError(QbuildError):
    """The compiler or linker failed."""

    exit_code = 9
    kind = "compile"


class BundleError(QbuildError):
    """The bundle cannot be made complete: something it needs is missing or forbidden."""

    exit_code = 10
    kind = "bundle"


class VerifyError(QbuildError):
    """A finished bundle does not keep a promise."""

    exit_code = 11
    kind = "verify"


class ReproduceError(QbuildError):
    """Two builds of the same inputs gave different bytes."""

    exit_code = 12
    kind = "reproduce"


class StoreError(QbuildError):
    """The store cannot be written, or an entry in it is damaged."""

    exit_code = 13
    kind = "store"


class BinaryError(QbuildError):
    """A PE, ELF or fat binary is damaged or of a kind that qbuild does not read."""

    exit_code = 14
    kind = "binary"


class ArchiveError(QbuildError):
    """A zip or tar is damaged or tries to write outside its folder."""

    exit_code = 15
    kind = "archive"


class DoctorError(QbuildError):
    """`qbuild doctor` found something that stops, or may stop, a build or its result."""

    exit_code = 16
    kind = "doctor"


class ModelError(QbuildError):
    """A model file is damaged, incomplete, or one that the built llama.cpp does not load."""

    exit_code = 17
    kind = "model"


class PipelineError(QbuildError):
    """A step of a pipeline failed, or a pipeline cannot run here."""

    exit_code = 18
    kind = "pipeline"


class Interrupted(QbuildError):  # noqa: N818 - it is what happened, not a fault
    """Ctrl-C, SIGTERM or SIGHUP stopped the run; the store is sound and the next run carries on."""

    exit_code = 130
    kind = "interrupted"
