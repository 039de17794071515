"""Facts about a machine, as one flat file that a person can write, read and send.

Everything is optional: what is not known is left out, and no check speaks about what is not
known. The field docs are the only source of ``docs/reference/facts.schema.json``. The file holds
nothing personal: ``qbuild doctor --capture`` masks the folders it names.
"""

# ruff: noqa: RUF009 - `_doc` and `_list` are `field` with less to type
from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from qbuild import bounds
from qbuild.errors import UsageError
from qbuild.recipe.levels import CpuLevel

System = Literal["linux", "windows", "darwin"]
Disk = Literal["nvme", "ssd", "hdd"]
Vendor = Literal["nvidia", "amd", "intel", "other"]


def _doc(text: str) -> Any:
    return field(default=None, metadata={"doc": text})


def _list(text: str) -> Any:
    return field(default=(), metadata={"doc": text})


@dataclass(frozen=True, kw_only=True)
class CpuFacts:
    """The processor."""

    model: str | None = _doc("Name of the processor.")
    arch: str | None = _doc("Machine, e.g. x86_64 or aarch64.")
    vendor: str | None = _doc("GenuineIntel, AuthenticAMD, …")
    flags: tuple[str, ...] = _list("Feature flags, spelled as in Linux's /proc/cpuinfo.")
    level: CpuLevel | None = _doc("x86-64 psABI level, where the flags are not known.")
    cores: int | None = _doc("Physical cores.")
    threads: int | None = _doc("Hardware threads.")


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One graphics card."""

    name: str | None = _doc("Name, as the driver tells it.")
    vendor: Vendor | None = _doc("Who made the chip.")
    capability: str | None = _doc("CUDA compute capability, e.g. 6.1.")
    vram_gb: float | None = _doc("Memory of the card in GiB.")
    driver: str | None = _doc("Version of the NVIDIA driver; left out: no driver is loaded.")

    @classmethod
    def of(
        cls, vendor: str, name: str, *, driver: str | None = None, vram_gb: float | None = None
    ) -> GpuFacts:
        """Return a card that was seen without NVIDIA's library."""
        known = typing.cast("Vendor", vendor if vendor in get_args(Vendor) else "other")
        return cls(name=name, vendor=known, driver=driver, vram_gb=vram_gb)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about a machine."""

    schema: int | None = _doc("Version of this format; 1 is the only one.")
    # the machine
    os: System | None = _doc("Operating system; WSL is linux.")
    os_version: str | None = _doc("Version of the operating system.")
    kernel: str | None = _doc("Kernel release, e.g. 6.6.87.2-microsoft-standard-WSL2.")
    wsl: bool | None = _doc("Whether it runs under WSL, where the kernel release is not given.")
    virtual: bool | None = _doc("Whether it is a virtual machine.")
    laptop: bool | None = _doc("Whether it has a battery.")
    cpu: CpuFacts | None = _doc("The processor.")
    ram_gb: float | None = _doc("Memory in GiB.")
    memory_limit_gb: float | None = _doc("Memory limit of the container or job, in GiB.")
    jobs: int | None = _doc("Compilers that run at once.")
    disk: Disk | None = _doc("Kind of disk that the store lies on.")
    free_disk_gb: float | None = _doc("Free space where the store lies, in GiB.")
    gpus: tuple[GpuFacts, ...] | None = _doc("Graphics cards; [] says there is none.")
    gpu: str | None = _doc("Name of the one NVIDIA card, instead of `gpus`.")
    driver: str | None = _doc("Version of the NVIDIA driver, instead of `gpus`.")
    # folders
    build_root: str | None = _doc("Folder that the build happens below.")
    store: str | None = _doc("Folder of qbuild's store.")
    cwd: str | None = _doc("Folder of the checkout.")
    longest_object_suffix: int | None = _doc("Length of the longest path below `build_root`.")
    long_paths_enabled: bool | None = _doc("Windows: registry value LongPathsEnabled.")
    code_page: int | None = _doc("Windows: the system's ANSI code page, e.g. 936; 65001 is UTF-8.")
    defender_realtime: bool | None = _doc("Windows: whether Defender scans each file it sees.")
    defender_excluded: bool | None = _doc("Windows: whether the store is excluded from that.")
    # compilers and tools
    path: tuple[str, ...] = _list("Folders on PATH that hold a compiler or linker, in order.")
    tools: Mapping[str, str | None] | None = _doc("Program → version on PATH; null: not there.")
    gcc: str | None = _doc("Version of gcc.")
    clang: str | None = _doc("Version of clang.")
    visual_studio: tuple[str, ...] | None = _doc("Installed Visual Studio versions; [] is none.")
    msvc: str | None = _doc("Version of cl, e.g. 19.40.")
    toolset: str | None = _doc("Version of the MSVC toolset in use, e.g. 14.40.")
    other_toolsets: tuple[str, ...] = _list("Other installed MSVC toolsets.")
    windows_sdks: tuple[str, ...] | None = _doc("Installed Windows SDKs; [] says there is none.")
    vs_buildcustomizations: tuple[str, ...] | None = _doc(
        "CUDA files in Visual Studio's BuildCustomizations folder, e.g. CUDA 12.4.props."
    )
    generator: str | None = _doc("CMake generator, e.g. Ninja or Visual Studio 17 2022.")
    # CUDA
    cuda: str | None = _doc("Version of the CUDA toolkit in use.")
    nvcc: str | None = _doc("Version of the nvcc that PATH finds.")
    cuda_headers: str | None = _doc("CUDA version of the headers.")
    cudart_lib: str | None = _doc("CUDA version of the runtime library that is linked.")
    cuda_path: str | None = _doc("Folder that CUDA_PATH (or CUDA_HOME) names.")
    cuda_path_version: str | None = _doc("CUDA version in that folder.")
    cuda_toolkits: tuple[str, ...] = _list("Versions of all installed CUDA toolkits.")
    architectures: tuple[str, ...] = _list("CUDA architectures that are asked for.")
    bundle_cubins: tuple[str, ...] = _list("Architectures of the cubins in a bundle.")
    bundle_ptx: tuple[str, ...] = _list("Architectures of the PTX in a bundle.")
    # the recipe
    recipe: str | None = _doc("Name of the recipe.")
    recipe_os: System | None = _doc("Operating system that the bundle is for.")
    recipe_cpu: CpuLevel | None = _doc("Processor level that the bundle is for.")
    toolchain: str | None = _doc("Toolchain of the recipe: zig, gcc, msvc, nvcc, clang-cuda …")
    # the network
    proxy: tuple[str, ...] = _list("Names (never values) of the proxy variables that are set.")
    proxy_differs: tuple[str, ...] = _list("Of those, the ones whose two spellings disagree.")
    missing_ca_files: tuple[str, ...] = _list(
        "Variables that name a file of certificates that does not exist."
    )

    @property
    def is_wsl(self) -> bool:
        """Whether this is Linux under Windows; Microsoft's kernels carry its name."""
        return bool(self.wsl) or "microsoft" in (self.kernel or "").lower()

    @property
    def cuda_version(self) -> str | None:
        """The toolkit that would compile: what is in use, else what PATH finds."""
        return self.cuda or self.nvcc

    @property
    def memory_gb(self) -> float | None:
        """Memory that compilers can use: of the machine, or what a limit leaves of it."""
        known = [each for each in (self.ram_gb, self.memory_limit_gb) if each is not None]
        return min(known) if known else None

    def cards(self) -> tuple[GpuFacts, ...]:
        """Return the graphics cards, however they were written down."""
        if self.gpus is not None:
            return self.gpus
        if self.gpu is None:
            return ()
        return (GpuFacts(name=self.gpu, vendor="nvidia", driver=self.driver),)

    def as_json(self) -> dict[str, Any]:
        """Return what is known, ready for ``json.dumps``."""
        data: dict[str, Any] = _plain(self)
        return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        # an empty list that says "there is none" differs from its default and stays
        return {
            each.name: _plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if getattr(value, each.name) != each.default
        }
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def load_facts(path: Path) -> Facts:
    """Read a file of facts.

    Raises:
        UsageError: It cannot be read, is not JSON, or says something that is no fact.
    """
    try:
        text = bounds.read_bytes(path, bounds.JSON).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path.name}: {error}", where=str(path)) from error
    try:
        data = bounds.load_json(text)
    except ValueError as error:
        raise UsageError(
            f"{path.name} is not JSON: {error}",
            where=str(path),
            fix="make one with `qbuild doctor --capture > facts.json`",
        ) from error
    return parse_facts(data, where=str(path))


