"""The least time that a kernel can take on a GPU, from what it was counted to do: an estimate.

A roofline: the arithmetic at the rate of the GPU's units, shared memory at a pass a clock, each
sector of device memory once at the memory's bandwidth; the longest of these is a bound that no
schedule gets below. What is not in it: latency, instructions for addresses and unpacking (told
apart, as ``issue``: the device IR has others than the machine code), caches that are too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from qbuild.emulator.counted import Counted
from qbuild.emulator.gpus import Gpu

WARP: Final = 32

REGISTERS: Final = 65536
"""Of a multiprocessor; given out to warps, 256 at a time (compute capability 5.0 to 9.0)."""

_PIECE: Final = 256


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds that each part of a GPU needs at least for one launch."""

    arithmetic: float  # FMA, other floating point, dp4a
    tensor: float  # tensor cores
    shared: float  # passes over shared memory
    memory: float  # device memory, each sector once
    issue: float  # all instructions of the device IR at four warps a clock; not part of the bound
    # the part of the multiprocessors' time that has a block, if all blocks take as long
    busy: float

    @property
    def parts(self) -> Mapping[str, float]:
        """What can be the limit, and its seconds."""
        return {
            "arithmetic": self.arithmetic,
            "tensor cores": self.tensor,
            "shared memory": self.shared,
            "memory": self.memory,
        }

    @property
    def limit(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def seconds(self) -> float:
        """No launch is done sooner."""
        return max(self.parts.values())


def estimate(counted: Counted, gpu: Gpu) -> Estimate:
    """Return the least time of one launch of a kernel, of the average of those counted."""
    launches = max(1, counted.memory["launches"])
    blocks = max(1.0, counted.blocks / launches)
    rounds = -(-blocks // gpu.sms)
    busy = blocks / (rounds * gpu.sms)
    clocks = gpu.sms * busy * gpu.clock * 1e6 * launches  # of all multiprocessors, in a second
    count = counted.instructions
    floats = count["fma"] + count["float"]
    issued = counted.memory["issued"] + _accesses(counted) / WARP
    arithmetic = max(
        floats / gpu.fma_per_clock,
        count["dp4a"] / gpu.dp4a_per_clock,
        (floats + count["dp4a"]) / (4 * WARP),
    )
    tensor = counted.memory["tensor"]
    return Estimate(
        arithmetic=arithmetic / clocks,
        tensor=tensor / gpu.tensor_per_clock / clocks if tensor else 0.0,
        shared=counted.memory["shared_least"] / clocks,
        memory=32 * counted.memory["distinct"] / launches / gpu.bandwidth,
        issue=issued / 4 / clocks,
        busy=busy,
    )


def _accesses(counted: Counted) -> int:
    """Return a kernel's loads and stores, which are counted apart from other instructions."""
    names = ("loads", "stores", "shared_loads", "shared_stores")
    return sum(counted.memory[name] for name in names)


def scaled(short: Counted, long: Counted, *, lengths: tuple[int, int, int], blocks: int) -> Counted:
    """Return what a kernel would do that is too large to be emulated.

    Every block of a matrix product does the same, so much for each step along the sum and so much
    once. Two runs tell both.

    Args:
        short: A run.
        long: One with a longer sum.
        lengths: Of the sum: of the two runs, and the one that is asked for.
        blocks: The number of blocks that is asked for.
    """
    first, second, third = lengths
    share = (third - first) / (second - first)

    def number(a: int, b: int) -> int:
        before, after = a / short.blocks, b / long.blocks
        return round(blocks * (before + (after - before) * share))

    return Counted(
        kernel=long.kernel,
        blocks=blocks,
        threads=round(blocks * long.threads / long.blocks),
        instructions={
            name: number(short.instructions[name], count)
            for name, count in long.instructions.items()
        },
        memory={name: number(short.memory[name], count) for name, count in long.memory.items()}
        | {"launches": 1},
    )


def warps(registers: int, threads: int, gpu: Gpu) -> int:
    """Return how many warps of a kernel a multiprocessor holds, by registers and block size.

    Args:
        registers: Per thread, as ptxas gave them out.
        threads: Of a block.
        gpu: The GPU.
    """
    of_block = -(-threads // WARP)
    per_warp = -(-max(1, registers) * WARP // _PIECE) * _PIECE
    fit = min(REGISTERS // per_warp // of_block, gpu.threads // WARP // of_block, gpu.blocks)
    return fit * of_block
