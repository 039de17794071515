"""What llama.cpp's vocabulary loader (``llama_vocab::impl::load``) refuses.

Written after that function of the pinned commit: which lists a kind of tokenizer must have, of
which type and length, and that no two tokens are spelled the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qbuild.modelfile.header import Header, List
from qbuild.modelfile.text import printable

_BPE: Final = ("gpt2", "hybriddna", "whitespace", "gemma4")
_TEXT, _U32, _I32, _F32, _BOOL = 8, 4, 5, 6, 7
_IDS: Final = (
    "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id",
    "seperator_token_id", "padding_token_id", "mask_token_id", "fim_pre_token_id",
    "fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id", "fim_rep_token_id",
    "fim_sep_token_id", "prefix_token_id", "suffix_token_id", "middle_token_id",
    "token_type_count",
)  # fmt: skip
_FLAGS: Final = (
    "add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix",
    "remove_extra_whitespaces", "normalizer.lowercase", "normalizer.strip_accents",
)  # fmt: skip
_NAMES: Final = {_TEXT: "texts", _I32: "signed 32-bit numbers", _F32: "32-bit floats"}


def vocabulary_size(head: Header) -> int:
    """Return how many tokens llama.cpp will count."""
    if head.keys.get("tokenizer.ggml.model") in ("no_vocab", "none"):
        value = head.keys.get(f"{head.keys.get('general.architecture')}.vocab_size")
        return value if type(value) is int else 0
    tokens = head.keys.get("tokenizer.ggml.tokens")
    return tokens.count if isinstance(tokens, List) else 0


def vocabulary_problems(head: Header) -> Iterator[str]:
    """Yield why llama.cpp refuses the tokenizer, each a sentence."""
    model = head.keys.get("tokenizer.ggml.model")
    if model is None or model in ("no_vocab", "none"):
        return
    yield from _kinds(head)
    tokens = head.keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, List):
        return
    if problem := _list(head, "tokens", (_TEXT,)):
        yield problem
        return
    if model in _BPE and (problem := _list(head, "merges", (_TEXT,))):
        yield problem
    for name, kinds in (("scores", (_F32, _I32)), ("token_type", (_I32,))):
        value = head.keys.get(f"tokenizer.ggml.{name}")
        if value is None:
            continue
        if problem := _list(head, name, kinds):
            yield problem
        elif value.count < tokens.count:
            yield f"tokenizer.ggml.{name} has {value.count} entries for {tokens.count} tokens"
    if model == "gpt2" and "tokenizer.ggml.suppress_tokens" in head.keys:
        yield from filter(None, [_list(head, "suppress_tokens", (_I32,))])
    yield from _twice(head)


def _list(head: Header, name: str, kinds: tuple[int, ...]) -> str:
    value = head.keys.get(f"tokenizer.ggml.{name}")
    if value is None or (isinstance(value, List) and value.kind in kinds):
        return ""
    wanted = " or ".join(_NAMES[each] for each in kinds)
    return f"tokenizer.ggml.{name} is no list of {wanted}"


def _kinds(head: Header) -> Iterator[str]:
    """Yield the keys whose number has another type than the loader takes."""
    wanted = {"model": _TEXT, "pre": _TEXT}
    wanted |= dict.fromkeys(_IDS, _U32) | dict.fromkeys(_FLAGS, _BOOL)
    words = {_TEXT: "a text", _U32: "an unsigned 32-bit number", _BOOL: "true or false"}
    for name, kind in wanted.items():
        key = f"tokenizer.ggml.{name}"
        if key in head.kinds and head.kinds[key] != kind:
            yield f"{key} must be {words[kind]}"


def _twice(head: Header) -> Iterator[str]:
    """Yield a token that stands in the list twice: the loader stops at an assertion then."""
    words = head.raw_texts("tokenizer.ggml.tokens")
    if len(set(words)) == len(words) and b"" not in words:
        return
    seen: set[bytes] = set()
    for number, word in enumerate(words):
        spelled = word or f"[EMPTY_{number}]".encode()
        if spelled in seen:
            shown = printable(spelled.decode("utf-8", "replace"), 40)
            yield f"the token {shown!r} stands in the vocabulary twice"
            return
        seen.add(spelled)
