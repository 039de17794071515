"""The files that make up one model: the parts of a split one, and what lies beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from qbuild.errors import ModelError
from qbuild.modelfile.header import Header, Tensor, read_header

SPLIT: Final = re.compile(r"(?P<stem>.+)-(?P<no>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf$")
"""How llama.cpp names the parts of a split model."""
_CHOPPED: Final = re.compile(r"\.gguf[.-](part|split)[-_]?[0-9a-z]+([-_]?of[-_]?[0-9]+)?$", re.I)
"""Parts that were made by cutting the bytes, which have to be joined before use."""
_UNFINISHED: Final = (".part", ".partial", ".aria2", ".crdownload", ".incomplete", ".tmp", ".!qb")
_MAX_PARTS: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Model:
    """All files of one model."""

    parts: tuple[Header, ...]  # the headers of its files, in order; a whole model has one
    missing: tuple[str, ...] = ()  # names of parts that are not there
    projectors: tuple[Path, ...] = ()  # mmproj files in its folder

    @property
    def head(self) -> Header:
        """The part that describes the model."""
        return self.parts[0]

    @property
    def path(self) -> Path:
        """The file that llama.cpp is given."""
        return self.head.path

    @property
    def keys(self) -> Mapping[str, Any]:
        """What the model says about itself."""
        return self.head.keys

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all parts."""
        return tuple(tensor for part in self.parts for tensor in part.tensors)

    @cached_property
    def names(self) -> frozenset[str]:
        """The tensors' names."""
        return frozenset(tensor.name for tensor in self.tensors)


def open_model(path: Path) -> Model:
    """Read the headers of a model; any part of a split one stands for all.

    Raises:
        ModelError: A file is no GGUF file or is damaged, or parts do not belong together.
    """
    if _CHOPPED.search(path.name):
        raise ModelError(
            "this is a piece of a file that was cut up, not a part that llama.cpp can load",
            where=str(path),
            fix="join the pieces in their order: `cat NAME.gguf.* > NAME.gguf` "
            "(Windows: `copy /b A + B NAME.gguf`)",
        )
    name = SPLIT.fullmatch(path.name)
    if name is None:
        head = read_header(path)
        _whole(head)
        return Model(parts=(head,), projectors=tuple(_projectors(path)))
    count = int(name["count"])
    if not 1 <= int(name["no"]) <= count <= _MAX_PARTS:
        raise ModelError(
            f"the name says that this is part {int(name['no'])} of {count}",
            where=str(path),
            fix="give the parts their first names back: NAME-00001-of-0000N.gguf",
        )
    named = read_header(path)  # the file that was named must be there and sound
    parts, missing = [], []
    for number in range(1, count + 1):
        part = path.with_name(f"{name['stem']}-{number:05}-of-{count:05}.gguf")
        if part == path:
            parts.append(named)
        elif part.is_file():
            parts.append(read_header(part))
        else:
            missing.append(part.name)
    if missing and missing[0].endswith(f"-00001-of-{count:05}.gguf"):
        raise ModelError(
            "the first part of the model is missing, and only it says what the model is",
            where=f"{path.parent}: {missing[0]}",
            fix="get the missing parts: " + ", ".join(missing[:5]),
        )
    _belong(parts, count, whole=not missing)
    return Model(parts=tuple(parts), missing=tuple(missing), projectors=tuple(_projectors(path)))


def _whole(head: Header) -> None:
    count = head.integer("split.count", most=65535)
    if count is not None and count > 1:
        if _goes_on(head):
            raise ModelError(
                f"parts of a split model ({count} of them) were joined with `cat` or `copy /b`: "
                "another GGUF file begins behind the last tensor of the first",
                where=str(head.path),
                fix="llama.cpp reads parts as they are: get them again under their own names "
                "(NAME-00001-of-0000N.gguf); to make one file of them: "
                "`llama-gguf-split --merge NAME-00001-of-0000N.gguf NAME.gguf`",
            )
        number = (head.integer("split.no", most=65535) or 0) + 1
        raise ModelError(
            f"this is part {number} of {count} of a split model, but its name does not say so",
            where=str(head.path),
            fix=f"name it …-{number:05}-of-{count:05}.gguf: llama.cpp finds the parts by name",
        )


def _goes_on(head: Header) -> bool:
    """Tell whether another GGUF file begins where this one's tensors end."""
    if head.size <= head.data_end:
        return False
    try:
        with head.path.open("rb") as stream:
            stream.seek(head.data_end)
            return b"GGUF" in stream.read(4096)  # behind the padding of the last tensor
    except OSError:
        return False


def _belong(parts: list[Header], count: int, *, whole: bool) -> None:
    for part in parts:
        name = SPLIT.fullmatch(part.path.name)
        assert name is not None
        said = part.integer("split.count", most=65535)
        if said is None:
            raise ModelError(
                "the name says that this is a part of a split model, the file does not",
                where=str(part.path),
                fix="it was cut up by another program or renamed: join the pieces, or use a name "
                "without -0000N-of-0000N",
            )
        number = part.integer("split.no", most=65535) or 0
        if said != count or number != int(name["no"]) - 1:
            raise ModelError(
                f"the file is part {number + 1} of {said}, its name says {int(name['no'])} of "
                f"{count}",
                where=str(part.path),
                fix="the parts were renamed or belong to different models: get them again",
            )
    names = [tensor.name for part in parts for tensor in part.tensors]
    if len(names) != len(set(names)):
        raise ModelError(
            "two parts hold a tensor of the same name",
            where=str(parts[0].path.parent),
            fix="parts of different models lie under these names: get them again",
        )
    wanted = parts[0].integer("split.tensors.count", most=1 << 20)
    found = sum(len(part.tensors) for part in parts)
    if whole and wanted is not None and wanted != found:
        raise ModelError(
            f"the parts hold {found} tensors together, the first one says {wanted}",
            where=str(parts[0].path),
            fix="parts of different models lie under these names: get them again",
        )


def _projectors(path: Path) -> Iterator[Path]:
    """Yield the mmproj files beside a model, as their publishers name them."""
    try:
        beside = sorted(path.parent.iterdir())
    except OSError:
        return
    for each in beside:
        if "mmproj" in each.name.lower() and each.suffix == ".gguf" and each != path:
            yield each


def unfinished(path: Path) -> str | None:
    """Return the name of a file beside this one by which a downloader says it is not done."""
    for ending in _UNFINISHED:
        if path.name.lower().endswith(ending):
            return path.name
        beside = path.with_name(path.name + ending)
        if beside.exists():
            return beside.name
    return None
