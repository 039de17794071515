"""Which options the programs will have, read from their source: known before anything compiles.

``common/arg.cpp`` (and what our series add beside it) lists the options of all programs but
llama-bench, each with its names, the hint for its value, its explanation and the programs it
belongs to; llama-bench compares words itself.
What an option became is said in its explanation ("the argument has been removed. use …").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from qbuild import resources
from qbuild.bundle.launch.options import Option, instead_of, values_of
from qbuild.bundle.launch.profile import Setting, offered, settings
from qbuild.errors import RecipeError
from qbuild.recipe.model import Launch, Recipe

COMMON: Final = "common"
BENCH: Final = "tools/llama-bench/llama-bench.cpp"
REMOVED: Final = "the argument has been removed"
_TABLE: Final = "launch/options.json"
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NAMES: Final = re.compile(r"\s*\{((?:\s*\"[^\"]*\",?)*)\s*\},?")
_HINT: Final = re.compile(r'\s*"([^"]{1,60})",')
_PROGRAMS: Final = {"llama-server": "SERVER", "llama-cli": "CLI"}


@dataclass(frozen=True, kw_only=True)
class SourceOption:
    """An option as the source declares it."""

    option: Option  # its names, hint and explanation
    removed: str  # what to use instead when it is only there to say so; "" when it works
    programs: frozenset[str]  # upstream's names of the programs that take it; empty: all of them

    def belongs_to(self, program: str) -> bool:
        """Tell whether a program takes it."""
        word = _PROGRAMS.get(program)
        return word is None or not self.programs or bool(self.programs & {word, "COMMON"})


Options = Mapping[str, SourceOption]  # a program's options by each of their spellings, with dashes


def options_in_source(text: str) -> list[SourceOption]:
    """Return each option that a source file declares; one may be declared for each program."""
    plain = re.sub(r"^\s*//[^\n]*\n", "", text, flags=re.M)
    blocks = plain.split("add_opt(common_arg(")[1:]
    return [made for block in blocks if (made := _block(block)) is not None]


def _block(block: str) -> SourceOption | None:
    first = _NAMES.match(block)
    if first is None:
        return None
    names = [each for each in _TEXT.findall(first[1]) if "=" not in each]
    rest = block[first.end() :]
    if negative := _NAMES.match(rest):
        names += _TEXT.findall(negative[1])
        rest = rest[negative.end() :]
    hint = _HINT.match(rest)
    said = hint[1] if hint and not re.match(r"\s*\"[^\"]*\"\s*,\s*\[", rest) else ""
    body = rest[hint.end() if said and hint else 0 :].partition("[](")[0]
    explanation = "".join(_TEXT.findall(body)).replace("\\n", "\n").replace('\\"', '"')
    tail = rest[: rest.find("add_opt(")] if "add_opt(" in rest else rest
    programs = frozenset(
        word
        for row in re.findall(r"set_examples\(\{([^}]*)\}\)", tail)
        for word in re.findall(r"LLAMA_EXAMPLE_(\w+)", row)
    )
    excluded = frozenset(
        word
        for row in re.findall(r"set_excludes\(\{([^}]*)\}\)", tail)
        for word in re.findall(r"LLAMA_EXAMPLE_(\w+)", row)
    )
    everywhere = not programs or "COMMON" in programs
    if everywhere and excluded:
        programs = frozenset(_PROGRAMS.values()) - excluded
    removed = explanation.partition(REMOVED)[2].strip(". ") if REMOVED in explanation else ""
    values = values_of(said, "" if "%s" in explanation else explanation)
    return SourceOption(
        option=Option(names=tuple(names), hint=said, text=explanation, values=values),
        removed=removed or (REMOVED if REMOVED in explanation else ""),
        programs=programs,
    )


def bench_options_in_source(text: str) -> dict[str, SourceOption]:
    """Return llama-bench's options by each of their spellings; their values are not looked at."""
    names = re.findall(r'arg == "(--?[a-zA-Z][\w-]*)"', text)
    return {
        name: SourceOption(
            option=Option(names=(name,), hint="", text="", values=()),
            removed="",
            programs=frozenset(),
        )
        for name in names
    }


