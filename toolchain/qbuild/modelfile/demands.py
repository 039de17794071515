"""What the loader refuses (:mod:`qbuild.modelfile.loader`), as a person is told of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from qbuild.modelfile.loader import Answer, load
from qbuild.modelfile.parts import Model
from qbuild.modelfile.text import printable
from qbuild.modelfile.trap import Trap
from qbuild.modelfile.vocabulary import vocabulary_problems, vocabulary_size

_ANOTHER: Final = "get another conversion of the model: this one is damaged or of another program"
_OLLAMA: Final = (
    "Ollama's own conversions look so: get one made for llama.cpp from the model's page"
)
_DIFFUSION: Final = ("dream", "llada", "llada-moe", "rnd1")
"""They write all of an answer at once, which llama-server's way of asking does not fit."""
_SEEING: Final = re.compile(r"(v|mm|a|model\.vision|vision|audio|model\.mm)\.")
"""How tensors for pictures and sound begin, which llama.cpp wants in a file of their own."""


def loader_traps(model: Model, contradictions: Iterable[Trap]) -> Iterator[Trap]:
    """Yield what llama.cpp refuses when it reads the tokenizer, the keys and the tensors.

    Args:
        model: The model.
        contradictions: Where header and tensors contradict each other. They say it in fewer words
            than the loader, but they only guess: when the loader is known to be content, they are
            not shown.
    """
    for problem in vocabulary_problems(model.head):
        yield Trap(
            id="vocabulary", severity="error", what=f"llama.cpp refuses the tokenizer: {problem}",
            fix=_ANOTHER,
        )  # fmt: skip
    if model.keys.get("general.architecture") in _DIFFUSION:
        yield Trap(
            id="diffusion",
            severity="error",
            what="this is a diffusion model: llama-server stops with it, only llama.cpp's "
            "llama-diffusion-cli answers",
            fix="take a model that writes token after token",
        )
    if not model.tensors or model.missing:
        return
    vocabulary = vocabulary_size(model.head)
    answer = load(model.head, model.tensors, vocabulary=vocabulary) if vocabulary else None
    if answer is None:
        yield from contradictions
    elif answer.refused:
        found = list(contradictions)
        yield from found or [_trap(str(model.keys.get("general.architecture")), answer)]


def _trap(arch: str, answer: Answer) -> Trap:
    said = printable(re.sub(r"^\w+: ", "", " ".join(answer.refused.split())), 300)
    if answer.missing:
        return Trap(
            id="tensor-missing",
            severity="error",
            what=f"`{printable(answer.missing)}` is missing: llama.cpp needs it for {arch}",
            fix="the file is damaged or no whole model: get another one",
        )
    if answer.unread and "wrong number of tensors" in answer.refused:
        return _too_many(arch, answer)
    if "key not found" in said:
        return Trap(
            id="key-missing",
            severity="error",
            what=f"llama.cpp needs a key for {arch} that the file does not have: {said}",
            fix=_OLLAMA if "rope.dimension_sections" in said else _ANOTHER,
        )
    if "wrong array length" in said and "rope.dimension_sections" in said:
        return Trap(
            id="key-wrong", severity="error", what=f"llama.cpp refuses a key: {said}", fix=_OLLAMA
        )
    if "wrong shape" in said:
        return Trap(
            id="dimensions", severity="error", what=f"llama.cpp refuses a tensor: {said}",
            fix="the header is damaged or of another model: get the file again",
        )  # fmt: skip
    return Trap(
        id="key-wrong", severity="error", what=f"llama.cpp refuses the header: {said}", fix=_ANOTHER
    )


def _too_many(arch: str, answer: Answer) -> Trap:
    count = len(answer.unread)
    shown = ", ".join(printable(each, 60) for each in answer.unread[:4])
    more = f" and {count - 4} more" if count > 4 else ""
    seeing = sum(1 for each in answer.unread if _SEEING.match(each))
    what = f"llama.cpp does not read {count} of the tensors for {arch} and refuses the file: "
    if seeing:
        return Trap(
            id="tensors-unread",
            severity="error",
            what=f"{what}{shown}{more}. They are for pictures or sound, which llama.cpp wants in a "
            "file of their own (mmproj)",
            fix=f"{_OLLAMA}, and its mmproj",
        )
    return Trap(
        id="tensors-unread",
        severity="error",
        what=f"{what}{shown}{more}",
        fix="get a conversion made for this llama.cpp, or a llama.cpp that knows them "
        "(`qbuild lock --pin REF`)",
    )
