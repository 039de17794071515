"""Everything ``qbuild model`` knows about one model, gathered once for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbuild.modelfile.chat import Chat, chat_of
from qbuild.modelfile.memory import Weights, weigh
from qbuild.modelfile.pair import pair_traps
from qbuild.modelfile.parts import Model, open_model
from qbuild.modelfile.projector_traps import projector_traps
from qbuild.modelfile.quant import Quant, quant_of
from qbuild.modelfile.shape import Shape, shape_of
from qbuild.modelfile.text import printable
from qbuild.modelfile.trap import Trap
from qbuild.modelfile.traps import file_traps, model_traps, special_kind


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One model."""

    model: Model  # its files
    traps: tuple[Trap, ...]  # what is wrong, or will surprise
    # what it is when it is no language model; then the rest is not there
    special: str | None = None
    shape: Shape | None = None  # its dimensions
    quant: Quant | None = None  # how its weights are stored
    chat: Chat | None = None  # tokens and template
    weights: Weights | None = None  # where its weights belong

    @property
    def loads(self) -> bool:
        """Whether llama.cpp will load it, as far as the header tells."""
        return not any(each.severity == "error" for each in self.traps)


def summarise(path: Path, mmproj: Path | None = None, draft: Path | None = None) -> Summary:
    """Read a model's headers.

    Args:
        path: The model, or any part of it.
        mmproj: The projector that is to be used with it.
        draft: The model that is to draft for it.

    Raises:
        ModelError: A file is no GGUF file or is damaged in its header.
    """
    model = open_model(path)
    if special := special_kind(model.head):
        return Summary(model=model, special=special, traps=tuple(file_traps(model)))
    shape = shape_of(model.head)
    quant, chat = quant_of(model), chat_of(model.head)
    traps = (
        *file_traps(model),
        *model_traps(model, shape, quant, chat),
        *projector_traps(model, shape, chat, mmproj),
        *(pair_traps(model.head, open_model(draft).head) if draft else ()),
    )
    return Summary(
        model=model,
        shape=shape,
        quant=quant,
        chat=chat,
        weights=weigh(model.tensors, shape),
        traps=traps,
    )


def rope(summary: Summary) -> dict[str, Any]:
    """Return what the header says about positions (RoPE)."""
    head, shape = summary.model.head, summary.shape
    assert shape is not None
    found: dict[str, Any] = {"base": head.number(f"{shape.arch}.rope.freq_base")}
    kind = head.text(f"{shape.arch}.rope.scaling.type")
    if kind and kind != "none":
        found["scaling"] = kind
        found["factor"] = head.number(f"{shape.arch}.rope.scaling.factor")
        found["from"] = head.integer(f"{shape.arch}.rope.scaling.original_context_length")
    return found


def as_json(summary: Summary) -> dict[str, Any]:
    """Return it as a machine reads it."""
    model = summary.model
    data: dict[str, Any] = {
        "files": [
            {"name": part.path.name, "bytes": part.size, "needs_bytes": part.data_end}
            for part in model.parts
        ],
        "missing": list(model.missing),
        "name": model.head.text("general.name"),
        "kind": summary.special or "language model",
        "loads": summary.loads,
        "traps": [each.as_json() for each in summary.traps],
    }
    if summary.special:
        return data
    shape, quant, chat, weights = summary.shape, summary.quant, summary.chat, summary.weights
    assert shape and quant and chat and weights
    data |= {
        "architecture": shape.arch,
        "context": shape.context,
        "rope": rope(summary),
        "layers": {
            "attention": shape.attention_layers,
            "recurrent": shape.recurrent_layers,
            "window": sum(1 for each in shape.layers if each.window),
            "mtp": len(shape.drafts),
            "all": len(shape.layers),
        },
        "window": shape.window,
        "embedding": shape.embedding,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "experts": shape.experts,
        "experts_used": shape.experts_used,
        "vocabulary": shape.vocabulary,
        "memory_is_exact": not shape.more,
        "quantisation": {
            "header": quant.said,
            "name": quant.named,
            "bits_per_weight": round(quant.bits, 2),
            "mix": {name: round(share, 4) for name, share in quant.mix},
        },
        "tokenizer": {"model": chat.tokenizer, "pre": chat.pre, "control": list(chat.control)},
        "chat": {
            "template": chat.has_template,
            "tools": chat.tools,
            "tool_format": chat.format.name if chat.format else None,
            "parser": chat.format.parser if chat.format else None,
        },
        "weights_bytes": weights.total,
        "mtp_bytes": weights.drafts,
        "expert_bytes": sum(weights.experts),
        "mmproj": [each.name for each in model.projectors],
    }
    return data


