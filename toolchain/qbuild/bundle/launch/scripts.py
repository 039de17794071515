"""Start scripts and their files of settings: what lies in the zip for each launch profile.

The scripts are templates in ``toolchain/data/launch``, one for each shell, so that they can be read
and checked as what they are. Whoever unpacks the zip has no Python: everything is looked at by the
scripts themselves, before the program starts.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Final

from qbuild import resources
from qbuild.bundle.launch.options import renamed
from qbuild.bundle.launch.profile import SERVER, offered, profiles_of, settings
from qbuild.bundle.launch.source_options import removed_names
from qbuild.bundle.make import ExtraFile
from qbuild.cuda.table import driver_floor as floor
from qbuild.recipe.levels import LEVELS, upto
from qbuild.recipe.model import Launch, Recipe

_PLACEHOLDER: Final = re.compile(r"@([A-Z_]+)@")


def extra_files(recipe: Recipe) -> tuple[ExtraFile, ...]:
    """Return the scripts and files of settings of a recipe's bundle, sorted by name."""
    found: list[ExtraFile] = []
    for name, profile in profiles_of(recipe).items():
        template = "together" if profile.starts else "run"
        for script in script_names(name, recipe.target.os):
            kind = script.rpartition(".")[2]
            text = fill(_template(f"{template}.{kind}"), _values(recipe, name, profile, kind))
            found.append(
                ExtraFile(
                    name=script,
                    content=_encode(text, windows=recipe.target.os == "windows"),
                    role="script",
                    executable=kind == "sh",
                )
            )
        if not profile.starts:
            text = config_text(name, profile)
            found.append(
                ExtraFile(
                    name=config_name(name),
                    content=_encode(text, windows=recipe.target.os == "windows"),
                    role="data",
                )
            )
    return tuple(sorted(found, key=lambda file: file.name))


def script_names(profile: str, target_os: str) -> tuple[str, ...]:
    """Return the names of a profile's scripts, the one that needs no permission first."""
    kinds = ("bat", "ps1") if target_os == "windows" else ("sh",)
    return tuple(f"run-{profile}.{kind}" for kind in kinds)


def config_name(profile: str) -> str:
    """Return the name of a profile's file of settings."""
    return f"config-{profile}.txt"


def driver_floor(recipe: Recipe) -> str:
    """Return the lowest NVIDIA driver that a recipe's bundle runs on, or "" without a GPU part."""
    cuda = getattr(recipe, "cuda", None)
    if cuda is None or not cuda.architectures:
        return ""

    return str(cuda.driver or floor("12", recipe.target.os))


def config_text(name: str, profile: Launch) -> str:
    """Return the file of settings that the user edits."""
    lines = [
        f"# Settings of run-{name}. Save this file as UTF-8 and leave this line the first.",
        "#",
        *_comment(f"{profile.summary.rstrip('.')}."),
        "#",
        *_comment(
            f"One setting in a line: the long option of {profile.tool} without its dashes, an "
            "equals sign, its value. A name alone is a switch. A line that starts with # is off. "
            f"Paths start in this folder, with / between folders. All options: {profile.tool} "
            "--help"
        ),
    ]
    both = [("", each) for each in settings(profile)] + [("#", each) for each in offered(profile)]
    for off, setting in both:
        note = setting.note or _NOTES.get(setting.name, "")
        if note or lines[-1].startswith("#"):
            lines += ["", *_comment(note)] if note else [""]
        value = "" if setting.value is None else f" = {setting.value}"
        lines.append(f"{off}{setting.name}{value}")
    return "\n".join(lines) + "\n"


_NOTES: Final[Mapping[str, str]] = {
    "model": "The model file. You can also drop another one on the script.",
    "mmproj": "The projector, for pictures and sound.",
    "host": "127.0.0.1: this computer only. 0.0.0.0: all in your network; then set api-key, too.",
    "port": "The address is http://HOST:PORT",
    "threads": "physical: as many as this computer has cores; or a number.",
    "reasoning": "Thinking before the answer: on, off, or auto (as the chat template says).",
    "slot-save-path": "Where slots are saved; the script makes the folder.",
}


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, 78, initial_indent="# ", subsequent_indent="# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _template(name: str) -> str:
    return (resources.data_dir() / "launch" / name).read_text(encoding="utf-8")


def _encode(text: str, *, windows: bool) -> bytes:
    return (text.replace("\n", "\r\n") if windows else text).encode()


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders filled in; one without a value is a fault of ours."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _values(recipe: Recipe, name: str, profile: Launch, kind: str) -> dict[str, str]:
    level = LEVELS[recipe.target.cpu]
    flags = [flag for each in upto(recipe.target.cpu) for flag in LEVELS[each].flags]
    server = profile.tool == SERVER
    values = {
        "SUMMARY": _plain(profile.summary),
        "RECIPE": recipe.name,
        "CONFIG": config_name(name),
        "SCRIPT": f"run-{name}",
        "TOOL": profile.tool,
        "SERVER": {"ps1": "$true" if server else "$false"}.get(kind, "1" if server else "0"),
        "WEB_UI": "1" if server and recipe.web_ui else "0",
        "CPU": recipe.target.cpu,
        "CPU_FLAGS": " ".join(flags),
        "FEATURE": str(level.windows),
        "OTHER_RECIPE": level.instead.replace("`", "'" if kind == "sh" else ""),
        "GLIBC": recipe.target.glibc,
        "STARTS": " ".join(profile.starts),
        "CHECKED": " ".join(each.name for each in (*settings(profile), *offered(profile))),
        "RENAMED": _renamed(profile.tool, kind),
        "REMOVED": " ".join(removed_names()),
        "DRIVER": driver_floor(recipe),
    }
    values["DRIVER_CHECK"] = (
        fill(_template(f"driver.{kind}"), _driver_values(values["DRIVER"])).rstrip("\n")
        if values["DRIVER"]
        else ""
    )
    return values


def _renamed(tool: str, kind: str) -> str:
    """Return what an option that a program does not have is called now, as a shell's own lines."""
    rows = renamed(tool)
    if kind == "sh":
        lines = [f'        {" | ".join(old)}) use="{new}" ;;' for new, old in rows.items()]
        return "\n".join(lines)
    if kind == "ps1":
        return "\n".join(f"    '{name}' = '{new}'" for new, old in rows.items() for name in old)
    return "\n".join(
        f'if /i "%QB_NAME%"=="{name}" set "QB_USE={new}"'
        for new, old in rows.items()
        for name in old
    )


def _driver_values(floor: str) -> dict[str, str]:
    major, minor = (*floor.split("."), "0")[:2]
    return {"DRIVER": floor, "MAJOR": major, "MINOR": minor}


def _plain(text: str) -> str:
    """Return text that is a comment in every shell: cmd reads % even there."""
    return text.replace("%", " percent").encode("ascii", "replace").decode()
