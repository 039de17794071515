"""Which instructions a binary holds that are above a CPU level, function by function.

A decoder library names the CPUID features of each instruction. Functions come from the unwind
tables (``.pdata``, ``.eh_frame``) and from entry point and exports; each is followed along its
branches rather than swept byte by byte, so that a jump table inside ``.text`` is not taken for
code:

* branches, calls within the function and fall-through lead on;
* an indirect jump leads to the entries of the tables whose addresses the function loads, and what
  lies between such a table and the next known code is data;
* other bytes that nothing reached (landing pads of exceptions) are decoded as well: code that runs
  must not be missed.

*Always-run and runtime-dispatched code.* Reading cannot prove that a CPUID test guards a function.
So the rule is by file: in binaries that qbuild compiled nothing above the level is allowed
anywhere, tested or not. Only a file that a policy in ``cpu-levels.toml`` names, with a reason, may
choose code paths at run time; what it holds above the level is reported as *dispatched*.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

import iced_x86
from iced_x86 import CpuidFeature, Decoder, FlowControl, OpKind

from qbuild import resources
from qbuild.binary.image import Buffer, Section
from qbuild.errors import RecipeError

if TYPE_CHECKING:
    from qbuild.binary.elf import ElfImage
    from qbuild.binary.pe import PeImage

_TABLE_LIMIT = 4096  # entries; a larger switch is a misread
_INVALID = 0  # iced_x86.Code.INVALID
_BITS = 64
_MARKS = [b"\1" * length for length in range(16)]  # an instruction has at most 15 bytes
_GO_ON = (iced_x86.Mnemonic.INT, iced_x86.Mnemonic.SYSCALL)
_NEAR = (OpKind.NEAR_BRANCH64, OpKind.NEAR_BRANCH32, OpKind.NEAR_BRANCH16)

_FEATURE_NAMES: dict[int, str] = {
    getattr(CpuidFeature, name): name for name in dir(CpuidFeature) if name[0].isupper()
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The first instruction of a function that is above the level."""

    function: int  # start address of the function
    address: int  # address of the instruction
    symbol: str  # name of the function when one is known, else ""
    text: str  # the instruction in Intel syntax
    features: tuple[str, ...]  # CPUID features it needs beyond the level
    count: int  # how many instructions of the function are above the level

    def __str__(self) -> str:
        """Return the finding as one line."""
        name = self.symbol or f"function at {self.function:#x}"
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return f"{name}: `{self.text}` at {self.address:#x} needs {', '.join(self.features)}{more}"


@dataclass(frozen=True, kw_only=True)
class IsaReport:
    """What a scan found."""

    functions: int  # number of functions looked at
    instructions: int  # number of instructions decoded
    features: tuple[str, ...]  # every feature seen, above the level or not
    findings: tuple[Finding, ...]  # one per function that is above the level
    code: int  # bytes of executable sections
    read: int  # bytes decoded as instructions or known to be tables and padding


@cache
def _table() -> dict[str, Any]:
    return resources.read_table("cpu-levels.toml")


def allowed_features(level: str, isa: Iterable[str] = ()) -> frozenset[str]:
    """Return the CPUID features (decoder's names) that a level and extensions may use.

    Entries such as ``BMI1:TZCNT`` allow one mnemonic of a feature.

    Raises:
        RecipeError: There is no such level or extension; it must not pass for "all of them".
    """
    table = _table()
    if level not in table["level"]:
        raise RecipeError(f"there is no CPU level {level!r}: {', '.join(table['level'])}")
    if unknown := [name for name in isa if name not in table["isa"]]:
        raise RecipeError(f"there is no CPU extension {unknown[0]!r}: {', '.join(table['isa'])}")
    found = {entry[0] for entry in table["level"]["x86-64"]["harmless"]}
    for name, group in table["level"].items():
        found.update(group["features"])
        if name == level:
            break
    for name in isa:
        found.update(table["isa"][name])
    return frozenset(found)


def dispatcher_reason(name: str) -> str:
    """Return why a file may choose code paths at run time, or "" when it may not."""
    for policy in _table()["dispatcher"]:
        if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in policy["files"]):
            return str(policy["why"])
    return ""


