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
    """The pinned source.

    Args:
        repository: Where upstream publishes it, e.g. ``https://github.com/ggml-org/llama.cpp``.
        commit: Commit id (40 hex digits).
        tree: Tree id (40 hex digits).
        version: What upstream calls it, e.g. ``0.5.0-dev``.
        date: Day of the commit, ``YYYY-MM-DD``.
        build_number: Upstream's build number when the lockfile knows it.

    """

    repository: str
    commit: str
    tree: str
    version: str
    date: str
    build_number: int | None = None

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

    Args:
        name: Project, e.g. ``ziglang``.
        version: Its version.
        filename: Name of the wheel; "" for a program of the build machine.
        sha256: Of the wheel, in hex; "" for a program of the build machine.

    """

    name: str
    version: str
    filename: str = ""
    sha256: str = ""

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
    """The GPU side of a bundle.

    Args:
        toolkit: CUDA version that it was compiled with, e.g. ``12.9``.
        architectures: As the recipe spells them, sorted.
        cublas: Version of the bundled cuBLAS; "" when the user brings NVIDIA's libraries.
        driver: Lowest NVIDIA driver that runs it.
        proofs: Why these libraries will do, one sentence each.
        gpus: Generations that run it: (generation and compute capability, how).
        emulated: What of this very device code has computed on a GPU of software; "": nothing.

    """

    toolkit: str
    architectures: tuple[str, ...]
    cublas: str
    driver: str
    proofs: tuple[str, ...]
    gpus: tuple[tuple[str, str], ...]
    emulated: str = ""


@dataclass(frozen=True, kw_only=True)
class BundleFacts:
    """Everything a bundle's papers say.

    Args:
        recipe: The resolved recipe.
        source: The pin.
        patched_commit: Commit id of the patched source; equals the pin's without patches.
        patched_tree: Tree id of the patched source.
        series: Applied series in order.
        toolchain: What compiled.
        lock: The part of the lockfile the recipe resolves to (JSON-able).
        cmake: CMake cache entries as given to CMake, ISA switches included.
        qbuild_version: Version of qbuild.
        https: Whether the tools can fetch over HTTPS.
        cuda: The GPU side; ``None``: CPU only.
        gpu_validated: Whether the bundle's GPU code ran on a real GPU; ``None``: it has none.
        redistributable: Microsoft's runtime DLLs that it needs and their lowest version.
        tools: CMake, ninja and the like: they make the build but leave nothing in the bundle.

    """

    recipe: Recipe
    source: SourceFacts
    patched_commit: str
    patched_tree: str
    series: tuple[SeriesFacts, ...]
    toolchain: ToolchainFacts
    lock: Mapping[str, Any]
    cmake: Mapping[str, bool | int | str]
    qbuild_version: str
    https: bool = False
    cuda: CudaFacts | None = None
    gpu_validated: bool | None = None
    redistributable: Redistributable | None = None
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
