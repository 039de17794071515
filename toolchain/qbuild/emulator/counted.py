"""Makes the kernels of a retargeted unit count: instructions by class, and accesses to memory.

Works on the text that :func:`qbuild.emulator.retarget.retarget` gives with checks: the calls in
front of each access go to the counters instead, and each basic block begins with a call that hands
over how many instructions of each class are in it, and its number: from how often each lane comes
there follows what a warp runs together. It is the IR that ptxas' input is made of: ptxas fuses,
drops and adds instructions, so what comes out is an estimate.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qbuild.emulator import tensor
from qbuild.emulator.joined import join

CLASSES: Final = ("fma", "float", "dp4a", "mma", "branch", "shuffle", "barrier", "other")
"""The order of ``CLASSES`` in ``counters.c``. A product that is added is one ``fma``."""

_NUMBERS: Final = (
    "shared_loads", "shared_stores", "loads", "stores", "bytes_read", "bytes_written",
    "requests", "sectors", "shared_parts", "shared_passes", "issued", "tensor", "distinct",
    "launches", "shared_least",
)  # fmt: skip
_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_PRODUCT = re.compile(rf"^  ({_NAME}) = fmul (?:\w+ )*?(?:contract|fast) ")
_SUM = re.compile(r"^  \S+ = f(?:add|sub) (?:\w+ )*?(?:contract|fast) ")
_FLOAT = re.compile(r"^  \S+ = (?:fadd|fsub|fmul|fdiv|fneg|fcmp|frem) ")
_LABEL = re.compile(r'^(?:"[^"]+"|[\w.$-]+):')
_CALL = re.compile(r"call [^@\n]*@([\w.$-]+)\(")
_THREAD: Final = "  %q.t = call ptr "
_ENTRY = re.compile(r"(define internal void @qe\.entry\.(\d+)\(ptr %args\) \{\n)", re.MULTILINE)
_NOTHING: Final = (
    "phi ",
    "llvm.lifetime",
    "llvm.experimental",
    "llvm.assume",
    "@qe_self",
    "@qe_shared",
)
_CALLED: Final = (
    ("llvm.fma", "fma"), ("llvm.fmuladd", "fma"), ("qe_fma", "fma"), ("qe_dp4a", "dp4a"),
    ("qe_shfl", "shuffle"), ("qe_vote", "shuffle"), ("qe_redux", "shuffle"),
    ("qe_barrier", "barrier"),
    ("qe_warp_sync", "barrier"), ("qe_add_r", "float"), ("qe_mul_r", "float"),
    (f"{tensor.PREFIX}mma.", "mma"), (f"{tensor.PREFIX}movmatrix", "shuffle"),
    (f"{tensor.PREFIX}ldmatrix", ""), (f"{tensor.PREFIX}cp.async.c", "other"),
)  # fmt: skip


def counting(text: str) -> str:
    """Return a unit's text with counters.

    Args:
        text: What ``retarget`` gave for it with ``checks=True``.
    """
    text = re.sub(r"^  call void @qe_stored\([^\n]*\n", "", text, flags=re.MULTILINE)
    text = text.replace("declare void @qe_stored(ptr, ptr, i32, i32)\n", "")
    text = text.replace("@qe_access(", "@qe_count_access(")
    out: list[str] = []
    tables: dict[tuple[int, ...], int] = {}
    numbers = itertools.count()  # of basic blocks, over the whole unit
    end = 0
    for match in re.finditer(r"^define internal [^\n]*\{\n", text, re.MULTILINE):
        if "@qe.entry." in match[0] or f"@{tensor.PREFIX}" in match[0]:
            continue
        stop = text.index("\n}\n", match.end())
        out.append(text[end : match.end()])
        lines = join(text[match.end() : stop].split("\n"))
        out.append("\n".join(_function(lines, tables, numbers)))
        end = stop
    out.append(text[end:])
    whole = _ENTRY.sub(
        lambda found: (
            f"{found[1]}  %t = call ptr @qe_self()\n"
            f"  call void @qe_count_thread(ptr %t, ptr @qe.name.{found[2]})\n"
        ),
        "".join(out),
    )
    kind = f"[{len(CLASSES) + 1} x i32]"
    rows = "".join(
        f"@qe.classes.{number} = internal constant {kind} "
        f"[{', '.join(f'i32 {each}' for each in counts)}]\n"
        for counts, number in tables.items()
    )
    missing = "" if "declare ptr @qe_self()" in whole else "declare ptr @qe_self()\n"
    return (
        f"{whole}{rows}{missing}declare void @qe_count_thread(ptr, ptr)\n"
        "declare void @qe_count_block(ptr, ptr, i32)\n"
    )


def _function(
    lines: Sequence[str], tables: dict[tuple[int, ...], int], numbers: Iterator[int]
) -> Iterator[str]:
    """Yield a function's lines, each block with its call behind the last phi."""
    fused = _fused(lines)
    known = any(line.startswith(_THREAD) for line in lines)
    start = 0
    while start < len(lines):
        stop = start + 1
        while stop < len(lines) and not _LABEL.match(lines[stop]):
            stop += 1
        block = lines[start:stop]
        at = 1 if _LABEL.match(block[0]) else 0
        while at < len(block) and (" = phi " in block[at] or block[at].startswith(_THREAD)):
            at += 1
        counts = _counts(block, fused)
        number = tables.setdefault(counts, len(tables))
        yield from block[:at]
        if start == 0 and not known:
            yield f"{_THREAD}@qe_self()"
        if any(counts):
            yield (
                f"  call void @qe_count_block(ptr %q.t, ptr @qe.classes.{number}, "
                f"i32 {next(numbers)})"
            )
        yield from block[at:]
        start = stop


