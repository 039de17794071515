"""Device IR becomes text for the host; what is not in the table is refused by name."""

from __future__ import annotations

import re

import pytest

from qbuild.emulator.layout import size_of, split_top
from qbuild.emulator.retarget import STATIC_SHARED, retarget
from qbuild.emulator.table import Meaning, Table, plain, table
from qbuild.errors import ToolchainError

TABLE = Table(
    intrinsics={
        "read.ptx.sreg.tid.x": Meaning(function="qe_tid_x", thread=True),
        "mulhi.ui": Meaning(function="qe_mulhi_u32"),
    },
    asm={
        "dp4a.s32.s32 $0, $1, $2, $3;": Meaning(function="qe_dp4a_s32"),
        "ld.v2 {$0, $1}, [$2];": Meaning(
            function="qe_pair", ir="define internal { i64, i64 } @qe_pair(ptr %p) { unreachable }"
        ),
    },
)
HEAD = """target datalayout = "e-p6:32:32-i64:64"
target triple = "nvptx64-nvidia-cuda"
%struct.pair = type { i16, i32 }
"""
TAIL = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #1
attributes #0 = { convergent noinline "nvvm.maxntid"="128" "target-cpu"="sm_61" }
attributes #1 = { nounwind memory(none) }
"""


def kernel(body: str, parameters: str = "ptr noundef %0", more: str = "") -> str:
    head = f"define ptx_kernel void @k({parameters}) local_unnamed_addr #0 {{"
    return f"{HEAD}{more}{head}\n{body}\n  ret void\n}}\n{TAIL}"


def test_targets_and_attributes_of_the_gpu_go() -> None:
    text = retarget(kernel("  store i32 1, ptr %0, align 4"), "u", TABLE).text
    assert "nvptx" not in text and "sm_61" not in text and "ptx_kernel" not in text
    assert "define internal void @k(ptr noundef %0)" in text


def test_an_intrinsic_becomes_a_call_that_knows_its_thread() -> None:
    body = "  %2 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
    text = retarget(kernel(body), "u", TABLE).text
    assert "call noundef range(i32 0, 1024) i32 @qe_tid_x(ptr %q.t)" in text
    assert "%q.t = call ptr @qe_self()" in text
    assert "declare i32 @qe_tid_x(ptr)" in text
    assert "llvm.nvvm" not in text


def test_ptx_becomes_a_call_with_plain_arguments() -> None:
    body = (
        '  %2 = tail call noundef i32 asm sideeffect "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r"'
        "(i32 range(i32 0, 4) 1, i32 2, i32 0) #1, !srcloc !30"
    )
    text = retarget(kernel(body), "u", TABLE).text
    assert "call noundef i32 @qe_dp4a_s32(i32 range(i32 0, 4) 1, i32 2, i32 0) #1, !srcloc" in text
    assert "declare i32 @qe_dp4a_s32(i32, i32, i32)" in text


def test_ptx_that_is_not_known_names_unit_kernel_and_text() -> None:
    body = '  call void asm sideeffect "bar.weird 3;", ""() #1'
    with pytest.raises(ToolchainError, match=r"kernel k uses PTX .*: bar\.weird 3;") as error:
        retarget(kernel(body), "mmvq", TABLE)
    assert error.value.where == "unit mmvq"


def test_an_intrinsic_that_is_not_known_names_the_kernel() -> None:
    body = "  %2 = call i32 @llvm.nvvm.new.one(i32 1)"
    with pytest.raises(ToolchainError, match=r"kernel k uses an intrinsic .*llvm\.nvvm\.new\.one"):
        retarget(kernel(body), "u", TABLE)


def test_shared_arrays_get_places_of_their_own_behind_the_dynamic_one() -> None:
    more = (
        "@a = internal addrspace(3) global [3 x float] undef, align 4\n"
        "@b = internal addrspace(3) global [2 x %struct.pair] undef, align 8\n"
        "@d = external addrspace(3) global [0 x float], align 16\n"
    )
    body = (
        "  store float 1.0, ptr addrspace(3) getelementptr inbounds nuw (i8, ptr addrspace(3) @a,"
        " i64 8), align 4\n"
        "  store float 2.0, ptr addrspacecast (ptr addrspace(3) @d to ptr), align 4\n"
        "  store float 3.0, ptr addrspace(3) @b, align 4"
    )
    made = retarget(kernel(body, more=more), "u", TABLE)
    (found,) = made.kernels
    assert [(each.offset, each.size, each.align) for each in found.shared] == [
        (STATIC_SHARED, 12, 4),
        (STATIC_SHARED + 128, 16, 8),
    ]
    assert found.shared_size == 32  # 12, then 16 bytes aligned to 8
    assert "addrspace" not in made.text
    assert "@a" not in made.text and "@d" not in made.text
    assert f"getelementptr i8, ptr %q.shared, i64 {STATIC_SHARED}" in made.text
    assert "= getelementptr inbounds nuw i8, ptr %q.s0, i64 8" in made.text
    assert "getelementptr i8, ptr %q.shared, i64 0" in made.text


def test_a_difference_of_shared_addresses_is_an_instruction_that_names_its_type_once() -> None:
    more = "@a = internal addrspace(3) global [3 x float] undef, align 4\n"
    address = "ptrtoint (ptr addrspacecast (ptr addrspace(3) @a to ptr) to i64)"
    body = f"  %1 = trunc i64 sub (i64 {address}, i64 {address}) to i32"
    text = retarget(kernel(body, more=more), "u", TABLE).text
    found = re.search(r"(%q\.c\d) = sub i64 (%q\.c\d), \2\n", text)
    assert found and f"%1 = trunc i64 {found[1]} to i32" in text


def test_shared_memory_of_a_called_function_counts_for_the_kernel() -> None:
    more = (
        "@a = internal addrspace(3) global [4 x i32] undef, align 4\n"
        "define internal void @f() #0 {\n  store i32 1, ptr addrspace(3) @a\n  ret void\n}\n"
    )
    made = retarget(kernel("  call void @f() #0", more=more), "u", TABLE)
    assert made.kernels[0].shared_size == 16


def test_a_kernel_says_its_limit_and_takes_its_arguments_from_an_array() -> None:
    parameters = "ptr noundef %0, ptr byval(%struct.pair) align 4 %1, i1 noundef zeroext %2"
    made = retarget(kernel("  unreachable", parameters), "u", TABLE)
    assert (made.kernels[0].max_threads, made.kernels[0].parameters) == (128, 3)
    assert "byval(%struct.pair) align 4 %a1" in made.text
    assert "trunc i8 %b2 to i1" in made.text
    assert "@qe_unit_u = constant" in made.text


def test_results_of_two_values_come_from_the_tables_own_ir() -> None:
    body = '  %2 = call { i64, i64 } asm sideeffect "ld.v2 {$0, $1}, [$2];", "=l,=l,l"(ptr %0) #1'
    text = retarget(kernel(body), "u", TABLE).text
    assert "call { i64, i64 } @qe_pair(ptr %0)" in text
    assert text.count("define internal { i64, i64 } @qe_pair") == 1


@pytest.mark.parametrize(
    ("text", "size", "align"),
    [
        ("i1", 1, 1),
        ("[3 x [2 x float]]", 24, 4),
        ("<4 x i8>", 4, 4),
        ("{ i8, i64, i16 }", 24, 8),
        ("<{ i8, i64 }>", 9, 1),
        ("%struct.pair", 8, 4),
    ],
)
def test_sizes(text: str, size: int, align: int) -> None:
    found = size_of(text, {"%struct.pair": "{ i16, i32 }"})
    assert (found.size, found.align) == (size, align)


def test_splitting_respects_brackets_and_quotes() -> None:
    assert split_top('i32 1, { i8, i8 } %2, ptr @"a, b"') == [
        "i32 1", "{ i8, i8 } %2", 'ptr @"a, b"',
    ]  # fmt: skip


def test_ptx_texts_are_compared_without_their_layout() -> None:
    assert plain("{  cvt.f32.f16 $0, $1;}\\0A") == "{ cvt.f32.f16 $0, $1;}"


def test_every_function_of_the_table_is_written(pytestconfig: pytest.Config) -> None:
    source = pytestconfig.rootpath / "toolchain" / "emulator"
    text = "".join((source / name).read_text() for name in ("intrinsics.c", "kernel.h"))
    macros = {"SPECIAL": "tid_x", "SHUFFLE": "bfly", "REDUX": "add", "COMPARE": "eq"}
    for macro, names in macros.items():
        assert f"{macro}({names}" in text
    known = table()
    for meaning in (*known.intrinsics.values(), *known.asm.values()):
        plain_name = meaning.function.removeprefix("qe_")
        made = (
            f"{meaning.function}(" in text
            or f"SPECIAL({plain_name}," in text
            or (plain_name.startswith("shfl_") and f"SHUFFLE({plain_name.split('_')[1]}," in text)
            or f"REDUX({plain_name.removeprefix('redux_')}," in text
            or f"COMPARE({plain_name.removeprefix('set_').removesuffix('_f16x2')}," in text
            or f"LARGER({plain_name.removesuffix('x2').removesuffix('_f16')}," in text
            or (
                plain_name.endswith("_f16x2")
                and f"PAIRS({plain_name.removesuffix('_f16x2')})" in text
            )
            or meaning.ir
        )
        assert made, meaning.function
