"""The tokenizer and the chat template: which tokens steer, and how tool calls are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from qbuild.modelfile.header import Header, List
from qbuild.modelfile.tables import ChatFormat, chat_formats

_CONTROL: Final = 3  # LLAMA_TOKEN_TYPE_CONTROL
_USER_DEFINED: Final = 4
_MANY: Final = 1 << 14
_SPARE: Final = re.compile(
    r"<\|?(unused|reserved|extra|dummy|pad|mask|special|placeholder|image|audio|video)"
    r"[a-z_ -]*\d*.*>|\[(unused|control)_?\d*\]",
    re.I,
)
"""Tokens that are there in numbers and steer nothing."""
_VISION: Final = ("<|vision_start|>", "<|image_pad|>", "<start_of_image>", "<image>", "[IMG]")


@dataclass(frozen=True, kw_only=True)
class Chat:
    """What a model's text is made of."""

    tokenizer: str | None  # its kind, e.g. ``gpt2``
    pre: str | None  # the rule by which text is split first, e.g. ``qwen2``
    control: tuple[str, ...]  # control and user-defined tokens, without numbered spare ones
    spare: int  # how many of those were left out
    has_template: bool  # the file brings a chat template
    tools: bool  # the template takes a list of tools
    format: ChatFormat | None  # how it writes calls; ``None``: no way that is known here
    missing: tuple[str, ...]  # tags of that format that are no single token of the vocabulary
    vision: bool  # the vocabulary has tokens for pictures


def chat_of(head: Header) -> Chat:
    """Return what the header says about tokens and templates.

    Raises:
        ModelError: A key has another type than it must have.
    """
    special = _special(head)
    template = head.text("tokenizer.chat_template")
    tool_template = head.text("tokenizer.chat_template.tool_use")
    source = "\n".join(each for each in (template, tool_template) if each)
    tools = re.search(r"tools\b|\bfunctions\b|tool_calls", source) is not None
    found = next((each for each in chat_formats() if each.fits(source)), None) if tools else None
    named = [each for each in special if not _SPARE.fullmatch(each)]
    return Chat(
        tokenizer=head.text("tokenizer.ggml.model"),
        pre=head.text("tokenizer.ggml.pre"),
        control=tuple(named),
        spare=len(special) - len(named),
        has_template=template is not None,
        tools=tools,
        format=found,
        missing=tuple(tag for tag in found.tags if tag not in special) if found else (),
        vision=any(each in special for each in _VISION),
    )


def _special(head: Header) -> list[str]:
    """Return the texts of control and user-defined tokens."""
    tokens = head.keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, List) or "tokenizer.ggml.token_type" not in head.keys:
        return []
    wanted = head.positions("tokenizer.ggml.token_type", (_CONTROL, _USER_DEFINED), most=_MANY)
    return head.texts("tokenizer.ggml.tokens", wanted)
