"""The GPUs that can be emulated: their limits and rates, from ``emulated-gpus.toml``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from qbuild import resources
from qbuild.errors import UsageError

FILE: Final = "emulated-gpus.toml"
VARIABLE: Final = "QBUILD_EMULATED_GPU"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU."""

    name: str  # as people call it
    cc: str  # compute capability, e.g. ``6.1``
    sms: int  # multiprocessors
    memory: int  # MiB of the card
    shared: int  # KiB of shared memory that a block always may use
    optin: int  # KiB that it may use on request
    sm_shared: int  # KiB of a multiprocessor
    threads: int  # resident threads of a multiprocessor
    blocks: int  # resident blocks of a multiprocessor
    clock: int  # MHz, boost
    memory_clock: int  # MHz, as the driver reports it (half the data rate of GDDR5 and HBM2)
    bus: int  # bits of the memory bus
    l2: int  # KiB of cache
    fma_per_clock: int  # fused multiply-adds of 32 bits per multiprocessor and clock
    dp4a_per_clock: int  # products of four bytes, likewise
    tensor_per_clock: int  # multiply-adds of 16 bits on tensor cores, likewise; 0: it has none

    @property
    def bandwidth(self) -> float:
        """Bytes a second of device memory: two transfers a clock."""
        return self.memory_clock * 1e6 * 2 * self.bus / 8

    @property
    def flops(self) -> float:
        """Operations of 32 bits a second; a fused multiply-add is two."""
        return 2.0 * self.fma_per_clock * self.sms * self.clock * 1e6

    @property
    def arch(self) -> str:
        """The compute capability without its dot."""
        return self.cc.replace(".", "")

    def words(self) -> str:
        """Return the description that the runtime reads."""
        keys = (
            "name", "cc", "sms", "memory", "shared", "optin", "sm_shared", "threads", "blocks",
            "clock", "memory_clock", "bus", "l2",
        )  # fmt: skip
        return ";".join(f"{key}={getattr(self, key)}" for key in keys)


@cache
def known() -> Mapping[str, Gpu]:
    """Return name → GPU of all that can be emulated."""
    return {row["name"]: Gpu(**row) for row in resources.read_table(FILE)["gpu"]}


def find(name: str) -> Gpu:
    """Return a GPU by name; case and blanks do not matter.

    Raises:
        UsageError: It is none that can be emulated.
    """
    plain = {_plain(each): gpu for each, gpu in known().items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    raise UsageError(
        f"no emulated GPU is called {name!r}",
        fix=(f"did you mean {plain[near[0]].name!r}? " if near else "")
        + f"There are {', '.join(known())}",
    )


def for_archs(archs: Sequence[int], name: str = "") -> Gpu:
    """Return the GPU to emulate for a recipe's kernels.

    Args:
        archs: The recipe's architectures, e.g. 61.
        name: A GPU's name; "" for the first that is listed of those that run these kernels.

    Raises:
        UsageError: No such GPU, or the recipe has no machine code for it.
    """
    suited = [gpu for gpu in known().values() if int(gpu.arch) in archs]
    gpu = find(name) if name else next(iter(suited), None)
    if gpu is None or gpu not in suited:
        raise UsageError(
            f"the recipe has no kernels for {f'an emulated {name}' if name else 'an emulated GPU'}",
            where=f"cuda.architectures: {', '.join(map(str, archs))}",
            fix=f"it runs on {', '.join(each.name for each in suited)}" if suited else "",
        )
    return gpu


def _plain(name: str) -> str:
    return "".join(name.upper().split())


def environment(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment that makes the runtime these GPUs, in this order.

    It has no CUDA graphs. ggml uses them from compute capability 8.0 on, and takes a stream that
    refuses to be captured for an error.
    """
    return {
        VARIABLE: "|".join(gpu.words() for gpu in gpus),
        "GGML_CUDA_DISABLE_GRAPHS": "1",
    }
