"""What CUDA costs: architectures, grouping, and the libraries beside the programs.

    python benchmarks/cuda.py archs      # one architecture against upstream's default list
    python benchmarks/cuda.py every      # three files for each architecture of pascal-to-blackwell
    python benchmarks/cuda.py groups     # kernels of a group against its files one by one
    python benchmarks/cuda.py sizes      # gtx1060's libraries against the seven people copy

Each prints a Markdown table of ratios measured in one run; CPU seconds, not wall time, because
they hardly depend on what else the machine does. `docs/benchmarks.md` holds the last results.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbuild import host, resources
from qbuild.binary import fatbin
from qbuild.cli.common import store as user_store
from qbuild.console import Plain
from qbuild.cuda import flags
from qbuild.cuda.arch import CudaArch, parse_archs
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.builder import Builder
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import Plan, make_plan

# Upstream's list for CUDA 12.9 (ggml/src/ggml-cuda/CMakeLists.txt at the pin).
UPSTREAM = (
    "50-virtual", "61-virtual", "70-virtual", "75-virtual", "80-virtual", "86-real", "89-real",
    "90-virtual", "120a-real", "121a-real",
)  # fmt: skip
SAMPLE = ("norm.cu", "quantize.cu", "scale.cu", "softmax.cu", "rope.cu", "getrows.cu")
SMALL = ("scale.cu", "quantize.cu", "norm.cu")
GROUP = ("norm", "sum", "mean", "cumsum", "argmax", "count-equal", "cross-entropy-loss")

# nvidia-*-cu12 wheels for Windows with the other DLLs that people copy beside llama.cpp.
SUPERFLUOUS = {
    "nvidia-cufft-cu12": "11.2.3.61",
    "nvidia-curand-cu12": "10.3.6.82",
    "nvidia-cusolver-cu12": "11.6.3.83",
    "nvidia-cusparse-cu12": "12.5.1.3",
}


@dataclass(frozen=True)
class Compiled:
    """One object: CPU seconds, bytes of device code, names and sizes of its kernels."""

    seconds: float
    device: int
    kernels: dict[str, int]


class Kit:
    """The unpacked parts of the clang-cuda toolchain, and the patched source."""

    def __init__(self, recipe: str) -> None:
        self.plan: Plan = make_plan(
            load_recipe(recipe), load_lock(resources.lockfile()), host=host.platform_key()
        )
        args = argparse.Namespace(store=None)
        builder = Builder(self.plan, user_store(args), Plain(), BuildOptions())
        unpacked = builder.all_unpacked()
        tree = builder.result("cuda-tree").path / "tree"
        zig = unpacked["ziglang"] / "ziglang" / "zig"
        self.source = builder.result("patch").path / "tree" / "ggml" / "src"
        target = self.plan.recipe.target.os
        self.command = flags.compiler_command(
            flags.Paths(zig=str(zig), zig_lib=str(zig.parent / "lib"), tree=str(tree)), target
        )
        cache = str(builder.store.root / "cache" / "zig")
        self.env = {"PATH": "/usr/bin:/bin", "ZIG_GLOBAL_CACHE_DIR": cache, "HOME": "/nonexistent"}

    def compile(self, source: Path, archs: Sequence[CudaArch], *more: str) -> Compiled:
        """Compile one file as CMake does, and read its device code back."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "x.obj"
            command = [
                *self.command, "-O3", "-DNDEBUG", "-std=gnu++17", "-w", "-g0",
                "-DGGML_CUDA_USE_GRAPHS", "-DGGML_SCHED_MAX_COPIES=4", *more,
                *flags.device_flags(archs), f"-I{self.source}", f"-I{self.source / 'ggml-cuda'}",
                f"-I{self.source.parent / 'include'}", "-c", str(source), "-o", str(out),
            ]  # fmt: skip
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                command, env=self.env, capture_output=True, text=True, check=False, cwd=folder
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                sys.exit(f"{source.name}: {done.stderr[-2000:]}")
            data = out.read_bytes()
            entries = _entries(data)
            kernels = {
                name: entry.full_size
                for entry in entries
                if entry.kind == "cubin"
                for name in fatbin.kernels(data, entry) or ()
            }
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Compiled(seconds, sum(entry.size for entry in entries), kernels)

    def cu(self, name: str) -> Path:
        return self.source / "ggml-cuda" / name


