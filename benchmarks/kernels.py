r"""Kernels (entry points) of ggml-cuda: what clang compiled against what nvcc compiles.

    python benchmarks/kernels.py --nvcc /opt/cuda-12.4/bin/nvcc --source PATCHED/TREE \
        --library ggml-cuda.dll --arch 61

nvcc compiles every unit to PTX without optimisation: names are all that is asked for. The library
is read as it is. Both lists are demangled, brought to one spelling and compared as sets; what only
one of them has must be in kernels-left-out.toml beside this file, with a reason. Exits 1 on any
other difference. A run that was stopped goes on where it was: finished PTX stays in --work.
`--finished` compiles nothing and compares what is finished: kernels that nvcc has and clang lacks.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16")
"""Types of GGML_CUDA_FA_QUANTS (ggml/cmake/common.cmake)."""

SLOW = ("mmvq", "mmq-*", "tile-*", "argsort", "no-tensor-cores", "mma", "mmf-*")
"""Units that come last, so that a run that is stopped has compared most files."""

LEFT_OUT = Path(__file__).with_name("kernels-left-out.toml")
OPTIONS = "-std=c++17 -use_fast_math -extended-lambda -w -Xcicc -O0"
DEFINED = (
    "NDEBUG GGML_BACKEND_BUILD GGML_BACKEND_DL GGML_BACKEND_SHARED GGML_SHARED "
    "GGML_SCHED_MAX_COPIES=4 GGML_CUDA_USE_GRAPHS GGML_CUDA_DRIVER_DYNAMIC"
)


def sources(folder: Path, pairs: Iterable[str]) -> list[Path]:
    """Return the files that upstream's CMake compiles (GGML_CUDA_FA_QUANTS names the pairs)."""
    found = sorted(folder.glob("*.cu"))
    for pattern in ("fattn-tile*", "fattn-mma*", "mmq*", "mmf*"):
        found += sorted((folder / "template-instances").glob(f"{pattern}.cu"))
    for pair in dict.fromkeys(("f16-f16", *pairs)):
        found.append(folder / "template-instances" / f"fattn-vec-instance-{pair}.cu")
    return found


