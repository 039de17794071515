"""Which options a program really has: read in its data, or in what its ``--help`` prints.

The data tells a name that exists nowhere, on every machine. The help also tells which program takes
it and which values; it needs a machine that can run the program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from qbuild import resources
from qbuild.binary.image import Buffer
from qbuild.bundle.launch.profile import Setting

_IN_DATA: Final = re.compile(rb"(?<![\w.-])--[a-z][a-z0-9]*(?:-[a-z0-9.]+)*(?![\w-])")
_NAME: Final = re.compile(r"-{1,2}[A-Za-z0-9][\w.-]*")
_BETWEEN: Final = re.compile(r",\s*(?=-)|\s+(?=-{1,2}[A-Za-z])")
_HINT: Final = re.compile(r"\s(\S+(?: \S+)*?)(?=\s{2,}|\s*$)")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_BULLET: Final = re.compile(r"^\s*- ([a-z0-9+_.-]+):", re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z0-9+_.-]+")
_SHOWN: Final = 4
_REMOVED: Final = "the argument has been removed"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a program's help."""

    names: tuple[str, ...]  # all spellings, with their dashes
    hint: str  # what stands behind them for the value; "" for a switch
    text: str  # the whole explanation
    values: tuple[str, ...]  # the only values there are; empty when it takes others, too

    def problem(self, value: str | None) -> str:
        """Return what is wrong with a value (None: no value given), or ""."""
        if not self.hint:
            return "" if value is None else "it is a switch and takes no value"
        if value is None:
            return f"it needs a value: {self.hint}"
        if self.values:
            parts = value.split(",") if "," in self.hint and self.hint[0] not in "{[<" else [value]
            if wrong := [part for part in parts if part not in self.values]:
                return f"`{wrong[0]}` is none of {', '.join(self.values)}"
        elif (
            self.hint == "N" and not _NUMBER.fullmatch(value) and f"'{value}'" not in self.text
        ):  # some numbers have words that stand for one, which the text names in quotes
            return f"`{value}` is no number"
        return ""


def options_in_data(data: Buffer) -> frozenset[str]:
    """Return every long option, without dashes, that stands in a binary's bytes."""
    return frozenset(match[0][2:].decode() for match in _IN_DATA.finditer(data))


def holds_options(name: str, program: str) -> bool:
    """Tell whether a bundle's file can hold the options of a program.

    Args:
        name: File name, e.g. ``libllama-common.so.0``.
        program: ``llama-server``.
    """
    plain = name.removesuffix(".exe")
    if plain == program or f"{program}-impl" in name:
        return True
    # llama-bench reads its options itself; the others share the common library's table
    return "llama-common" in name and program != "llama-bench"


def parse_help(text: str) -> Mapping[str, Option]:
    """Return each option by each of its spellings (with dashes), from a ``--help`` text."""
    found: dict[str, Option] = {}
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _NAME.match(line.removeprefix("  ")) and not line.startswith("   "):
            blocks.append([line.removeprefix("  ")])
        elif blocks and line.startswith(" "):
            blocks[-1].append(line)
    for head, *rest in blocks:
        names, end = [], 0
        while match := _NAME.match(head, end):
            names.append(match[0])
            end = match.end()
            if not (between := _BETWEEN.match(head, end)):
                break
            end = between.end()
        hint = _HINT.match(head, end)
        body = "\n".join([head[hint.end() if hint else end :], *rest])
        said = re.sub(r"\s+\(.*", "", hint[1]) if hint else ""
        option = Option(names=tuple(names), hint=said, text=body, values=values_of(said, body))
        found |= dict.fromkeys(names, option)
    return found


def values_of(hint: str, body: str) -> tuple[str, ...]:
    """Return the values that a hint or an explanation enumerates."""
    if not hint:
        return ()
    inner = hint[1:-1] if hint[0] + hint[-1] in ("[]", "<>", "{}") else hint
    for separator in ("|", ","):
        parts = [part.strip() for part in inner.split(separator)]
        if len(parts) > 1 and all(_WORD.fullmatch(p) and p == p.lower() for p in parts):
            return tuple(parts)
    if listed := re.search(r"allowed values: ([^\n(]+)", body):
        return tuple(part.strip() for part in listed[1].split(","))
    return tuple(dict.fromkeys(_BULLET.findall(body)))


@cache
def _table() -> Mapping[str, tuple[tuple[str, ...], str]]:
    rows = resources.read_table("launch/instead.toml")["instead"]
    return {flag: (tuple(row["use"]), row["why"]) for row in rows for flag in row["flags"]}


def renamed(program: str) -> dict[str, list[str]]:
    """Return what exists (as text) → names that people write for it, by the pin's table."""
    path = resources.data_dir() / "launch" / "options.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["programs"].get(program, {})
    known = {name for name, (_, _, _, removed) in rows.items() if not removed}
    found: dict[str, list[str]] = {}
    for name, (use, _) in _table().items():
        there = [f"--{each}" for each in use if f"--{each}" in known]
        if there and f"--{name}" not in known:
            found.setdefault(", ".join(there), []).append(name)
    return found


def instead_of(flag: str, known: Collection[str]) -> str:
    """Return what exists instead of an option that does not, as advice, or "".

    Args:
        flag: Without dashes.
        known: Long options that the program has, without dashes.
    """
    use, why = _table().get(flag, ((), ""))
    near = [name for name in use if name in known]
    if not near:
        why = ""
        import difflib

        near = difflib.get_close_matches(flag, sorted(known), n=_SHOWN, cutoff=0.6)
        first = flag.split("-")[0]
        near += [name for name in sorted(known) if name.split("-")[0] == first]
    shown = ", ".join(f"--{name}" for name in list(dict.fromkeys(near))[:_SHOWN])
    if not shown:
        return ""
    return f"there is {shown}" + (f" ({why})" if why else "")


def unknown(settings: Iterable[Setting], known: Collection[str]) -> list[Setting]:
    """Return the settings whose option is not among the known ones."""
    return [setting for setting in settings if setting.name not in known]


def help_problems(settings: Iterable[Setting], text: str) -> list[tuple[Setting, str]]:
    """Return each setting that a program's help does not allow, and why.

    Args:
        settings: Of one profile; ``threads`` may still say ``physical``.
        text: What ``--help`` printed.
    """
    options = parse_help(text)
    known = {
        name[2:]
        for name, option in options.items()
        if name.startswith("--") and _REMOVED not in option.text
    }
    problems = []
    for setting in settings:
        option = options.get(f"--{setting.name}")
        if option is None or _REMOVED in option.text:
            word = "there is no such option" if option is None else "it was removed"
            advice = instead_of(setting.name, known)
            problems.append((setting, f"{word}{f'; {advice}' if advice else ''}"))
        elif (setting.name, setting.value) != ("threads", "physical") and (
            wrong := option.problem(setting.value)
        ):
            problems.append((setting, wrong))
    return problems


def options_of_files(files: Iterable[Path], program: str) -> frozenset[str]:
    """Return the long options that stand in those of the files that can hold a program's."""
    import mmap

    found: frozenset[str] = frozenset()
    for path in files:
        if not holds_options(path.name, program):
            continue
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found |= options_in_data(data)
    return found
