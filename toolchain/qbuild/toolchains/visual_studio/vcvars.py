"""The environment that ``vcvarsall.bat`` sets up, captured once and kept as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbuild.errors import ToolchainError
from qbuild.toolchains.visual_studio.choose import Choice

MARK: Final = "-- qbuild: environment --"  # line between what vcvarsall prints and the environment

KEPT: Final = (
    "INCLUDE", "LIB", "LIBPATH", "PATH", "UCRTVersion", "UniversalCRTSdkDir", "VCINSTALLDIR",
    "VCToolsInstallDir", "VCToolsVersion", "VSINSTALLDIR", "WindowsSDKVersion", "WindowsSdkDir",
)  # fmt: skip
"""Variables that compiler, linker and CMake read; the rest describes the prompt."""


def capture_command(choice: Choice) -> str:
    """Return the line that cmd runs to print the environment after vcvarsall."""
    program, *arguments = choice.vcvars
    return f'call "{program}" {" ".join(arguments)} && echo {MARK}&& set'


def parse(output: str, choice: Choice) -> dict[str, str]:
    """Return the variables of :data:`KEPT` from what that line printed.

    Raises:
        ToolchainError: vcvarsall failed, or set up another toolset than it was asked for.
    """
    said, mark, text = output.replace("\r\n", "\n").partition(MARK + "\n")
    if not mark:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        raise ToolchainError(
            f"vcvarsall failed: {lines[-1] if lines else 'it printed nothing'}",
            where=choice.studio.vcvarsall,
            fix="repair this installation in the Visual Studio Installer",
        )
    # Windows compares names without case, and `set` prints Path or PATH.
    found = {name.upper(): value for name, _, value in _lines(text)}
    kept = {name: found[name.upper()] for name in KEPT if name.upper() in found}
    check(kept, choice)
    return kept


def check(env: Mapping[str, str], choice: Choice) -> None:
    """Check that an environment is the chosen one.

    Raises:
        ToolchainError: It is of another toolset or SDK, or lacks what the compiler reads.
    """
    missing = [name for name in ("INCLUDE", "LIB", "PATH") if not env.get(name)]
    toolset = env.get("VCToolsVersion", choice.toolset)
    sdk = env.get("WindowsSDKVersion", choice.sdk).strip("\\")
    if missing or toolset != choice.toolset or sdk != choice.sdk:
        got = f"it sets no {', '.join(missing)}" if missing else f"it sets up {toolset}, SDK {sdk}"
        raise ToolchainError(
            f"vcvarsall was asked for toolset {choice.toolset}, SDK {choice.sdk}, and {got}",
            where=choice.studio.vcvarsall,
            fix="repair this installation in the Visual Studio Installer, or name another with "
            "toolchain.toolset and toolchain.sdk",
        )


def _lines(text: str) -> list[tuple[str, str, str]]:
    return [line.partition("=") for line in text.splitlines() if "=" in line[1:]]
