"""The ways to run a bundle's programs: natively, in Wine, under qemu-user with an older CPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from qbuild.recipe.levels import LEVELS
from qbuild.recipe.variants import QEMU_CPUS, chosen, useful
from qbuild.verify import wine
from qbuild.verify.verdict import Check, not_run

_QEMU_NAMES: Final = ("qemu-x86_64", "qemu-x86_64-static")
_GET_WINE: Final = "Debian: apt-get install wine64"


@dataclass(frozen=True, kw_only=True)
class Runner:
    """One way to run a program."""

    id: str  # last part of check ids: ``native``, ``wine``, ``qemu``
    label: str  # for people, e.g. ``qemu-user as Haswell``
    prefix: tuple[str, ...] = ()  # what comes before the program on the command line
    env: Mapping[str, str] = field(default_factory=dict)  # environment it needs
    slowdown: float = 1.0  # by how much longer a program may take than natively
    # the variant of the CPU backend that must be loaded there; "": there is but one
    variant: str = ""
    only: tuple[str, ...] = ()  # kinds of steps that are tried; none named: all
    memory: int = 4 << 30  # resident bytes that its programs may use


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which runners there are, and a check for each that is not there."""

    runners: tuple[Runner, ...]
    missing: tuple[Check, ...]


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
    variants: bool = False,
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
        variants: Whether the bundle chooses among variants of the CPU backend at start.

    Raises:
        VerifyError: Wine is there but does not work.
    """
    in_wine = _in_wine(scratch, cache_dir) if target_os == "windows" != host_os else None
    level = LEVELS.get(cpu_level)
    model = qemu_cpu or (level.qemu if level else "")
    direct = _direct(target_os, cpu_level, host_os, in_wine)
    emulated = _emulated(
        model,
        cpu_level=cpu_level,
        isa=isa,
        named=bool(qemu_cpu),
        target_os=target_os,
        in_wine=in_wine,
        scratch=scratch,
    )
    found = [direct, emulated]
    if variants:
        found = list(_choosing(direct, emulated, model, cpu_level))
    return Plan(
        runners=tuple(item for item in found if isinstance(item, Runner)),
        missing=tuple(item for item in found if isinstance(item, Check)),
    )


def _choosing(
    direct: Runner | Check, emulated: Runner | Check, model: str, cpu_level: str
) -> Iterator[Runner | Check]:
    """Yield the same ways with the variant that is to be chosen, and one for each older CPU."""
    flags = _host_flags()
    if isinstance(direct, Runner) and flags:
        direct = replace(direct, variant=chosen(flags, cpu_level))
    yield direct
    yield emulated
    if not isinstance(emulated, Runner):
        return
    shipped = useful(cpu_level)
    for cpu, variant in QEMU_CPUS.items():
        if variant in shipped and cpu != model:
            yield replace(
                emulated,
                id=f"{emulated.id}-{cpu.lower()}",
                label=emulated.label.replace(model, cpu),
                prefix=tuple(cpu if word == model else word for word in emulated.prefix),
                variant=variant,
                only=("generate",),
            )


def _in_wine(scratch: Path, cache_dir: Path | None) -> Runner | None:
    loader = wine.find_wine()
    if loader is None:
        return None
    prefix = wine.wine_prefix(loader, scratch / "wineprefix", cache_dir)
    env = {**wine.ENV, "WINEPREFIX": str(prefix)}
    return Runner(id="wine", label="Wine", prefix=(loader,), env=env, slowdown=3)


def _direct(target_os: str, cpu_level: str, host_os: str, in_wine: Runner | None) -> Runner | Check:
    """Return the way to run on this machine's CPU."""
    if lacking := host_lacks(cpu_level):
        return not_run("run.native", "runs on this machine", f"its CPU has no {lacking}")
    if target_os == host_os:
        return Runner(id="native", label="this machine")
    if in_wine is not None:
        return in_wine
    if target_os == "windows":
        return not_run("run.wine", "runs in Wine", f"Wine is not installed ({_GET_WINE})")
    why = f"this machine runs {host_os}, not {target_os}"
    return not_run("run.native", "runs on this machine", why)


def _emulated(
    model: str,
    *,
    cpu_level: str,
    isa: tuple[str, ...],
    named: bool,
    target_os: str,
    in_wine: Runner | None,
    scratch: Path,
) -> Runner | Check:
    """Return the way to run on the oldest CPU that the bundle is for."""

    def lacks(why: str) -> Check:
        return not_run("run.qemu", "runs on the CPU it names", why)

    if not model:
        return lacks("nothing says which CPU that is")
    known = LEVELS.get(cpu_level)
    if (known and not known.qemu_user) or any(name.startswith(("avx512", "amx")) for name in isa):
        return lacks("qemu's emulated CPUs have no AVX-512 or AMX")
    if isa and not named:
        return lacks(f"no CPU is named that has {', '.join(isa)} (recipe key checks.qemu_cpu)")
    qemu = find_qemu()
    if qemu is None:
        return lacks("qemu-user is not installed (Debian: apt-get install qemu-user)")
    emulator = (qemu, "-cpu", model)
    if target_os == "linux":
        return Runner(id="qemu", label=f"qemu-user as {model}", prefix=emulator, slowdown=10)
    if in_wine is None:
        return lacks(f"Wine, which qemu-user would run it with, is missing ({_GET_WINE})")
    # Without this Wine's loader starts itself again through exec(), which leaves the emulator.
    env = {**in_wine.env, "WINELOADERNOEXEC": "1"}
    if not wine.emulates(qemu, in_wine.prefix[0], env, scratch):
        return lacks("this Wine does not stay on the CPU that qemu-user emulates")
    return Runner(
        id="qemu",
        label=f"Wine on qemu-user as {model}",
        prefix=(*emulator, *in_wine.prefix),
        env=env,
        slowdown=20,
    )


def host_lacks(cpu_level: str) -> str:
    """Return the CPU flag of the level that this machine is known not to have, or ""."""
    level = LEVELS.get(cpu_level)
    flag = level.shown_by if level else ""
    flags = _host_flags()  # unknown: the run itself will tell
    return flag if flag and flags and flag not in flags else ""


def _host_flags() -> list[str]:
    """Return this machine's CPU flags, or nothing where the system does not list them."""
    try:
        with Path("/proc/cpuinfo").open() as stream:
            return next((line.split() for line in stream if line.startswith("flags")), [])
    except OSError:
        return []
