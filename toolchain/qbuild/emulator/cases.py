"""The selection of test-backend-ops cases that the emulated GPU runs, and what it cannot reach.

``emulated-cases-61.txt`` holds one case a line for GPUs of compute capability 6.1, another file
those for 8.0. Some are upstream's own, by the name that the program prints:
``NORM(type=f32,ne=[64,5,4,3],…)``. The others, for kernels that no case of upstream's reaches at a
size that a CPU finishes, are result, operation, numbers and sources::

    f32[16,9] = MUL_MAT q4_0[256,16] f32[256,9]

They reach the program through ``--test-file``, whose numbers of operations and types are the
pin's: :func:`test_file` takes them from its header, so that no number is written down twice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qbuild import resources
from qbuild.errors import ToolchainError, UsageError

FILE: Final = "emulated-cases-{}.txt"
CHOSEN_FOR: Final = ("61", "80")
"""The architectures that a selection was made for, the first for all others."""

UNREACHED: Final = "emulated-unreached.toml"
SAMPLE: Final = "emulated-sample.toml"

_ROW: Final = re.compile(r"(\w+\[[\d,]+\]) = (\w+)(?:\(([^)]*)\))? (.+)")
_TENSOR: Final = re.compile(r"(\w+)\[([\d,]+)\]")
_ENUM: Final = re.compile(r"enum ggml_(op|type) \{(.*?)\}", re.DOTALL)
_MEMBER: Final = re.compile(r"^\s*GGML_(?:OP|TYPE)_(\w+)\s*(?:=\s*(\d+))?\s*,", re.MULTILINE)
_BLOCKS: Final = {
    # Values and bytes of a block, as ggml-common.h declares them.
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "I32": (1, 4), "I64": (1, 8),
    "Q1_0": (128, 18), "Q2_0": (64, 18), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22),
    "Q5_1": (32, 24), "Q8_0": (32, 34), "Q2_K": (256, 84), "Q3_K": (256, 110),
    "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "IQ1_S": (256, 50),
    "IQ1_M": (256, 56), "IQ2_XXS": (256, 66), "IQ2_XS": (256, 74), "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98), "IQ3_S": (256, 110), "IQ4_NL": (32, 18), "IQ4_XS": (256, 136),
    "MXFP4": (32, 17), "NVFP4": (64, 36),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """Type and shape of a tensor that lies in memory without gaps."""

    type: str  # ggml's name, e.g. ``q4_0``
    shape: tuple[int, int, int, int]  # four numbers of elements, the innermost first

    def strides(self) -> tuple[int, int, int, int]:
        """Return the bytes from one element (of a quantised row: one block) to the next."""
        block, size = _BLOCKS[self.type.upper()]
        row = self.shape[0] // block * size
        return (size, row, row * self.shape[1], row * self.shape[1] * self.shape[2])


@dataclass(frozen=True, kw_only=True)
class Own:
    """A case of our own."""

    text: str  # as it is written
    op: str  # the operation, e.g. ``MUL_MAT``
    result: Tensor  # its result
    numbers: tuple[int, ...]  # the words of its parameters, as ggml keeps them
    sources: tuple[Tensor, ...]  # what it reads


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Cases to run."""

    named: tuple[str, ...]  # upstream's, by name
    own: tuple[Own, ...]  # ours


def _tensor(text: str) -> Tensor:
    match = _TENSOR.fullmatch(text)
    if match is None or match[1].upper() not in _BLOCKS:
        raise UsageError(f"no tensor: {text!r}", fix="write it as q4_0[256,16]")
    sizes = [int(size) for size in match[2].split(",")]
    if not 1 <= len(sizes) <= 4 or 0 in sizes or sizes[0] % _BLOCKS[match[1].upper()][0]:
        raise UsageError(f"no shape that {match[1]} can have: {text!r}")
    first, second, third, fourth = [*sizes, 1, 1, 1][:4]
    return Tensor(type=match[1], shape=(first, second, third, fourth))


def _word(text: str) -> int:
    """Return a parameter as the 32 bits that ggml keeps: a number with a dot is a float."""
    if "." in text:
        return int(struct.unpack("<i", struct.pack("<f", float(text)))[0])
    return int(text)


def parse(text: str, where: str) -> Selection:
    """Read a list of cases; ``#`` starts a comment line.

    Raises:
        UsageError: A line is no case.
    """
    named, own = [], []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        match = _ROW.fullmatch(words)
        try:
            if match is not None:
                numbers = [_word(each) for each in re.split(r"[\s,]+", match[3] or "") if each]
                own.append(
                    Own(
                        text=words,
                        op=match[2],
                        result=_tensor(match[1]),
                        numbers=tuple(numbers),
                        sources=tuple(_tensor(each) for each in match[4].split()),
                    )
                )
            elif re.fullmatch(r"\w+\(.*\)", words):
                named.append(words)
            else:
                raise UsageError("it is neither NAME(parameters) nor TYPE[n,…] = OPERATION …")
        except (UsageError, ValueError) as error:
            raise UsageError(f"{words!r} is no case: {error}", where=f"{where}:{number}") from error
    return Selection(named=tuple(named), own=tuple(own))


