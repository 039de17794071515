"""Every flag of every launch profile must exist: what is looked at when a bundle is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from qbuild.bundle.launch.options import instead_of, options_of_files, unknown
from qbuild.bundle.launch.profile import offered, profiles_of, settings
from qbuild.bundle.launch.source_options import removed_names
from qbuild.errors import BundleError
from qbuild.recipe.model import Launch, Recipe


def flag_problems(
    profiles: Mapping[str, Launch], files: Iterable[Path]
) -> list[tuple[str, str, str]]:
    """Return the flags that stand nowhere in the programs' data: key path, what is wrong, advice.

    Args:
        profiles: Those whose programs are built.
        files: The bundle's programs and libraries.
    """
    paths = list(files)
    problems = []
    known: dict[str, frozenset[str]] = {}
    for name, profile in profiles.items():
        if profile.starts:
            continue
        if profile.tool not in known:
            there = options_of_files(paths, profile.tool)
            # those that only say that they were removed stand in the data as well
            known[profile.tool] = there - set(removed_names())
        has = known[profile.tool]
        for setting in unknown([*settings(profile), *offered(profile)], has):
            flag = setting.name
            table = "off" if setting in offered(profile) else "flags"
            key = flag if flag in {**profile.flags, **profile.off} else flag.removeprefix("no-")
            given = f" {setting.value}" if setting.value is not None else ""
            problems.append(
                (
                    f"launch.{name}.{table}.{key}",
                    f"{profile.tool} has no option `--{flag}{given}`",
                    instead_of(flag, has),
                )
            )
    return problems


def check_flags(recipe: Recipe, stage: Path) -> None:
    """Stop when a launch profile names an option that the built program does not have.

    Args:
        recipe: Whose profiles.
        stage: The staged build: ``bin/`` and, on Linux, ``lib/``.

    Raises:
        BundleError: One does; it names the key and what exists instead.
    """
    files = [path for path in sorted(stage.rglob("*")) if path.is_file()]
    problems = flag_problems(profiles_of(recipe), files)
    if not problems:
        return
    where, what, advice = problems[0]
    more = f" (and {len(problems) - 1} more like it)" if len(problems) > 1 else ""
    raise BundleError(
        f"{what}{more}",
        where=f"recipe {recipe.name}: {where}",
        fix=advice or "leave it out; the program's --help lists its options",
    )
