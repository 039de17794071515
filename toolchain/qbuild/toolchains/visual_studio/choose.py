"""Which Visual Studio, toolset, SDK and CUDA toolkit a recipe is built with.

The newest of each that fits. For CUDA code the toolset must be one that the toolkit's nvcc accepts
(``data/cuda.toml``), and the toolkit one that still compiles for the recipe's architectures; an
older toolset installed beside a newer one is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from qbuild.cuda import table
from qbuild.cuda.arch import parse_archs
from qbuild.doctor.checks_tools import cl_version
from qbuild.errors import ToolchainError
from qbuild.recipe.model import Recipe
from qbuild.toolchains.visual_studio.installed import YEARS, MsvcFacts, Studio, numbers


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a recipe is built with."""

    studio: Studio  # Visual Studio or Build Tools
    toolset: str  # its MSVC toolset, in full: ``14.44.35207``
    sdk: str  # Windows SDK: ``10.0.22621.0``
    cuda: str = ""  # CUDA toolkit, or "" without CUDA code
    cuda_folder: str = ""  # where it is

    @property
    def platform_toolset(self) -> str:
        """MSBuild's name of the toolset's generation: ``v143`` for 14.30 to 14.49."""
        minor = numbers(self.toolset)[1]
        return "v142" if minor < 30 else "v143" if minor < 50 else "v145"

    @property
    def cl(self) -> str:
        """Full path of the compiler."""
        return (
            f"{self.studio.path}\\VC\\Tools\\MSVC\\{self.toolset}\\bin\\Hostx64\\x64\\cl.exe"
        ).replace("\\", "/")

    @property
    def vcvars(self) -> tuple[str, ...]:
        """The call that sets up the environment."""
        return (self.studio.vcvarsall, "x64", self.sdk, f"-vcvars_ver={self.toolset}")


def choose(facts: MsvcFacts, recipe: Recipe) -> Choice:
    """Return what the recipe is built with on this machine.

    Raises:
        ToolchainError: Something is missing or does not go together; the message says what would.
    """
    where = f"recipe {recipe.name}: toolchain"
    pairs = _toolsets(facts, recipe, where)
    sdk = _sdk(facts, recipe, where)
    if not recipe.cuda.architectures:
        studio, toolset = pairs[0]
        return Choice(studio=studio, toolset=toolset, sdk=sdk)
    version = _cuda(facts, recipe, where)
    for studio, toolset in pairs:
        try:
            table.check_host_compiler(version, "msvc", cl_version(toolset))
        except ToolchainError:
            continue
        return Choice(
            studio=studio, toolset=toolset, sdk=sdk, cuda=version, cuda_folder=facts.cuda[version]
        )
    studio, toolset = pairs[0]
    table.check_host_compiler(
        version,
        "msvc",
        cl_version(toolset),
        where=f"{where}: {studio.name}, toolset {toolset}",
        archs=parse_archs(recipe.cuda.architectures),
    )
    raise AssertionError("the table refused this toolset a moment ago")


def _toolsets(facts: MsvcFacts, recipe: Recipe, where: str) -> list[tuple[Studio, str]]:
    """Return (installation, toolset) of all that the recipe allows, the newest first."""
    if not facts.studios:
        broken = f"; {', '.join(facts.incomplete)} lacks the C++ tools" if facts.incomplete else ""
        raise ToolchainError(
            f"there is no Visual Studio {', '.join(YEARS.values())} or Build Tools{broken}",
            where=where,
            fix="install the Build Tools with the workload `Desktop development with C++`, or use "
            "the zig toolchain, which needs nothing: --set toolchain.name=zig",
        )
    pairs = [(studio, toolset) for studio in facts.studios for toolset in studio.toolsets]
    wanted = recipe.toolchain.toolset
    fitting = [p for p in pairs if not wanted or f"{p[1]}.".startswith(f"{wanted}.")]
    if not fitting:
        have = ", ".join(dict.fromkeys(toolset for _, toolset in pairs))
        raise ToolchainError(
            f"the MSVC toolset {wanted} is not installed",
            where=f"{where}.toolset",
            fix=f"installed: {have}; another comes with the Visual Studio Installer, under "
            "Individual components",
        )
    return fitting


def _sdk(facts: MsvcFacts, recipe: Recipe, where: str) -> str:
    wanted = recipe.toolchain.sdk
    if wanted and wanted in facts.sdks:
        return wanted
    if not wanted and facts.sdks:
        return facts.sdks[0]
    raise ToolchainError(
        f"the Windows SDK {wanted} is not installed" if wanted else "there is no Windows SDK",
        where=f"{where}.sdk",
        fix=f"installed: {', '.join(facts.sdks)}"
        if facts.sdks
        else "add one in the Visual Studio Installer, under Individual components",
    )


def _cuda(facts: MsvcFacts, recipe: Recipe, where: str) -> str:
    """Return the CUDA toolkit: the wanted one, else the newest that has the architectures."""
    archs = parse_archs(recipe.cuda.architectures)
    wanted = recipe.toolchain.cuda
    if wanted and wanted not in facts.cuda:
        raise ToolchainError(
            f"CUDA {wanted} is not installed",
            where=f"{where}.cuda",
            fix=f"installed: {', '.join(facts.cuda) or 'none'}",
        )
    known = [wanted] if wanted else list(facts.cuda)
    if not known:
        raise ToolchainError(
            "there is no CUDA toolkit",
            where=where,
            fix="install CUDA 12.9, or use the clang-cuda toolchain, which needs none: "
            "--set toolchain.name=clang-cuda",
        )
    for version in sorted(known, key=numbers, reverse=True):
        try:
            table.check_archs(archs, version)
        except ToolchainError:
            continue
        return version
    table.check_archs(archs, known[0], where=f"recipe {recipe.name}: cuda.architectures")
    raise AssertionError("the table refused these architectures a moment ago")
