"""What was checked on a bundle and how it came out: plain frozen data, JSON and a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from qbuild import bounds
from qbuild.errors import VerifyError

Status = Literal["passed", "failed", "not-run"]

FORMAT: Final = 1  # version of the verdict's JSON

_MARKS: Final[Mapping[str, str]] = {"passed": "ok", "failed": "FAIL", "not-run": "not run"}
_SHOWN_DETAILS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Check:
    """One promise and whether the bundle keeps it."""

    id: str  # stable dotted name for scripts, e.g. ``closure``, ``run.wine.server``
    title: str  # the promise in a few words
    status: Status  # ``not-run`` is for a check that could not be made here; it never means passed
    # for a failure, one line per finding, each naming the file and the thing; for a check not run,
    # why and what to install; for a pass, what was seen
    details: tuple[str, ...] = ()
    seconds: float | None = None  # wall time it took, where that is worth telling


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All checks of one zip."""

    zip_name: str  # file name without folders, so that a verdict says nothing about the machine
    sha256: str  # of the zip's bytes, hex
    checks: tuple[Check, ...]  # in the order in which they were made

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def not_run(self) -> tuple[Check, ...]:
        """Checks that could not be made."""
        return tuple(check for check in self.checks if check.status == "not-run")

    def with_checks(self, more: Iterable[Check]) -> Verdict:
        """Return a verdict that has these checks as well."""
        return Verdict(zip_name=self.zip_name, sha256=self.sha256, checks=(*self.checks, *more))

    def raise_if_failed(self, path: Path | None = None) -> None:
        """Raise for the first failures.

        Args:
            path: Where the zip lies, for the message.

        Raises:
            VerifyError: A check failed; the message holds the findings.
        """
        if self.ok:
            return
        findings = [f"{check.title}: {line}" for check in self.failed for line in check.details]
        rest = f"\n  … and {len(findings) - 3} more" if len(findings) > 3 else ""
        raise VerifyError(
            f"{self.zip_name} is refused: " + "\n  ".join(findings[:3]) + rest,
            where=", ".join(check.id for check in self.failed),
            fix=f"`qbuild verify {path or self.zip_name}` shows every finding",
        )

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return {
            "format": FORMAT,
            "zip": self.zip_name,
            "sha256": self.sha256,
            "ok": self.ok,
            "checks": [
                {key: value for key, value in asdict(check).items() if value is not None}
                for check in self.checks
            ],
        }

    def render(self) -> str:
        """Return the verdict as the lines a person reads."""
        width = max((len(check.title) for check in self.checks), default=0)
        lines = [f"{self.zip_name}  sha256 {self.sha256}"]
        for check in self.checks:
            took = f"  {check.seconds:.1f} s" if (check.seconds or 0) >= 0.05 else ""
            shown = check.details if check.status != "passed" else check.details[:1]
            lead = f"  {_MARKS[check.status]:>7}  {check.title:<{width}}{took}"
            if check.status == "passed" and shown:
                lines.append(f"{lead}  {shown[0]}")
                continue
            lines.append(lead.rstrip())
            lines += [f"           - {line}" for line in shown[:_SHOWN_DETAILS]]
            if len(shown) > _SHOWN_DETAILS:
                lines.append(f"           - … and {len(shown) - _SHOWN_DETAILS} more (--json)")
        lines.append(self.summary())
        return "\n".join(lines)

    def summary(self) -> str:
        """Return the one line that says how it came out."""
        passed = len(self.checks) - len(self.failed) - len(self.not_run)
        counts = f"{passed} passed, {len(self.failed)} failed, {len(self.not_run)} not run"
        return f"{'accepted' if self.ok else 'REFUSED'}: {counts}"


def passed(id: str, title: str, *details: str, seconds: float | None = None) -> Check:
    """Return a check that passed."""
    return Check(id=id, title=title, status="passed", details=details, seconds=seconds)


def not_run(id: str, title: str, *details: str) -> Check:
    """Return a check that could not be made, with the reason."""
    return Check(id=id, title=title, status="not-run", details=details)


def judge(
    id: str, title: str, problems: Iterable[str], *seen: str, seconds: float | None = None
) -> Check:
    """Return a check that failed when there are problems, else passed.

    Args:
        id: Check id.
        title: The promise.
        problems: One line per finding; none means passed.
        seen: What to say when it passed.
        seconds: Wall time.
    """
    found = tuple(problems)
    return Check(
        id=id,
        title=title,
        status="failed" if found else "passed",
        details=found or seen,
        seconds=seconds,
    )


def to_json(verdict: Verdict) -> str:
    """Return the text of a ``.verdict.json`` file."""
    return json.dumps(verdict.as_json(), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, *, where: str | None = None) -> Verdict:
    """Read a ``.verdict.json`` file.

    Args:
        text: Its content.
        where: Its path, for messages.

    Raises:
        VerifyError: It is not a verdict, or one of another format.
    """
    try:
        data = bounds.load_json(text)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']} instead of {FORMAT}")
        return Verdict(
            zip_name=str(data["zip"]),
            sha256=str(data["sha256"]),
            checks=tuple(_check(item) for item in data["checks"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise VerifyError(
            f"this is not a verdict ({error})", where=where, fix="delete it and verify again"
        ) from error


def _check(data: Mapping[str, Any]) -> Check:
    if data["status"] not in _MARKS:
        raise ValueError(f"status {data['status']!r}")
    return Check(
        id=str(data["id"]),
        title=str(data["title"]),
        status=data["status"],
        details=tuple(str(line) for line in data.get("details", ())),
        seconds=None if data.get("seconds") is None else float(data["seconds"]),
    )
