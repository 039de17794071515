"""The plan: every step of a build with its inputs and key, worked out before anything runs.

Pure: reads the recipe, the lockfile and the patch series; no network, no subprocess.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild import resources
from qbuild.cuda.tree import HOST_WHEELS
from qbuild.recipe.load import as_dict
from qbuild.recipe.lock import Lock, SourcePin, WheelPin
from qbuild.recipe.model import Recipe
from qbuild.recipe.rebuild import label
from qbuild.steps import cmake, openblas
from qbuild.steps import web_ui as webui
from qbuild.store import step_key
from qbuild.toolchains import get_toolchain

if TYPE_CHECKING:
    from qbuild.patches import Series
    from qbuild.toolchains.base import Layout, Toolchain
    from qbuild.toolchains.visual_studio.installed import MsvcFacts

SOURCE_FORMAT = 1
WHEEL_FORMAT = 1
PATCH_FORMAT = 1
COMPILE_FORMAT = 1
STAGE_FORMAT = 1

BUILD_TOOLS = ("cmake", "ninja", webui.PROJECT)
"""Wheels that make a build and leave nothing of theirs in it."""

HOST_TOOLS = frozenset((*BUILD_TOOLS, *HOST_WHEELS))
"""Wheels of programs that run on the build machine: Linux and Windows have files of their own."""

# What writes a bundle: a change to any of these files makes a new bundle, no version to forget.
_BUNDLE_CODE = (
    "binary/zip_writer.py", "bundle/make.py", "steps/bundle.py", "bundle/closure.py",
    "bundle/facts.py", "bundle/manifest.py", "binary/names.py", "bundle/provenance.py",
    "bundle/readme.py", "bundle/sbom.py", "steps/stage.py", "bundle/third_party.py",
    "cuda/runtime.py", "bundle/launch/check.py", "bundle/launch/options.py",
    "bundle/launch/profile.py", "bundle/launch/scripts.py", "doctor/detect/levels.py",
    "recipe/rebuild.py", "recipe/variants.py",
)  # fmt: skip
_BUNDLE_TABLES = (
    "cuda.toml", "gpu-validated.toml", "gpus.toml", "linux-libs.toml", "third-party.toml",
    "windows-dlls.toml", "launch/instead.toml", "launch/run.bat", "launch/run.ps1",
    "launch/run.sh", "launch/driver.bat", "launch/driver.ps1", "launch/driver.sh",
    "launch/together.bat", "launch/together.ps1", "launch/together.sh",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: what it is made from, and therefore its key."""

    kind: str
    label: str
    key: str
    inputs: Mapping[str, Any]

    @property
    def short(self) -> str:
        """First characters of the key, for people."""
        return self.key[:12]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A resolved recipe with all its steps."""

    recipe: Recipe
    lock: Lock
    pin: SourcePin
    series: tuple[Series, ...]
    toolchain: Toolchain
    host: str
    wheels: tuple[WheelPin, ...]
    source: Step
    wheel_steps: Mapping[str, Step]
    tree: Step | None
    openblas: Step | None
    patch: Step
    npm: Step | None
    web_ui: Step | None
    configure: Step
    compile: Step
    stage: Step
    bundle: Step
    zip_name: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in the order they run; ``verify`` follows and is keyed by the zip's bytes."""
        return (
            self.source,
            *self.wheel_steps.values(),
            *((self.tree,) if self.tree else ()),
            *((self.openblas,) if self.openblas else ()),
            self.patch,
            *((self.npm, self.web_ui) if self.npm and self.web_ui else ()),
            self.configure,
            self.compile,
            self.stage,
            self.bundle,
        )


def _step(kind: str, inputs: Mapping[str, Any], label: str | None = None) -> Step:
    return Step(kind=kind, label=label or kind, key=step_key(kind, inputs), inputs=inputs)


def version_of(pin: SourcePin) -> str:
    """Return the version in the zip's name: the build number when known, else ``g<sha9>``."""
    return f"b{pin.build_number}" if pin.build_number else f"g{pin.commit[:9]}"


def zip_name(recipe: Recipe, pin: SourcePin) -> str:
    """Return ``llama-<version>-<recipe>-<os>-<arch>.zip``."""
    target = recipe.target
    return f"llama-{version_of(pin)}-{label(recipe)}-{target.os}-{target.arch}.zip"


