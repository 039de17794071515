"""Sharing compilation between machines: a remote object cache, and other machines' compilers.

Both are opt-in, because what comes out of them was not made from the pins alone on this machine:
the build record says ``hermetic: false``, and ``reproduce`` and ``build --release`` refuse them.
The engines are ccache (Redis, HTTP), sccache (S3) and distcc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from qbuild.errors import UsageError
from qbuild.recipe.config import Config, load_config

Mode = Literal["read-write", "read"]
Engine = Literal["ccache", "sccache"]

_ENGINES: Mapping[str, Engine] = {
    "redis": "ccache",
    "redis+unix": "ccache",
    "http": "ccache",
    "s3": "sccache",
}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?(/\d{1,3})?")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What a build shares with other machines."""

    cache: str = ""  # URL of the remote object cache; empty: none
    mode: Mode = "read-write"  # whether this build may also put objects there
    hosts: tuple[str, ...] = ()  # distcc hosts, ``NAME[:PORT][/JOBS]``

    def __bool__(self) -> bool:
        """Whether anything is shared at all."""
        return bool(self.cache or self.hosts)

    @property
    def needs_network(self) -> bool:
        """Whether it is out of reach without a network; a socket in the file system is not."""
        return bool(self.hosts) or (bool(self.cache) and not self.cache.startswith("redis+unix:"))

    @property
    def engine(self) -> Engine:
        """Return the program that talks to the cache."""
        return _ENGINES.get(urlsplit(self.cache).scheme, "ccache")

    def words(self) -> list[str]:
        """Return what the build record says: no password, no path of a socket."""
        said = []
        if self.cache:
            parts = urlsplit(self.cache)
            port = f":{parts.port}" if parts.port else ""
            said.append(f"object cache {parts.scheme}://{parts.hostname or ''}{port} ({self.mode})")
        if self.hosts:
            said.append(f"compiled on {', '.join(self.hosts)}")
        return said

    def environment(self, user: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the engines' settings.

        Args:
            user: The user's environment, for S3's credentials; none: this process's.
        """
        user = os.environ if user is None else user
        env: dict[str, str] = {}
        if self.cache and self.engine == "ccache":
            only_read = " read-only" if self.mode == "read" else ""
            # A dead cache must cost moments, not ten seconds for each of some hundred files.
            env["CCACHE_REMOTE_STORAGE"] = f"{self.cache}{only_read} data-timeout=2s"
        elif self.cache:
            parts = urlsplit(self.cache)
            env |= {
                "SCCACHE_BUCKET": parts.hostname or "",
                "SCCACHE_S3_KEY_PREFIX": parts.path.strip("/") or "qbuild",
                "SCCACHE_S3_RW_MODE": "READ_ONLY" if self.mode == "read" else "READ_WRITE",
                "SCCACHE_IDLE_TIMEOUT": "60",
            }
            wanted = ("SCCACHE_ENDPOINT", "SCCACHE_REGION", "SCCACHE_S3_USE_SSL")
            keep = [n for n in user if n.startswith("AWS_") or n in wanted]
            env |= {name: user[name] for name in keep}
        if self.hosts:
            env["DISTCC_HOSTS"] = " ".join(self.hosts)
            # A host that is down, or fails where this machine would not, costs time, not the build.
            env["DISTCC_FALLBACK"] = "1"
            env["DISTCC_BACKOFF_PERIOD"] = "60"
        return env


def shared(
    cache: str | None = None,
    mode: str | None = None,
    hosts: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Shared:
    """Return what the command line, the environment or the user's configuration asks to share.

    Args:
        cache: ``--remote-cache``; empty: no remote cache, whatever else names one.
        mode: ``--remote-cache-mode``.
        hosts: ``--compile-on``, each one or several separated by commas.
        env: Environment; none: this process's.
        config: The user's configuration; none: read it.

    Raises:
        UsageError: A URL, mode or host cannot be used.
    """
    env = os.environ if env is None else env
    found = load_config(env=env) if config is None else config
    named_hosts = [host for text in hosts for host in text.split(",")]
    asked = env.get("QBUILD_COMPILE_HOSTS", "")
    result = Shared(
        cache=_first(cache, env.get("QBUILD_REMOTE_CACHE") or None, found.remote_cache),
        mode=_mode(_first(mode, env.get("QBUILD_REMOTE_CACHE_MODE") or None, found.cache_mode)),
        hosts=tuple(named_hosts or asked.split() or found.compile_hosts),
    )
    _check(result)
    return result


def _first(*values: str | None) -> str:
    return next((value for value in values if value is not None), "")


def _mode(text: str) -> Mode:
    if text in ("", "read-write"):
        return "read-write"
    if text == "read":
        return "read"
    raise UsageError(f"`{text}` is no mode of a remote cache", fix="read-write or read")


def _check(found: Shared) -> None:
    if found.cache:
        scheme = urlsplit(found.cache).scheme
        if scheme not in _ENGINES:
            raise UsageError(
                f"there is no remote object cache for `{scheme or found.cache}`",
                where="--remote-cache, QBUILD_REMOTE_CACHE or remote_cache",
                fix="redis://HOST[:PORT], http://HOST/PATH or s3://BUCKET[/PREFIX]",
            )
        # ccache reads attributes behind a blank or a bar: a URL must not smuggle any in.
        if re.search(r"[\s|]", found.cache) or "%00" in found.cache:
            raise UsageError("the remote cache's URL holds a blank or `|`", fix="percent-encode it")
        if scheme != "redis+unix" and not urlsplit(found.cache).hostname:
            raise UsageError("the remote cache's URL names no host", where=scheme + "://…")
    if found.hosts and found.cache and found.engine == "sccache":
        raise UsageError(
            "an S3 cache (sccache) and --compile-on (distcc) do not go together",
            fix="use a Redis or HTTP cache, or leave one of them out",
        )
    for host in found.hosts:
        if not _HOST.fullmatch(host):
            raise UsageError(
                f"`{host}` is no host to compile on", fix="NAME[:PORT][/JOBS], e.g. build2:3632/8"
            )


def refuse(found: Shared, what: str) -> None:
    """Stop when something is shared that ``what`` must do without.

    Raises:
        UsageError: A remote cache or other machines are configured.
    """
    if found:
        raise UsageError(
            f"{what} shares nothing with other machines: {'; '.join(found.words())}",
            where="--remote-cache, --compile-on, their QBUILD_ variables or the configuration",
            fix="leave them out for this run, e.g. `env -u QBUILD_REMOTE_CACHE …`",
        )
