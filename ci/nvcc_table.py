"""Compare what clang's and nvcc's machine code use: registers, stack, warps that fit (Markdown).

    python ci/nvcc_table.py ZIP CUBIN…

ZIP is a finished CUDA bundle; each CUBIN is one of upstream's files, compiled by nvcc for the same
GPU: `nvcc -O3 -std=c++17 -use_fast_math -extended-lambda -gencode arch=compute_61,code=sm_61 -cubin
-Iggml/include -Iggml/src -o mmvq.cubin ggml/src/ggml-cuda/mmvq.cu` (nvcc 12.4: Debian's package
nvidia-cuda-toolkit, which need not be installed). Kernels are compared that both have by name.

Warps: how many of a multiprocessor's 64 its 65,536 registers allow (compute capability 6.1).
Shared memory is the host code's choice, the same in both.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from qbuild.binary import cubin, fatbin
from qbuild.binary.cubin import Usage
from qbuild.binary.zip_reader import open_zip

REGISTERS, WARPS, PIECE = 65536, 64, 256
EMPTY = 16
"""Registers of a kernel that only says that it is not for this GPU: such are left out."""


@dataclass(frozen=True)
class Pair:
    """One kernel in both builds."""

    name: str
    clang: Usage
    nvcc: Usage

    @property
    def spills(self) -> bool:
        """Whether clang's uses more stack."""
        return self.clang.frame > self.nvcc.frame

    @property
    def crowded(self) -> bool:
        """Whether half as many of clang's warps fit, or fewer."""
        return warps(self.clang) * 2 <= warps(self.nvcc)


def warps(used: Usage) -> int:
    """Return how many warps fit by their registers."""
    per_warp = -(-max(1, used.registers) * 32 // PIECE) * PIECE
    return min(WARPS, REGISTERS // per_warp)


def of_zip(path: Path) -> dict[str, Usage]:
    """Return what the kernels of a bundle use."""
    found: dict[str, Usage] = {}
    with open_zip(path) as view:
        name = next(name for name in view.names if re.search(r"(lib)?ggml-cuda\.(dll|so)$", name))
        data = view.read(name)
    for entry in fatbin.read_fatbin_data(data).entries:
        code = fatbin.payload(data, entry) if entry.kind == "cubin" else None
        found |= cubin.usage(code) if code else {}
    return found


def by_name(used: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return C++ name, with template arguments but no parameters, → usage."""
    ran = subprocess.run(
        ["c++filt"], input="\n".join(used), capture_output=True, text=True, check=True
    )
    shown = {}
    for usage, line in zip(used.values(), ran.stdout.splitlines(), strict=True):
        text = line.removeprefix("void ").replace("(ggml_type)", "type ")
        shown[re.sub(r"\(.*$", "", text.replace("(ggml_prec)", "prec "))] = usage
    return shown


def main() -> int:
    """Print both tables."""
    # By C++ names: nvcc does not mark what is local to a file, and long differs on Windows.
    theirs: dict[str, Usage] = {}
    for path in map(Path, sys.argv[2:]):
        theirs |= by_name(cubin.usage(path.read_bytes()))
    ours = by_name(of_zip(Path(sys.argv[1])))
    pairs = [Pair(name, ours[name], used) for name, used in theirs.items() if name in ours]
    pairs = [pair for pair in pairs if max(pair.clang.registers, pair.nvcc.registers) > EMPTY]
    if not pairs:
        sys.exit("the cubins share no kernel with the zip")
    families: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        families[pair.name.split("<")[0]].append(pair)
    print("| kernel | instances | registers clang / nvcc (median) | warps (median) | more stack |"
          " half the warps |\n| --- | --- | --- | --- | --- | --- |")  # fmt: skip
    for family, group in sorted(families.items()):
        clang, nvcc = [pair.clang for pair in group], [pair.nvcc for pair in group]
        cells = [f"`{family}`", str(len(group))]
        for count in (lambda used: used.registers, warps):
            values = [statistics.median(map(count, side)) for side in (clang, nvcc)]
            cells.append(" / ".join(f"{value:g}" for value in values))
        cells += [str(sum(pair.spills for pair in group)), str(sum(pair.crowded for pair in group))]
        print(f"| {' | '.join(cells)} |")
    noted = [pair for pair in pairs if pair.spills or pair.crowded]
    print(f"\n{len(noted)} of {len(pairs)} use more stack or fit half the warps:\n")
    print("| kernel | registers clang / nvcc | stack, bytes | warps |\n| --- | --- | --- | --- |")
    for pair in sorted(noted, key=lambda each: each.name):
        cells = [f"`{pair.name}`"]
        cells += [f"{pair.clang.registers} / {pair.nvcc.registers}"]
        cells += [f"{pair.clang.frame} / {pair.nvcc.frame}"]
        cells += [f"{warps(pair.clang)} / {warps(pair.nvcc)}"]
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
