"""What llama.cpp knows about GGUF files (``toolchain/data/gguf.toml``), as typed tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from qbuild import resources


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """How one kind of tensor lies in a file."""

    id: int  # its number in the file
    name: str  # llama.cpp's name
    block: int  # values per block
    bytes: int  # bytes per block

    @property
    def bits(self) -> float:
        """Bits per value."""
        return self.bytes * 8 / self.block

    def row(self, values: int) -> int:
        """Return the bytes of so many values, a whole number of blocks."""
        return values // self.block * self.bytes


@dataclass(frozen=True, kw_only=True)
class Window:
    """How an architecture's layers look back only so far; see the table for the meaning."""

    every: int
    size: int = 0
    optional: bool = False
    fixed: bool = False
    first: bool = False
    layers: int = 0
    all: bool = False


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """How a chat template writes tool calls."""

    name: str
    all: tuple[str, ...]
    no: tuple[str, ...] = ()
    parser: str | None = None
    tags: tuple[str, ...] = ()

    def fits(self, template: str) -> bool:
        """Tell whether a template writes them so."""
        return all(text in template for text in self.all) and not any(
            text in template for text in self.no
        )


@cache
def table() -> Mapping[str, Any]:
    """Return the whole table."""
    return resources.read_table("gguf.toml")


@cache
def types_by_id() -> Mapping[int, TensorType]:
    """Return number in the file → tensor type."""
    rows = (TensorType(name=name, **row) for name, row in table()["types"].items())
    return {each.id: each for each in rows}


@cache
def types_by_name() -> Mapping[str, TensorType]:
    """Return llama.cpp's name → tensor type."""
    return {each.name: each for each in types_by_id().values()}


@cache
def windows() -> Mapping[str, Window]:
    """Return architecture → how its layers look back."""
    return {name: Window(**row) for name, row in table()["memory"]["window"].items()}


@cache
def chat_formats() -> tuple[ChatFormat, ...]:
    """Return the chat formats in the order in which they are tried."""
    return tuple(
        ChatFormat(
            name=row["name"],
            all=tuple(row["all"]),
            no=tuple(row.get("not", ())),
            parser=row.get("parser"),
            tags=tuple(row.get("tags", ())),
        )
        for row in table()["chat"]
    )