def digest_of_files(paths: list[Path]) -> str:
    """Return one sha256 over the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        data = path.read_bytes().replace(b"\r\n", b"\n") if path.is_file() else b""
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def make_plan(
    recipe: Recipe,
    lock: Lock,
    *,
    host: str,
    patches_root: Path | None = None,
    tests: tuple[str, ...] = (),
    machine: MsvcFacts | None = None,
) -> Plan:
    """Return the plan of a recipe.

    Args:
        recipe: The resolved recipe.
        lock: All pins.
        host: The build machine as the lockfile names it, e.g. ``linux-x86_64``.
        patches_root: Folder of the series; the default is qbuild's own.
        machine: What the Windows machine has, for the toolchains that take what is installed.
        tests: Test programs to build instead of the recipe's targets (``qbuild test``).

    Raises:
        LockError: A pin is missing.
        PatchError: A series is missing or malformed.
        ToolchainError: The toolchain cannot build this recipe.
    """
    from qbuild.patches import load_series

    pin = lock.source(recipe.source.pin)
    root = patches_root or resources.patches_dir()
    series = tuple(load_series(root, name) for name in recipe.series)
    toolchain = get_toolchain(recipe.toolchain.name, machine)
    tools = tuple(lock.wheel(project, host) for project in ("cmake", "ninja"))
    wheels = (
        *tools,
        *webui.wheels(recipe, lock, host),
        *toolchain.wheels(recipe, lock, host),
        *openblas.wheels(recipe, lock),
    )

    source = source_step(pin)
    wheel_steps = {wheel.project: wheel_step(wheel) for wheel in wheels}
    described = toolchain.describe(recipe, lock, host)
    tree_inputs = toolchain.tree_inputs(recipe, lock, host)
    patch = _step(
        "patch",
        {
            "format": PATCH_FORMAT,
            "source": source.key,
            "series": [[s.name, s.digest] for s in series],
        },
    )
    blas_inputs = openblas.step_inputs(recipe, lock, os.environ)
    blas = _step(openblas.STEP, blas_inputs, "OpenBLAS") if blas_inputs else None
    npm, web_ui = _web_ui_steps(recipe, pin, source, series, wheels)
    entries = cmake.cache_entries(recipe, pin, tests=bool(tests))
    configure = _step(
        "configure",
        {
            "format": cmake.FORMAT,
            "patch": patch.key,
            "toolchain": described,
            "layout": _layout(toolchain, recipe),
            "tools": {wheel.project: wheel.sha256 for wheel in tools},
            "cache": entries,
            **({"openblas": blas.key} if blas else {}),
            **({"web-ui": web_ui.key} if web_ui else {}),
        },
    )
    compiled = _step(
        "compile",
        {
            "format": COMPILE_FORMAT,
            "configure": configure.key,
            "targets": list(tests or recipe.build.targets),
        },
    )
    stage = _step("stage", {"format": STAGE_FORMAT, "compile": compiled.key})
    name = zip_name(recipe, pin)
    bundle = _step(
        "bundle",
        {
            "stage": stage.key,
            "zip": name,
            "recipe": as_dict(recipe),
            "provided": {name: list(where) for name, where in toolchain.provides(recipe).items()},
            "code": _bundle_code_digest(),
        },
    )
    return Plan(
        recipe=recipe,
        lock=lock,
        pin=pin,
        series=series,
        toolchain=toolchain,
        host=host,
        wheels=wheels,
        source=source,
        wheel_steps=wheel_steps,
        tree=_step("cuda-tree", tree_inputs, "CUDA tree") if tree_inputs else None,
        openblas=blas,
        patch=patch,
        npm=npm,
        web_ui=web_ui,
        configure=configure,
        compile=compiled,
        stage=stage,
        bundle=bundle,
        zip_name=name,
    )


def source_step(pin: SourcePin) -> Step:
    """Return the step that fetches a pinned commit."""
    return _step("source", {"format": SOURCE_FORMAT, "commit": pin.commit, "tree": pin.tree})


def _web_ui_steps(
    recipe: Recipe,
    pin: SourcePin,
    source: Step,
    series: tuple[Series, ...],
    wheels: tuple[WheelPin, ...],
) -> tuple[Step, Step] | tuple[None, None]:
    """Return what fetches npm's packages and what builds the UI, when the recipe wants one.

    Recipes share both: of the series, only those count that change the UI's folder.
    """
    if not recipe.web_ui:
        return None, None
    (node,) = (wheel for wheel in wheels if wheel.project == webui.PROJECT)
    changing = [
        [each.name, each.digest]
        for each in series
        if any(
            path.startswith(f"{webui.SOURCE}/")
            for patch in each.patches
            for path in patch.entry.touches
        )
    ]
    inputs = {
        "format": webui.FORMAT,
        "source": source.key,
        "series": changing,
        "node": node.sha256,
    }
    npm = _step(webui.NPM_STEP, inputs, "npm packages")
    built = {"npm": npm.key, "name": version_of(pin)}
    return npm, _step(webui.STEP, built, "web UI")


def _layout(toolchain: Toolchain, recipe: Recipe) -> dict[str, Any]:
    """Return wrappers and toolchain file with placeholders for what differs between folders."""
    names = ("zig", "zig-lib", "cuda-tree", "cuda-root", "cc", "c++")
    programs = {name: f"@{name}@" for name in names}
    layout = toolchain.layout(recipe, programs=programs, work="@work@", cache_dir="@cache@")
    return {
        "wrappers": {name: list(words) for name, words in layout.wrappers.items()},
        "toolchain_file": layout.toolchain_file,
        "cache": dict(layout.cache),
        **_calls(layout),
    }


def _calls(layout: Layout) -> dict[str, Any]:
    """Return what is called besides wrappers; nothing for toolchains that have only those."""
    if not layout.setup:
        return {}
    return {"generator": list(layout.generator[:2])}


def wheel_step(wheel: WheelPin) -> Step:
    """Return the step that fetches and unpacks one wheel."""
    inputs: dict[str, Any] = {
        "format": WHEEL_FORMAT,
        "file": wheel.filename,
        "sha256": wheel.sha256,
    }
    if wheel.project == "ziglang":
        from qbuild.toolchains.zig import adjustments_digest

        inputs["adjustments"] = adjustments_digest()
    return _step("wheel", inputs, f"wheel {wheel.project}")


def _bundle_code_digest() -> str:
    package = Path(resources.__file__).parent
    return digest_of_files(
        [package / name for name in _BUNDLE_CODE]
        + [resources.data_dir() / name for name in _BUNDLE_TABLES]
    )
