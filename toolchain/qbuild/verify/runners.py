"""The ways to run a bundle's programs: natively, in Wine, under qemu-user with an older CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from qbuild.errors import VerifyError
from qbuild.recipe.isa import QEMU_CPU
from qbuild.sandbox import Limits, run
from qbuild.verify.model import Check, not_run

WINE_ENV: Final[Mapping[str, str]] = {
    "WINEDEBUG": "-all",
    # Without these Wine offers to download Mono and Gecko and writes menu entries.
    "WINEDLLOVERRIDES": "mscoree=d;mshtml=d;winemenubuilder.exe=d",
}
_WINE_PLACES: Final = (
    "/usr/lib/wine/wine64",  # Debian, Ubuntu: not on PATH
    "/usr/lib64/wine/wine64",
    "/opt/wine-stable/bin/wine64",
    "/opt/wine-staging/bin/wine64",
    "/opt/wine-devel/bin/wine64",
)
_QEMU_NAMES: Final = ("qemu-x86_64", "qemu-x86_64-static")
_PREFIX_LIMITS: Final = Limits(seconds=300, linger=30)

# psABI level → the flag of /proc/cpuinfo that the level is told by.
_LEVEL_FLAG: Final = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}


@dataclass(frozen=True, kw_only=True)
class Runner:
    """One way to run a program.

    Args:
        id: Last part of check ids: ``native``, ``wine``, ``qemu``.
        label: For people, e.g. ``qemu-user as Haswell``.
        prefix: What comes before the program on the command line.
        env: Environment it needs.
        slowdown: By how much longer a program may take than natively.
    """

    id: str
    label: str
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    slowdown: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which runners there are, and a check for each that is not there."""

    runners: tuple[Runner, ...]
    missing: tuple[Check, ...]


def find_wine() -> str | None:
    """Return the 64-bit Wine loader, or a plain ``wine`` (one loader for both since Wine 9)."""
    for place in (shutil.which("wine64"), *_WINE_PLACES, shutil.which("wine")):
        if place and os.access(place, os.X_OK):
            return place
    return None


def find_qemu() -> str | None:
    """Return qemu-user for x86-64."""
    return next((found for name in _QEMU_NAMES if (found := shutil.which(name))), None)


def plan_for(
    *,
    target_os: str,
    cpu_level: str,
    isa: tuple[str, ...],
    qemu_cpu: str,
    host_os: str,
    scratch: Path,
    cache_dir: Path | None,
) -> Plan:
    """Find out how a bundle can be run here.

    Args:
        target_os: ``linux`` or ``windows``.
        cpu_level: psABI level of the bundle.
        isa: Extensions beyond it.
        qemu_cpu: CPU model instead of the level's, or "".
        host_os: What this machine runs.
        scratch: Existing folder for what runners need; the caller deletes it.
        cache_dir: Where a prepared Wine prefix is kept between runs, or None.
    """
    runners: list[Runner] = []
    missing: list[Check] = []

    def lacks(kind: str, title: str, *why: str) -> None:
        missing.append(not_run(f"run.{kind}", title, *why))

    if lacking := host_lacks(cpu_level):
        lacks("native", "runs on this machine", f"this machine's CPU has no {lacking}")
    elif target_os == host_os:
        runners.append(Runner(id="native", label="this machine"))
    elif target_os == "windows":
        wine = find_wine()
        if wine is None:
            lacks("wine", "runs in Wine", "Wine is not installed (Debian: apt-get install wine64)")
        else:
            prefix = wine_prefix(wine, scratch / "wineprefix", cache_dir)
            runners.append(
                Runner(
                    id="wine",
                    label="Wine",
                    prefix=(wine,),
                    env={**WINE_ENV, "WINEPREFIX": str(prefix)},
                    slowdown=3,
                )
            )
    else:
        lacks("native", "runs on this machine", f"this machine runs {host_os}, not {target_os}")

    title = "runs on the CPU it names"
    model = qemu_cpu or QEMU_CPU.get(cpu_level, "")
    if target_os == "windows":
        lacks("qemu", title, "qemu-user runs Linux programs; a Windows bundle's CPU level is "
              "shown by disassembly only")  # fmt: skip
    elif not model:
        lacks("qemu", title, "nothing says which CPU that is")
    elif cpu_level == "x86-64-v4" or any(name.startswith(("avx512", "amx")) for name in isa):
        lacks("qemu", title, "qemu's emulated CPUs have no AVX-512 or AMX")
    elif isa and not qemu_cpu:
        lacks("qemu", title, f"no CPU model is named that has {', '.join(isa)} "
              "(recipe key checks.qemu_cpu)")  # fmt: skip
    elif (qemu := find_qemu()) is None:
        lacks("qemu", title, "qemu-user is not installed (Debian: apt-get install qemu-user)")
    else:
        runners.append(
            Runner(
                id="qemu",
                label=f"qemu-user as {model}",
                prefix=(qemu, "-cpu", model),
                slowdown=10,
            )
        )
    return Plan(runners=tuple(runners), missing=tuple(missing))


def host_lacks(cpu_level: str) -> str:
    """Return the CPU flag of the level that this machine is known not to have, or ""."""
    flag = _LEVEL_FLAG.get(cpu_level, "")
    try:
        with Path("/proc/cpuinfo").open() as stream:
            flags = next((line.split() for line in stream if line.startswith("flags")), [])
    except OSError:
        return ""  # unknown: the run itself will tell
    return flag if flag and flags and flag not in flags else ""


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
            env={**WINE_ENV, "WINEPREFIX": str(prefix)},
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
