"""The scripts that native Windows builds would run, for captured machines.

One file each below ``tests/data/msvc/golden``, to be read line by line when they change;
``ci/generate.py`` writes them. A pair that does not
go together is a golden as well: the refusal.
"""

from __future__ import annotations

from pathlib import Path

from qbuild import resources
from qbuild.errors import QbuildError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.captured import capture
from qbuild.steps.plan import make_plan
from qbuild.steps.script import render
from qbuild.toolchains.visual_studio.installed import load_facts

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "tests" / "data" / "msvc"
MACHINES = ("vs2019", "vs2022", "vs2026")
CUDA = ("12.4", "12.9", "13.0")


def text(machine: str, recipe: str, shell: str, *overrides: str) -> str:
    """Return the script for a captured machine, or how it is refused."""
    lock = load_lock(resources.lockfile())
    facts = load_facts(FACTS / f"{machine}.json")
    try:
        loaded = load_recipe(recipe, os="windows", overrides=overrides)
        plan = make_plan(loaded, lock, host="windows-x86_64", captured=capture(loaded, facts))
        return render(plan, shell)
    except QbuildError as error:
        return f"qbuild: {error.render()}\n".replace(str(ROOT), "")


def goldens() -> dict[str, str]:
    """Return file name (below the checkout) → text."""
    static = "toolchain.runtime=static"
    found = {}
    for machine in MACHINES:
        for shell in ("cmd", "ps1"):
            found[f"openblas-{machine}.{shell}"] = text(
                machine, "openblas", shell, "toolchain.name=msvc", static
            )
        for cuda in CUDA:
            found[f"gtx1060-{machine}-cuda{cuda}.cmd"] = text(
                machine, "gtx1060", "cmd", "toolchain.name=nvcc", f'toolchain.cuda="{cuda}"', static
            )
    # An older toolset beside the newest one, MSBuild, and the runtime beside the programs.
    found["gtx1060-vs2026-v143-msbuild.cmd"] = text(
        "vs2026-v143", "gtx1060", "cmd", "toolchain.name=nvcc",
        "toolchain.generator=visual-studio", "bundle.vc_runtime=app-local",
    )  # fmt: skip
    return {f"tests/data/msvc/golden/{name}": body for name, body in found.items()}
