"""What keeps a server running: a systemd unit, a Windows watchdog, nginx in front of two of them.

Each is a text for a place outside the bundle. The values go through checks here, because a unit or
a proxy that reads a blank or a quote in the wrong way does something else than what was meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from qbuild import resources
from qbuild.bundle.launch.profile import SERVER, profiles_of
from qbuild.bundle.launch.scripts import config_name, fill
from qbuild.errors import UsageError
from qbuild.recipe.convert import suggest
from qbuild.recipe.model import Launch, Recipe

_CPU: Final = {
    "PREPARE": "",
    "DEVICES": "DevicePolicy=closed\nPrivateDevices=yes",
    "CLOCK": "ProtectClock=yes",
    "MORE_CALLS": " @resources",
}
_GPU: Final = {
    # The driver makes /dev/nvidia* when a root process first asks for them: after a start without
    # a desktop nobody has. `-`: it may not be installed, `+`: as root.
    "PREPARE": "ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c=0\n",
    "DEVICES": "DevicePolicy=auto\nPrivateDevices=no",
    # Up to systemd 249 (Ubuntu 22.04) ProtectClock= allows one device and thereby closes all
    # others, /dev/nvidia* among them (systemd's NEWS for 250). Without capabilities nobody can set
    # the clock anyway.
    "CLOCK": "# ProtectClock=yes would hide /dev/nvidia* on systemd 249 and older.",
    # CUDA sets the affinity of its threads, which is in @resources.
    "MORE_CALLS": "",
}
"""What differs in a unit for a GPU."""
_FOLDER: Final = re.compile(r"/[\w./@+ -]*[\w.]")
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_MEMORY: Final = re.compile(r"[1-9]\d{0,4}[MGT]|[1-9]\d?%")
_UPSTREAM: Final = re.compile(r"[A-Za-z0-9.-]{1,253}:[1-9]\d{0,4}")
_SERVER_NAME: Final = re.compile(r"_|[A-Za-z0-9.*-]{1,253}")


def server_profile(recipe: Recipe, name: str | None) -> tuple[str, Launch]:
    """Return the profile of a recipe that a service is to run.

    Args:
        recipe: Whose profiles.
        name: The profile; None: the only one with a server, or the one named ``server``.

    Raises:
        UsageError: There is none of that name, it is no server, or it is not clear which is meant.
    """
    profiles = profiles_of(recipe)
    servers = {n: p for n, p in profiles.items() if p.tool == SERVER and not p.starts}
    if name is None and (len(servers) == 1 or "server" in servers):
        name = "server" if "server" in servers else next(iter(servers))
    if name is None:
        raise UsageError(
            f"recipe `{recipe.name}` has {len(servers)} launch profiles for a server",
            fix=f"name one with --profile: {', '.join(servers)}"
            if servers
            else "add a [launch.NAME] to the recipe; see docs/how-to/launch.md",
        )
    if name not in servers:
        raise UsageError(
            f"recipe `{recipe.name}` has no launch profile `{name}` that runs a server",
            fix=suggest(name, servers) or f"one of: {', '.join(servers) or 'none'}",
        )
    return name, servers[name]


def systemd_unit(recipe: Recipe, name: str, *, folder: str, user: str, memory: str) -> str:
    """Return a unit that runs a profile's start script.

    Args:
        recipe: Whose bundle is unpacked there.
        name: The profile.
        folder: Where the bundle is unpacked, absolute.
        user: System user that runs it and owns what it writes.
        memory: Limit that the kernel holds it to, e.g. ``24G`` or ``80%``.

    Raises:
        UsageError: A value cannot stand in a unit.
    """
    if not _FOLDER.fullmatch(folder) or ".." in folder.split("/"):
        raise UsageError(
            f"--dir takes the absolute path of the unpacked bundle, not `{folder}`",
            fix="letters, digits and . _ - + @ / and blanks, e.g. /opt/llama",
        )
    if not _USER.fullmatch(user):
        raise UsageError(f"--user takes the name of a system user, not `{user}`")
    if not _MEMORY.fullmatch(memory):
        raise UsageError(f"--memory takes a size or a share, not `{memory}`", fix="e.g. 24G or 80%")
    profile = profiles_of(recipe)[name]
    gpu = bool(getattr(getattr(recipe, "cuda", None), "architectures", ()))
    return fill(
        _template("service.systemd"),
        {
            "RECIPE": recipe.name,
            "NAME": name,
            "SUMMARY": profile.summary.rstrip(".").replace("%", "%%"),
            # systemd reads % as the start of a specifier and blanks as the end of a word.
            "FOLDER": folder.rstrip("/").replace("%", "%%"),
            "CONFIG": config_name(name),
            "USER": user,
            "MEMORY": memory,
            "SLOTS": f'ReadWritePaths="{folder.rstrip("/")}/{profile.slots}"'
            if profile.slots
            else "# (nothing: this profile saves no slots)",
            "MAKE_SLOTS": f"#   sudo install -d -o {user} '{folder.rstrip('/')}/{profile.slots}'\n"
            if profile.slots
            else "",
            **(_GPU if gpu else _CPU),
        },
    )


def watchdog(recipe: Recipe, name: str) -> str:
    """Return a Windows batch file that starts a profile again whenever it ends by itself."""
    text = fill(_template("watchdog.bat"), {"RECIPE": recipe.name, "NAME": name})
    return text.replace("\n", "\r\n")


def nginx_site(
    upstreams: Sequence[str], *, listen: int, server_name: str = "_", queue: int = 32
) -> str:
    """Return an nginx site that shares requests between servers and passes streams on at once.

    Args:
        upstreams: ``HOST:PORT`` of each llama-server.
        listen: Port that nginx listens on.
        server_name: Host name it answers to; ``_``: any.
        queue: Requests that are answered or wait at a time; further ones get 429 at once.

    Raises:
        UsageError: A value cannot stand in the file.
    """
    for upstream in upstreams:
        if not _UPSTREAM.fullmatch(upstream) or int(upstream.rpartition(":")[2]) > 65535:
            raise UsageError(f"--upstream takes HOST:PORT, not `{upstream}`")
    if len(set(upstreams)) != len(upstreams):
        raise UsageError("--upstream names the same server twice")
    if not 1 <= queue <= 10_000:
        raise UsageError(f"--queue takes a number of requests from 1 to 10000, not {queue}")
    if not 1 <= listen <= 65535:
        raise UsageError(f"--listen takes a port, not {listen}")
    if not _SERVER_NAME.fullmatch(server_name):
        raise UsageError(f"--server-name takes a host name, not `{server_name}`")
    lines = [f"    server {each} max_fails=2 fail_timeout=15s;" for each in upstreams]
    return fill(
        _template("nginx.conf"),
        {
            "UPSTREAMS": "\n".join(lines),
            "LISTEN": str(listen),
            "SERVER_NAME": server_name,
            "QUEUE": str(queue),
        },
    )


def _template(name: str) -> str:
    return (resources.data_dir() / "launch" / name).read_text(encoding="utf-8")
