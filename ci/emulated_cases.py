"""Choose the cases that the emulated GPU runs: few and small, but every kernel that can be reached.

    python ci/emulated_cases.py FOLDER --source TREE --known FILE.json     (it goes on)
    python ci/emulated_cases.py FOLDER --source TREE --known FILE.json --write

FOLDER holds test-backend-ops beside the emulated GPU (`qbuild test gtx1060 --os linux --emulate
--prepare FOLDER`; for an A100 `qbuild test a100 …`, and `--gpu A100` here). Cases are asked for
in a dry run: the host code chooses and launches, the emulated GPU checks the launch and notes it,
and runs nothing. FILE keeps what each case launches. --write then chooses, for every kernel and
for every operation with each combination of types, the case that costs least, and writes
toolchain/data/emulated-cases-ARCH.txt.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from qbuild import resources
from qbuild.emulator import cases, gpus

SECONDS = 600
"""Time for one process; what has a result by then is kept."""

MOST = 4e6
"""What a case may cost: a launch of 33 million threads takes minutes here, for one kernel."""

# Operations that upstream's test makes thousands of cases of, or large ones: a part is asked for.
PARTS = {
    "FLASH_ATTN_EXT": r"kv=113,nb=1,|kv=512,nb=1,mask=1,sinks=1",
    "CONV_2D": r"ne_input=\[[12],1,1,[12]\]",
    "MUL_MAT": r"k=(1|64|128),|bs=\[[23],[23]\],nr=\[1,1\]|m=16,n=(1|9),k=256",
    "MUL_MAT_ID": r"m=512,n=(1|4|32),k=256",
    "MUL_MAT_VEC_FUSION": r"m=1,.*b=0,with_bias=1,with_gate=1,with_lane_scale=0,batch_dims=\[1,1\]",
    "MUL_MAT_ID_FUSION": r"n_mats=(16|4),",
    "IM2COL_3D": r"ne_input=\[10,10,10,9\]",
}
ON_TENSOR_CORES = {
    # Where V is the first part of K, and where few of many keys are looked at.
    "FLASH_ATTN_EXT": r"hsk=576,.*kv=512,.*mask=1,sinks=0,.*type_K=f16,|n_kv_max=[1-9]",
}
"""A further part, for GPUs that have them."""

QUANTS = (
    "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K",
    "q6_K", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl",
    "iq4_xs", "mxfp4", "nvfp4",
)  # fmt: skip
FLOATS = ("f32", "f16", "bf16")
HEADS = (40, 64, 72, 80, 96, 112, 128, 256)
TILED = (64, 80, 96, 112, 128, 256)
"""Of those, head sizes that tensor cores have tiles for."""

CAPPED = (128, 256)
"""Of those, head sizes that kernels with a soft cap are written for: others trap."""

_LAUNCH = re.compile(
    r"emulated GPU: launch (\S+) (\S+) grid (\d+),(\d+),(\d+) block (\d+),(\d+),(\d+) "
    r"shared \d+\n?"
)
_RESULT = re.compile(r"(?:^|\s)([A-Z][A-Z_0-9]*)\((\w+=.*)\): (OK|FAIL|not supported.*)$")
_OP_NAME = re.compile(r'return "([A-Z][A-Z0-9_]+)";')


def _product(type_: str, rows: int, inner: int, columns: int) -> str:
    return f"f32[{rows},{columns}] = MUL_MAT {type_}[{inner},{rows}] f32[{inner},{columns}]"


def _chosen_product(type_: str, rows: int, inner: int, tokens: int) -> str:
    return (
        f"f32[{rows},2,{tokens}] = MUL_MAT_ID {type_}[{inner},{rows},4] f32[{inner},1,{tokens}] "
        f"i32[2,{tokens}]"
    )


def products(gpu: gpus.Gpu) -> Iterator[str]:
    """Yield matrix products: every width that a kernel is instantiated for."""
    if gpu.tensor_per_clock:
        yield from _on_tensor_cores()
    for type_ in QUANTS:
        yield from (_product(type_, 4, 256, columns) for columns in range(1, 9))
        # An odd and an even number of rows, and enough of them: by chance three small results
        # make the rounding of what is quantised look large.
        for inner in (512, 1024, 2048, 4096, 8192):
            yield from (_product(type_, rows, inner, 1) for rows in (35, 36))
        for columns in range(8, 73, 8):
            yield from (_product(type_, rows, 256, columns) for rows in (16, 128))
        yield from (_chosen_product(type_, 16, 256, tokens) for tokens in (1, 2, 3, 4, 8, 16, 33))
    for type_ in FLOATS:
        for inner in (64, 128, 192, 256, 320, 384, 448, 512, 1024):
            yield from (_product(type_, 4, inner, columns) for columns in range(1, 10))
        for inner in (64, 128, 192, 256, 320, 384, 448, 512):
            yield from (_chosen_product(type_, 4, inner, tokens) for tokens in (1, 2, 4, 8, 16))


def _on_tensor_cores() -> Iterator[str]:
    """Yield products that only tensor cores have kernels for: wide tiles, floats in few columns."""
    for type_ in QUANTS:
        yield from (_product(type_, 128, 256, columns) for columns in range(80, 129, 8))
        yield from (_chosen_product(type_, 128, 256, tokens) for tokens in (64, 128))
    for type_ in FLOATS:
        # mmf: 32 rows, one to sixteen columns, one to eight warps with 64 words of four bytes each
        words = 64 if type_ == "f32" else 128
        for warps in range(1, 9):
            for columns in range(1, 17):
                yield _product(type_, 32, words * warps, columns)
                yield _chosen_product(type_, 32, words * warps, columns)
            yield _chosen_product(type_, 32, words * warps, 20)


def _attention(
    sizes: tuple[int, int], rows: int, heads: int, type_: str, cap: str, sequences: int = 1
) -> str:
    key, value = sizes
    last, most = (f",{sequences}", f",1,{sequences}") if sequences > 1 else ("", "")
    return (
        f"f32[{value},{heads},{rows}{last}] = FLASH_ATTN_EXT(0.125, 0.0, {cap}, 10) "
        f"f32[{key},{rows},{heads}{last}] {type_}[{key},256{most}] {type_}[{value},256{most}] "
        f"f16[256,{rows}{most}]"
    )


def attentions(gpu: gpus.Gpu) -> Iterator[str]:
    """Yield flash attention for a GPU.

    Kernels for tensor cores take it for granted that V of a head size of 576 is the first part of
    K, which no row of ours can say: upstream's cases do. With a soft cap those of 192 and 320 trap.
    """
    if not gpu.tensor_per_clock:
        yield from _attentions()
        return
    yield from _attentions_on_tensor_cores()
    traps = re.compile(r"f32\[576,|, 10\.0, 10\) f32\[(192|320),")
    yield from (row for row in _attentions() if not traps.search(row))


def rows(gpu: gpus.Gpu) -> Iterator[str]:
    """Yield the cases of our own for a GPU."""
    yield from dict.fromkeys([*products(gpu), *attentions(gpu)])


def _attentions() -> Iterator[str]:
    """Yield flash attention: head sizes, shared heads, rows, with and without soft cap."""
    # Two sequences: only then the mask is looked through for rows that nothing looks at.
    for sizes, heads in (((64, 64), 1), ((96, 96), 1), ((128, 128), 1), ((512, 512), 2),
                         ((576, 512), 4)):  # fmt: skip
        yield from (_attention(sizes, rows, heads, "f16", "0.0", 2) for rows in (2, 4, 8, 16, 17))
        yield _attention(sizes, 1, heads * 2, "f16", "0.0", 2)
    yield from (_attention((64, 64), rows, 1, "q8_0", "0.0", 2) for rows in (1, 2))
    for cap in ("0.0", "10.0"):
        for size in HEADS if cap == "0.0" else CAPPED:
            for heads in (1, 2, 4, 8):
                for rows in (1, 2, 3, 4, 5, 8, 9, 16, 17):
                    if heads * rows <= 40:
                        yield _attention((size, size), rows, heads, "f16", cap)
        for sizes, shared, most in (
            ((512, 512), (2, 4, 8), 9), ((192, 128), (8, 16), 5), ((320, 256), (32,), 2),
            ((576, 512), (4, 16), 5),
        ):  # fmt: skip
            for heads in shared:
                for rows in range(1, most + 1):
                    yield _attention(sizes, rows, heads, "f16", cap)
        for type_ in ("q8_0", "q4_0"):
            for size in (64, 128, 256) if cap == "0.0" else CAPPED:
                for heads, rows in ((1, 1), (1, 2), (2, 1)):
                    yield _attention((size, size), rows, heads, type_, cap)


def _attentions_on_tensor_cores() -> Iterator[str]:
    """Yield an attention for each tile of flash_attn_ext_f16.

    A tile has 8 to 64 columns: 1 to 32 heads that share their keys, times rows of the batch.
    """
    heads: dict[tuple[int, int], Sequence[int]] = {(size, size): (1, 2, 4, 8) for size in TILED}
    heads |= {
        (512, 512): (2, 4, 8),
        (192, 128): (8, 16),
        (320, 256): (32,),
    }
    for sizes, shared in heads.items():
        for cap in ("0.0", "10.0") if sizes[0] in CAPPED else ("0.0",):
            for columns in (8, 16, 32, 64):
                for count in shared:
                    if rows := columns // count:
                        yield _attention(sizes, rows, count, "f16", cap)
                        yield _attention(sizes, rows, count, "f16", cap, 2)


def operations(source: Path) -> list[str]:
    """Return the names of all operations and groups that the test program has cases of."""
    text = source.read_text(encoding="utf-8")
    return sorted(set(_OP_NAME.findall(text)))


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cases are asked for.

    Args:
        folder: It holds the test program beside the emulated GPU.
        gpu: What the GPU is.
    """

    folder: Path
    gpu: gpus.Gpu


