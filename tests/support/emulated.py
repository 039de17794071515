"""Builds a CUDA program (.cu files, one of them with main) for the emulated GPU on Linux.

    python -m tests.support.emulated FILE.cu… -o DIR [--gpu A100] [-I FOLDER] [-D NAME] [--checks]
    DIR/program

The folder then holds program, libcudart.so.12, libcublas.so.12 and qbuild-kernels.so.
--gpu A100 compiles for that GPU and prints the variable QBUILD_EMULATED_GPU that makes it one,
QBUILD_EMULATOR_COUNTS=FILE gets what was counted (--counts),
QBUILD_EMULATOR_SHUFFLE=7 runs lanes in another order, QBUILD_EMULATOR_TRACE=1 says every launch.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from qbuild import host, resources
from qbuild.console import Silent
from qbuild.cuda import flags
from qbuild.cuda.arch import parse_archs
from qbuild.emulator import counted, gpus, make
from qbuild.emulator.retarget import retarget
from qbuild.emulator.table import table
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.builder import Builder
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import make_plan
from qbuild.store import Store
from qbuild.toolchains.base import CUDA_TREE


def kit_and_paths(store: Path, target: str = "linux") -> tuple[make.Kit, flags.Paths]:
    """Return compilers and the CUDA tree of gtx1060, from the store or fetched."""
    # with cuBLAS: its headers are what the emulated one is compiled with
    recipe = load_recipe("gtx1060", os=target, overrides=["bundle.cublas=bundled"])
    plan = make_plan(recipe, load_lock(resources.lockfile()), host=host.platform_key())
    builder = Builder(plan, Store(store), Silent(), BuildOptions())
    tree = builder.result(CUDA_TREE).path / "tree"
    zig = builder.unpacked("ziglang") / "ziglang" / "zig"
    kit = make.Kit(zig=zig, target=target, cache=store / "cache" / "zig", headers=tree / "include")
    return kit, flags.Paths(zig=str(zig), zig_lib=str(zig.parent / "lib"), tree=str(tree))


def build(
    files: Sequence[Path],
    dest: Path,
    *,
    store: Path,
    arch: str = "61",
    more: Sequence[str] = (),
    checks: bool = False,
    counts: bool = False,
) -> Path:
    """Compile a program and its kernels into a folder; return the program."""
    kit, paths = kit_and_paths(store)
    dest.mkdir(parents=True, exist_ok=True)
    command = [
        *flags.compiler_command(paths, "linux"),
        *flags.device_flags(parse_archs([f"{arch}-real"])),
        "-std=gnu++17", "-O3", "-DNDEBUG", "-w", *more,
    ]  # fmt: skip
    stand_in = dest / "stand-in.fatbin"
    stand_in.write_bytes(b"no device code: this program runs on the emulated GPU".ljust(64, b"\0"))
    intrinsics = dest / make.INTRINSICS
    make.run(make.intrinsics_command(kit, intrinsics), kit, cwd=dest, what="intrinsics.c")
    kernels, hosts, units = [], [], []
    for file in files:
        unit = file.stem
        ir, text = dest / f"{unit}.ll", dest / f"{unit}.x86.ll"
        _compile([*command, "--cuda-device-only", "-emit-llvm", "-S", str(file), "-o", str(ir)])
        made = retarget(ir.read_text(), unit, table(), checks=checks or counts)
        text.write_text(counted.counting(made.text) if counts else made.text)
        kernels.append(dest / f"{unit}.kernels.o")
        make.run(make.unit_command(kit, text, intrinsics, kernels[-1]), kit, cwd=dest, what=unit)
        units.append(unit)
        hosts.append(dest / f"{unit}.host.o")
        include = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(stand_in)]
        _compile([*command, "--cuda-host-only", *include, "-c", str(file), "-o", str(hosts[-1])])
    (dest / "units.h").write_text(make.units_header(units))
    library = dest / make.KERNELS["linux"]
    commands = make.kernels_commands(kit, kernels, dest, library, counts=counts)
    commands += make.runtime_commands(kit, dest, dest)
    for argv in commands:
        make.run(argv, kit, cwd=dest, what=Path(argv[-1]).name)
    program = dest / "program"
    link = [str(kit.zig), "c++", "-target", "x86_64-linux-gnu.2.28", *map(str, hosts)]
    link += [str(dest / "libcudart.so.12"), str(dest / "libcublas.so.12")]
    make.run([*link, "-Wl,-rpath,$ORIGIN", "-o", str(program)], kit, cwd=dest, what="program")
    return program


def _compile(command: Sequence[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"clang: {ran.stderr[-2000:]}")


def main(argv: Sequence[str]) -> int:
    """Build what the command line names."""
    import platformdirs

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", dest="dest", type=Path, required=True)
    parser.add_argument("--gpu", type=gpus.find, default="GTX 1060")
    parser.add_argument("-I", dest="folders", action="append", default=[])
    parser.add_argument("-D", dest="defines", action="append", default=[])
    parser.add_argument("--checks", action="store_true", help="check every memory access")
    parser.add_argument("--counts", action="store_true", help="count what kernels do")
    args = parser.parse_args(argv)
    more = [f"-I{folder}" for folder in args.folders] + [f"-D{name}" for name in args.defines]
    store = Path(platformdirs.user_cache_dir("qbuild", appauthor=False))
    files = [file.absolute() for file in args.files]
    dest = args.dest.absolute()
    arch = args.gpu.arch
    program = build(
        files, dest, store=store, arch=arch, more=more, checks=args.checks, counts=args.counts
    )
    (gpu,) = gpus.environment([args.gpu]).items()
    print(f"{'='.join(map(shlex.quote, gpu))} {shlex.quote(str(program))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
