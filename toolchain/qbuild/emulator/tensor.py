"""Calls for PTX of tensor cores: ``mma.sync``, ``wmma``, ``ldmatrix``, ``movmatrix``, ``cp.async``.

These texts differ in shapes, types and in the order of their operands, and many registers go in
and out. So each text becomes a small function in LLVM assembly, which puts the registers in memory
in the order that ``toolchain/emulator/tensor.c`` reads them. Source: PTX ISA manual, "Warp Level
Matrix Instructions" and "Data Movement and Conversion Instructions: Asynchronous copy".

``wmma`` comes as intrinsics of LLVM. Which lane holds which element of its fragments is left open:
a kernel can only load, multiply and store them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_TYPES: Final = {"f16": 0, "bf16": 1, "tf32": 2, "s8": 3, "f32": 4, "s32": 5}
"""Element types and their numbers in ``tensor.h``."""

_PER_REGISTER: Final = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4}

_PRODUCTS: Final = frozenset(
    [(16, k, d, "f16") for k in (8, 16) for d in ("f16", "f32")]
    + [(16, 8, "f32", "bf16"), (16, 16, "f32", "bf16")]
    + [(16, 4, "f32", "tf32"), (16, 8, "f32", "tf32")]
    + [(8, 16, "s32", "s8"), (16, 16, "s32", "s8"), (16, 32, "s32", "s8")]
)
"""Rows of A, columns of A, type of C and D, type of A and B; B has 8 columns."""

_SHAPE = re.compile(r"mma\.sync\.aligned\.m(\d+)n8k(\d+)\.row\.col\.\w+?\.(\w+)\.")
_OPERANDS = r"\{([$\d,]+)\}"
_MMA = re.compile(
    r"mma\.sync\.aligned\.m(\d+)n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)"
    rf"{_OPERANDS},{_OPERANDS},{_OPERANDS},{_OPERANDS};"
)
_LDMATRIX = re.compile(
    r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?(?:\.shared(?:::cta)?)?\.b16"
    rf"{_OPERANDS},\[\$(\d+)\];"
)
_MOVMATRIX = re.compile(r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16 \$0,\$1;")
_COPY = re.compile(
    r"cp\.async\.(ca|cg)\.shared(?:::cta)?\.global(?:\.L2::(?:64|128|256)B)?"
    r"\[\$(\d+)\],\[\$(\d+)\],(\$?\d+)(?:,(\$?\d+))?;"
)
_COMMIT = "cp.async.commit_group;"
_WAIT = re.compile(r"cp\.async\.wait_group (\$?\d+);")
_WAIT_ALL = "cp.async.wait_all;"

_WMMA_LOAD = re.compile(r"wmma\.m8n32k16\.load\.(a\.row|b\.col)\.stride\.f16\.p0")
_WMMA_MMA = "wmma.m8n32k16.mma.row.col.f32.f32"
_WMMA_STORE = "wmma.m8n32k16.store.d.row.stride.f32.p0"

UNCHECKED: Final = -1

PREFIX: Final = "qe_ptx_"
"""Functions are called after the instruction that they stand for."""

DECLARED: Final = """\
declare void @qe_mma(ptr, i32, i32, i32, i32, ptr)
declare void @qe_ldmatrix(ptr, i32, i32, ptr, ptr, i32)
declare i32 @qe_movmatrix(ptr, i32)
declare void @qe_wmma_load_a(ptr, ptr, i32, ptr, i32)
declare void @qe_wmma_load_b(ptr, ptr, i32, ptr, i32)
declare void @qe_wmma_mma(ptr, ptr)
declare void @qe_wmma_store(ptr, ptr, i32, ptr, i32)
declare void @qe_cp_async(ptr, ptr, ptr, i32, i32, i32)
declare void @qe_cp_async_commit(ptr)
declare void @qe_cp_async_wait(ptr, i32)
declare void @qe_cp_async_wait_all(ptr)
declare ptr @qe_shared_pointer(ptr, i32)
"""


@dataclass(frozen=True, kw_only=True)
class Ptx:
    """One inline PTX text, or an intrinsic, and its operands, as LLVM assembly calls it."""

    # with ``$0``, ``$1`` … for operands, blanks collapsed; or what follows ``llvm.nvvm.``
    text: str
    constraints: str  # of the call: ``=r,=r,r,l,0``; an intrinsic has none
    returns: str  # type of the result, e.g. ``{ i32, i32 }`` or ``void``
    results: Sequence[str]  # types of its parts
    arguments: Sequence[str]  # types of the arguments

    def argument(self, operand: int) -> int:
        """Return which argument an operand is that the text reads.

        An operand that is also a result has an argument of its own, tied to it by its number.
        """
        inputs = [each for each in self.constraints.split(",") if each[0] not in "=~"]
        if operand < len(self.results):
            return inputs.index(str(operand))
        return operand - len(self.results)


def function(ptx: Ptx) -> tuple[str, str] | None:
    """Return the name and the LLVM assembly of the function that stands for a text.

    It takes the thread, the number of the access (``UNCHECKED`` where accesses are not checked),
    and what the text takes.

    Args:
        ptx: The text.

    Returns:
        None: it is none of tensor cores, or of a shape that they do not have.

    Raises:
        ValueError: A value is read that no argument holds.
    """
    text = re.sub(r"\s*([,{}\[\];])\s*", r"\1", ptx.text)  # no blanks around punctuation
    body = _body(ptx, text)
    if body is None:
        return None
    digest = hashlib.sha256(repr(ptx).encode()).hexdigest()[:12]
    instruction = ".".join(re.findall(r"\w+", re.split(r"[ {\[;]", text)[0]))
    name = f"{PREFIX}{instruction}.{digest}"
    parameters = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(ptx.arguments))
    first = "ptr %t, i32 %site" + ", " * bool(parameters)
    head = f"define internal {ptx.returns} @{name}({first}{parameters})"
    return name, f"; {ptx.text}\n{head} alwaysinline {{\n" + "\n".join(body) + "\n}\n"


def work(name: str) -> int:
    """Return how much of a tensor core's time one lane's part of an instruction takes.

    Args:
        name: Of a function that stands for it.

    Returns:
        Multiply-adds of 16 bits that take as long: those of 8 bits go twice as fast, those of tf32
        half as fast (A100's data sheet: 312, 624 and 156 TFLOPS or TOPS). 0: it is no product.
    """
    if _WMMA_MMA in name:
        return 8 * 32 * 16 // 32
    match = _SHAPE.search(name)
    if match is None:
        return 0
    m, k, factor = int(match[1]), int(match[2]), match[3]
    return m * 8 * k // 32 * 2 // _PER_REGISTER[factor]


def _body(ptx: Ptx, text: str) -> list[str] | None:
    if match := _MMA.fullmatch(text):
        return _product(ptx, match)
    if match := _LDMATRIX.fullmatch(text):
        count = int(match[1])
        order = _numbers(match[3])
        if len(order) != count:
            return None
        lines, row = _address(ptx, int(match[4]))
        call = f"i32 {count}, i32 {int(bool(match[2]))}, ptr {row}, ptr %r, i32 %site"
        lines = ["  %r = alloca [4 x i32]", *lines, f"  call void @qe_ldmatrix(ptr %t, {call})"]
        return [*lines, *_results(ptx, order, 0)]
    if _MOVMATRIX.fullmatch(text):
        return ["  %d = call i32 @qe_movmatrix(ptr %t, i32 %a0)", "  ret i32 %d"]
    if match := _COPY.fullmatch(text):
        to, to_name = _address(ptx, int(match[2]))
        source, from_name = _address(ptx, int(match[3]))
        size = _integer(ptx, match[4])
        taken = _integer(ptx, match[5] or match[4])
        call = f"ptr {to_name}, ptr {from_name}, i32 {size}, i32 {taken}, i32 %site"
        return [*to, *source, f"  call void @qe_cp_async(ptr %t, {call})", "  ret void"]
    if text == _COMMIT:
        return ["  call void @qe_cp_async_commit(ptr %t)", "  ret void"]
    if text == _WAIT_ALL:
        return ["  call void @qe_cp_async_wait_all(ptr %t)", "  ret void"]
    if match := _WAIT.fullmatch(text):
        groups = _integer(ptx, match[1])
        return [f"  call void @qe_cp_async_wait(ptr %t, i32 {groups})", "  ret void"]
    return _fragments(ptx)


def _fragments(ptx: Ptx) -> list[str] | None:
    """Return the lines for what a kernel does with the fragments of ``wmma``: eight words each."""
    if match := _WMMA_LOAD.fullmatch(ptx.text):
        call = f"@qe_wmma_load_{match[1][0]}(ptr %t, ptr %a0, i32 %a1, ptr %r, i32 %site)"
        lines = ["  %r = alloca [8 x i32]", f"  call void {call}"]
        return [*lines, *_results(ptx, range(8), 0)]
    if ptx.text == _WMMA_MMA:
        lines = ["  %r = alloca [32 x i32]", *_stored(ptx, range(24))]
        return [*lines, "  call void @qe_wmma_mma(ptr %t, ptr %r)", *_results(ptx, range(8), 24)]
    if ptx.text == _WMMA_STORE:
        call = "@qe_wmma_store(ptr %t, ptr %a0, i32 %a9, ptr %r, i32 %site)"
        lines = ["  %r = alloca [8 x i32]", *_stored(ptx, range(1, 9)), f"  call void {call}"]
        return [*lines, "  ret void"]
    return None


def _product(ptx: Ptx, match: re.Match[str]) -> list[str] | None:
    m, k, (d, a, b, c) = int(match[1]), int(match[2]), match.group(3, 4, 5, 6)
    if a != b or c != d or (m, k, d, a) not in _PRODUCTS:
        return None
    results, *factors = (_numbers(match[at]) for at in (7, 8, 9, 10))
    steps = k // (4 * _PER_REGISTER[a])
    sums = m // 8 * (1 if d == "f16" else 2)
    if [len(results), *map(len, factors)] != [sums, m // 8 * steps, steps, sums]:
        return None
    inputs = [operand for part in factors for operand in part]
    lines = [f"  %r = alloca [{len(inputs) + sums} x i32]"]
    lines += _stored(ptx, [ptx.argument(operand) for operand in inputs])
    call = f"i32 {m}, i32 {k}, i32 {_TYPES[a]}, i32 {_TYPES[d]}, ptr %r"
    lines.append(f"  call void @qe_mma(ptr %t, {call})")
    return [*lines, *_results(ptx, results, len(inputs))]


def _stored(ptx: Ptx, arguments: Iterable[int]) -> Iterator[str]:
    """Yield lines that put arguments in memory, one behind the other."""
    for at, argument in enumerate(arguments):
        yield f"  %p{at} = getelementptr i32, ptr %r, i64 {at}"
        yield f"  store {ptx.arguments[argument]} %a{argument}, ptr %p{at}"


def _results(ptx: Ptx, order: Sequence[int], first: int) -> list[str]:
    """Return lines that return what lies in memory from slot ``first`` on."""
    lines = []
    value = "poison"
    for at, operand in enumerate(order):
        kind = ptx.results[operand]
        lines.append(f"  %o{at} = getelementptr i32, ptr %r, i64 {first + at}")
        lines.append(f"  %d{at} = load {kind}, ptr %o{at}")
        if len(ptx.results) == 1:
            return [*lines, f"  ret {kind} %d{at}"]
        lines.append(f"  %v{at} = insertvalue {ptx.returns} {value}, {kind} %d{at}, {operand}")
        value = f"%v{at}"
    return [*lines, f"  ret {ptx.returns} {value}"]


def _address(ptx: Ptx, operand: int) -> tuple[list[str], str]:
    """Return lines that make a pointer of an operand, and its name: PTX takes integers as well."""
    at = ptx.argument(operand)
    kind = ptx.arguments[at]
    if kind == "ptr":
        return [], f"%a{at}"
    if kind == "i64":
        return [f"  %i{at} = inttoptr i64 %a{at} to ptr"], f"%i{at}"
    return [f"  %i{at} = call ptr @qe_shared_pointer(ptr %t, i32 %a{at})"], f"%i{at}"


def _integer(ptx: Ptx, word: str) -> str:
    """Return a number of the text, or the argument that holds it."""
    return f"%a{ptx.argument(int(word[1:]))}" if word.startswith("$") else word


def _numbers(text: str) -> list[int]:
    return [int(each.removeprefix("$")) for each in text.split(",")]
