"""The recipe: what a person edits to describe one target machine.

Each class is one table of the TOML file. A field's ``doc`` metadata is the single source of the
JSON schema (``recipes/recipe.schema.json``) and of the reference page, so both stay true.
Everything is frozen: a recipe never changes after it was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from qbuild.recipe.isa import has_avx512
from qbuild.recipe.levels import CpuLevel
from qbuild.recipe.toolchains import ToolchainName

Os = Literal["linux", "windows"]
Arch = Literal["x86_64"]
Linkage = Literal["shared", "static"]
Runtime = Literal["dynamic", "static"]
CudaRuntime = Literal["bundled", "separate"]
Cublas = Literal["none", "separate", "bundled"]
VcRuntime = Literal["none", "installed", "app-local"]
Generator = Literal["ninja", "visual-studio"]
OpenBlasOrigin = Literal["none", "wheel", "folder", "system"]
CmakeValue = bool | int | str
Tool = Literal["llama-server", "llama-cli", "llama-bench"]
Thinking = Literal["", "on", "off"]
FlagValue = bool | int | float | str


def doc(text: str, **options: Any) -> dict[str, Any]:
    """Return dataclass field metadata that documents the key."""
    return {"doc": text, **options}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which llama.cpp is built."""

    pin: str = field(
        default="llama.cpp",
        metadata=doc("Name of a `[[source]]` in the lockfile; commit and tree id come from there."),
    )