def units(folder: Path, files: list[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Group files as the clang build does: most of a small file's time goes into its headers."""
    text = (folder / "cuda-clang.cmake").read_text(encoding="utf-8")
    groups = re.findall(r'"([a-z0-9-]+)=([^"]+)"', text)
    groups += [("mma", "fattn-mma-.*"), ("mmf-all", "mmf-instance-.*")]

    def late(group: tuple[str, str]) -> int:
        places = [i for i, slow in enumerate(SLOW) if Path(group[0]).match(slow)]
        return places[0] if places else -1

    left = list(files)
    for name, expression in sorted(groups, key=late):
        chosen = [path for path in left if re.fullmatch(expression, path.stem)]
        if chosen:
            left = [path for path in left if path not in chosen]
            yield name, chosen
    for path in left:
        yield path.stem, [path]


def options(tree: Path, arch: str, pairs: list[str]) -> list[str]:
    folder = tree / "ggml" / "src" / "ggml-cuda"
    compiled = {"f16-f16", *pairs}
    macros = DEFINED.split()
    for k in TYPES:
        for v in TYPES:
            macros.append(f"GGML_CUDA_FA_{k}_{v}".upper() + f"={int(f'{k}-{v}' in compiled)}")
    macros.append(f'GGML_CUDA_FA_QUANTS="{",".join(pairs)}"')
    folders = (tree / "ggml" / "include", tree / "ggml" / "src", folder)
    return [
        f"-arch=compute_{arch}",
        *OPTIONS.split(),
        *(f"-D{macro}" for macro in macros),
        *(f"-I{each}" for each in folders),
    ]


def compile_ptx(nvcc: Path, unit: Path, out: Path, flags: list[str]) -> bool:
    if out.exists():
        return True
    aside = out.with_suffix(".part")
    command = [str(nvcc), "-ptx", *flags, str(unit), "-o", str(aside)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        log = out.with_suffix(".log")
        log.write_text(shlex.join(command) + "\n" + done.stderr, encoding="utf-8")
        return False
    aside.replace(out)
    return True


def compile_unit(nvcc: Path, name: str, files: list[Path], work: Path, flags: list[str]) -> None:
    unit = work / f"{name}.cu"
    unit.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
    out = work / f"{name}.ptx"
    if not compile_ptx(nvcc, unit, out, flags):
        parts = []  # names of the grouped files collide under nvcc: one by one then
        for path in files:
            part = work / f"part-{path.stem}.ptx"
            if not compile_ptx(nvcc, path, part, flags):
                sys.exit(f"{path} does not compile, see {part.with_suffix('.log')}")
            parts.append(part.read_text(encoding="utf-8"))
        out.write_text("\n".join(parts), encoding="utf-8")
    print(f"{name}: {os.times().children_user:.0f} s CPU so far", file=sys.stderr)


def of_ptx(paths: Iterable[Path]) -> set[str]:
    """Return the mangled names of every kernel in PTX files."""
    names: set[str] = set()
    for path in paths:
        names |= set(re.findall(r"\.entry\s+([A-Za-z0-9_$]+)", path.read_text(encoding="utf-8")))
    return names


def of_library(path: Path, arch: str) -> set[str]:
    from qbuild.binary.fatbin import all_kernels

    return set(all_kernels(path, arch=arch))


def spelled(names: set[str]) -> set[str]:
    """Return demangled names with what compilers and systems spell differently in one form."""
    text = "\n".join(sorted(names))
    done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True)
    return {one_spelling(name) for name in done.stdout.splitlines()}


SIMPLE = {"f": "float", "i": "int", "l": "long", "x": "long", "j": "unsigned int"}
NAMED = re.compile(r"&\((?:\w+ )?(\w+(?:<[^()]*>)?)\([^()]*\)\)")
LAST = re.compile(r"(?:void )?(\w+)<([^&]*), &(\w+)(?:<[^()]*>)?>\(.*")
MANGLED = re.compile(r"_ZL?\d+(\w+?)I([\w]*?)TnPF\w*?XadL_ZL?(\d+)(\w+)")


def one_spelling(name: str) -> str:
    """Return a demangled name as both compilers and both systems would spell it.

    int64_t and size_t are long on Linux and long long on Windows. A template argument that is a
    function is mangled by clang with its type (Tn), which c++filt of 2022 does not know, and by
    nvcc within a namespace of the file where it has internal linkage.
    """
    if match := MANGLED.match(name):
        length = int(match[3])
        return f"{match[1]}<{', '.join(_arguments(match[2]))}, {match[4][:length]}>"
    name = name.replace("unsigned long long", "unsigned long").replace("long long", "long")
    name = re.sub(r"\b(\d+u?)ll\b", r"\1l", name)
    name = re.sub(r"\b_INTERNAL_\w+::", "", name)
    while (shorter := NAMED.sub(r"&\1", name)) != name:  # from the inside out
        name = shorter
    if match := LAST.fullmatch(name):
        return f"{match[1]}<{match[2]}, {match[3]}>"
    return name


def _arguments(text: str) -> Iterator[str]:
    """Give the template arguments in a mangled list: i10block_q4_0Li32E → int, block_q4_0, 32."""
    while text:
        if match := re.match(r"Li(\d+)E", text):
            yield match[1]
            text = text[match.end() :]
        elif match := re.match(r"\d+", text):
            end = match.end() + int(match[0])
            yield text[match.end() : end]
            text = text[end:]
        else:
            yield SIMPLE.get(text[0], text[0])
            text = text[1:]


def explained(names: list[str], table: list[dict[str, str]], who: str) -> tuple[list[str], ...]:
    """Return the table's rows with how many names each explains, and the names left over."""
    rows, left = [], names
    for row in table:
        if row["only"] == who:
            here = [name for name in left if re.search(row["kernel"], name)]
            left = [name for name in left if name not in here]
            rows.append(f"| only {who}: {row['why']} | {len(here)} |")
    return rows, [f"only {who}, unexplained: {name}" for name in left]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nvcc", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="patched llama.cpp")
    parser.add_argument("--library", type=Path, required=True, help="clang-built ggml-cuda")
    parser.add_argument("--arch", default="61")
    parser.add_argument("--kv", default="q4_0-q4_0,q8_0-q8_0", help="the recipe's cuda.kv_cache")
    parser.add_argument("--work", type=Path, default=Path("kernels-work"))
    parser.add_argument(
        "--include", type=Path, action="append", default=[],
        help="before the toolkit's own headers, e.g. the CCCL that clang had",
    )  # fmt: skip
    parser.add_argument("--finished", action="store_true", help="compare what is finished")
    args = parser.parse_args()
    tree, work, pairs = args.source.resolve(), args.work.resolve(), args.kv.split(",")
    work.mkdir(parents=True, exist_ok=True)
    folder = tree / "ggml" / "src" / "ggml-cuda"
    every = list(units(folder, sources(folder, pairs)))
    flags = options(tree, args.arch, pairs) + [f"-I{each.resolve()}" for each in args.include]
    if not args.finished:
        for name, files in every:
            compile_unit(args.nvcc, name, files, work, flags)
    done = [name for name, _ in every if (work / f"{name}.ptx").exists()]
    counted = sum(len(files) for name, files in every if name in done)
    nvcc = spelled(of_ptx(work / f"{name}.ptx" for name in done))
    clang = spelled(of_library(args.library, args.arch))
    table = tomllib.loads(LEFT_OUT.read_text(encoding="utf-8"))["left-out"]
    rows, wrong = explained(sorted(nvcc - clang), table, "nvcc")
    if len(done) == len(every):
        more, also = explained(sorted(clang - nvcc), table, "clang")
        rows, wrong = rows + more, wrong + also
    total = sum(len(files) for _, files in every)
    print(f"{counted} of {total} files compiled by nvcc; not yet: "
          f"{', '.join(name for name, _ in every if name not in done) or 'none'}\n")  # fmt: skip
    print("| kernels | number |\n| --- | --- |")
    print(f"| nvcc | {len(nvcc)} |\n| clang | {len(clang)} |\n| in both | {len(nvcc & clang)} |")
    print("\n".join(rows + wrong))
    return 1 if wrong or counted != total else 0


if __name__ == "__main__":
    sys.exit(main())
