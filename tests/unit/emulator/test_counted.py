"""Counters in a unit's text: classes of instructions, and what the counters wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qbuild.cli import emulated_tests
from qbuild.emulator import counted, gpus

UNIT = """\
%qe.kernel = type { ptr }

define internal void @k(ptr %0, float %1, i32 %2) #0 {
  %q.t = call ptr @qe_self()
  %3 = icmp eq i32 %2, 0
  br i1 %3, label %9, label %4

4:                                                ; preds = %0
  %5 = phi float [ %1, %0 ], [ %8, %4 ]
  call void @qe_access(ptr %q.t, ptr %0, i32 4, i32 0)
  %6 = load float, ptr %0, align 4
  %7 = fmul contract float %6, %1
  %8 = fadd contract float %7, %5
  %10 = tail call i32 @qe_dp4a_s32(i32 %2, i32 %2, i32 0)
  call void @qe_access(ptr %q.t, ptr %0, i32 4, i32 5)
  store float %8, ptr %0, align 4
  call void @qe_stored(ptr %q.t, ptr %0, i32 4, i32 5)
  br label %9

9:                                                ; preds = %0, %4
  %11 = fmul contract float %1, %1
  %12 = fadd contract float %11, %11
  call void @qe_barrier(ptr %q.t)
  ret void
}

declare ptr @qe_self()
declare void @qe_access(ptr, ptr, i32, i32)
declare void @qe_stored(ptr, ptr, i32, i32)
define internal void @qe.entry.0(ptr %args) {
  %p0 = getelementptr ptr, ptr %args, i64 0
  call void @k(ptr %p0, float 0.0, i32 0)
  ret void
}
"""


def classes(text: str) -> list[dict[str, int]]:
    """Return what each basic block hands over, in order."""
    rows = {
        number: [int(each) for each in re.findall(r"i32 (\d+)", row)]
        for number, row in re.findall(r"^@qe\.classes\.(\d+) = [^\[]*\[[^\]]*\] (.*)$", text, re.M)
    }
    order = re.findall(r"@qe_count_block\(ptr %q\.t, ptr @qe\.classes\.(\d+), i32 \d+\)", text)
    names = (*counted.CLASSES, "tensor")
    return [dict(zip(names, rows[number], strict=True)) for number in order]


def test_each_block_says_what_is_in_it() -> None:
    first, middle, last = classes(counted.counting(UNIT))
    assert {name for name, count in first.items() if count} == {"branch", "other"}
    assert (first["branch"], first["other"]) == (1, 1)
    # The product goes into the sum: one instruction. Where a product is used twice it stays.
    assert {k: v for k, v in middle.items() if v} == {"fma": 1, "dp4a": 1}
    assert {k: v for k, v in last.items() if v} == {"float": 2, "barrier": 1}


def test_each_block_has_a_number_of_its_own() -> None:
    text = counted.counting(
        UNIT + UNIT.replace("@k", "@m").replace("  %q.t = call ptr @qe_self()\n", "", 1)
    )
    numbers = re.findall(r"@qe_count_block\([^)]*, i32 (\d+)\)", text)
    assert numbers == [str(each) for each in range(6)]
    # a function that did not ask who runs it asks now, before it says so
    assert text.count("%q.t = call ptr @qe_self()") == 2


def test_a_matrix_instruction_counts_as_one_and_says_its_work() -> None:
    product = "qe_ptx_mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.0123"
    unit = UNIT.replace(
        "tail call i32 @qe_dp4a_s32(i32", f"call i32 @{product}(ptr %q.t, i32 7, i32"
    )
    unit += f"define internal i32 @{product}(ptr %t, i32 %site) alwaysinline {{\n  ret i32 0\n}}\n"
    _, middle, _ = classes(counted.counting(unit))
    assert {k: v for k, v in middle.items() if v} == {"fma": 1, "mma": 1, "tensor": 64}
    assert f"{product}(ptr %t, i32 %site) alwaysinline {{\n  ret i32 0" in counted.counting(unit)


def test_calls_come_behind_what_a_block_must_begin_with() -> None:
    text = counted.counting(UNIT)
    assert re.search(r"%5 = phi [^\n]*\n  call void @qe_count_block", text)
    assert text.count("@qe_count_access(ptr %q.t") == 2
    assert "qe_access" not in text
    assert "qe_stored" not in text
    assert "@qe_count_thread(ptr %t, ptr @qe.name.0)" in text
    assert text.count("declare ptr @qe_self()") == 1


def test_what_the_counters_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    numbers = [2, 64, 1, 2, 3, 4, 0, 5, 6, 7, 10, 11, 32, 32, 128, 128, 2, 16]
    numbers += [4, 6, 7, 512, 12, 1, 5]
    path.write_text("\t".join(["k", *map(str, numbers)]) + "\n", encoding="utf-8")
    (found,) = counted.read(path)
    assert (found.kernel, found.blocks, found.threads) == ("k", 2, 64)
    assert found.instructions["other"] == 7
    assert found.memory["sectors"] == 16
    assert {name: found.memory[name] for name in ("tensor", "distinct", "shared_least")} == {
        "tensor": 512, "distinct": 12, "shared_least": 5,
    }  # fmt: skip
    assert found.used == pytest.approx(0.5)  # 256 bytes of 512
    assert found.passes == pytest.approx(1.5)
    assert found.together == pytest.approx(28 / (32 * 7))
    path.write_text("k\t1\n", encoding="utf-8")
    with pytest.raises(ValueError):
        counted.read(path)


def test_the_table_is_called_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    gpu = gpus.find("GTX 1060")
    emulated_tests._tell_counts([], gpu)
    assert capsys.readouterr().out == ""
    one = counted.Counted(
        kernel="_Z1k", blocks=2, threads=64,
        instructions=dict.fromkeys(counted.CLASSES, 64) | {"dp4a": 512},
        memory={
            "shared_loads": 64, "shared_stores": 64, "loads": 128, "stores": 64,
            "bytes_read": 512, "bytes_written": 256, "requests": 6, "sectors": 48,
            "shared_parts": 4, "shared_passes": 8, "issued": 60, "tensor": 0,
            "distinct": 24, "launches": 1, "shared_least": 8,
        },
    )  # fmt: skip
    emulated_tests._tell_counts([one], gpu)
    title, legend, _, _, bound, names, row = capsys.readouterr().out.splitlines()
    assert "over 100 %" in legend
    assert "an estimate" in title
    told = dict(zip(names.split(), row.split(), strict=False))
    assert (told["dp4a"], told["shared"], told["device"]) == ("8.0", "2.0", "3.0")
    assert told["sectors"] == "8.0"
    assert told["passes"] == "2.0"
    assert told["lanes%"] == "50.0"
    assert "no less on a GTX 1060" in bound
    assert row.split()[-5:] == ["50.0", "2", "0.0", "memory", "_Z1k"]
