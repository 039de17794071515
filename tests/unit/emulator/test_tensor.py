"""PTX of tensor cores becomes functions that hand registers over in a fixed order."""

from __future__ import annotations

import re

import pytest

from qbuild.emulator.retarget import retarget
from qbuild.emulator.tensor import Ptx, function, work
from unit.emulator.test_retarget import TABLE, kernel

FOUR = "{ i32, i32, i32, i32 }"
HALVES = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$0, $1, $2, $3};"
)


def ptx(text: str, constraints: str, returns: str = "void", arguments: str = "") -> Ptx:
    results = () if returns == "void" else tuple(returns.strip("{ }").split(", "))
    kinds = tuple(arguments.split()) if arguments else ()
    return Ptx(
        text=text, constraints=constraints, returns=returns, results=results, arguments=kinds
    )


def body(of: Ptx) -> str:
    found = function(of)
    assert found
    name, text = found
    assert f"@{name}(ptr %t, i32 %site" in text
    return text


def test_a_product_gets_a_then_b_then_c_and_the_result_lies_behind() -> None:
    inputs = "r,r,r,r,r,r,0,1,2,3"
    text = body(ptx(HALVES, f"=r,=r,=r,=r,{inputs}", FOUR, "i32 " * 10))
    assert "call void @qe_mma(ptr %t, i32 16, i32 16, i32 0, i32 4, ptr %r)" in text
    assert "%r = alloca [14 x i32]" in text
    stored = re.findall(r"store i32 %a(\d+), ptr %p(\d+)", text)
    assert stored == [(str(at), str(at)) for at in range(10)]
    assert re.findall(r"%o\d = getelementptr i32, ptr %r, i64 (\d+)", text) == [
        "10", "11", "12", "13",
    ]  # fmt: skip


def test_results_that_are_read_too_are_found_by_their_number() -> None:
    # clang may tie them in any order
    inputs = "r,r,r,r,r,r,3,2,1,0"
    text = body(ptx(HALVES, f"=r,=r,=r,=r,{inputs}", FOUR, "i32 " * 10))
    stored = re.findall(r"store i32 %a(\d+), ptr %p(\d+)", text)
    assert stored[6:] == [("9", "6"), ("8", "7"), ("7", "8"), ("6", "9")]


@pytest.mark.parametrize(
    ("shape", "a", "b", "c", "call"),
    [
        ("m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4, "i32 16, i32 8, i32 0, i32 4"),
        ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2, "i32 16, i32 16, i32 0, i32 0"),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4, "i32 16, i32 16, i32 1, i32 4"),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 4, "i32 16, i32 8, i32 2, i32 4"),
        ("m16n8k32.row.col.s32.s8.s8.s32", 4, 2, 4, "i32 16, i32 32, i32 3, i32 5"),
        ("m16n8k16.row.col.s32.s8.s8.s32", 2, 1, 4, "i32 16, i32 16, i32 3, i32 5"),
        ("m8n8k16.row.col.s32.s8.s8.s32", 1, 1, 2, "i32 8, i32 16, i32 3, i32 5"),
    ],
)
def test_shapes(shape: str, a: int, b: int, c: int, call: str) -> None:
    numbers = iter(range(2 * c + a + b))
    lists = ["{" + ",".join(f"${next(numbers)}" for _ in range(n)) + "}" for n in (c, a, b, c)]
    constraints = ",".join(["=r"] * c + ["r"] * (a + b + c))
    returns = "{ " + ", ".join(["i32"] * c) + " }"
    text = f"mma.sync.aligned.{shape} {', '.join(lists)};"
    made = body(ptx(text, constraints, returns, "i32 " * (a + b + c)))
    assert f"@qe_mma(ptr %t, {call}, ptr %r)" in made


@pytest.mark.parametrize(
    "text",
    [
        HALVES.replace("k16", "k32"),  # no such shape
        HALVES.replace("{$8, $9}", "{$8}"),  # a register too few
        HALVES.replace(".row.col", ".col.row"),
        "ldmatrix.sync.aligned.m8n8.x4.b16 {$0, $1}, [$2];",
    ],
)
def test_what_tensor_cores_do_not_have_is_not_known(text: str) -> None:
    assert function(ptx(text, "=r,=r,=r,=r,r,r,r,r,r,r,0,1,2,3", FOUR, "i32 " * 10)) is None