def _fused(lines: Sequence[str]) -> frozenset[str]:
    """Return the products that one sum alone uses: they become part of it."""
    products = {match[1] for line in lines if (match := _PRODUCT.match(line))}
    uses: Counter[str] = Counter()
    for line in lines:
        _, _, right = line.partition(" = ")
        uses.update(name for name in re.findall(_NAME, right or line) if name in products)
    sums = [line for line in lines if _SUM.match(line)]
    found: set[str] = set()
    for line in sums:
        mine = [name for name in re.findall(_NAME, line.partition(" = ")[2]) if name in products]
        found.update(name for name in mine[:1] if uses[name] == 1)
    return frozenset(found)


def _counts(block: Sequence[str], fused: frozenset[str]) -> tuple[int, ...]:
    """Return the instructions of each class, and the work of tensor cores."""
    counts = dict.fromkeys(CLASSES, 0)
    products = 0
    for line in block:
        kind = _class_of(line, fused)
        if kind:
            counts[kind] += 1
        if kind == "mma" and (call := _CALL.search(line)):
            products += tensor.work(call[1])
    return (*counts.values(), products)


def _class_of(line: str, fused: frozenset[str]) -> str:
    """Return the class of an instruction; accesses are counted as they run, by their address."""
    if not line.startswith("  ") or any(word in line for word in _NOTHING):
        return ""
    if "@qe_count_access(" in line or " load " in line or line.startswith("  store "):
        return ""
    if call := _CALL.search(line):
        return next((kind for name, kind in _CALLED if call[1].startswith(name)), "other")
    if product := _PRODUCT.match(line):
        return "" if product[1] in fused else "float"
    if _SUM.match(line) and not fused.isdisjoint(re.findall(_NAME, line)):
        return "fma"
    if _FLOAT.match(line):
        return "float"
    if line.startswith(("  br ", "  switch ")):
        return "branch" if "br i1" in line or "switch" in line else ""
    return "" if " = getelementptr" in line or line.startswith(("  ret", "    ")) else "other"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What one kernel did, in all blocks that ran."""

    kernel: str  # mangled name
    blocks: int  # blocks that ran
    threads: int  # threads that ran
    instructions: dict[str, int]  # class → instructions of all threads
    # ``loads``, ``stores``, ``shared_loads``, ``shared_stores`` (accesses of threads),
    # ``bytes_read``, ``bytes_written`` (device memory, of threads), ``requests`` (a warp's accesses
    # to device memory), ``sectors`` (32 bytes each, that those touched), ``shared_parts`` and
    # ``shared_passes`` (a warp's accesses to shared memory: passes that their width needs, and
    # passes that they take; more are bank conflicts) and ``issued`` (instructions of warps, if
    # lanes that part meet again as soon as they can), ``tensor`` (see
    # :func:`qbuild.emulator.tensor.work`, of threads), ``distinct`` (sectors, each once for a
    # launch), ``launches`` and ``shared_least`` (passes, if lanes that want the same words share
    # them however wide their accesses are)
    memory: dict[str, int]

    @property
    def used(self) -> float:
        """The part of the bytes of all touched sectors that threads asked for."""
        bytes_ = self.memory["bytes_read"] + self.memory["bytes_written"]
        return bytes_ / (32 * self.memory["sectors"]) if self.memory["sectors"] else 1.0

    @property
    def together(self) -> float:
        """The part of a warp's 32 lanes that run an instruction, at most; less is divergence."""
        issued = self.memory["issued"]
        return sum(self.instructions.values()) / (32 * issued) if issued else 1.0

    @property
    def passes(self) -> float:
        """Passes over shared memory for each that is needed; 1 without bank conflicts."""
        parts = self.memory["shared_parts"]
        return self.memory["shared_passes"] / parts if parts else 1.0


def read(path: Path) -> list[Counted]:
    """Read what ``counters.c`` wrote.

    Raises:
        ValueError: It is something else.
    """
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, *numbers = line.split("\t")
        blocks, threads, *rest = map(int, numbers)
        found.append(
            Counted(
                kernel=name,
                blocks=blocks,
                threads=threads,
                instructions=dict(zip(CLASSES, rest[: len(CLASSES)], strict=True)),
                memory=dict(zip(_NUMBERS, rest[len(CLASSES) :], strict=True)),
            )
        )
    return found