def file_of(arch: str) -> str:
    """Return the name of the file with the selection for an architecture, e.g. ``80``."""
    return FILE.format(arch if arch in CHOSEN_FOR else CHOSEN_FOR[0])


def selection(arch: str) -> Selection:
    """Return the committed selection for GPUs of an architecture, e.g. ``61``."""
    name = file_of(arch)
    return parse((resources.data_dir() / name).read_text(encoding="utf-8"), name)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What CI has time for."""

    units: tuple[str, ...]  # the units whose kernels are made
    selection: Selection  # the cases of the committed selection that need no other
    graphs: frozenset[str]  # operations of ``test-graphs`` that need no other

    def graph(self, name: str) -> bool:
        """Say whether a graph is in the sample; those with millions of elements are not."""
        return name.partition("(")[0] in self.graphs and "many=1" not in name


def sample() -> Sample:
    """Return CI's sample."""
    table = resources.read_table(SAMPLE)
    every, operations = selection(CHOSEN_FOR[0]), frozenset(table["operations"])
    named = tuple(name for name in every.named if name.partition("(")[0] in operations)
    own = tuple(case for case in every.own if case.op in operations)
    chosen = Selection(named=named, own=own)
    return Sample(units=tuple(table["units"]), selection=chosen, graphs=frozenset(table["graphs"]))


def numbers_in(header: str) -> Mapping[str, Mapping[str, int]]:
    """Return the numbers of ggml's operations and types: ``op`` and ``type`` → name → number.

    Args:
        header: The text of ``ggml.h``.

    Raises:
        ToolchainError: It does not declare them.
    """
    found: dict[str, dict[str, int]] = {}
    for kind, body in _ENUM.findall(header):
        members, at = {}, 0
        for name, value in _MEMBER.findall(re.sub(r"//[^\n]*", "", body)):
            at = int(value) if value else at
            members[name] = at
            at += 1
        found[kind] = members
    if not {"op", "type"} <= found.keys():
        raise ToolchainError("ggml.h does not declare its operations and types")
    return found


def test_file(cases: Iterable[Own], numbers: Mapping[str, Mapping[str, int]]) -> str:
    """Return cases in the format of test-backend-ops' ``--test-file``.

    Raises:
        ToolchainError: The pin has no such operation or type.
    """
    return "".join(f"{_line(case, numbers)}\n" for case in cases)


def _line(case: Own, numbers: Mapping[str, Mapping[str, int]]) -> str:
    def number(kind: str, name: str) -> int:
        if name.upper() not in numbers[kind]:
            raise ToolchainError(f"the pinned ggml has no {kind} {name}", where=case.text)
        return numbers[kind][name.upper()]

    words: list[int] = [number("op", case.op), number("type", case.result.type)]
    words += [*case.result.shape, len(case.numbers), *case.numbers, len(case.sources)]
    for source in case.sources:
        words += [number("type", source.type), *source.shape, *source.strides()]
    return " ".join(str(word) for word in words) + " -"


# -- kernels that cannot run -----------------------------------------------------------------


def unreached(
    kernels: Iterable[tuple[str, str]], arch: str
) -> Mapping[tuple[str, str], str] | None:
    """Return the kernels that no host code of the pin launches, each with the reason.

    Args:
        kernels: Unit and mangled name of each kernel.
        arch: The GPU's compute capability, e.g. ``61``.

    Returns:
        None: nobody has looked into what a GPU of this architecture can reach.
    """
    if arch != resources.read_table(UNREACHED)["arch"]:
        return None
    return _reasons("unreached", kernels)


def unrun(kernels: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """Return the kernels that sm_61 reaches and the emulated GPU does not, with the reason."""
    return _reasons("unrun", kernels)


def _reasons(table: str, kernels: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    rules = [
        (re.compile(rule["kernel"]), rule["why"]) for rule in resources.read_table(UNREACHED)[table]
    ]
    found = {}
    for unit, name in kernels:
        why = next((why for pattern, why in rules if pattern.search(name)), None)
        if why is not None:
            found[unit, name] = why
    return found


def pieces(cases: Sequence[str], size: int) -> list[Sequence[str]]:
    """Cut a list of cases into pieces of at most ``size``."""
    return [cases[at : at + size] for at in range(0, len(cases), size)]
