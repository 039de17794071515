"""What a launch profile may hold: checks that types cannot make."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Final

from qbuild.binary.names import check_name
from qbuild.errors import ArchiveError
from qbuild.recipe.convert import KeyProblem, suggest
from qbuild.recipe.model import Launch

PHYSICAL: Final = "physical"  # what ``threads`` says when the script is to count the cores

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_FLAG: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9.]+)*")
_HOST: Final = re.compile(r"[A-Za-z0-9.:-]{1,253}")

OWN_KEYS: Final[Mapping[str, str]] = {
    "model": "model",
    "mmproj": "mmproj",
    "host": "host",
    "port": "port",
    "threads": "threads",
    "slot-save-path": "slots",
    "reasoning": "thinking",
}
"""Flag → the key of the profile that gives it: the scripts look at these before they start."""


def check(profiles: Mapping[str, Launch], gpu_kv_pairs: Collection[str] = ()) -> None:
    """Check every profile.

    Args:
        profiles: Name → profile.
        gpu_kv_pairs: KV cache types (K-V) that the GPU backend has flash attention for, when
            there is such a backend: others run, but slowly and on the CPU.

    Raises:
        KeyProblem: One cannot become a script; names the key.
    """
    for name, profile in profiles.items():
        path = ("launch", name)
        if not _NAME.fullmatch(name):
            raise KeyProblem(path, "must be lower-case letters, digits and `-`: it names a file")
        if not profile.summary.strip() or not profile.summary.isprintable():
            raise KeyProblem((*path, "summary"), "must be one line of text")
        if profile.starts:
            _check_starts(profiles, profile, path)
        else:
            _check_one(profile, path)
            if gpu_kv_pairs and profile.enabled:
                _check_cache(profile, path, gpu_kv_pairs)


def _check_starts(profiles: Mapping[str, Launch], profile: Launch, path: tuple[str, ...]) -> None:
    where = (*path, "starts")
    if profile.flags or profile.off:
        raise KeyProblem((*path, "flags"), "belongs to the profiles that this one starts")
    ports: dict[tuple[str, int], str] = {}
    for other in profile.starts:
        found = profiles.get(other)
        if found is None or found.starts:
            fix = suggest(other, [n for n, p in profiles.items() if not p.starts])
            raise KeyProblem(where, f"names `{other}`, which is no profile with a tool", fix)
        if found.tool != "llama-server":
            raise KeyProblem(where, f"names `{other}`, which is no server", "start it by itself")
        if taken := ports.get((found.host, found.port)):
            raise KeyProblem(where, f"names `{taken}` and `{other}`, both on port {found.port}")
        ports[found.host, found.port] = other


def _check_one(profile: Launch, path: tuple[str, ...]) -> None:
    if not 1 <= profile.port <= 65535:
        raise KeyProblem((*path, "port"), "must be between 1 and 65535")
    if not _HOST.fullmatch(profile.host):
        raise KeyProblem((*path, "host"), "must be an address or a host name")
    threads = profile.threads
    if threads != PHYSICAL and not (isinstance(threads, int) and threads >= 1):
        raise KeyProblem((*path, "threads"), f"must be a number from 1 on, or `{PHYSICAL}`")
    if profile.thinking and profile.tool == "llama-bench":
        raise KeyProblem((*path, "thinking"), "is for programs that chat, and llama-bench does not")
    for key in ("model", "mmproj", "slots"):
        _check_path(getattr(profile, key), (*path, key), required=key == "model")
    both = [("flags", *item) for item in profile.flags.items()]
    both += [("off", *item) for item in profile.off.items()]
    for table, flag, value in both:
        where = (*path, table, flag)
        if table == "off" and flag in profile.flags:
            raise KeyProblem(where, "is among the flags, too", "keep one of the two")
        if flag in OWN_KEYS:
            key = ".".join((*path, OWN_KEYS[flag]))
            raise KeyProblem(where, "has a key of its own", f"use `{key}`")
        if not _FLAG.fullmatch(flag):
            raise KeyProblem(where, "is not a long option without its dashes")
        if isinstance(value, float) and not math.isfinite(value):
            raise KeyProblem(where, "is not a number that a program could read")
        if isinstance(value, str):
            _check_text(value, where)
    for setting, note in profile.notes.items():
        where = (*path, "notes", setting)
        has = (*profile.flags, *profile.off, *OWN_KEYS)
        if setting not in has:
            fix = suggest(setting, has)
            raise KeyProblem(where, "is about a setting that this profile does not have", fix)
        if not note.strip() or not note.isprintable():
            raise KeyProblem(where, "must be one line of text")


def _check_cache(profile: Launch, path: tuple[str, ...], pairs: Collection[str]) -> None:
    keys, values = (str(profile.flags.get(f"cache-type-{kind}", "f16")) for kind in "kv")
    if (pair := f"{keys}-{values}") not in ("f16-f16", *pairs):
        raise KeyProblem(
            (*path, "flags", "cache-type-v" if "cache-type-v" in profile.flags else "cache-type-k"),
            f"makes the KV cache {pair}, for which this recipe compiles no flash attention",
            f"take one of f16-f16, {', '.join(pairs)}, or add it to `cuda.kv_cache`",
        )


def _check_text(value: str, where: tuple[str, ...]) -> None:
    """Refuse what cannot stand in the file of settings, which three shells read."""
    if value[:1] in ("{", "["):
        _check_json(value, where)
        return
    if not value or value != value.strip() or not value.isprintable() or '"' in value:
        raise KeyProblem(
            where,
            "must be text without quotes, line breaks and blanks around it",
            "for a switch write `true`",
        )
    if value.endswith("\\"):
        raise KeyProblem(where, "ends in a backslash, which would swallow the closing quote")


def _check_json(value: str, where: tuple[str, ...]) -> None:
    """Refuse JSON that is none, or that a shell would read otherwise."""
    try:
        json.loads(value)
    except ValueError as error:
        raise KeyProblem(where, f"begins like JSON and is none: {error}") from None
    if not value.isprintable() or value != value.strip() or set(value) & set("%^&|<>!`$\\'"):
        raise KeyProblem(
            where,
            "is JSON with a character that a shell would read: one of % ^ & | < > ! ` $ \\ '",
            "leave that character out",
        )


def _check_path(value: str, where: tuple[str, ...], *, required: bool) -> None:
    if not value and not required:
        return
    try:
        check_name(value, archive="recipe")
    except ArchiveError as error:
        raise KeyProblem(
            where, f"is no path below the zip's folder: {error.what}", "e.g. `models/model.gguf`"
        ) from None
