"""Series cpu-speed: what clang makes of a matrix product of Q8_0 blocks, before and after."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from iced_x86 import Decoder, Mnemonic, OpKind

from qbuild import resources
from qbuild.patches.apply import apply_series
from qbuild.patches.series import load_series
from qbuild.recipe.lock import load_lock
from qbuild.steps.source import FORMAT
from qbuild.store import Store, step_key
from qbuild.toolchains.zig import FAST

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig"),
]

TUNED = [word for name in FAST for word in ("-Xclang", "-target-feature", "-Xclang", f"+{name}")]
ZEN4 = ["sse4.2", "f16c", "fma", "bmi2", "avx", "avx2", "avx512f", "avx512cd", "avx512vl",
        "avx512dq", "avx512bw", "avx512vnni"]  # fmt: skip
FUNCTION = "tinyBLAS_Q0_AVXI10block_q8_0S1_fE7gemm4xNILi4E"
"""The product of four rows with four columns, as its symbol's name begins."""


def compile_product(source: Path, out: Path) -> Counter[str]:
    """Compile the file as ggml does for a Zen 4; count what stands in the function."""
    cache = os.environ.get("QBUILD_TEST_ZIG_CACHE") or str(out.parent / "zig-cache")
    folder = source / "ggml" / "src" / "ggml-cpu"
    done = subprocess.run(
        [ZIG, "c++", "-target", "x86_64-linux-gnu.2.28", "-g0", "-O3", "-DNDEBUG", "-std=gnu++17",
         "-fPIC", *(f"-m{name}" for name in ZEN4), *TUNED, "-w",
         "-DGGML_USE_LLAMAFILE", f"-I{folder}", f"-I{folder.parent}",
         f"-I{folder.parent.parent / 'include'}", "-c",
         str(folder / "llamafile" / "sgemm.cpp"), "-o", str(out)],
        env=dict(os.environ, ZIG_GLOBAL_CACHE_DIR=cache, ZIG_LOCAL_CACHE_DIR=cache),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with out.open("rb") as stream:
        elf = ELFFile(stream)
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        (symbol,) = [each for each in table.iter_symbols() if FUNCTION in each.name]
        at, size = symbol["st_value"], symbol["st_size"]
        code = elf.get_section(symbol["st_shndx"]).data()[at : at + size]
    found: Counter[str] = Counter()
    for instruction in Decoder(64, code):
        if instruction.mnemonic == Mnemonic.VPDPBUSD:
            found["products"] += 1
        # A broadcast of a register is a shuffle; one from memory costs nothing.
        broadcast = instruction.mnemonic == Mnemonic.VBROADCASTSS
        if (broadcast and instruction.op1_kind == OpKind.REGISTER) or (
            instruction.mnemonic == Mnemonic.VPERMPS
        ):
            found["across the halves"] += 1
        if instruction.mnemonic in {Mnemonic.VSHUFPS, Mnemonic.VPERMILPS}:
            found["within the halves"] += 1
    return found


def test_one_shuffle_for_each_product(user_store: Store, tmp_path: Path) -> None:
    pin = load_lock(resources.lockfile()).source("llama.cpp")
    inputs = {"format": FORMAT, "commit": pin.commit, "tree": pin.tree}
    entry = user_store.find("source", step_key("source", inputs))
    if entry is None:
        pytest.skip("the pinned source is not in the store: `qbuild lock` fetches it")
    series = load_series(resources.patches_dir(), "cpu-speed")
    counts = []
    for group in ([], [series]):
        work = tmp_path / f"with-{len(group)}"
        apply_series(entry.path / "repo.git", pin.commit, group, work)
        counts.append(compile_product(work, tmp_path / "sgemm.o"))
    before, after = counts
    assert before["products"] == after["products"] == 16
    assert before["across the halves"] >= 16
    assert after["across the halves"] == 0
    assert after["within the halves"] >= 16