Known = dict[str, dict[str, int]]
"""Case → "unit kernel" → threads that it launches."""


def ask(
    place: Place, options: Sequence[str], names: Sequence[str], known: Known, *, dry: bool = True
) -> bool:
    """Run the program, dry as a rule; note what each case launches. Say whether it came to the end.

    Host code that reads a kernel's results to decide what comes next (CUB's sorting does) dies in a
    dry run: it has to be run for good.
    """
    env = {
        **os.environ, **gpus.environment([place.gpu]),
        "QBUILD_EMULATOR_TRACE": "1", "QBUILD_EMULATOR_DRY": str(int(dry)),
    }  # fmt: skip
    command = ["timeout", str(SECONDS), "stdbuf", "-oL", str(place.folder / "test-backend-ops")]
    process = subprocess.Popen(
        [*command, "test", "-b", "CUDA0", *options], cwd=place.folder, env=env, text=True,
        errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    launched: dict[str, int] = {}
    at = 0
    for raw in process.stdout:
        line = re.sub(r"\x1b\[[0-9;]*m", "", raw)
        for match in _LAUNCH.finditer(line):
            threads = math.prod(int(each) for each in match.groups()[2:])
            kernel = f"{match[1]} {match[2]}"
            launched[kernel] = launched.get(kernel, 0) + threads
        result = _RESULT.search(_LAUNCH.sub("", line).rstrip())
        if result is not None:
            name = names[at] if names else f"{result[1]}({result[2]})"
            at += 1
            known[name] = {} if result[3].startswith("not") else launched
            launched = {}
    return process.wait() in (0, 1, 124)  # 124: its time was over


def explore(place: Place, source: Path, file: Path) -> Known:
    """Ask for every case that is not known yet."""
    state: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    known: Known = state.setdefault("cases", {})
    asked: list[str] = state.setdefault("asked", [])
    numbers = cases.numbers_in((source / "ggml" / "include" / "ggml.h").read_text())
    ops = [*numbers["op"], *operations(source / "tests" / "test-backend-ops.cpp")]
    for op in dict.fromkeys(ops):
        if op in asked:
            continue
        parts = [PARTS[op]] if op in PARTS else []
        if place.gpu.tensor_per_clock and op in ON_TENSOR_CORES:
            parts.append(ON_TENSOR_CORES[op])
        options = ["-o", op, *(("-p", "|".join(parts)) if parts else ())]
        if not ask(place, options, (), known):
            ask(place, options, (), known, dry=False)
        asked.append(op)
        file.write_text(json.dumps(state))
        print(op, len(known), flush=True)
    own = cases.parse("\n".join(rows(place.gpu)), "own").own
    while left := [case for case in own if case.text not in known]:
        listed = file.with_suffix(".rows")
        listed.write_text(cases.test_file(left, numbers))
        before = len(known)
        ended = ask(place, ["--test-file", str(listed)], [case.text for case in left], known)
        if not ended and len(known) == before:
            known[left[0].text] = {}  # it died there
        file.write_text(json.dumps(state))
        print("own", len(own) - len(left), "of", len(own), flush=True)
    return known


# -- choosing -----------------------------------------------------------------------------------


def cost(name: str, launched: Mapping[str, int]) -> float:
    """Return about how long a case takes, in no unit."""
    if " = " in name:
        (own,) = cases.parse(name, "own").own
        shape = own.sources[0].shape
        inner = shape[0] if own.op.startswith("MUL_MAT") else 256 * 2
        return sum(launched.values()) + math.prod(own.result.shape) * inner / 8
    sizes = [int(each) for each in re.findall(r"\b[mnk]=(\d+)", name)]
    return sum(launched.values()) * 2 + math.prod(sizes) / 8


def kind(name: str) -> str:
    """Return operation and types of a case: what must be tried at least once."""
    if " = " in name:
        (own,) = cases.parse(name, "own").own
        return " ".join((own.op, *(source.type for source in own.sources)))
    types = re.findall(r"\b(?:type\w*|\w+_type|prec)=\w+", name)
    return " ".join((name.split("(")[0], *types))


def choose(known: Known) -> list[str]:
    """Return the cases of the selection."""
    costs = {name: cost(name, launched) for name, launched in known.items() if launched}
    costs = {name: each for name, each in costs.items() if each <= MOST}
    able: dict[str, list[str]] = collections.defaultdict(list)
    for name in sorted(costs, key=lambda each: (costs[each], each)):
        for goal in (*known[name], f"kind {kind(name)}"):
            able[goal].append(name)
    chosen: set[str] = set()
    # What only few cases reach first; what those reach besides needs no case of its own.
    for _, names in sorted(able.items(), key=lambda each: (len(each[1]), each[0])):
        if not chosen.intersection(names):
            chosen.add(names[0])
    return sorted(chosen)


def main() -> int:
    """Explore, and write the selection when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="the patched llama.cpp")
    parser.add_argument("--known", type=Path, required=True)
    parser.add_argument("--gpu", default="GTX 1060", help="what is emulated (GTX 1060)")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    gpu = gpus.find(args.gpu)
    if not args.write:
        place = Place(folder=args.folder.absolute(), gpu=gpu)
        explore(place, args.source, args.known.absolute())
        return 0
    wanted = frozenset(rows(gpu))
    known = json.loads(args.known.read_text())["cases"]
    chosen = choose({n: ran for n, ran in known.items() if " = " not in n or n in wanted})
    head = (
        "# Cases of test-backend-ops for the emulated GPU: every kernel that can be reached,\n"
        "# every operation with each of its types, at the least cost.\n"
        "# Written by ci/emulated_cases.py.\n"
    )
    path = resources.data_dir() / cases.file_of(gpu.arch)
    path.write_text(head + "".join(f"{name}\n" for name in chosen), encoding="ascii")
    print(f"{path}: {len(chosen)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
