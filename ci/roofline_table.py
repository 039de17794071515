"""Tables of what kernels do and of the least time that they take: estimates (Markdown).

    qbuild test gtx1060 --os linux --emulate --count mmvq,… --ops … --json > RUN.json
    python ci/roofline_table.py ZIP RUN.json…
    python ci/roofline_table.py ZIP --product 4096,4096,4096 SHORT.tsv LONG.tsv

ZIP is a finished bundle with these kernels, whose registers ptxas gave out. With --product the runs
are one matrix product each (tests/cuda/one_product.cu), equal but for the length of the sum, which
is in their names (gtx1060-f32-k1024.tsv): what a product of these rows, columns and length
would take follows from both (qbuild.emulator.roofline.scaled).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nvcc_table import by_name, of_zip

from qbuild.binary.cubin import Usage
from qbuild.emulator import counted, gpus, roofline
from qbuild.emulator.counted import Counted

TILE = re.compile(r"tile<(\d+), (\d+)")


def read(path: Path) -> tuple[gpus.Gpu, list[Counted]]:
    """Return the GPU of a run and what was counted."""
    if path.suffix == ".tsv":
        return gpus.find(path.stem.split("-")[0]), counted.read(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    names = Counted.__dataclass_fields__
    counts = [Counted(**{k: v for k, v in row.items() if k in names}) for row in data["counts"]]
    return gpus.find(data["gpu"]), counts


def shown(kernel: str) -> str:
    """Return the C++ name of a kernel, with its template arguments."""
    nothing = Usage(registers=0, frame=0, shared=0)
    return next(iter(by_name({kernel: nothing})))


def counted_row(each: Counted) -> str:
    """Return what the average thread of a kernel does."""
    memory, threads = each.memory, each.threads
    cells = [f"{count / threads:.4g}" for count in each.instructions.values()]
    cells += [
        f"{100 * each.together:.0f} %",
        f"{(memory['shared_loads'] + memory['shared_stores']) / threads:.3g}",
        f"{each.passes:.2f}",
        f"{(memory['loads'] + memory['stores']) / threads:.3g}",
        f"{(memory['bytes_read'] + memory['bytes_written']) / threads:.3g}",
        f"{memory['sectors'] / max(1, memory['requests']):.1f}",
        f"{100 * each.used:.0f} %",
    ]
    return " | ".join(cells)


def time_row(each: Counted, gpu: gpus.Gpu, used: Mapping[str, Usage]) -> str:
    """Return the parts of a launch's least time, in microseconds, and what fits beside it."""
    least = roofline.estimate(each, gpu)
    parts = [f"{1e6 * seconds:.3g}" for seconds in (*least.parts.values(), least.issue)]
    name = shown(each.kernel)
    found = next((usage for other, usage in used.items() if other.endswith(name)), None)
    threads = each.threads // each.blocks
    fit = "?" if found is None else str(roofline.warps(found.registers, threads, gpu))
    registers = "?" if found is None else str(found.registers)
    cells = [*parts, f"**{1e6 * least.seconds:.3g}**", least.limit, registers, fit]
    return " | ".join(cells)


def product(args: argparse.Namespace, used: Mapping[str, Usage]) -> None:
    """Print what a large product would take, from two small ones."""
    rows, columns, length = args.product
    (gpu, first), (_, second) = map(read, args.runs)
    lengths = [int(match[1]) for run in args.runs if (match := re.search(r"k(\d+)", run.stem))]
    for short in first:
        long = next((each for each in second if each.kernel == short.kernel), None)
        tile = TILE.search(shown(short.kernel))
        if long is None or tile is None:
            continue
        blocks = -(-rows // int(tile[1])) * -(-columns // int(tile[2]))
        sizes = (lengths[0], lengths[1], length)
        large = roofline.scaled(short, long, lengths=sizes, blocks=blocks)
        size = 4 if "<float" in shown(short.kernel) else 2
        # Each matrix once, whatever blocks share: caches are not modelled.
        touched = (rows + columns) * length * size + rows * columns * 4
        large.memory["distinct"] = touched // 32
        peak = gpu.flops
        if large.memory["tensor"]:
            peak = 2e6 * gpu.tensor_per_clock * gpu.sms * gpu.clock
        least = roofline.estimate(large, gpu)
        work = 2.0 * rows * columns * length
        told: dict[str, Any] = {name: f"{1e3 * part:.3g} ms" for name, part in least.parts.items()}
        told |= {"issue": f"{1e3 * least.issue:.3g} ms", "busy": f"{least.busy:.1%}"}
        share = work / max(least.seconds, least.issue) / peak
        print(f"{rows} x {columns} x {length} {shown(short.kernel)}, {blocks} blocks: {told}")
        print(f"  at most {work / least.seconds / 1e12:.3g} TFLOPS = "
              f"{work / least.seconds / peak:.0%} of {peak / 1e12:.3g}; "
              f"with every instruction of the device IR issued: {share:.0%}")  # fmt: skip
        print("  " + time_row(large, gpu, used))


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--product", type=lambda text: [int(each) for each in text.split(",")])
    args = parser.parse_args()
    used = by_name(of_zip(args.bundle))
    if args.product:
        product(args, used)
        return 0
    for path in args.runs:
        gpu, counts = read(path)
        for each in sorted(counts, key=lambda one: -one.threads):
            name = f"`{shown(each.kernel)}` ({each.threads // each.memory['launches']:,})"
            print(f"| {path.stem}: {name} | {counted_row(each)} |")
            print(f"| {path.stem}: {name} | {time_row(each, gpu, used)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