def in_tree(tree: Path, program: str) -> dict[str, SourceOption] | None:
    """Return a program's options in a source tree; ``None``: the tree has no such file."""
    if program == "llama-bench":
        path = tree / BENCH
        return bench_options_in_source(_read(path)) if path.is_file() else None
    found: dict[str, SourceOption] = {}
    for path in sorted((tree / COMMON).glob("*.cpp")):
        for each in options_in_source(_read(path)):
            if each.belongs_to(program):
                found |= {name: each for name in each.option.names if name not in found}
    return found or None


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# The table of the pin


@cache
def _table() -> Mapping[str, Any]:
    path = resources.data_dir() / _TABLE
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def removed_names() -> Mapping[str, str]:
    """Return the names (without dashes) that the pin only keeps to refuse, and what to use."""
    found: Mapping[str, str] = _table()["removed"]
    return found


def in_table(commit: str, series: Iterable[str], program: str) -> dict[str, SourceOption] | None:
    """Return a program's options by the table of the pin.

    Args:
        commit: The llama.cpp that is built.
        series: The patch series on top.
        program: ``llama-server`` and so on.

    Returns:
        ``None`` when the table is of another commit, or a series may add options to it.
    """
    if commit != _table()["commit"] or not set(series) <= set(_table()["series"]):
        return None
    rows = _table()["programs"].get(program)
    if rows is None:
        return None
    return {
        name: SourceOption(
            option=Option(names=(name,), hint=hint, text=text, values=tuple(values)),
            removed=removed,
            programs=frozenset(),
        )
        for name, (hint, text, values, removed) in rows.items()
    }


# The check


def problem_of(setting: Setting, known: Mapping[str, SourceOption]) -> tuple[str, str]:
    """Return what is wrong with a setting and what to do, or two empty texts."""
    found = known.get(f"--{setting.name}")
    working = {n[2:] for n, each in known.items() if n.startswith("--") and not each.removed}
    if found is None:
        advice = instead_of(setting.name, working)
        return "has no option", advice or "leave it out; the program's --help lists its options"
    if found.removed:
        named = [each for each in re.findall(r"--([a-z][\w-]*)", found.removed) if each in working]
        advice = instead_of(setting.name, working) if not named else ""
        use = ", ".join(f"--{each}" for each in named)
        return "has no longer the option", f"there is {use}" if use else advice or found.removed
    if (setting.name, setting.value) == ("threads", "physical"):
        return "", ""
    if found.option.hint and setting.value is None:
        return "needs a value for", f"it takes {found.option.hint}"
    if found.option.values and (wrong := found.option.problem(setting.value)):
        return "does not take that value for", wrong
    return "", ""


def check_profiles(
    recipe: Recipe, profiles: Mapping[str, Launch], options: Mapping[str, Options | None]
) -> None:
    """Stop at the first setting that its program will not take.

    Args:
        recipe: Whose profiles, for the message.
        profiles: Name → profile.
        options: Program → its options; a program that is not there is not checked.

    Raises:
        RecipeError: A setting names an option that does not exist or was removed.
    """
    for name, profile in profiles.items():
        known = options.get(profile.tool)
        if profile.starts or not known:
            continue
        for setting in (*settings(profile), *offered(profile)):
            what, advice = problem_of(setting, known)
            if what:
                is_off = setting in offered(profile)
                given = {**profile.flags, **profile.off}
                key = setting.name if setting.name in given else setting.name.removeprefix("no-")
                value = f" {setting.value}" if setting.value is not None else ""
                raise RecipeError(
                    f"{profile.tool} {what} `--{setting.name}{value}`",
                    where=f"recipe {recipe.name}: launch.{name}."
                    f"{'off' if is_off else 'flags'}.{key}",
                    fix=advice,
                )


def check_by_table(recipe: Recipe, profiles: Mapping[str, Launch], commit: str) -> None:
    """Check a recipe's profiles against the table of the pin, where that is the one for them."""
    options: dict[str, Options | None] = {
        profile.tool: in_table(commit, recipe.series, profile.tool)
        for profile in profiles.values()
        if not profile.starts
    }
    check_profiles(recipe, profiles, options)


def check_in_tree(recipe: Recipe, profiles: Mapping[str, Launch], tree: Path) -> None:
    """Check a recipe's profiles against its patched source."""
    options: dict[str, Options | None] = {
        profile.tool: in_tree(tree, profile.tool)
        for profile in profiles.values()
        if not profile.starts
    }
    check_profiles(recipe, profiles, options)