def _entries(data: bytes) -> list[fatbin.FatEntry]:
    """Return the device code of a COFF or ELF object, found by its magic number."""
    found: list[fatbin.FatEntry] = []
    at = data.find(fatbin.MAGIC.to_bytes(4, "little"))
    while at >= 0:
        size = 16 + int.from_bytes(data[at + 8 : at + 16], "little")
        for entry in fatbin.read_containers(data[at : at + size]):
            found.append(fatbin.FatEntry(**{**entry.__dict__, "offset": entry.offset + at}))
        at = data.find(fatbin.MAGIC.to_bytes(4, "little"), at + size)
    return found


def archs(kit: Kit) -> None:
    """One architecture against upstream's list, the same compiler, the same files."""
    one, many = parse_archs(["61-real"]), parse_archs(UPSTREAM)
    print("| file | 61 alone, CPU s | default list, CPU s | ratio | KB alone | KB list | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    sums = [0.0, 0.0, 0, 0]
    for name in SAMPLE:
        alone, listed = kit.compile(kit.cu(name), one), kit.compile(kit.cu(name), many)
        _row(name, alone.seconds, listed.seconds, alone.device, listed.device)
        sums[0] += alone.seconds
        sums[1] += listed.seconds
        sums[2] += alone.device
        sums[3] += listed.device
    _row("all of them", *sums)


def _row(name: str, alone: float, listed: float, kb: float, kb_listed: float) -> None:
    print(
        f"| {name} | {alone:.1f} | {listed:.1f} | {listed / alone:.1f} | {kb / 1e3:.0f} | "
        f"{kb_listed / 1e3:.0f} | {kb_listed / kb:.1f} |",
        flush=True,
    )


def every(_: Kit) -> None:
    """Three files for every architecture of the widest recipe."""
    kit = Kit("pascal-to-blackwell")
    print("| architecture | " + " | ".join(SMALL) + " | kernels |\n| --- |" + " --- |" * 4)
    for arch in parse_archs(kit.plan.recipe.cuda.architectures):
        results = [kit.compile(kit.cu(name), [arch]) for name in SMALL]
        cells = " | ".join(f"{each.seconds:.1f} s" for each in results)
        kernels = sum(len(each.kernels) for each in results)
        print(f"| {arch} | {cells} | {kernels or 'PTX only'} |", flush=True)


def groups(kit: Kit) -> None:
    """The kernels of one group of files, compiled as one and one by one."""
    one = parse_archs(["61-real"])
    single = [kit.compile(kit.cu(f"{name}.cu"), one) for name in GROUP]
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "unit.cu"
        unit.write_text("".join(f'#include "{kit.cu(f"{name}.cu")}"\n' for name in GROUP))
        together = kit.compile(unit, one)
    names: set[str] = set().union(*(each.kernels for each in single))
    seconds = sum(each.seconds for each in single)
    print(f"files: {', '.join(GROUP)}")
    print(f"kernels one by one: {len(names)}; as one unit: {len(together.kernels)}; "
          f"equal names: {names == set(together.kernels)}")  # fmt: skip
    print(f"CPU s one by one: {seconds:.1f}; as one unit: {together.seconds:.1f}; "
          f"ratio {seconds / together.seconds:.1f}")  # fmt: skip


def sizes(kit: Kit) -> None:
    """Wheel bytes (a zip, as the bundle is one) of what ships and of what people add."""
    rows = [(w.project, w.size, "in the zip") for w in kit.plan.wheels
            if w.project in ("nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12")]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for project, version in SUPERFLUOUS.items():
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--platform",
                       "win_amd64", "--only-binary=:all:", "-d", folder,
                       f"{project}=={version}"]  # fmt: skip
            subprocess.run(command, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            rows.append((project, wheel.stat().st_size, "copied by hand, asked for by nothing"))
            wheel.unlink()
    print("| wheel | MB | |\n| --- | --- | --- |")
    for project, size, note in rows:
        print(f"| {project} | {size / 1e6:.0f} | {note} |")
    ours = sum(size for _, size, note in rows if note == "in the zip")
    print(f"\nall seven against the three: {sum(size for _, size, _ in rows) / ours:.2f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["archs", "every", "groups", "sizes"])
    args = parser.parse_args()
    work = {"archs": archs, "every": every, "groups": groups, "sizes": sizes}[args.what]
    work(Kit("gtx1060"))


if __name__ == "__main__":
    main()
