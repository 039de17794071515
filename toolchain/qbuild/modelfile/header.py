"""Reads the header of a GGUF file: keys, tensor list, nothing of the weights.

The layout is the published GGUF format, versions 2 and 3. The header may be damaged or made to
harm: every number is checked against the file's size before anything is read or kept for it, texts
and lists have limits, and whatever is wrong becomes a ``ModelError`` that names the field. A file
on its way down the wire ends in the middle of something; that is told from damage.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from qbuild.errors import ModelError, UsageError
from qbuild.modelfile.foreign import what_it_is
from qbuild.modelfile.tables import TensorType, table, types_by_id
from qbuild.modelfile.text import printable

_BLOCK: Final = 1 << 20
_MAX_KEYS: Final = 1 << 16
_MAX_TENSORS: Final = 1 << 17
_MAX_KEY: Final = 1 << 16
_MAX_TEXT: Final = 16 << 20
_MAX_STRINGS: Final = 1 << 22  # all lists of texts together; the largest vocabularies have 2**18
_MAX_NAME: Final = 63
_MAX_DIMS: Final = 4
_SCALARS: Final = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
"""GGUF's number types → struct code and size. 8 is text, 9 a list."""
_TEXT: Final = 8
_LIST: Final = 9
_U64: Final = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class List:
    """A list in the header; its items stay in the file until they are asked for."""

    kind: int  # GGUF's number of the items' type
    count: int  # how many there are
    offset: int  # where the first begins
    # where each text's length field lies; kept for the vocabulary and short lists
    starts: array[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor's entry: name, shape (fastest first), type, where its data lies, its length."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    size: int

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        count = 1
        for each in self.shape:
            count *= each
        return count


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of one file."""

    path: Path  # the file
    size: int  # its size in bytes
    on_disk: int | None  # how many of them the file system has really stored, where it says
    version: int  # GGUF version
    keys: Mapping[str, Any]  # key → number, text, or :class:`List`
    tensors: tuple[Tensor, ...]  # the tensors, in the order of the file
    data_offset: int  # where the tensors' data begins
    # key → GGUF's number of its type: llama.cpp takes a u32 for no i32
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def data_end(self) -> int:
        """Size that the file must have to hold every tensor."""
        last = max((each.offset + each.size for each in self.tensors), default=0)
        return self.data_offset + last

    def wrong(self, key: str, wanted: str) -> ModelError:
        """Return the error for a key whose value cannot be used."""
        value = self.keys.get(key)
        shown = f"a list of {value.count}" if isinstance(value, List) else repr(value)[:40]
        return ModelError(
            printable(f"`{key}` must be {wanted}, not {shown}"),
            where=str(self.path),
            fix="the file is damaged or was made by a broken converter: get another one",
        )

    def text(self, key: str) -> str | None:
        """Return a text; ``None``: the key is not there."""
        value = self.keys.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def integer(self, key: str, *, least: int = 0, most: int = (1 << 32) - 1) -> int | None:
        """Return a whole number; ``None``: the key is not there."""
        value = self.keys.get(key)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str) -> float | None:
        """Return a finite number; ``None``: the key is not there."""
        value = self.keys.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.wrong(key, "a number")
        return float(value)

    def flag(self, key: str) -> bool | None:
        """Return a truth value; ``None``: the key is not there."""
        value = self.keys.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def integers(self, key: str, *, most: int) -> tuple[int, ...] | None:
        """Return a list of whole numbers or truth values of at most so many items."""
        value = self.keys.get(key)
        if value is None:
            return None
        if not isinstance(value, List) or value.kind in (6, 12, _TEXT) or value.count > most:
            raise self.wrong(key, f"a list of at most {most} whole numbers")
        return tuple(int(each) for each in self._scalars(key, value))

    def items(self, key: str, *, most: int) -> list[Any]:
        """Return a list's items, whatever their type.

        Raises:
            ModelError: The value is no list, has more items, or the file changed meanwhile.
        """
        value = self.keys.get(key)
        if not isinstance(value, List) or value.count > most:
            raise self.wrong(key, f"a list of at most {most} items")
        if value.kind == _TEXT:
            return list(self.texts(key, range(value.count)))
        return list(self._scalars(key, value))

    def _scalars(self, key: str, value: List) -> Sequence[Any]:
        code, size = _SCALARS[value.kind]
        with self.path.open("rb") as stream:
            stream.seek(value.offset)
            data = stream.read(value.count * size)
        if len(data) != value.count * size:
            raise self.wrong(key, "all there (the file changed while it was read)")
        if code == "?":  # any byte but 0 is true
            return [each != 0 for each in data]
        return struct.unpack(f"<{value.count}{code}", data)

    def raw_texts(self, key: str) -> list[bytes]:
        """Return all texts of a list as bytes; half a second for the largest vocabularies."""
        value = self.keys.get(key)
        if not isinstance(value, List) or value.starts is None or not value.count:
            return []
        begin = value.starts[0]
        with self.path.open("rb") as stream:
            stream.seek(value.starts[-1])
            end = value.starts[-1] + 8 + _U64.unpack(stream.read(8).ljust(8, b"\0"))[0]
            stream.seek(begin)
            data = stream.read(min(end, self.size) - begin)
        found, at = [], 0
        unpack = _U64.unpack_from
        for _ in range(value.count):
            if at + 8 > len(data):
                raise self.wrong(key, "all there (the file changed while it was read)")
            (length,) = unpack(data, at)
            found.append(data[at + 8 : at + 8 + length])
            at += 8 + length
        return found

    def positions(self, key: str, wanted: Iterable[int], *, most: int) -> list[int]:
        """Return where in a list of 32-bit numbers one of some numbers stands.

        A vocabulary has hundreds of thousands of token types, and a few of interest.
        """
        value = self.keys.get(key)
        if value is None:
            return []
        if not isinstance(value, List) or value.kind != 5 or value.count > 1 << 22:
            raise self.wrong(key, "a list of signed 32-bit numbers")
        with self.path.open("rb") as stream:
            stream.seek(value.offset)
            data = array("i", stream.read(value.count * 4))
        if sys.byteorder == "big":
            data.byteswap()
        found: list[int] = []
        for each in wanted:
            at = -1
            with contextlib.suppress(ValueError):  # no further one
                while len(found) < most:
                    at = data.index(each, at + 1)
                    found.append(at)
        return sorted(found)

    def texts(self, key: str, indices: Iterable[int]) -> list[str]:
        """Return some texts of a list, e.g. of the vocabulary; what is not there is left out."""
        value = self.keys.get(key)
        if not isinstance(value, List) or value.starts is None:
            return []
        found = []
        with self.path.open("rb") as stream:
            for index in indices:
                if not 0 <= index < value.count:
                    continue
                stream.seek(value.starts[index])
                length = stream.read(8)
                if len(length) == 8:
                    text = stream.read(min(_U64.unpack(length)[0], _MAX_KEY))
                    found.append(text.decode("utf-8", "replace"))
        return found


def read_header(path: Path) -> Header:
    """Read a GGUF file's header.

    Args:
        path: A GGUF file of any size; only its head is read.

    Raises:
        UsageError: There is no such file.
        ModelError: It is no GGUF file, is cut off inside its header, or is damaged.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError("this is not a file", where=str(path), fix="name a .gguf file")
        with path.open("rb") as stream:
            return _Reader(stream, path, status).header()
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path.name}", where=str(path), fix="check the path"
        ) from None
    except OSError as error:
        raise ModelError(
            f"the model cannot be read: {error.strerror or error}",
            where=str(path),
            fix="check the name" if isinstance(error, FileNotFoundError) else None,
        ) from error