def test_matrices_go_to_the_results_that_the_text_names() -> None:
    text = "ldmatrix.sync.aligned.m8n8.x4.trans.b16 {$0, $2, $1, $3}, [$4];"
    made = body(ptx(text, "=r,=r,=r,=r,l", FOUR, "i64"))
    assert "@qe_ldmatrix(ptr %t, i32 4, i32 1, ptr %i0, ptr %r, i32 %site)" in made
    assert re.findall(r"i32 %d(\d), (\d)", made) == [("0", "0"), ("1", "2"), ("2", "1"), ("3", "3")]


def test_a_shared_address_of_32_bits_is_made_whole() -> None:
    text = "cp.async.cg.shared.global.L2::128B [$0], [$1], 16, $2;"
    made = body(ptx(text, "r,l,r", arguments="i32 ptr i32"))
    assert "%i0 = call ptr @qe_shared_pointer(ptr %t, i32 %a0)" in made
    assert "@qe_cp_async(ptr %t, ptr %i0, ptr %a1, i32 16, i32 %a2, i32 %site)" in made


def test_groups_of_copies() -> None:
    assert "@qe_cp_async_commit(ptr %t)" in body(ptx("cp.async.commit_group;", "~{memory}"))
    assert "@qe_cp_async_wait_all(ptr %t)" in body(ptx("cp.async.wait_all;", ""))
    assert "@qe_cp_async_wait(ptr %t, i32 1)" in body(ptx("cp.async.wait_group 1;", ""))
    by_number = ptx("cp.async.wait_group $0;", "n,~{memory}", arguments="i32")
    assert "@qe_cp_async_wait(ptr %t, i32 %a0)" in body(by_number)


def test_fragments_are_eight_words_each() -> None:
    load = "wmma.m8n32k16.load.b.col.stride.f16.p0"
    pairs = "{ " + ", ".join(["<2 x half>"] * 8) + " }"
    text = body(ptx(load, "", pairs, "ptr i32"))
    assert "call void @qe_wmma_load_b(ptr %t, ptr %a0, i32 %a1, ptr %r, i32 %site)" in text
    assert text.count("load <2 x half>, ptr %o") == 8
    sums = "{ " + ", ".join(["float"] * 8) + " }"
    factors = ("<2 x half>",) * 16 + ("float",) * 8
    product = Ptx(
        text="wmma.m8n32k16.mma.row.col.f32.f32", constraints="", returns=sums,
        results=("float",) * 8, arguments=factors,
    )  # fmt: skip
    text = body(product)
    assert "store <2 x half> %a15, ptr %p15" in text and "store float %a23, ptr %p23" in text
    assert "%o0 = getelementptr i32, ptr %r, i64 24" in text
    found = function(product)
    assert found and work(found[0]) == 8 * 32 * 16 // 32
    store = "wmma.m8n32k16.store.d.row.stride.f32.p0"
    text = body(ptx(store, "", "void", "ptr " + "float " * 8 + "i32"))
    assert "store float %a1, ptr %p0" in text and "store float %a8, ptr %p7" in text
    assert "call void @qe_wmma_store(ptr %t, ptr %a0, i32 %a9, ptr %r, i32 %site)" in text
    assert function(ptx("wmma.m16n16k16.load.b.col.stride.f16.p0", "", pairs, "ptr i32")) is None


def test_an_intrinsic_of_fragments_is_called_without_its_attributes() -> None:
    values = ", ".join(f"float {at}.0" for at in range(8))
    name = "llvm.nvvm.wmma.m8n32k16.store.d.row.stride.f32.p0"
    line = f"  tail call void @{name}(ptr writeonly %0, {values}, i32 32) #1, !srcloc !3"
    text = retarget(kernel(line), "u", TABLE).text
    assert re.search(
        r"tail call void @qe_ptx_[\w.]+\(ptr %q\.t, i32 -1, ptr writeonly %0,.*i32 32\), !srcloc",
        text,
    )


def test_a_call_in_which_lanes_meet_promises_nothing_about_memory() -> None:
    asm = 'tail call i32 asm "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r"'
    line = f"  %2 = {asm}(i32 7) #1, !srcloc !3\n  %3 = {asm}(i32 %2) #1"
    text = retarget(kernel(line), "u", TABLE).text
    assert re.search(
        r"%2 = tail call i32 @qe_ptx_[\w.]+\(ptr %q\.t, i32 -1, i32 7\), !srcloc", text
    )
    assert len(re.findall(r"^define internal i32 @qe_ptx_", text, re.MULTILINE)) == 1
    assert "declare i32 @qe_movmatrix(ptr, i32)" in text