@dataclass(frozen=True, kw_only=True)
class Target:
    """The machine the bundle must run on."""

    os: Os = field(metadata=doc("Operating system of the bundle; `--os` overrides it."))
    arch: Arch = field(default="x86_64", metadata=doc("Processor architecture."))
    cpu: CpuLevel = field(
        metadata=doc(
            "x86-64 psABI level that every always-run instruction stays within; "
            "checked by disassembly of the finished bundle."
        )
    )
    isa: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            'Instruction-set extensions beyond `cpu`, e.g. `["avx-vnni"]`. '
            "Each is one that ggml has a switch for."
        ),
    )
    variants: bool = field(
        default=False,
        metadata=doc(
            "Compile the CPU backend once for each processor family that `cpu` includes; the "
            "programs, built for `cpu`, load the best one when they start. The series "
            "`cpu-variants` and `cpu-speed` are applied by themselves."
        ),
    )
    glibc: str = field(
        default="2.28",
        metadata=doc(
            "Oldest glibc a Linux bundle runs on (2.28: Debian 10, RHEL 8, Ubuntu 18.10). "
            "The gcc and clang toolchains cannot lower it below the build machine's."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What compiles."""

    name: ToolchainName = field(
        default="zig",
        metadata=doc(
            "`zig` comes from a pinned wheel and needs nothing installed; `clang-cuda` is the same "
            "with CUDA. `gcc`, `clang` and `nvcc` are what the machine has, for Linux bundles."
        ),
    )
    runtime: Runtime = field(
        default="dynamic",
        metadata=doc(
            "MSVC runtime: `dynamic` is /MD, `static` is /MT. Other toolchains ignore it."
        ),
    )
    toolset: str = field(
        default="",
        metadata=doc(
            "MSVC toolset, e.g. `14.44`; empty: the newest installed one that fits. Only msvc and "
            "nvcc on Windows read this key and the next three."
        ),
    )
    sdk: str = field(
        default="", metadata=doc("Windows SDK, e.g. `10.0.22621.0`; empty: the newest installed.")
    )
    generator: Generator = field(
        default="ninja",
        metadata=doc("`ninja`, or MSBuild by the `visual-studio` generator, which is slower."),
    )
    cuda: str = field(
        default="",
        metadata=doc(
            "Installed CUDA toolkit for nvcc, e.g. `12.9`; empty: the newest that compiles for "
            "the recipe's architectures."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Patches:
    """What is changed in the source."""

    series: tuple[str, ...] = field(
        default=(), metadata=doc("Patch series from `patches/`, applied in this order.")
    )


@dataclass(frozen=True, kw_only=True)
class Build:
    """What is compiled."""

    targets: tuple[str, ...] = field(
        default=("llama-cli", "llama-server", "llama-bench"),
        metadata=doc("CMake targets; each ships as one executable."),
    )
    linkage: Linkage = field(
        default="shared",
        metadata=doc("`shared`: libraries beside the executables; `static`: one file per tool."),
    )
    type: Literal["Release", "RelWithDebInfo"] = field(
        default="Release", metadata=doc("CMake build type.")
    )
    options: Mapping[str, CmakeValue] = field(
        default_factory=dict,
        metadata=doc(
            "CMake cache entries, e.g. `GGML_LLAMAFILE = true`. Options that qbuild owns "
            "(ISA switches, fetches, runtime, install paths) are refused here."
        ),
    )
    ui: bool = field(
        default=False,
        metadata=doc(
            "Whether llama-server's web UI is inside. npm builds it from the pinned source's own "
            "lockfile; series `web-ui` is applied by itself."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The GPU side; without architectures the bundle is CPU only."""

    architectures: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "What device code is compiled for, as CMake spells it: `61-real` is machine code for "
            "compute capability 6.1, `80-virtual` is PTX for 8.0 and newer, `89` is both. "
            "`--cuda-arch` overrides it."
        ),
    )
    gpu: str = field(
        default="",
        metadata=doc(
            "The one GPU that this is for, as NVIDIA calls it, e.g. `RTX 3060`: stands for its "
            "architecture. `--gpu` sets it, and then it names the zip as well."
        ),
    )
    kv_cache: tuple[str, ...] = field(
        default=("q4_0-q4_0", "q8_0-q8_0"),
        metadata=doc(
            "Pairs of KV cache types (K-V) that flash attention gets kernels for; "
            "`f16-f16` always has them."
        ),
    )
    peer_copy: bool = field(
        default=True, metadata=doc("Copy between several GPUs without going through the CPU.")
    )
    driver: str = field(
        default="",
        metadata=doc(
            "Lowest NVIDIA driver that the bundle promises to run on; libraries that need a newer "
            "one are refused. Empty: no promise, the bundle says what it needs."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class OpenBlas:
    """Large matrix products by OpenBLAS: ggml's BLAS backend."""

    origin: OpenBlasOrigin = field(
        default="none",
        metadata=doc(
            "`wheel`: pinned, for either system; `folder`: a prebuilt one that the environment "
            "variable `OpenBLAS_DIR` names; `system`: the Linux system's own, which then stays "
            "outside the bundle; `none`: ggml's own code only."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What ships beside the binaries."""

    readme: bool = field(
        default=True, metadata=doc("Write a README.txt for the person who unpacks the zip.")
    )
    system_libstdcxx: bool = field(
        default=False,
        metadata=doc(
            "Linux only: take libstdc++ and libgcc_s from the target system "
            "(the gcc and clang toolchains) instead of linking them in."
        ),
    )
    vc_runtime: VcRuntime = field(
        default="none",
        metadata=doc(
            "Microsoft's C++ runtime of a build with msvc or nvcc and `toolchain.runtime = "
            '"dynamic"`: `installed` leaves it to the redistributable\'s installer, `app-local` '
            "puts its DLLs beside the programs."
        ),
    )
    cuda_runtime: CudaRuntime = field(
        default="bundled",
        metadata=doc(
            "`bundled`: NVIDIA's cudart lies beside the programs, so that the zip just runs; "
            "`separate`: it stays out, for those who share it among builds."
        ),
    )
    cublas: Cublas = field(
        default="bundled",
        metadata=doc(
            "NVIDIA's cuBLAS, for matrix products of weights that are not quantised. `none`: "
            "kernels of the series own-blas instead; NVIDIA's libraries are used if the user puts "
            "them beside the programs. `bundled`: it is needed and inside, 400 MB or more; "
            "`separate`: it is needed and the user brings it. Left out it goes with "
            "`cuda_runtime`."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What the finished bundle is held to, beyond what every bundle is held to."""

    run: bool = field(
        default=True,
        metadata=doc("Run the tools on a tiny generated model (natively, in Wine, in qemu-user)."),
    )
    qemu_cpu: str = field(
        default="",
        metadata=doc("CPU model for qemu-user, e.g. `Haswell`; empty: the model of the level."),
    )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One way to start a tool: it becomes a start script and a file of settings in the zip."""

    tool: Tool = field(
        default="llama-server",
        metadata=doc("Which program starts; left out of a bundle that does not build it."),
    )
    summary: str = field(metadata=doc("One line that says what this start is for."))
    model: str = field(
        default="models/model.gguf",
        metadata=doc("The model file, relative to the zip's folder; the user may name another."),
    )
    mmproj: str = field(
        default="", metadata=doc("The projector of a model that sees or hears; empty: none.")
    )
    host: str = field(
        default="127.0.0.1", metadata=doc("Address that llama-server listens on; others: unused.")
    )
    port: int = field(
        default=8080, metadata=doc("Port that llama-server listens on; others: unused.")
    )
    threads: int | str = field(
        default="physical",
        metadata=doc("A number, or `physical`: the script counts the cores when it starts."),
    )
    slots: str = field(
        default="",
        metadata=doc("Folder that llama-server may save its slots in; empty: it saves none."),
    )
    thinking: Thinking = field(
        default="",
        metadata=doc(
            "Whether a model that can think does so before it answers: `on`, `off`; empty: as "
            "its chat template says."
        ),
    )
    flags: Mapping[str, FlagValue] = field(
        default_factory=dict,
        metadata=doc(
            "Long options without the dashes: `ctx-size = 8192`. `true` gives `--name`, `false` "
            "gives `--no-name`. Each is checked against the built program."
        ),
    )
    off: Mapping[str, FlagValue] = field(
        default_factory=dict,
        metadata=doc("Options that the file of settings offers, switched off by a `#`."),
    )
    notes: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc("Why a setting is as it is; stands above it in the file of settings."),
    )
    enabled: bool = field(
        default=True, metadata=doc("`false` leaves out a profile that came with `extends`.")
    )
    starts: tuple[str, ...] = field(
        default=(),
        metadata=doc("Other profiles that this one starts together, each on a port of its own."),
    )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One target machine and the build for it."""

    schema: int = field(default=1, metadata=doc("Version of this format; 1 is the only one."))
    name: str = field(metadata=doc("Recipe name; equals the file name without `.toml`."))
    summary: str = field(metadata=doc("One line that says whom the bundle is for."))
    source: Source = field(default_factory=Source)
    target: Target
    toolchain: Toolchain = field(default_factory=Toolchain)
    patches: Patches = field(default_factory=Patches)
    build: Build = field(default_factory=Build)
    cuda: Cuda = field(default_factory=Cuda)
    openblas: OpenBlas = field(default_factory=OpenBlas)
    bundle: Bundle = field(default_factory=Bundle)
    checks: Checks = field(default_factory=Checks)
    launch: Mapping[str, Launch] = field(
        default_factory=dict, metadata=doc("Ways to start the tools: `[launch.NAME]`, below.")
    )
    supports: tuple[Os, ...] = field(
        default=("linux", "windows"), metadata=doc("Operating systems that `--os` may ask for.")
    )

    @property
    def web_ui(self) -> bool:
        """Whether the web UI is inside: it is part of llama-server."""
        return self.build.ui and "llama-server" in self.build.targets

    @property
    def avx512(self) -> bool:
        """Whether code for AVX-512 comes out."""
        return self.target.variants or has_avx512(self.target.cpu, self.target.isa)

    @property
    def series(self) -> tuple[str, ...]:
        """Names of all series that are applied, those that another key asks for among them."""
        implied = {
            "web-ui": self.web_ui,
            "cpu-variants": self.target.variants,
            "cpu-speed": self.avx512,
        }
        named = self.patches.series
        return (*named, *(name for name, on in implied.items() if on and name not in named))