def lines(summary: Summary) -> Iterator[str]:
    """Yield what the model is, for a person."""
    model = summary.model
    name = model.head.text("general.name") or model.path.name
    parts = f"{len(model.parts)} parts, " if len(model.parts) > 1 else ""
    if summary.special:
        yield f"file:     {printable(name)}, {amount(model.size)}"
        yield f"what:     {summary.special}"
        return
    shape, quant, chat, weights = summary.shape, summary.quant, summary.chat, summary.weights
    assert shape and quant and chat and weights
    yield f"model:    {printable(name)} ({printable(shape.arch)}), {parts}{amount(model.size)}"
    mix = ", ".join(f"{kind} {share:.0%}" for kind, share in quant.mix if share >= 0.005)
    yield f"weights:  {quant.said or 'not said'}: {mix}; {quant.bits:.2f} bits per weight"
    yield f"layers:   {_layers(shape)}"
    if shape.experts:
        size = amount(sum(weights.experts))
        yield f"experts:  {shape.experts}, {shape.experts_used} used per token; {size} of weights"
    yield f"context:  {shape.context:,} tokens{_rope(summary)}"
    tokenizer = chat.tokenizer or "none"
    pre = f", pre {chat.pre}" if chat.pre else ""
    yield f"tokens:   {printable(tokenizer)}{printable(pre)}, {shape.vocabulary:,} of them"
    if chat.control:
        shown = ", ".join(printable(each) for each in chat.control[:12])
        rest = len(chat.control) - 12 + chat.spare
        yield f"control:  {shown}{f' and {rest} more' if rest > 0 else ''}"
    yield f"chat:     {_chat(chat)}"
    if shape.drafts:
        count = len(shape.drafts)
        layers = "1 layer that drafts" if count == 1 else f"{count} layers that draft"
        yield f"MTP:      {layers} (--spec-type draft-mtp): {amount(weights.drafts)} more"
    if model.projectors:
        yield "mmproj:   " + ", ".join(printable(each.name) for each in model.projectors)


def _layers(shape: Shape) -> str:
    if not shape.remembers:
        return f"{len(shape.layers)}, no context is kept (an encoder or a diffusion model)"
    heads = f"; {shape.heads} heads, {shape.kv_heads} for KV" if shape.heads else ""
    attention = [each for each in shape.layers if each.keys]
    windows = sum(1 for each in attention if each.window)
    kinds = []
    if windows:
        kinds.append(f"{windows} look back {shape.window:,} tokens only")
    if shape.recurrent_layers:
        kinds.append(f"{shape.recurrent_layers} are recurrent, {len(attention)} keep KV")
    elif len(attention) < len(shape.layers):
        kinds.append(f"{len(attention)} keep KV")
    return f"{len(shape.layers)}{': ' + ', '.join(kinds) if kinds else ''}{heads}"


def _rope(summary: Summary) -> str:
    found = rope(summary)
    text = f", RoPE base {found['base']:,.0f}" if found["base"] else ""
    if "scaling" in found:
        text += f", {printable(found['scaling'])}"
        text += f" ×{found['factor']:g}" if found["factor"] else ""
        text += f" from {found['from']:,}" if found["from"] else ""
    return text


def _chat(chat: Chat) -> str:
    if not chat.has_template:
        return "no template"
    if not chat.tools:
        return "a template without tools"
    if chat.format is None:
        return "tools, in a way that llama.cpp works out from the template itself"
    reader = (
        f"--tool-call-parser reads it as {chat.format.parser}"
        if chat.format.parser
        else ("upstream's parser reads it")
    )
    return f"tools as {chat.format.name}; {reader}"


def amount(size: float) -> str:
    """Return bytes in MiB or GiB."""
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
