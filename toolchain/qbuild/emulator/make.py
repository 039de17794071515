"""Commands that make the emulated GPU's libraries: kernels, runtime, cuBLAS and driver.

Everything is compiled by the pinned zig. ``zig clang`` compiles the rewritten IR, because
``zig cc`` does not take LLVM assembly; ``zig cc`` compiles our C and links.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild import resources
from qbuild.errors import CompileError
from qbuild.process import run_logged

FORMAT: Final = 1

_TRIPLE: Final = {"linux": "x86_64-linux-gnu.2.28", "windows": "x86_64-windows-gnu"}
_CLANG_TRIPLE: Final = {"linux": "x86_64-linux-gnu", "windows": "x86_64-w64-windows-gnu"}
_CPU: Final = (
    "x86_64_v3"  # dot products and half floats need AVX2 and F16C; every test machine has them
)

KERNELS: Final = {"linux": "qbuild-kernels.so", "windows": "qbuild-kernels.dll"}
"""The library of kernels, as ``platform.h`` names it."""

RUNTIME: Final = {"linux": "libcudart.so.12", "windows": "cudart64_12.dll"}
CUBLAS: Final = {"linux": "libcublas.so.12", "windows": "cublas64_12.dll"}
DRIVER: Final = {"linux": "libcuda.so.1", "windows": "nvcuda.dll"}
INTRINSICS: Final = "intrinsics.bc"


@dataclass(frozen=True, kw_only=True)
class Kit:
    """What compiles, and for which system."""

    zig: Path  # the zig program
    target: str  # ``linux`` or ``windows``
    cache: Path  # folder of zig's own cache
    headers: Path  # CUDA's ``include`` folder, for the declarations of its runtime

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of the compilers."""
        cache = str(self.cache)
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": cache,
            "LC_ALL": "C",
            "ZIG_GLOBAL_CACHE_DIR": cache,
            "ZIG_LOCAL_CACHE_DIR": cache,
        }

    def compiler(self) -> list[str]:
        """Return the C compiler with the flags that all of our C is compiled with."""
        return [
            str(self.zig), "cc", "-target", _TRIPLE[self.target], f"-mcpu={_CPU}", "-std=gnu11",
            "-O2", "-g0", "-fno-strict-aliasing", "-fno-math-errno", "-fno-sanitize=all",
            *(("-fPIC",) if self.target == "linux" else ()), "-c",
        ]  # fmt: skip

    def linker(self) -> list[str]:
        """Return the command that links a library.

        No word of the CPU here: zig would make the whole C runtime once more for it.
        """
        return [str(self.zig), "cc", "-target", _TRIPLE[self.target], "-shared", "-s"]


def sources() -> Path:
    """Return the folder of our C."""
    return resources.data_root() / "toolchain" / "emulator"


def intrinsics_command(kit: Kit, dest: Path) -> list[str]:
    """Return the command that compiles the intrinsics to bitcode."""
    return [*kit.compiler(), "-emit-llvm", str(sources() / "intrinsics.c"), "-o", str(dest)]


def unit_command(kit: Kit, text: Path, intrinsics: Path, dest: Path) -> list[str]:
    """Return the command that compiles a unit's rewritten IR.

    ``-O1``: clang has optimised it once already, for the GPU; inlining is what is left to do.
    """
    return [
        str(kit.zig), "clang", f"--target={_CLANG_TRIPLE[kit.target]}", "-march=x86-64-v3", "-O1",
        *(("-fPIC",) if kit.target == "linux" else ()),
        "-w", "-x", "ir", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(intrinsics),
        "-c", str(text), "-o", str(dest),
    ]  # fmt: skip


def units_header(units: Sequence[str]) -> str:
    """Return the text of ``units.h`` for ``library.c``."""
    return "".join(f"UNIT({re.sub(r'[^A-Za-z0-9_]', '_', unit)})\n" for unit in units)


def kernels_commands(
    kit: Kit, objects: Sequence[Path], folder: Path, dest: Path, *, counts: bool = False
) -> list[list[str]]:
    """Return the commands that make the library of kernels, in order.

    Args:
        kit: What compiles.
        objects: The units' objects.
        folder: Where ``units.h`` lies, and where objects may be put.
        dest: The library.
        counts: The units count what they do.
    """
    commands = []
    own = []
    for name in ("library", "executor", "tensor", *(("counters/counters",) if counts else ())):
        own.append(str(folder / f"{Path(name).name}.o"))
        source = str(sources() / f"{name}.c")
        flags = ["-I", str(folder), *(("-DQE_COUNTS",) if counts else ())]
        commands.append([*kit.compiler(), *flags, source, "-o", own[-1]])
    math = ("-lm",) if kit.target == "linux" else ()
    commands.append([*kit.linker(), *own, *map(str, objects), *math, "-o", str(dest)])
    return commands


def runtime_commands(kit: Kit, folder: Path, scratch: Path) -> list[list[str]]:
    """Return the commands that make everything that stands where NVIDIA's libraries would.

    Args:
        kit: What compiles.
        folder: Where the libraries go.
        scratch: Where objects may be put.
    """
    libraries = [
        (RUNTIME, ("runtime", "modules", "device"), "cudart.map"),
        (DRIVER, ("driver",), ""),
    ]
    if (kit.headers / "cublas_v2.h").is_file():
        # A recipe with BLAS kernels of its own asks for no cuBLAS, and has no headers of it.
        libraries.append((CUBLAS, ("cublas",), "cublas.map"))
    commands: list[list[str]] = []
    for names, parts, nodes in libraries:
        name = names[kit.target]
        objects = [str(scratch / f"{part}.o") for part in parts]
        for part, made in zip(parts, objects, strict=True):
            source = str(sources() / f"{part}.c")
            headers = ["-isystem", str(kit.headers)]
            commands.append([*kit.compiler(), *headers, source, "-o", made])
        link = [*kit.linker(), *objects]
        if kit.target == "linux":
            link += [f"-Wl,-soname,{name}", "-ldl", "-lpthread", "-lm"]
            link += [f"-Wl,--version-script={sources() / nodes}"] if nodes else []
        else:
            # zig would put an import library beside it, in the folder that is handed over.
            link.append(f"-Wl,--out-implib={scratch / name}.lib")
        commands.append([*link, "-o", str(folder / name)])
    return commands


def run(command: Sequence[str], kit: Kit, *, cwd: Path, what: str) -> None:
    """Run one of the commands above.

    Raises:
        CompileError: It failed; the message holds what the compiler said first.
    """
    lines: list[str] = []
    log = cwd / "emulator.log"
    status = run_logged(list(command), cwd=cwd, env=kit.env, log=log, on_line=lines.append)
    if status != 0:
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise CompileError(
            f"{what} could not be compiled: {first[:300]}",
            where=f"full log: {log}",
            fix="this is a fault of qbuild; please report it",
        )


def write_index(
    library: Path,
    fat_binaries: Mapping[str, Sequence[str]],
    used: Mapping[str, tuple[int, int]],
) -> None:
    """Write what is known of machine code beside a library of kernels.

    Args:
        library: The library.
        fat_binaries: Unit → sha256 (hex) of the fat binaries that it stands for.
        used: Kernel → registers and bytes of stack per thread, as ptxas gave them out.
    """
    lines = [f"unit {unit} {sha}\n" for unit, shas in sorted(fat_binaries.items()) for sha in shas]
    lines += [f"kernel {regs} {frame} {name}\n" for name, (regs, frame) in sorted(used.items())]
    library.with_name(library.name + ".index").write_text(
        "".join(lines), encoding="ascii", newline="\n"
    )