class _Reader:
    def __init__(self, stream: BinaryIO, path: Path, status: os.stat_result) -> None:
        self.stream = stream
        self.path = path
        self.size = status.st_size
        blocks = getattr(status, "st_blocks", None)
        self.on_disk = None if blocks is None else blocks * 512
        self.at = 0
        self._data = b""
        self._data_at = 0
        self._strings = 0
        self._kinds: dict[str, int] = {}

    # What can be wrong

    def _cut(self, what: str) -> ModelError:
        return ModelError(
            f"the file ends inside its header, in {printable(what)}",
            where=f"{self.path}: byte {self.at} of {self.size}",
            fix="the download is not complete: resume it, or get the file again",
        )

    def _damaged(self, what: str, fix: str | None = None) -> ModelError:
        return ModelError(
            f"the header is damaged: {printable(what)}",
            where=f"{self.path}: byte {self.at}",
            fix=fix or "get the file again and compare its sha256 with the publisher's",
        )

    # Pieces

    def _take(self, count: int, what: str) -> bytes:
        if self.at + count > self.size:
            raise self._cut(what)
        begin = self.at - self._data_at
        if begin < 0 or begin + count > len(self._data):
            self.stream.seek(self.at)
            self._data = self.stream.read(max(count, min(_BLOCK, self.size - self.at)))
            self._data_at, begin = self.at, 0
            if len(self._data) < count:
                raise self._cut(what)
        self.at += count
        return self._data[begin : begin + count]

    def _number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code), what))[0]

    def _string(self, what: str, most: int) -> str:
        length = self._number("Q", f"the length of {what}")
        if length > most:
            # a length that no text has is damage; one that only the file's end contradicts is not
            raise self._damaged(f"{what} would be {length} bytes long")
        return self._take(length, what).decode("utf-8", "replace")

    # The file

    def header(self) -> Header:
        self._magic()
        version = self._version()
        tensors = self._number("q", "the number of tensors")
        if not 0 <= tensors <= _MAX_TENSORS:
            raise self._damaged(f"it says that there are {tensors} tensors")
        keys = self._number("q", "the number of keys")
        if not 0 <= keys <= _MAX_KEYS:
            raise self._damaged(f"it says that there are {keys} keys")
        found: dict[str, Any] = {}
        for number in range(keys):
            self._key(number, found)
        align = found.get("general.alignment", 32)
        if type(align) is not int or not 0 < align <= 1 << 20 or align & (align - 1):
            raise self._damaged(f"general.alignment is no power of two but {align!r:.20}")
        listed = self._tensors(tensors, align)
        return Header(
            path=self.path,
            size=self.size,
            on_disk=self.on_disk,
            version=version,
            keys=found,
            tensors=listed,
            data_offset=-(-self.at // align) * align,
            kinds=self._kinds,
        )

    def _magic(self) -> None:
        if self.size == 0:
            raise ModelError(
                "the file is empty", where=str(self.path), fix="the download failed: start it again"
            )
        self.stream.seek(0)
        head = self.stream.read(512)
        if head[:4] != b"GGUF":
            what, fix = what_it_is(head)
            raise ModelError(f"this is no GGUF file: {what}", where=str(self.path), fix=fix)
        self.at = 4

    def _version(self) -> int:
        version: int = self._number("I", "the version")
        if version in (2, 3):
            return version
        if version == 1:
            raise self._damaged(
                "GGUF version 1, which llama.cpp reads no more",
                "get a newer conversion of the model",
            )
        if version and not version & 0xFFFF:
            raise self._damaged(
                "its numbers are big-endian, for machines like IBM Z",
                "get the little-endian file, or convert it with gguf-py's gguf_convert_endian.py",
            )
        raise self._damaged(f"GGUF version {version} is not known")

    def _key(self, number: int, found: dict[str, Any]) -> None:
        key = self._string(f"the name of key {number}", _MAX_KEY)
        if not key or key in found:
            raise self._damaged(
                f"`{key}` is there twice" if key else f"key {number} has an empty name"
            )
        kind = self._number("i", f"the type of `{key}`")
        self._kinds[key] = kind
        if kind == _TEXT:
            found[key] = self._string(f"the value of `{key}`", _MAX_TEXT)
        elif kind == _LIST:
            found[key] = self._list(key)
        elif kind in _SCALARS:
            code, _ = _SCALARS[kind]
            value = self._number("B" if code == "?" else code, f"the value of `{key}`")
            found[key] = bool(value) if code == "?" else value
        else:
            raise self._damaged(f"`{key}` has type {kind}, which does not exist")

    def _list(self, key: str) -> List:
        kind = self._number("i", f"the type of the items of `{key}`")
        count = self._number("Q", f"the number of items of `{key}`")
        if kind == _TEXT:
            return self._texts(key, count)
        if kind not in _SCALARS:
            raise self._damaged(f"the items of `{key}` have type {kind}, which does not exist")
        _, size = _SCALARS[kind]
        if count > 1 << 30:
            raise self._damaged(f"`{key}` would have {count} items")
        offset = self.at
        if offset + count * size > self.size:
            raise self._cut(f"the list `{key}`")
        self.at += count * size
        return List(kind=kind, count=count, offset=offset)

    def _texts(self, key: str, count: int) -> List:
        """Walk over a list of texts and keep where each begins, block by block."""
        self._strings += count
        if self._strings > _MAX_STRINGS:
            raise self._damaged(f"`{key}` would have {count} texts")
        if self.at + 8 * count > self.size:
            raise self._cut(f"the list `{key}`, which has {count} texts")
        offset = self.at
        # the merges of a vocabulary are as many as its tokens, and nobody asks for one of them
        starts = array("Q") if count <= 4096 or key == "tokenizer.ggml.tokens" else None
        done = 0
        while done < count:
            self._take(8, f"text {done} of `{key}`")  # makes sure of a block to read from
            self.at -= 8
            done += self._walk(key, done, count, starts)
            if self.at > self.size:
                self.at = self.size
                raise self._cut(f"text {done - 1} of `{key}`")
        return List(kind=_TEXT, count=count, offset=offset, starts=starts)

    def _walk(self, key: str, done: int, count: int, starts: array[int] | None) -> int:
        """Step over the texts that begin in the block at hand; return how many they were.

        This is the loop that takes the time: half a million steps for a large vocabulary.
        """
        unpack, data = _U64.unpack_from, self._data
        at = begin = self.at - self._data_at
        found: list[int] = []
        keep, left = found.append, count - done
        with contextlib.suppress(struct.error):  # the block ends within a length
            for _ in range(left):
                (length,) = unpack(data, at)
                if length > _MAX_KEY:
                    self.at = self._data_at + at
                    raise self._damaged(f"text {done + len(found)} of `{key}` has {length} bytes")
                keep(at)
                at += 8 + length
        if starts is not None:
            starts.extend([self._data_at + each for each in found])
        self.at += at - begin
        return len(found)

    def _tensors(self, count: int, align: int) -> tuple[Tensor, ...]:
        tensors: dict[str, Tensor] = {}
        expected = 0
        for number in range(count):
            tensor = self._tensor(number)
            if tensor.name in tensors:
                raise self._damaged(f"tensor `{tensor.name}` is there twice")
            if tensor.offset != expected:
                raise self._damaged(
                    f"tensor `{tensor.name}` lies at {tensor.offset}, not at {expected}"
                )
            expected += -(-tensor.size // align) * align
            tensors[tensor.name] = tensor
        return tuple(tensors.values())

    def _tensor(self, number: int) -> Tensor:
        name = self._string(f"the name of tensor {number}", _MAX_NAME)
        what = f"the entry of tensor {number} (`{name}`)"
        dims = self._number("I", what)
        if dims > _MAX_DIMS:
            raise self._damaged(f"tensor `{name}` has {dims} dimensions")
        shape = tuple(self._number("q", what) for _ in range(dims))
        kind = self._number("i", what)
        offset = self._number("Q", what)
        values = 1
        for each in shape:
            values *= each
        if min(shape, default=0) < 0 or values >= 1 << 62:
            raise self._damaged(f"tensor `{name}` has the shape {shape}")
        known = types_by_id().get(kind)
        if known is None:
            raise self._unknown_type(name, kind)
        row = shape[0] if shape else 1
        if row % known.block:
            raise self._damaged(
                f"rows of tensor `{name}` have {row} values, no multiple of {known.block} "
                f"({known.name})"
            )
        size = known.row(values)
        return Tensor(name=name, shape=shape, type=known, offset=offset, size=size)

    def _unknown_type(self, name: str, kind: int) -> ModelError:
        removed = table()["removed_types"].get(str(kind))
        if removed:
            return ModelError(
                f"tensor `{printable(name)}` is {removed}, which llama.cpp reads no more",
                where=str(self.path),
                fix="get a newer file: Q4_0 is rearranged at load now",
            )
        if 96 < kind < 1024:
            return ModelError(
                f"tensor `{printable(name)}` has type {kind}, which is none of llama.cpp's",
                where=str(self.path),
                fix="a fork made this file (ik_llama.cpp has types of its own): get one "
                "quantised by llama.cpp",
            )
        return self._damaged(f"tensor `{name}` has type {kind}, which does not exist")
