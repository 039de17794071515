"""Wine: find it, make a prefix quickly, see whether it can run on an emulated CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from qbuild import held, host
from qbuild.errors import VerifyError
from qbuild.verify import canary
from qbuild.verify.sandbox import Limits, run

ENV: Final[Mapping[str, str]] = {
    "WINEDEBUG": "-all",
    # Without these Wine offers to download Mono and Gecko, writes menu entries, and on a crash
    # starts a debugger that prints every process.
    "WINEDLLOVERRIDES": "mscoree=d;mshtml=d;winemenubuilder.exe=d;winedbg.exe=d",
}
_PLACES: Final = (
    "/usr/lib/wine/wine64",  # Debian, Ubuntu: not on PATH
    "/usr/lib64/wine/wine64",
    "/opt/wine-stable/bin/wine64",
    "/opt/wine-staging/bin/wine64",
    "/opt/wine-devel/bin/wine64",
)
_PREFIX_LIMITS: Final = Limits(seconds=300, linger=30)
_CANARY_LIMITS: Final = Limits(seconds=120)


def find_wine() -> str | None:
    """Return the 64-bit Wine loader, or a plain ``wine`` (one loader for both since Wine 9).

    Windows needs none. Where that is Wine itself, it shows the loader of the system below.
    """
    if host.system() == "windows":
        return None
    for place in (shutil.which("wine64"), *_PLACES, shutil.which("wine")):
        if place and os.access(place, os.X_OK):
            return place
    return None


def emulates(qemu: str, loader: str, env: Mapping[str, str], scratch: Path) -> bool:
    """Say whether a program in Wine under qemu-user runs on the emulated CPU.

    Args:
        qemu: qemu-user.
        loader: The Wine loader.
        env: Environment with a prefix.
        scratch: Existing folder.

    Raises:
        VerifyError: qemu-user cannot be started.
    """
    with held.scratch("canary-", scratch) as folder:
        program = folder / "canary.exe"
        program.write_bytes(canary.program())
        lives = [
            run(
                [qemu, "-cpu", cpu, loader, str(program)],
                scratch=folder,
                env=env,
                limits=_CANARY_LIMITS,
            ).ok
            for cpu in (canary.OLD_CPU, canary.NEW_CPU)
        ]
    return lives == [False, True]


def wine_prefix(wine: str, dest: Path, cache_dir: Path | None) -> Path:
    """Make a Wine prefix, from the prepared one in the cache when there is one.

    A new prefix takes Wine about a quarter of a minute; a copy takes a second or two. It is copied
    each time because the program under test may write to it.

    Args:
        wine: The Wine loader.
        dest: Folder to create.
        cache_dir: Folder for the prepared prefix, or None to make one from nothing.

    Raises:
        VerifyError: Wine could not make a prefix.
    """
    if cache_dir is None:
        _boot(wine, dest)
        return dest
    stat = Path(wine).resolve().stat()
    prepared = cache_dir / f"wineprefix-{stat.st_size:x}-{int(stat.st_mtime):x}"
    if not prepared.is_dir():
        cache_dir.mkdir(parents=True, exist_ok=True)
        aside = prepared.with_name(f"{prepared.name}.{os.getpid()}.part")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            _boot(wine, aside)
            for stale in _older(cache_dir, prepared.name):
                shutil.rmtree(stale, ignore_errors=True)
            aside.rename(prepared)
        except OSError:
            if not prepared.is_dir():  # another run was faster: use its prefix
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(prepared, dest, symlinks=True)
    return dest


def _older(cache_dir: Path, keep: str) -> Iterator[Path]:
    """Yield prefixes that another version of Wine made."""
    for entry in cache_dir.glob("wineprefix-*"):
        if entry.name != keep and not entry.name.endswith(".part"):
            yield entry


def _boot(wine: str, prefix: Path) -> None:
    work = prefix.with_name(f"{prefix.name}-boot")
    work.mkdir(parents=True, exist_ok=True)
    try:
        ran = run(
            [wine, "wineboot.exe", "--init"],
            scratch=work,
            env={**ENV, "WINEPREFIX": str(prefix)},
            limits=_PREFIX_LIMITS,
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # Wine's server writes the registry when it ends, three seconds after its last client.
    if not ran.ok or not (prefix / "system.reg").is_file():
        raise VerifyError(
            f"Wine could not make a prefix: it {ran.how()}",
            where=wine,
            fix="check that `wine64 wineboot.exe --init` works for this user",
        )