class _Decoded:
    """What to know of an instruction code, worked out once for each of the few thousand codes.

    Args:
        allowed: Features that are not above the level.
    """

    def __init__(self, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self.known: dict[int, _Code | None] = {}

    def look(self, instruction: Any) -> _Code | None:
        """Return what is special about an instruction's code; most have nothing special."""
        needs = [_FEATURE_NAMES.get(f, str(f)) for f in instruction.cpuid_features()]
        mnemonic = _mnemonic(instruction)
        above = tuple(
            n for n in needs if n not in self.allowed and f"{n}:{mnemonic}" not in self.allowed
        )
        takes_address = instruction.mnemonic == iced_x86.Mnemonic.LEA
        flow = instruction.flow_control
        special = above or takes_address or flow != FlowControl.NEXT
        code = _Code(above=above, takes_address=takes_address, flow=flow) if special else None
        self.known[instruction.code] = code
        return code


@dataclass(frozen=True, kw_only=True, slots=True)
class _Code:
    above: tuple[str, ...]
    takes_address: bool
    flow: int


_FORMATTER = iced_x86.Formatter(iced_x86.FormatterSyntax.INTEL)


def _mnemonic(instruction: Any) -> str:
    text: str = _FORMATTER.format_mnemonic(instruction)
    return text.split()[-1].upper()


def scan(
    image: PeImage | ElfImage, data: Buffer, *, level: str, isa: Sequence[str] = ()
) -> IsaReport:
    """Decode every function and report what is above the level.

    Args:
        image: What was read from the file.
        data: The file's bytes.
        level: psABI level, e.g. ``x86-64-v3``.
        isa: Extensions beyond it, as a recipe names them.
    """
    decoded = _Decoded(allowed_features(level, isa))
    names = {symbol.rva: symbol.name for symbol in image.symbols}
    findings: list[Finding] = []
    seen_features: set[str] = set()
    total_instructions = functions = read = 0
    code_bytes = 0
    for section in image.sections:
        if not section.executable or not section.size:
            continue
        code_bytes += section.size
        body = bytes(data[section.offset : section.offset + section.size])
        ranges = _ranges(image, section)
        for start, end in ranges:
            function = _Function(section, body, start, end, image, data)
            found = function.scan(decoded)
            functions += 1
            total_instructions += function.instructions
            read += end - start
            if found.count:
                findings.append(
                    Finding(
                        function=start,
                        address=found.address,
                        symbol=names.get(start, ""),
                        text=found.text,
                        features=found.features,
                        count=found.count,
                    )
                )
                seen_features |= found.every
    return IsaReport(
        functions=functions,
        instructions=total_instructions,
        features=tuple(sorted(seen_features)),
        findings=tuple(findings),
        code=code_bytes,
        read=read,
    )


def _ranges(image: PeImage | ElfImage, section: Section) -> list[tuple[int, int]]:
    """Return disjoint (start, end) ranges of functions that lie in the section.

    Code that others call but that has no unwind data (hand-written assembly, leaf functions of PE
    files) is a range of its own, up to the next known function.
    """
    low, high = section.rva, section.rva + section.size
    known = [
        (max(a, low), min(b, high)) for a, b in image.functions if a < high and b > low and a < b
    ]
    known.sort()
    starts = sorted({s for s in image.code_starts if low <= s < high})
    result: list[tuple[int, int]] = []
    position = low
    for a, b in [*known, (high, high)]:
        a = max(a, position)
        if a > position:
            result += _leaves(starts, position, a)
        if b > a:
            result.append((a, b))
        position = max(position, b)
    return result


def _leaves(starts: Sequence[int], low: int, high: int) -> list[tuple[int, int]]:
    """Return the ranges of a gap between functions: from each (sorted) start, and from its begin.

    PE leaf functions need no unwind data, so a gap may be code that only calls reach.
    """
    cuts = sorted({low, *starts[bisect_left(starts, low) : bisect_left(starts, high)]})
    return list(zip(cuts, [*cuts[1:], high], strict=True))


class _Above:
    """What of a function is above the level: how much, and the first of it."""

    def __init__(self) -> None:
        self.count, self.address, self.text = 0, -1, ""
        self.features: tuple[str, ...] = ()
        self.every: set[str] = set()

    def add(self, address: int, instruction: Any, needs: tuple[str, ...]) -> None:
        self.count += 1
        self.every.update(needs)
        if self.address < 0 or address < self.address:
            self.address, self.text, self.features = address, str(instruction), needs


class _Function:
    """Decodes one function along its control flow."""

    def __init__(
        self,
        section: Section,
        body: bytes,
        start: int,
        end: int,
        image: PeImage | ElfImage,
        data: Buffer,
    ) -> None:
        self.start, self.end = start, end
        self.body = body[start - section.rva : end - section.rva]
        self.image, self.data = image, data
        self.instructions = 0
        self._mark = bytearray(end - start)  # 1: code, 2: table or what follows one
        self._tables: set[int] = set()
        self._entries_left = max(_TABLE_LIMIT, end - start)

    def scan(self, decoded: _Decoded) -> _Above:
        """Return what is above the level."""
        above = _Above()
        self._follow([self.start], decoded, above)
        # What nothing reached: landing pads, or code behind a jump that could not be resolved.
        at = self._next_unread(0)
        while at >= 0:
            self._follow([self.start + at], decoded, above)
            if not self._mark[at]:
                self._mark[at] = 2  # not an instruction: padding or data
            at = self._next_unread(at + 1)
        return above

    def _next_unread(self, at: int) -> int:
        return self._mark.find(0, at)

    def _follow(self, queue: list[int], decoded: _Decoded, above: _Above) -> None:
        mark, start, end = self._mark, self.start, self.end
        loads: list[int] = []
        decoder = Decoder(_BITS, self.body, ip=start)
        instruction = iced_x86.Instruction()
        decode, known, size = decoder.decode_out, decoded.known, len(self.body)
        while queue:
            at = queue.pop()
            if not start <= at < end or mark[at - start]:
                continue
            decoder.position = offset = at - start
            decoder.ip = at
            # The hottest loop of `verify`: millions of rounds, most end at the first `continue`.
            while offset < size and not mark[offset]:
                decode(instruction)
                kind = instruction.code
                if kind == _INVALID:
                    break
                length = instruction.len
                mark[offset : offset + length] = _MARKS[length]
                offset += length
                self.instructions += 1
                try:
                    code = known[kind]
                except KeyError:
                    code = decoded.look(instruction)
                if code is None:
                    continue
                if code.above:
                    above.add(start + offset - length, instruction, code.above)
                if code.takes_address and instruction.is_ip_rel_memory_operand:
                    loads.append(instruction.ip_rel_memory_address)
                if code.flow == FlowControl.NEXT:
                    continue
                if code.flow == FlowControl.INDIRECT_BRANCH:
                    # Once each: with what was read meanwhile a table can only be shorter.
                    for table in dict.fromkeys(loads):
                        if table not in self._tables:
                            self._tables.add(table)
                            queue.extend(self._table(table))
                    loads.clear()
                    break
                if self._leads_on(instruction, code.flow, queue):
                    continue
                break

    @staticmethod
    def _leads_on(instruction: Any, flow: int, queue: list[int]) -> bool:
        """Put a branch's target into the queue; return whether the next instruction is reached."""
        if flow in (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH):
            if instruction.op0_kind in _NEAR:
                queue.append(instruction.near_branch_target)
            return bool(flow == FlowControl.CONDITIONAL_BRANCH)
        if flow in (FlowControl.RETURN, FlowControl.INTERRUPT, FlowControl.EXCEPTION):
            return bool(instruction.mnemonic in _GO_ON)
        return True

    def _table(self, address: int) -> list[int]:
        """Return the code addresses in a jump table of 32-bit offsets from the table itself.

        Only in one that stands among the function's code: it would be taken for instructions.
        Where a table in another section ends nobody says, and what stands behind it, the next
        function's table, leads into the middle of instructions; without it the code that only
        the table reaches is read in its order, as what nothing reached is.
        """
        section = next((s for s in self.image.sections if s.rva <= address < s.rva + s.size), None)
        if section is None or not self.start <= address < self.end:
            return []
        offset = section.offset + address - section.rva
        limit = min(section.offset + section.size, offset + 4 * _TABLE_LIMIT)
        targets: list[int] = []
        while offset + 4 <= limit and self._entries_left > 0:
            self._entries_left -= 1
            (value,) = struct.unpack_from("<i", self.data, offset)
            target = address + value
            here = address + 4 * len(targets)
            stop = here < self.end and self._mark[here - self.start]
            if not self.start <= target < self.end or stop:
                break
            targets.append(target)
            offset += 4
        if targets:
            self._mark_table(address - self.start, 4 * len(targets), targets)
        return targets

    def _mark_table(self, at: int, size: int, targets: Sequence[int]) -> None:
        """Mark a table inside the function, and what lies behind it up to the next known code."""
        known = [t - self.start for t in targets if t - self.start >= at + size]
        code = self._mark.find(1, at + size)
        stop = min([*known, code if code >= 0 else len(self._mark)])
        self._mark[at:stop] = b"\2" * (stop - at)
