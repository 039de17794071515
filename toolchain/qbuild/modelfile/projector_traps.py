"""What is wrong with the mmproj that a model is used with, or that lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qbuild.errors import ModelError
from qbuild.modelfile.chat import Chat
from qbuild.modelfile.header import Header, read_header
from qbuild.modelfile.parts import SPLIT, Model
from qbuild.modelfile.projector import is_projector, width_of
from qbuild.modelfile.shape import Shape
from qbuild.modelfile.text import printable
from qbuild.modelfile.trap import Trap

_GUESSED: Final = (
    "qwen2vl", "qwen3vl", "qwen3vlmoe", "cogvlm", "paddleocr", "hunyuan_vl", "chameleon",
)  # fmt: skip


def projector_traps(model: Model, shape: Shape, chat: Chat, chosen: Path | None) -> Iterator[Trap]:
    """Yield what is wrong with the mmproj.

    Args:
        model: The model.
        shape: Its dimensions.
        chat: Its tokens.
        chosen: The mmproj named on the command line; ``None``: look at those beside the model.

    Raises:
        ModelError: The named file is damaged or no mmproj.
    """
    sees = chat.vision or shape.arch in _GUESSED
    if chosen is None and not model.projectors:
        if sees:
            yield Trap(
                id="mmproj-missing",
                severity="warning",
                what="the model has tokens for pictures, and no mmproj file lies beside it",
                fix="text works; for pictures get the mmproj from the model's own page",
            )
        return
    refused, other, fitting = [], [], 0
    for path in (chosen,) if chosen else model.projectors:
        try:
            head = read_header(path)
            if chosen and not is_projector(head):
                width_of(head)  # says that it is none
            why, width = _judged(head)
        except ModelError as error:
            if chosen:
                raise
            why, width = error.what, None
        if why:
            refused.append(f"{printable(path.name)}: {why}")
        elif width is not None and width != shape.input_width:
            other.append(f"{printable(path.name)} gives {width} numbers per token")
        else:
            fitting += 1
    if fitting:
        return
    # a folder with one model and its mmproj is meant to work together; one of many files is not
    severity = "error" if chosen or _alone(model) else "warning"
    if refused:
        yield Trap(
            id="mmproj-refused",
            severity="error" if severity == "error" else "warning",
            what=f"llama.cpp refuses the mmproj: {'; '.join(refused)}",
            fix="get a newer mmproj from the model's own page; without --mmproj the text works",
        )
    if other and (severity == "error" or sees):
        yield Trap(
            id="mmproj-other",
            severity="error" if severity == "error" else "warning",
            what=f"the mmproj is of another model: {'; '.join(other)}, the model takes "
            f"{shape.input_width}",
            fix="get the mmproj from the model's own page; without --mmproj the text works",
        )


def _judged(head: Header) -> tuple[str, int | None]:
    """Return why llama.cpp refuses a projector ("": it does not), and the width it gives."""
    from qbuild.modelfile.sight import look  # most models have no projector

    found = look(head)
    width = found.width if found and found.width else width_of(head)
    return printable(found.refused, 300) if found else "", width


def _alone(model: Model) -> bool:
    """Tell whether the folder holds no other model than this one."""
    parts = {part.path.name for part in model.parts} | set(model.missing)
    match = SPLIT.fullmatch(model.path.name)
    stem = match["stem"] if match else None
    try:
        for each in model.path.parent.glob("*.gguf"):
            beside = SPLIT.fullmatch(each.name)
            if (
                each in model.projectors
                or each.name in parts
                or (beside and beside["stem"] == stem)
            ):
                continue
            return False
    except OSError:
        return False
    return True
