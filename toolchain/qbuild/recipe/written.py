"""What people write, read in one way: recipes, lockfile, series, settings.

A file is read within bounds, as UTF-8, as TOML, into a dataclass. Whatever is wrong with it becomes
one kind of error: what it is, file and line, and what would be right.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from qbuild import bounds
from qbuild.errors import QbuildError
from qbuild.recipe import toml
from qbuild.recipe.convert import KeyProblem, build

_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class Form:
    """A kind of file that people write."""

    called: str  # how messages call it, e.g. ``the lockfile``
    error: type[QbuildError]  # the class of its faults, which has the exit code
    missing: str | None = None  # what to do when there is no such file
    mend: str | None = None  # what to do about a text that is no TOML
    # field of the dataclass → its key in the file, where Python cannot have the same one
    spelled: Mapping[str, str] = field(default_factory=dict)

    def read(self, path: Path) -> str:
        """Return a file's text.

        Raises:
            QbuildError: It is missing, cannot be read, is too large, or no UTF-8.
        """
        try:
            return bounds.read_bytes(path, bounds.TEXT).decode("utf-8-sig")
        except FileNotFoundError:
            raise self.error(
                f"{self.called} is missing", where=str(path), fix=self.missing
            ) from None
        except OSError as error:
            raise self.error(
                f"{self.called} cannot be read: {error.strerror or error}", where=str(path)
            ) from error
        except UnicodeDecodeError as error:
            raise self.error(
                f"{self.called} is not UTF-8",
                where=f"{path}, byte {error.start}",
                fix="save the file as UTF-8",
            ) from None

    def parse(self, text: str, label: str) -> dict[str, Any]:
        """Return the table of a text.

        Raises:
            QbuildError: It is no TOML; the line is named.
        """
        try:
            return toml.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            raise self.error(
                f"{self.called} is not valid TOML: {error}",
                where=f"{label}:{line[1]}" if line else label,
                fix=self.mend,
            ) from None

    def build(
        self, cls: type[_Made], text: str, label: str, check: Callable[[_Made], object] = bool
    ) -> _Made:
        """Return what a text says.

        Args:
            cls: Dataclass of its top level.
            text: The text.
            label: The file's name for messages.
            check: What the types cannot say; raises :class:`KeyProblem`.

        Raises:
            QbuildError: It is no TOML, or a key is unknown, missing or holds a wrong value.
        """
        data = self.parse(text, label)
        try:
            renamed = self._renamed(data, ())
        except KeyProblem as problem:  # its path is spelled as in the file
            raise self._told(problem, problem.path, text, label) from None
        try:
            made: _Made = build(cls, renamed)
            check(made)
        except KeyProblem as problem:
            raise self.wrong(problem, text, label) from problem
        return made

    def wrong(self, problem: KeyProblem, text: str, label: str) -> QbuildError:
        """Return a problem as an error that names key, file and line as the file spells them."""
        path = [self.spelled.get(part, part) for part in problem.path]
        return self._told(problem, path, text, label)

    def _told(self, problem: KeyProblem, path: Sequence[str], text: str, label: str) -> QbuildError:
        fix = problem.fix
        for known, spelled in self.spelled.items():
            fix = fix.replace(f"`{known}`", f"`{spelled}`") if fix else fix
        line = toml.locate(text, path)
        where = f"{label}:{line}" if line else label
        return self.error(f"`{dotted(path)}` {problem.message}", where=where, fix=fix)

    def _renamed(self, data: Any, path: tuple[str, ...]) -> Any:
        """Give keys the names that the dataclasses have."""
        if not self.spelled:
            return data
        if isinstance(data, Mapping):
            for key in data:
                if key in self.spelled:
                    raise KeyProblem(
                        (*path, key),
                        "is not a key of this table",
                        f"did you mean `{self.spelled[key]}`?",
                    )
            names = {spelled: known for known, spelled in self.spelled.items()}
            return {names.get(k, k): self._renamed(v, (*path, k)) for k, v in data.items()}
        if isinstance(data, list):
            return [self._renamed(v, (*path, str(i))) for i, v in enumerate(data)]
        return data


def dotted(path: Sequence[str]) -> str:
    """Return a key path as people write it: ``wheel[2].sha256``, counted from 0 as in JSON."""
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text
