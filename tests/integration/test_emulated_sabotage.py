"""Breaks kernels one constant at a time: test-backend-ops on the emulated GPU has to name the op.

What is broken is the device IR that the store holds of a finished `qbuild test gtx1060 --os linux
--emulate --sample`: the kernels are those of the zip, not examples. All are of the sample's units.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from qbuild.emulator import backend_ops, gpus, make
from qbuild.emulator.backend_ops import Outcome, Program
from qbuild.emulator.retarget import retarget
from qbuild.emulator.table import table
from qbuild.errors import CompileError
from qbuild.store import Store
from support.emulated import kit_and_paths

pytestmark = pytest.mark.emulated

_KERNEL = re.compile(r"^define ptx_kernel void @(\S*?)\(", re.MULTILINE)
_BARRIER = re.compile(
    r"^  (?:tail )?call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all[^\n]*\n", re.MULTILINE
)


def swap(old: str, new: str) -> Callable[[str], str]:
    """Return what changes one constant of a kernel."""
    return lambda body: body.replace(old, new)


def without_first_barrier(body: str) -> str:
    """Remove the first __syncthreads of a kernel."""
    return _BARRIER.sub("", body, count=1)


def store_far_behind(body: str) -> str:
    """Let the first store of a float go 4 GiB behind its place."""
    return re.sub(
        r"^  store float (\S+), ptr (%[^\s,]+), align 4",
        "  %far = getelementptr float, ptr \\2, i64 1073741824\n"
        "  store float \\1, ptr %far, align 4",
        body, count=1, flags=re.MULTILINE,
    )  # fmt: skip


@dataclass(frozen=True)
class Sabotage:
    """One broken kernel.

    Args:
        unit: Its unit.
        kernel: Regular expression over its mangled name.
        change: What is done to its IR.
        ops: Operations that are run.
        params: Which of their cases.
    """

    unit: str
    kernel: str
    change: Callable[[str], str]
    ops: str
    params: str = ""


CONSTANTS = {
    "GET_ROWS": Sabotage(
        "rows", r"dequantize_q4_0PKvliR6float2EEfE",
        swap(", -8", ", -7"), "GET_ROWS", "type=q4_0,n=256",
    ),
    "CPY": Sabotage(
        "copy", r"cpy_blck_f32_q4_0",
        swap("-1.250000e-01", "-1.406250e-01"), "CPY", "type_src=f32,type_dst=q4_0",
    ),
    "GELU": Sabotage(
        "elementwise", r"op_gelufEEfEv", swap("5.000000e-01", "5.312500e-01"), "GELU", "type=f32"
    ),
    "SET_ROWS": Sabotage(
        "convert", r"k_set_rows_quant.*quantize_f32_q4_0_block",
        swap("-1.250000e-01", "-1.406250e-01"), "SET_ROWS", "type_src=f32,type_dst=q4_0",
    ),
    "UPSCALE": Sabotage(
        "conv", r"upscale_f32_bicubic", swap("1.250000e+00", "1.312500e+00"), "UPSCALE", "bicubic"
    ),
}  # fmt: skip
INDEX = Sabotage("elementwise", r"9scale_f32IfE", store_far_behind, "SCALE", "type=f32")
BARRIER = Sabotage("reduce", r"8norm_f32ILi1024", without_first_barrier, "NORM", r"ne=\[1025")


@dataclass(frozen=True)
class Bench:
    """What a broken kernel is put into.

    Args:
        store: The user's store.
        programs: test-backend-ops and ggml's libraries.
        kit: Compilers.
    """

    store: Store
    programs: Path
    kit: make.Kit

    def ir(self, unit: str) -> str:
        """Return the newest device IR of a unit for Linux."""
        found = []
        for entry in (self.store.root / "device-ir").glob("*/entry.json"):
            data = json.loads(entry.read_text())
            if data["facts"]["unit"] == unit and "x86_64-linux-gnu" in str(data["inputs"]):
                found.append((entry.stat().st_mtime, entry.with_name("unit.ll.gz")))
        if not found:
            pytest.skip(
                f"the store has no device IR of {unit}: run the sample (--emulate --sample)"
            )
        return gzip.decompress(max(found)[1].read_bytes()).decode()

    def run(self, sabotage: Sabotage, folder: Path, *, checks: bool = False) -> Outcome:
        """Break a kernel and run the operation's cases."""
        shutil.copytree(self.programs, folder)
        text = _broken(self.ir(sabotage.unit), sabotage)
        made = retarget(text, sabotage.unit, table(), checks=checks)
        unit, intrinsics = folder / "unit.ll", folder / make.INTRINSICS
        unit.write_text(made.text)
        commands = [
            make.intrinsics_command(self.kit, intrinsics),
            make.unit_command(self.kit, unit, intrinsics, folder / "unit.o"),
        ]
        (folder / "units.h").write_text(make.units_header([sabotage.unit]))
        library = folder / make.KERNELS["linux"]
        commands += make.kernels_commands(self.kit, [folder / "unit.o"], folder, library)
        commands += make.runtime_commands(self.kit, folder, folder)
        for command in commands:
            make.run(command, self.kit, cwd=folder, what=Path(command[-1]).name)
        program = Program(
            path=folder / "test-backend-ops",
            env=gpus.environment([gpus.find("GTX 1060")]),
            log=folder / "log",
            state=folder / "state.jsonl",
        )
        options = ["-o", sabotage.ops, *(("-p", sabotage.params) if sabotage.params else ())]
        return backend_ops.run_options(program, options, lambda *_: None)


def _broken(text: str, sabotage: Sabotage) -> str:
    parts, end = [], 0
    for match in _KERNEL.finditer(text):
        if re.search(sabotage.kernel, match[1]) is None:
            continue
        close = text.index("\n}\n", match.start())
        parts += [text[end : match.start()], sabotage.change(text[match.start() : close])]
        end = close
    changed = "".join([*parts, text[end:]])
    assert changed != text, "the kernel has no such place any more: look at its IR"
    return changed


@pytest.fixture(scope="module")
def bench(user_store: Store) -> Bench:
    programs = sorted(
        (user_store.root / "emulated-tests").glob("*/bin"), key=lambda path: path.stat().st_mtime
    )
    if not programs:
        pytest.skip("the store has no test programs: run the sample (--emulate --sample)")
    kit, _ = kit_and_paths(user_store.root)
    return Bench(store=user_store, programs=programs[-1], kit=kit)


@pytest.mark.parametrize("op", CONSTANTS)
def test_one_constant_is_seen_and_the_operation_named(
    op: str, bench: Bench, tmp_path: Path
) -> None:
    outcome = bench.run(CONSTANTS[op], tmp_path / "run")
    assert {each.case.split("(")[0] for each in outcome.failed} == {op}
    assert all("ERR = " in each.said for each in outcome.failed)


def test_a_removed_barrier_is_a_race_between_warps(bench: Bench, tmp_path: Path) -> None:
    outcome = bench.run(BARRIER, tmp_path / "run", checks=True)
    (race, *_) = outcome.findings
    assert "race: shared memory" in race and "norm_f32ILi1024" in race


def test_an_index_too_far_names_kernel_and_buffer(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        bench.run(INDEX, tmp_path / "run", checks=True)
    log = (tmp_path / "run" / "log").read_text()
    assert "scale_f32IfE" in log and "emulated GPU: " in log, error.value.what
