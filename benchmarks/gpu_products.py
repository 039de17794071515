"""Times matrix products of F32, F16 and BF16 weights on a GPU: kernels of own-blas against cuBLAS.

    python benchmarks/gpu_products.py PROGRAMS --cublas FOLDER [--rounds 3]

PROGRAMS holds test-backend-ops with the CUDA backend beside it (benchmarks/gpu_build.py makes it),
FOLDER holds libcublas.so.12 and libcublasLt.so.12. Upstream's own performance cases are run by
turns with GGML_CUDA_BLAS=own and =cublas; the backend's log must say which did the work. Prints a
table of medians in microseconds. Ends with 1 when either did not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CASES = r"type_a=(f32|f16|bf16),type_b=f32,m=4096,n=512,k=14336"
_TIME = re.compile(r"MUL_MAT\(type_a=(\w+),.*?\):.*?([\d.]+) us/run")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BY = "matrix products by"
_SAYS = {"own": f"{_BY} built-in kernels", "cublas": f"{_BY} NVIDIA's cuBLAS"}
LIBRARIES = ("libcublas.so.12", "libcublasLt.so.12")


def measure(folder: Path, which: str) -> dict[str, float]:
    """Run the cases once; return type → microseconds.

    Raises:
        SystemExit: The program failed, it timed nothing, or the other library did the work.
    """
    ran = subprocess.run(
        [str(folder / "test-backend-ops"), "perf", "-b", "CUDA0", "-o", "MUL_MAT", "-p", CASES],
        env=os.environ | {"GGML_CUDA_BLAS": which},
        capture_output=True,
        text=True,
        check=False,
    )
    said = _COLOUR.sub("", ran.stdout + ran.stderr)
    if ran.returncode or _SAYS[which] not in said:
        why = f"exit code {ran.returncode}" if ran.returncode else f"no line `{_SAYS[which]}`"
        raise SystemExit(f"GGML_CUDA_BLAS={which}: {why}\n{said[-2000:]}")
    times = {type_: float(time) for type_, time in _TIME.findall(said)}
    if not times:
        raise SystemExit(f"GGML_CUDA_BLAS={which}: no case `{CASES}` was timed\n{said[-2000:]}")
    return times


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", type=Path)
    parser.add_argument("--cublas", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for name in LIBRARIES:
        if not (args.cublas / name).is_file():
            raise SystemExit(f"there is no {name} in {args.cublas}: cuBLAS of CUDA 12 has it")
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        # NVIDIA's libraries are looked for beside the backend, nowhere else
        beside = Path(scratch) / "programs"
        shutil.copytree(args.programs, beside)
        for name in LIBRARIES:
            (beside / name).symlink_to((args.cublas / name).resolve())
        for _ in range(args.rounds):
            for which in _SAYS:
                for type_, time in measure(beside, which).items():
                    times[type_, which].append(time)
    print("4096 x 14336 weights, 512 columns:\n")
    print("| weights | own-blas, us | cuBLAS, us | speed, own / cuBLAS |")
    print("| --- | --- | --- | --- |")
    for type_ in dict.fromkeys(type_ for type_, _ in times):
        own, theirs = (statistics.median(times[type_, which]) for which in _SAYS)
        print(f"| {type_} | {own:.0f} | {theirs:.0f} | {theirs / own:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
