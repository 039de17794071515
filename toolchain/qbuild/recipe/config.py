"""The user's own settings: where to look first, and where results are kept.

``config.toml`` in the user's configuration folder (on Linux ``~/.config/qbuild``)::

    origins = ["/srv/git/llama.cpp.git"]     # tried in order before llama.cpp's repository
    mirrors = ["/srv/wheels"]                # folders or pages that hold pinned wheels and sdists
    store = "/big/disk/qbuild"
    remote_cache = "redis://cache.example"   # a shared object cache, see docs/how-to/ci.md
    cache_mode = "read"                      # do not put objects there
    compile_hosts = ["build2:3632/8"]        # distcc hosts

Environment variables win over the file, the command line wins over both: ``QBUILD_ORIGIN``,
``QBUILD_MIRROR`` (each one or several, separated by ``;``: a colon occurs in every URL),
``QBUILD_STORE``, and ``QBUILD_CONFIG`` for another file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from qbuild import host
from qbuild.errors import UsageError
from qbuild.recipe.convert import KeyProblem
from qbuild.recipe.written import Form


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of file and environment together."""

    origins: tuple[str, ...] = ()  # local paths or URLs that the source is asked of first
    # folders or URLs of pages where pinned wheels and sdists are looked for
    mirrors: tuple[str, ...] = ()
    store: str = ""  # folder of results; empty: the user's cache folder
    remote_cache: str = ""  # URL of a shared object cache; empty: none
    cache_mode: str = ""  # ``read`` or ``read-write``; empty: the latter
    compile_hosts: tuple[str, ...] = ()  # hosts whose distcc daemons may compile


def config_path(env: Mapping[str, str] | None = None) -> Path | None:
    """Return where the configuration file lies or would lie; nothing for a user without a home."""
    named = (os.environ if env is None else env).get("QBUILD_CONFIG")
    if named:
        return Path(named)
    folder = host.user_folder("config")
    return folder / "config.toml" if folder else None


SETTINGS: Final = Form(
    called="the configuration file",
    error=UsageError,
    missing="QBUILD_CONFIG names it",
    mend='e.g. origins = ["/srv/git/llama.cpp.git"]',
)


def load_config(path: Path | None = None, env: Mapping[str, str] | None = None) -> Config:
    """Return the settings; a missing file is the same as an empty one.

    Args:
        path: The file; none: :func:`config_path`.
        env: Environment; none: this process's.

    Raises:
        UsageError: The file is no TOML, has an unknown or ill-typed key, or was named by
            ``QBUILD_CONFIG`` and is missing.
    """
    env = os.environ if env is None else env
    path = path or config_path(env)
    found = Config()
    if path is not None and (path.exists() or env.get("QBUILD_CONFIG")):
        found = parse_config(SETTINGS.read(path), str(path))
    return Config(
        origins=_listed(env.get("QBUILD_ORIGIN")) or found.origins,
        mirrors=_listed(env.get("QBUILD_MIRROR")) or found.mirrors,
        store=env.get("QBUILD_STORE") or found.store,
        # Environment and command line are weighed in qbuild.steps.shared, where they are checked.
        remote_cache=found.remote_cache,
        cache_mode=found.cache_mode,
        compile_hosts=found.compile_hosts,
    )


def source_origins(given: Sequence[str]) -> tuple[str, ...]:
    """Return the origins to ask first: those of the command line, else the configured ones.

    Args:
        given: What ``--origin`` named.

    Raises:
        UsageError: See :func:`load_config`; or an origin is empty, or no URL.
    """
    if any(not origin.strip() for origin in given):
        raise UsageError("--origin is empty", fix="name a path or a URL, or leave it out")
    found = tuple(given) or load_config().origins
    for origin in found:
        _check_url(origin)
    return found


def parse_config(text: str, label: str) -> Config:
    """Return the settings of a file's text; relative paths in it count from the file's folder.

    Raises:
        UsageError: See :func:`load_config`.
    """
    found = SETTINGS.build(Config, text, label, _check)
    folder = Path(label).parent
    return Config(
        origins=tuple(_anchored(value, folder) for value in found.origins),
        mirrors=tuple(_anchored(value, folder) for value in found.mirrors),
        store=_anchored(found.store, folder) if found.store else "",
        remote_cache=found.remote_cache,
        cache_mode=found.cache_mode,
        compile_hosts=found.compile_hosts,
    )


def _check(found: Config) -> None:
    for key, values in (("origins", found.origins), ("mirrors", found.mirrors)):
        if "" in values:
            raise KeyProblem((key, str(values.index(""))), "is empty", "leave it out")


def is_url(text: str) -> bool:
    """Tell URLs (and ssh's ``host:path``) from local paths, a Windows drive letter included."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        return True
    return bool(re.match(r"[\w.-]+@[\w.-]+:", text))


def _anchored(value: str, folder: Path) -> str:
    return value if is_url(value) else str(folder / host.expand_user(value))


def _check_url(value: str) -> None:
    """Refuse what begins like a URL and is none.

    Raises:
        UsageError: It is none.
    """
    if "://" not in value:
        return
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise UsageError(
            f"this is no URL: {error}", where=value, fix="write it as https://HOST[:PORT]/PATH"
        ) from None
    if port == 0 or (not parts.netloc and parts.scheme.lower() != "file"):
        raise UsageError(
            "this URL names no host", where=value, fix="write it as https://HOST[:PORT]/PATH"
        )


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(";") if part.strip())
