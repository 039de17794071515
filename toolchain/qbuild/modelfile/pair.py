"""Whether one model can draft for another: what llama-server asks of their vocabularies.

After ``common_speculative_are_compatible`` of the pinned commit (common/speculative.cpp): the same
kind of tokenizer, the same first and last token, nearly as many tokens, and the same texts from
the fifth token on. With a draft whose vocabulary differs the server starts and does not draft.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qbuild.modelfile.header import Header, List
from qbuild.modelfile.text import printable
from qbuild.modelfile.trap import Trap

_MOST: Final = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
_FIRST: Final = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID
_FAMILY: Final = {"gpt2": "bpe", "hybriddna": "bpe", "whitespace": "bpe", "gemma4": "bpe"}
_OWN: Final = ("eagle3", "dflash", "gemma4-assistant")
"""Architectures that draft with the target's own vocabulary or hidden states."""
_FIX: Final = "take a small model of the same family and generation, e.g. Qwen3-0.6B for Qwen3-8B"
_BEGINS: Final = {
    "llama": (1, True),
    "bert": (101, False),
    "t5": (None, False),
    "gpt2": (11, False),
}
"""Tokenizer → the id of its first token where the file names none, and whether it adds it."""
_ENDS: Final = {"llama": 2, "gpt2": 11, "t5": 1}


def pair_traps(target: Header, draft: Header) -> Iterator[Trap]:
    """Yield why one model cannot draft for another."""
    if draft.keys.get("general.architecture") in _OWN:
        return
    why = _difference(target, draft)
    if why:
        yield Trap(
            id="draft-other",
            severity="error",
            what=f"{draft.path.name} cannot draft for {target.path.name}: {why}. llama-server says "
            "so in its log and answers without drafting",
            fix=_FIX,
        )


def _difference(target: Header, draft: Header) -> str:
    kinds = [str(each.keys.get("tokenizer.ggml.model")) for each in (target, draft)]
    if _FAMILY.get(kinds[0], kinds[0]) != _FAMILY.get(kinds[1], kinds[1]):
        return f"their tokenizers are {printable(kinds[0], 40)} and {printable(kinds[1], 40)}"
    for word, name in (("bos", "first"), ("eos", "last")):
        (adds, token), (adds_too, token_too) = (_special(each, word) for each in (target, draft))
        if adds != adds_too:
            return f"only one of them adds a {name} token ({word})"
        if adds and token != token_too:
            return f"the {name} token ({word}) is {token} in one and {token_too} in the other"
    return _tokens(target, draft)


def _special(head: Header, word: str) -> tuple[bool, int | None]:
    kind = str(head.keys.get("tokenizer.ggml.model"))
    begin, adds = _BEGINS.get(kind, (None, False))
    known = begin if word == "bos" else _ENDS.get(kind)
    if word == "eos":
        adds = kind == "t5"
    pre = head.keys.get("tokenizer.ggml.pre")
    if word == "bos" and pre in ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                 "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"):  # fmt: skip
        adds = True
    said = head.keys.get(f"tokenizer.ggml.add_{word}_token")
    token = head.keys.get(f"tokenizer.ggml.{word}_token_id", known)
    return (said if isinstance(said, bool) else adds), token if isinstance(token, int) else None


def _tokens(target: Header, draft: Header) -> str:
    lists = [each.keys.get("tokenizer.ggml.tokens") for each in (target, draft)]
    counts = [each.count if isinstance(each, List) else 0 for each in lists]
    if abs(counts[0] - counts[1]) > _MOST:
        return f"their vocabularies have {counts[0]:,} and {counts[1]:,} tokens"
    words = [each.raw_texts("tokenizer.ggml.tokens") for each in (target, draft)]
    for number in range(_FIRST, min(counts)):
        one, other = words[0][number], words[1][number]
        if one != other:
            shown = [printable(each.decode("utf-8", "replace"), 30) for each in (one, other)]
            return f"token {number} is {shown[0]!r} in one and {shown[1]!r} in the other"
    return ""
