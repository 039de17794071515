"""What is known to go wrong with model files, found in their headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qbuild.modelfile.chat import Chat
from qbuild.modelfile.demands import loader_traps
from qbuild.modelfile.header import Header, List
from qbuild.modelfile.parts import Model, unfinished
from qbuild.modelfile.projector import is_projector, projector_kind
from qbuild.modelfile.promises import key_traps
from qbuild.modelfile.quant import Quant, disagrees
from qbuild.modelfile.shape import Shape
from qbuild.modelfile.tables import table
from qbuild.modelfile.template import template_problem
from qbuild.modelfile.trap import Trap

_LAYER = re.compile(r"blk\.([0-9]{1,3})\.")


def special_kind(head: Header) -> str | None:
    """Return what a GGUF file is that is no language model by itself; ``None``: it is one."""
    kind = head.keys.get("general.type")
    if is_projector(head):
        name = projector_kind(head)
        return "a projector for pictures or sound (mmproj)" + (f", {name}" if name else "")
    if kind == "adapter":
        return "a LoRA adapter (`--lora` beside the model it was trained for)"
    if kind == "imatrix":
        return "an importance matrix, which only quantising needs"
    if kind in ("dataset", "control_vector"):
        return f"a {str(kind).replace('_', ' ')}"
    return None


def file_traps(model: Model) -> Iterator[Trap]:
    """Yield what is wrong with the files themselves."""
    if model.missing:
        shown = ", ".join(model.missing[:5]) + (" …" if len(model.missing) > 5 else "")
        yield Trap(
            id="part-missing",
            severity="error",
            what=f"{len(model.missing)} of {len(model.parts) + len(model.missing)} parts are "
            f"missing: {shown}",
            fix="get them into the same folder; the sizes below are those of the parts that are "
            "there",
        )
    for part in model.parts:
        yield from _unfinished(part)


def _unfinished(part: Header) -> Iterator[Trap]:
    name = part.path.name
    missing = part.data_end - part.size
    marker = unfinished(part.path)
    if missing > 0:
        yield Trap(
            id="truncated",
            severity="error",
            what=f"{name} ends {_amount(missing)} too early: it has {part.size:,} of "
            f"{part.data_end:,} bytes",
            fix="the download is not complete: resume it, or get the file again",
        )
    elif marker:
        yield Trap(
            id="unfinished",
            severity="error",
            what=f"{name} is still being downloaded: {marker} is there",
            fix="wait for the downloader, or resume it",
        )
    elif part.on_disk is not None and part.on_disk < part.size // 2 and part.size > 1 << 20:
        yield Trap(
            id="holes",
            severity="warning",
            what=f"only {_amount(part.on_disk)} of {name}'s {_amount(part.size)} are really on "
            "disk: the rest was reserved and not written (or the file system compresses)",
            fix="if it was downloaded, compare its sha256 with the publisher's (--sha256)",
        )


def _amount(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 29 else f"{size / (1 << 20):.1f} MiB"


def model_traps(model: Model, shape: Shape, quant: Quant, chat: Chat) -> Iterator[Trap]:
    """Yield what llama.cpp refuses or will do badly."""
    rows = table()
    if shape.arch not in rows["architectures"]["known"]:
        yield Trap(
            id="architecture",
            severity="error",
            what=f"llama.cpp at the pinned commit does not know the architecture `{shape.arch}`",
            fix="`qbuild lock --pin REF` moves to a newer llama.cpp, if that knows it",
        )
    if not model.tensors:
        yield Trap(
            id="no-tensors",
            severity="error",
            what="the file holds no weights, only a description (a vocabulary, maybe)",
            fix="get the model itself",
        )
    refused = list(loader_traps(model, _tensor_traps(model, shape)))
    yield from refused
    if why := disagrees(quant):
        yield Trap(
            id="quant-name",
            severity="warning",
            what=f"{why}: the file was renamed, or made from something else",
            fix="go by what is in it, or get the file that was meant",
        )
    if shape.drafts and not refused and not any(".nextn." in name for name in model.names):
        yield Trap(
            id="mtp-stripped",
            severity="warning",
            what=f"the header counts {len(shape.drafts)} layers that draft (MTP), the file has "
            "none of their tensors",
            fix="--spec-type draft-mtp does not work with it: get a conversion that kept them",
        )
    yield from _tokenizer_traps(model.head, chat)
    yield from key_traps(model.head, shape)
    unread = list(_template_traps(model.head))  # an encoder's stops the server, too
    yield from unread
    if shape.remembers and shape.vocabulary and not unread:
        yield from _chat_traps(chat)


def _tensor_traps(model: Model, shape: Shape) -> Iterator[Trap]:
    """Yield where the header and the tensors contradict each other."""
    if not model.tensors or model.missing:
        return
    there = {int(match[1]) for name in model.names if (match := _LAYER.match(name))}
    lost = [i for i in range(len(shape.layers)) if i not in there]
    if lost:
        shown = ", ".join(str(each) for each in lost[:6]) + (" …" if len(lost) > 6 else "")
        yield Trap(
            id="layers-missing",
            severity="error",
            what=f"the header counts {len(shape.layers)} layers, the file has no tensors of "
            f"{len(lost)} of them: {shown}",
            fix="the file is damaged or no whole model: get another one",
        )
    sizes = {tensor.name: tensor.shape for tensor in model.tensors}
    for name, side, wanted, what in _expected(shape):
        found = sizes.get(name, ())
        if len(found) > side and found[side] != wanted:
            yield Trap(
                id="dimensions",
                severity="error",
                what=f"`{name}` has {found[side]} where the header says {wanted} ({what})",
                fix="the header is damaged or of another model: get the file again",
            )
            return


def _expected(shape: Shape) -> Iterator[tuple[str, int, int, str]]:
    """Yield tensor, side, size and meaning of what the header decides."""
    yield "token_embd.weight", 0, shape.embedding, "width of the model"
    if shape.vocabulary:
        yield "token_embd.weight", 1, shape.vocabulary, "number of tokens"
    for i, layer in enumerate(shape.layers):
        if layer.keys and layer.values:
            yield f"blk.{i}.attn_k.weight", 1, layer.keys, "KV heads × key size"
            yield f"blk.{i}.attn_v.weight", 1, layer.values, "KV heads × value size"
        if shape.experts:
            yield f"blk.{i}.ffn_down_exps.weight", 2, shape.experts, "number of experts"


def _tokenizer_traps(head: Header, chat: Chat) -> Iterator[Trap]:
    rows = table()["tokenizers"]
    if chat.tokenizer is None:
        yield Trap(
            id="no-tokenizer",
            severity="error",
            what="the file has no tokenizer",
            fix="get a whole conversion of the model",
        )
        return
    if chat.tokenizer not in rows["models"]:
        yield Trap(
            id="tokenizer",
            severity="error",
            what=f"llama.cpp does not know the tokenizer `{chat.tokenizer}`",
            fix="a newer llama.cpp may (`qbuild lock --pin REF`), or a fork made the file",
        )
        return
    if chat.tokenizer in ("no_vocab", "none"):
        return
    tokens = head.keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, List) or not tokens.count:
        yield Trap(
            id="no-tokens",
            severity="error",
            what="the file names a tokenizer and has no tokens",
            fix="get a whole conversion of the model",
        )
    if chat.tokenizer not in rows["with_pre"]:
        return
    if "tokenizer.ggml.merges" not in head.keys and chat.pre != "kimi-k2":
        yield Trap(
            id="no-merges",
            severity="error",
            what="the tokenizer's merges are missing",
            fix="get a whole conversion of the model",
        )
    if not chat.pre:
        yield Trap(
            id="pre-missing",
            severity="warning",
            what="the file does not say how text is split (tokenizer.ggml.pre): it was converted "
            "before that was known, and answers worse",
            fix="get a newer conversion",
        )
    elif chat.pre not in rows["pre"]:
        yield Trap(
            id="pre-unknown",
            severity="error",
            what=f"llama.cpp at the pinned commit does not know the pre-tokenizer `{chat.pre}` "
            "and does not load the model",
            fix="`qbuild lock --pin REF` moves to a newer llama.cpp, if that knows it",
        )


def _chat_traps(chat: Chat) -> Iterator[Trap]:
    if not chat.has_template:
        yield Trap(
            id="no-template",
            severity="warning",
            what="the file has no chat template: llama.cpp takes ChatML, and tools do not work",
            fix="a base model completes text only; for a chat model give --chat-template-file",
        )
    elif not chat.tools:
        yield Trap(
            id="no-tools",
            severity="warning",
            what="the chat template knows no tools",
            fix="tool calls need another template (--chat-template-file) or model",
        )
    elif chat.missing:
        yield Trap(
            id="no-tool-tokens",
            severity="warning",
            what=f"the chat template writes {', '.join(chat.missing)}, which the vocabulary does "
            "not have as control tokens",
            fix="the model was not trained to call tools so, or the conversion lost the tokens: "
            "calls may come out as plain text",
        )


def _template_traps(head: Header) -> Iterator[Trap]:
    """Yield a template that llama-server stops at."""
    for key in ("tokenizer.chat_template", "tokenizer.chat_template.tool_use"):
        source = head.keys.get(key)
        problem = template_problem(source) if isinstance(source, str) else ""
        if problem:
            yield Trap(
                id="template",
                severity="error",
                what=f"the chat template does not parse, and llama-server does not start with it: "
                f"{problem}",
                fix="give another one (--chat-template-file FILE, or --chat-template chatml), or "
                "get a newer conversion",
            )
