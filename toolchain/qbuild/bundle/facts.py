"""What a bundle says about itself: the facts its manifest, provenance, SBOM and README share.

Only facts that are functions of recipe, lockfile and patches belong here. Times, host names,
folders and the origin that happened to answer go into the build record beside the zip.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qbuild.recipe.model import Recipe
from qbuild.recipe.rebuild import label

if TYPE_CHECKING:
    from qbuild.toolchains.crt import Redistributable


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """The pinned source."""

    repository: str  # where upstream publishes it, e.g. ``https://github.com/ggml-org/llama.cpp``
    commit: str  # commit id (40 hex digits)
    tree: str  # tree id (40 hex digits)
    version: str  # what upstream calls it, e.g. ``0.5.0-dev``
    date: str  # day of the commit, ``YYYY-MM-DD``
    build_number: int | None = None  # upstream's build number when the lockfile knows it

    @property
    def label(self) -> str:
        """Return the version in file names: ``b<number>`` when known, else ``g<sha9>``."""
        return f"b{self.build_number}" if self.build_number else f"g{self.commit[:9]}"


@dataclass(frozen=True, kw_only=True)
class PatchFacts:
    """One applied patch: its file, its subject line, why it is there, its sha256.

    ``probe`` says how to see it in the binaries (the fields of ``qbuild.patches.Probe``).
    """

    file: str
    subject: str
    why: str
    sha256: str
    probe: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class SeriesFacts:
    """One applied series; ``digest`` covers its table and every patch in order."""

    name: str
    summary: str
    digest: str
    patches: tuple[PatchFacts, ...]


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file the toolchain or a build tool came from.

    A program that runs on the build machine comes in another file on Linux than on Windows, and
    what a bundle says must not depend on that: of such a program it names the version, and the
    build record beside the zip names the file.
    """

    name: str  # project, e.g. ``ziglang``
    version: str  # its version
    filename: str = ""  # name of the wheel; "" for a program of the build machine
    sha256: str = ""  # of the wheel, in hex; "" for a program of the build machine

    def described(self) -> dict[str, str]:
        """Return it as papers name it: what is not known is left out."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value}


@dataclass(frozen=True, kw_only=True)
class ToolchainFacts:
    """What compiled: name and version of the toolchain, its target triple, the files it came from.

    ``inputs`` is empty for a compiler of the system, which no pin describes.
    """

    name: str
    version: str
    triple: str = ""
    inputs: tuple[InputFile, ...] = ()

    def described(self) -> dict[str, Any]:
        """Return it as papers name it."""
        return {**dataclasses.asdict(self), "inputs": [each.described() for each in self.inputs]}


@dataclass(frozen=True, kw_only=True)
class CudaFacts:
    """The GPU side of a bundle."""

    toolkit: str  # CUDA version that it was compiled with, e.g. ``12.9``
    architectures: tuple[str, ...]  # as the recipe spells them, sorted
    cublas: str  # version of the bundled cuBLAS; "" when the user brings NVIDIA's libraries
    driver: str  # lowest NVIDIA driver that runs it
    proofs: tuple[str, ...]  # why these libraries will do, one sentence each
    # generations that run it: (generation and compute capability, how)
    gpus: tuple[tuple[str, str], ...]
    # what of this very device code has computed on a GPU of software; "": nothing
    emulated: str = ""


@dataclass(frozen=True, kw_only=True)
class BundleFacts:
    """Everything a bundle's papers say."""

    recipe: Recipe  # the resolved recipe
    source: SourceFacts  # the pin
    patched_commit: str  # commit id of the patched source; equals the pin's without patches
    patched_tree: str  # tree id of the patched source
    series: tuple[SeriesFacts, ...]  # applied series in order
    toolchain: ToolchainFacts  # what compiled
    lock: Mapping[str, Any]  # the part of the lockfile the recipe resolves to (JSON-able)
    # CMake cache entries as given to CMake, ISA switches included
    cmake: Mapping[str, bool | int | str]
    qbuild_version: str  # version of qbuild
    https: bool = False  # whether the tools can fetch over HTTPS
    cuda: CudaFacts | None = None  # the GPU side; ``None``: CPU only
    # whether the bundle's GPU code ran on a real GPU; ``None``: it has none
    gpu_validated: bool | None = None
    # Microsoft's runtime DLLs that it needs and their lowest version
    redistributable: Redistributable | None = None
    # CMake, ninja and the like: they make the build but leave nothing in the bundle
    tools: tuple[InputFile, ...] = field(default=())

    @property
    def ui(self) -> bool:
        """Whether llama-server's web UI is inside."""
        return self.recipe.web_ui

    @property
    def windows(self) -> bool:
        """Whether the bundle is for Windows."""
        return self.recipe.target.os == "windows"

    @property
    def name(self) -> str:
        """Return the bundle's name: ``llama-<version>-<recipe>-<os>-<arch>``."""
        target = self.recipe.target
        return f"llama-{self.source.label}-{label(self.recipe)}-{target.os}-{target.arch}"

    @property
    def zip_name(self) -> str:
        """Return the zip's file name."""
        return f"{self.name}.zip"


def canonical_json(data: Any) -> bytes:
    """Return JSON whose bytes depend on the data only: sorted keys, two blanks, UTF-8, one LF.

    Raises:
        TypeError: The data holds something JSON cannot say.
        ValueError: It holds NaN or infinity.
    """
    text = json.dumps(data, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()
