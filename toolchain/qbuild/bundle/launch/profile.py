"""A launch profile as settings and as a command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qbuild.recipe.launch import OWN_KEYS, PHYSICAL
from qbuild.recipe.model import FlagValue, Launch, Recipe

SERVER = "llama-server"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One line of a file of settings."""

    name: str  # long option without its dashes
    value: str | None  # its value as text; None for a switch
    note: str = ""  # why it is there, or ""

    def words(self) -> list[str]:
        """Return it as words of a command line."""
        return [f"--{self.name}", *([] if self.value is None else [self.value])]


def text_of(value: FlagValue) -> str:
    """Return a value as the programs read it."""
    return format(value, ".15g") if isinstance(value, float) else str(value)


def runnable(profiles: Mapping[str, Launch], targets: Collection[str]) -> dict[str, Launch]:
    """Return the enabled profiles whose program is among the built targets, in their order.

    A profile that starts others stays as long as all of them do.
    """
    wanted = {name: profile for name, profile in profiles.items() if profile.enabled}
    built = {n for n, p in wanted.items() if not p.starts and p.tool in targets}
    return {
        name: profile
        for name, profile in wanted.items()
        if name in built or (profile.starts and built.issuperset(profile.starts))
    }


def profiles_of(recipe: Recipe) -> dict[str, Launch]:
    """Return the profiles that a recipe's bundle can start."""
    return runnable(recipe.launch, recipe.build.targets)


def settings(profile: Launch) -> list[Setting]:
    """Return a profile's settings: where things are first, then the flags in the recipe's order."""
    own: dict[str, str] = {"model": profile.model, "mmproj": profile.mmproj}
    if profile.tool == SERVER:
        own |= {"host": profile.host, "port": str(profile.port), "slot-save-path": profile.slots}
    own["threads"] = str(profile.threads)
    own["reasoning"] = profile.thinking
    assert own.keys() <= OWN_KEYS.keys()
    lines = [
        Setting(name=name, value=value, note=profile.notes.get(name, ""))
        for name, value in own.items()
        if value
    ]
    return lines + _flags(profile, profile.flags)


def offered(profile: Launch) -> list[Setting]:
    """Return the settings that the file of settings offers, but switched off."""
    return _flags(profile, profile.off)


def _flags(profile: Launch, flags: Mapping[str, FlagValue]) -> list[Setting]:
    lines = []
    for flag, value in flags.items():
        note = profile.notes.get(flag, "")
        if isinstance(value, bool):
            lines.append(Setting(name=flag if value else f"no-{flag}", value=None, note=note))
        else:
            lines.append(Setting(name=flag, value=text_of(value), note=note))
    return lines


def command(profile: Launch, *, threads: int | None = None) -> list[str]:
    """Return a profile as the words of a command line, the program first.

    Args:
        profile: A profile with a tool.
        threads: What ``physical`` stands for; None leaves the choice to the program.
    """
    words: list[str] = [profile.tool]
    for setting in settings(profile):
        if setting.name == "threads" and setting.value == PHYSICAL:
            if threads is None:
                continue
            setting = Setting(name="threads", value=str(threads))
        words += setting.words()
    return words