def parse_facts(data: object, *, where: str = "facts") -> Facts:
    """Return facts from JSON data.

    Raises:
        UsageError: A key is unknown or a value has the wrong type; the message names the key.
    """
    facts = typing.cast("Facts", _convert(data, Facts, where))
    if facts.schema not in (None, 1):
        raise UsageError(
            f"format {facts.schema} of facts is not known",
            where=where,
            fix="capture them again with this version of qbuild",
        )
    return facts


def _convert(value: Any, kind: Any, where: str) -> Any:
    """Return JSON ``value`` as ``kind`` (the few kinds that :class:`Facts` uses)."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (inner,) = [each for each in get_args(kind) if each is not type(None)]
        return _convert(value, inner, where)
    if dataclasses.is_dataclass(kind):
        return _table(value, typing.cast("type[Any]", kind), where)
    if origin is Literal:
        if value in get_args(kind) and isinstance(value, str):
            return value
        raise _wrong(value, " or ".join(get_args(kind)), where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(value, "a list", where)
        item = get_args(kind)[0]
        return tuple(_convert(each, item, f"{where}[{i}]") for i, each in enumerate(value))
    if origin is not None:  # Mapping[str, str | None]
        if not isinstance(value, dict):
            raise _wrong(value, "an object", where)
        item = get_args(kind)[1]
        return {key: _convert(each, item, f"{where}.{key}") for key, each in value.items()}
    if kind is float and type(value) in (int, float) and 0 <= value < 1e9:
        return float(value)
    if kind is int and type(value) is int and 0 <= value < 1 << 31:
        return value
    if kind in (str, bool) and type(value) is kind:
        return value
    names = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
    raise _wrong(value, names[kind], where)


def _wrong(value: object, wanted: str, where: str) -> UsageError:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return UsageError(f"must be {wanted}, not {shown[:60]}", where=where)


def _table(value: Any, cls: type[Any], where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", where)
    hints = typing.get_type_hints(cls)
    names = [each.name for each in dataclasses.fields(cls)]
    for key in value:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            raise UsageError(
                f"`{key}` is not a fact",
                where=where,
                fix=f"did you mean `{near[0]}`?"
                if near
                else f"there is {', '.join(sorted(names))} (docs/reference/facts.schema.json)",
            )
    filled = {
        name: _convert(value[name], hints[name], f"{where}.{name}")
        for name in names
        if value.get(name) is not None
    }
    return cls(**filled)
