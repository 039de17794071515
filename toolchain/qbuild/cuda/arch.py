"""CUDA architectures as objects: what is asked of a compiler, and which GPUs can run the result.

Spelled as CMake spells them: ``61-real`` is a cubin for compute capability 6.1, ``80-virtual`` is
PTX for 8.0 and later, ``89`` is both; ``120a`` is the instruction set of one chip only, ``120f``
that of one family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from qbuild import resources
from qbuild.cuda.gpu_names import chip, plain, spellings
from qbuild.errors import RecipeError

Coverage = Literal["native", "jit", "none"]
"""How a GPU runs a build: its own machine code, PTX compiled at first start, or not at all."""

_SPELLING: Final = re.compile(r"([0-9]{2,3})([af]?)(?:-(real|virtual))?")
_RIGHT: Final = (
    "write it as 61-real (cubin), 80-virtual (PTX), 89 (both) or 120a-real, or name the GPU on the "
    'command line: --cuda-arch "GTX 1060"'
)


@dataclass(frozen=True, kw_only=True, order=True)
class ComputeCapability:
    """What a GPU is: major and minor number of its compute capability."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, kw_only=True, order=True)
class CudaArch:
    """One architecture that device code is compiled for."""

    number: int  # compute capability without its dot: 61, 120
    # ``a``: only this chip; ``f``: this family; empty: this and later minor versions
    suffix: str = ""
    real: bool = True  # a cubin (machine code) is made
    virtual: bool = True  # PTX (compiled by the driver at first start) is made

    @property
    def name(self) -> str:
        """Number and suffix: ``61``, ``120a``."""
        return f"{self.number}{self.suffix}"

    @property
    def cmake(self) -> str:
        """Spelling in ``CMAKE_CUDA_ARCHITECTURES``."""
        if self.real and self.virtual:
            return self.name
        return f"{self.name}-{'real' if self.real else 'virtual'}"

    @property
    def capability(self) -> ComputeCapability:
        """The lowest compute capability that runs it."""
        return ComputeCapability(major=self.number // 10, minor=self.number % 10)

    def __str__(self) -> str:
        return self.cmake

    def cubin_runs_on(self, gpu: ComputeCapability) -> bool:
        """Return whether a cubin of this architecture runs on that GPU.

        NVIDIA's rule: within one major version, on the same or a later minor version; with ``a``
        only on exactly this one.
        """
        mine = self.capability
        if gpu.major != mine.major:
            return False
        return gpu.minor == mine.minor if self.suffix == "a" else gpu.minor >= mine.minor

    def ptx_runs_on(self, gpu: ComputeCapability) -> bool:
        """Return whether PTX of this architecture can be compiled for that GPU."""
        if self.suffix == "a":
            return gpu == self.capability
        if self.suffix == "f":
            return gpu.major == self.capability.major and gpu >= self.capability
        return gpu >= self.capability


def parse_arch(text: str, *, where: str | None = None) -> CudaArch:
    """Read one architecture.

    Args:
        text: ``61-real``, ``80-virtual``, ``89``, ``120a``.
        where: Where it was written, for messages.

    Raises:
        RecipeError: It is spelled otherwise, or there is no such architecture.
    """
    if not isinstance(text, str):
        raise RecipeError(
            f"a CUDA architecture is text, not {type(text).__name__} {text!r}",
            where=where,
            fix=f'write "{text}-real", in quotes' if isinstance(text, int) else _RIGHT,
        )
    match = _SPELLING.fullmatch(text)
    if not match:
        raise RecipeError(
            f"{text!r} is not a CUDA architecture", where=where, fix=_right_spelling(text)
        )
    number, suffix, kind = int(match[1]), match[2], match[3]
    known = architectures()
    if number not in known:
        near = min(known, key=lambda other: (abs(other - number), other))
        raise RecipeError(
            f"there is no CUDA architecture {number}",
            where=where,
            fix=f"the nearest is {near} ({known[near].family}); all: "
            + ", ".join(str(each) for each in known),
        )
    if suffix and suffix not in known[number].variants:
        having = ", ".join(f"{n}{suffix}" for n, a in known.items() if suffix in a.variants)
        raise RecipeError(
            f"architecture {number} has no variant {number}{suffix}",
            where=where,
            fix=f"write {number}{'-' + kind if kind else ''}; {suffix!r} exists for {having}",
        )
    return CudaArch(number=number, suffix=suffix, real=kind != "virtual", virtual=kind != "real")


def _right_spelling(text: str) -> str:
    """Return advice that starts from what was written."""
    for pattern in (
        r"(?i:sm|compute|cc)[_ -]?([0-9]{2,3}[af]?)",  # sm_61, compute_61
        r"([0-9]{1,2}\.[0-9][af]?)",  # 6.1
        r"([0-9]{2,3}[af]?)[-_ ]?\w+",  # 61-cubin, 61real
    ):
        if match := re.fullmatch(pattern, text.strip()):
            plain = match[1].replace(".", "")
            kind = "virtual" if re.match(r"(?i)compute|.*(virt|ptx)", text.strip()) else "real"
            return f"write {plain}-{kind}"
    if text in {"native", "all", "all-major"}:
        return "name the architectures: a recipe must not depend on the GPU of the build machine"
    try:
        return f"write {find_gpu(text).cmake}-real"  # somebody wrote the name of a GPU
    except RecipeError:
        return _RIGHT


def parse_archs(texts: Iterable[str], *, where: str | None = None) -> tuple[CudaArch, ...]:
    """Read a recipe's list of architectures; the result is sorted.

    Raises:
        RecipeError: One is wrong, one is there twice, or the list is empty.
    """
    found: dict[str, CudaArch] = {}
    for index, text in enumerate(texts):
        arch = parse_arch(text, where=f"{where}[{index}]" if where else None)
        if other := found.get(arch.name):
            both = CudaArch(number=arch.number, suffix=arch.suffix)
            raise RecipeError(
                f"architecture {arch.name} is there twice ({other}, {arch})",
                where=where,
                fix=f"write {both} once"
                if (arch.real, arch.virtual) != (other.real, other.virtual)
                else "drop one of them",
            )
        found[arch.name] = arch
    if not found:
        raise RecipeError(
            "no CUDA architecture is named", where=where, fix='for example ["61-real"]'
        )
    return tuple(sorted(found.values()))


def coverage(archs: Sequence[CudaArch], gpu: ComputeCapability) -> tuple[Coverage, CudaArch | None]:
    """Return how a GPU runs a build, and by which of its architectures.

    Args:
        archs: What the build holds: ``real`` for each cubin, ``virtual`` for each PTX.
        gpu: The GPU.
    """
    for arch in sorted(archs, reverse=True):
        if arch.real and arch.cubin_runs_on(gpu):
            return "native", arch
    for arch in sorted(archs, reverse=True):
        if arch.virtual and arch.ptx_runs_on(gpu):
            return "jit", arch
    return "none", None


@dataclass(frozen=True, kw_only=True)
class KnownArch:
    """One row of the architecture table."""

    number: int  # compute capability without its dot
    family: str  # NVIDIA's name of the generation
    first: str  # oldest toolkit of the table that compiles it
    last: str | None  # newest toolkit that compiles it; ``None`` while all newer ones do
    variants: dict[str, str]  # suffix → first toolkit that has it


@cache
def architectures() -> dict[int, KnownArch]:
    """Return every known architecture by number, ascending."""
    rows = resources.read_table("cuda.toml")["arch"]
    return {
        row["number"]: KnownArch(
            number=row["number"],
            family=row["family"],
            first=row["first"],
            last=row.get("last"),
            variants=dict(row.get("variants", {})),
        )
        for row in sorted(rows, key=lambda row: int(row["number"]))
    }


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU by the name on its box."""

    name: str  # as the table spells it
    capability: ComputeCapability  # its compute capability
    base: str = "gtx1060"  # the recipe that a bundle for it starts from
    arm: bool = False  # whether it is only sold beside an ARM processor

    @property
    def listed(self) -> bool:
        """Whether its name is in the table, and not only its chip or its compute capability."""
        return _gpus().get(plain(self.name)) == self

    @property
    def cmake(self) -> str:
        """Its architecture without a kind: ``61``."""
        return f"{self.capability.major}{self.capability.minor}"


@cache
def _gpus() -> dict[str, Gpu]:
    found = {}
    for row in resources.read_table("gpus.toml")["family"]:
        for name in row["gpus"]:
            found[plain(name)] = Gpu(
                name=name,
                capability=_capability(row["cc"]),
                base=row.get("base", "gtx1060"),
                arm=name in row.get("arm", ()),
            )
    return found


def _capability(text: str) -> ComputeCapability:
    major, minor = text.split(".")
    return ComputeCapability(major=int(major), minor=int(minor))


_CAPABILITY: Final = r"(?:(?:compute capability )?(?=[0-9]+\.)|sm_?)([0-9]{1,2})\.?([0-9])"
"""``6.1``, ``compute capability 6.1``, ``sm61``, ``sm_61``."""


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name, or of that compute capability ("6.1").

    Makers' words, sizes of memory, sockets and editions are left out as far as needed:
    :mod:`qbuild.cuda.gpu_names`.

    Raises:
        RecipeError: There is none in the table; the message names near ones.
    """
    if match := re.fullmatch(_CAPABILITY, name.strip()):
        capability = ComputeCapability(major=int(match[1]), minor=int(match[2]))
        return Gpu(name=f"compute capability {capability}", capability=capability)
    table = _gpus()
    for spelled in spellings(name):
        if spelled in table:
            return table[spelled]
    if number := resources.read_table("gpus.toml")["chips"].get(chip(name)):
        return Gpu(name=name.strip(), capability=_capability(number))
    import difflib

    near = difflib.get_close_matches(plain(name), table, n=3, cutoff=0.75)
    raise RecipeError(
        f"no GPU called {name!r} is in the table",
        fix=(f"did you mean {' or '.join(table[each].name for each in near)}? or " if near else "")
        + 'give its compute capability, e.g. --gpu "6.1"',
    )
