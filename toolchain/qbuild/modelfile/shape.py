"""What each layer of a model keeps in memory, from the keys in its header.

The rules are llama.cpp's own (`llama_model::create_memory`, `llama_hparams`): head counts per
layer, layers that look back over a window only, layers that keep a state of fixed size instead of
keys and values. What an architecture keeps beyond these is not worked out, and then said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qbuild.errors import ModelError
from qbuild.modelfile.header import Header, List
from qbuild.modelfile.tables import table, windows
from qbuild.modelfile.text import printable

MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS
_GEMMA3N_KV_LAYERS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one layer keeps."""

    keys: int = 0  # values of K per token; 0: it keeps none
    values: int = 0  # values of V per token
    window: bool = False  # it looks back over the model's window only
    # 4-byte numbers it keeps per conversation whatever its length (recurrent layers)
    state: int = 0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model's dimensions."""

    arch: str  # its architecture
    context: int  # tokens of context it was trained for
    embedding: int  # width of the residual stream
    layers: tuple[Layer, ...]  # the layers of the model itself
    # the layers that predict further tokens (MTP, NextN), which lie behind these
    drafts: tuple[Layer, ...] = ()
    window: int = 0  # tokens that window layers look back; 0: none does
    heads: int  # attention heads of the first layer
    kv_heads: int  # Key/value heads of the first layer that has any
    # sizes of a key and of a value that occur; a cache type's block must divide them
    head_sizes: frozenset[int]
    vocabulary: int  # number of tokens; 0 is not known
    experts: int = 0  # experts per layer; 0: not a mixture of experts
    experts_used: int = 0  # how many of them each token uses
    more: str = ""  # why the memory is more than this says; empty: it is exact
    remembers: bool = True  # it generates text from a context; encoders do not
    deepstack: int = 0  # layers that take features of a picture of their own, beside the input

    @property
    def input_width(self) -> int:
        """Numbers per token that the model takes from a projector (n_embd_inp)."""
        return self.embedding * (1 + self.deepstack)

    @property
    def count(self) -> int:
        """How many layers llama.cpp counts: those that draft are among them."""
        return len(self.layers) + len(self.drafts)

    @property
    def attention_layers(self) -> int:
        """How many layers keep keys and values."""
        return sum(1 for each in self.layers if each.keys)

    @property
    def recurrent_layers(self) -> int:
        """How many layers keep a state of fixed size."""
        return sum(1 for each in self.layers if each.state)


class _Keys:
    """An architecture's keys, with llama.cpp's defaults and refusals."""

    def __init__(self, head: Header, arch: str) -> None:
        self.head = head
        self.arch = arch

    def get(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number.

        Raises:
            ModelError: It is not there and has no default, or is no such number.
        """
        value = self.head.integer(f"{self.arch}.{name}", least=least, most=(1 << 31) - 1)
        if value is None and default is None:
            raise ModelError(
                printable(f"`{self.arch}.{name}` is missing"),
                where=str(self.head.path),
                fix="the file is no whole model or was made by a broken converter",
            )
        return default if value is None else value  # type: ignore[return-value]

    def each(self, name: str, count: int, default: int | list[int]) -> list[int]:
        """Return a number per layer; the file has one for all, or a list."""
        key = f"{self.arch}.{name}"
        value = self.head.keys.get(key)
        if value is None:
            return list(default) if isinstance(default, list) else [default] * count
        if not isinstance(value, List):
            return [self.get(name)] * count
        found = self.head.integers(key, most=MAX_LAYERS)
        if found is None or len(found) != count or min(found, default=0) < 0:
            raise self.head.wrong(key, f"a number for each of {count} layers")
        if max(found, default=0) >= 1 << 31:
            raise self.head.wrong(key, "a list of smaller numbers")
        return list(found)


def _architecture(head: Header) -> str:
    arch = head.text("general.architecture")
    if not arch:
        raise ModelError(
            "the file does not say which architecture it is",
            where=str(head.path),
            fix="it is no language model, or was made by a broken converter",
        )
    return arch


def shape_of(head: Header) -> Shape:
    """Return a model's dimensions.

    Raises:
        ModelError: A key that llama.cpp needs is missing or says something impossible.
    """
    arch = _architecture(head)
    keys = _Keys(head, arch)
    rules: Mapping[str, Any] = table()["memory"]
    count = keys.get("block_count", least=1)
    drafts = keys.get("nextn_predict_layers", 0)
    if not drafts <= count <= MAX_LAYERS:
        raise head.wrong(f"{arch}.block_count", f"from {drafts} to {MAX_LAYERS} here")
    trunk = count - drafts
    embedding = keys.get("embedding_length", least=1)
    heads = keys.each("attention.head_count", count, 0)
    kv_heads = keys.each("attention.head_count_kv", count, heads)
    usual = embedding // heads[0] if heads[0] else 0
    size_k = keys.get("attention.key_length", usual) if heads[0] else 0
    size_v = keys.get("attention.value_length", usual) if heads[0] else 0
    size, is_window = _windows(keys, trunk, count)
    sizes_k = [keys.get("attention.key_length_swa", size_k) if w else size_k for w in is_window]
    sizes_v = [keys.get("attention.value_length_swa", size_v) if w else size_v for w in is_window]
    if keys.get("attention.key_length_mla", 0):
        sizes_v = [0] * count  # multi-head latent attention keeps one compressed key, no value
    recurrent, attends = _recurrent(keys, rules, trunk, count, kv_heads)
    state = _state(keys, embedding, heads[0], size_k) if any(recurrent) else 0
    keeps = _keeps(keys, arch, count)
    layers = tuple(
        Layer(
            keys=kv_heads[i] * sizes_k[i] if attends[i] and keeps(i) else 0,
            values=kv_heads[i] * sizes_v[i] if attends[i] and keeps(i) else 0,
            window=is_window[i],
            state=state if recurrent[i] else 0,
        )
        for i in range(count)
    )
    remembers = arch not in rules["none"]
    return Shape(
        arch=arch,
        context=keys.get("context_length", least=1),
        embedding=embedding,
        layers=layers[:trunk] if remembers else tuple(Layer() for _ in range(trunk)),
        drafts=layers[trunk:],
        window=size,
        heads=heads[0],
        kv_heads=next((each for each in kv_heads[:trunk] if each), 0),
        head_sizes=frozenset(s for s in (*sizes_k, *sizes_v) if s),
        vocabulary=_vocabulary(head, arch),
        experts=keys.get("expert_count", 0),
        experts_used=max(keys.each("expert_used_count", count, 0)),
        more=f"{arch} keeps more than its attention layers do" if arch in rules["more"] else "",
        remembers=remembers,
        deepstack=keys.get("n_deepstack_layers", 0),
    )


def _vocabulary(head: Header, arch: str) -> int:
    tokens = head.keys.get("tokenizer.ggml.tokens")
    if isinstance(tokens, List):
        return tokens.count
    return head.integer(f"{arch}.vocab_size") or 0


def _windows(keys: _Keys, trunk: int, count: int) -> tuple[int, list[bool]]:
    """Return the window's size and which layers look back over it only."""
    none = [False] * count
    rule = windows().get(keys.arch)
    if rule is None or (rule.layers and rule.layers != trunk):
        return 0, none
    name = "attention.sliding_window"
    said = keys.head.integer(f"{keys.arch}.{name}", most=(1 << 31) - 1)
    if rule.optional and not said:
        return 0, none
    fixed = 0 if said == 0 else rule.size
    size = fixed if rule.fixed else keys.get(name, rule.size or None)
    if not size:
        return 0, none
    pattern = f"{keys.arch}.attention.sliding_window_pattern"
    if isinstance(keys.head.keys.get(pattern), List):
        listed = keys.head.integers(pattern, most=MAX_LAYERS) or ()
        return size, [bool(each) for each in (*listed, *none)][:count]
    if rule.all:
        return size, [i < trunk for i in range(count)]
    every = keys.get("attention.sliding_window_pattern", rule.every or None)
    if not every:
        return size, [i < trunk for i in range(count)]
    full = 0 if rule.first else every - 1
    return size, [i < trunk and i % every != full for i in range(count)]


def _recurrent(
    keys: _Keys, rules: Mapping[str, Any], trunk: int, count: int, kv_heads: list[int]
) -> tuple[list[bool], list[bool]]:
    """Return which layers are recurrent and which attend."""
    arch = keys.arch
    draft = [i >= trunk for i in range(count)]
    if arch in rules["recurrent"]:
        return [not each for each in draft], [False] * count
    if arch in rules["recurrent_and_attention"]:
        return [not each for each in draft], [True] * count
    if arch in rules["recurrent_without_kv_heads"]:
        recurrent = [not kv_heads[i] and not draft[i] for i in range(count)]
        return recurrent, [not each for each in recurrent]
    if arch in rules["recurrent_without_feed_forward"]:
        feed = keys.each("feed_forward_length", count, 0)
        recurrent = [not kv_heads[i] and not feed[i] and not draft[i] for i in range(count)]
        return recurrent, [not recurrent[i] and not feed[i] for i in range(count)]
    interval = rules["recurrent_interval"].get(arch)
    if interval:
        listed = f"{arch}.attention.recurrent_layers"
        if listed in keys.head.keys:
            recurrent = [bool(each) for each in keys.each(listed[len(arch) + 1 :], count, 0)]
        else:
            interval = keys.get("full_attention_interval", interval, least=1)
            recurrent = [not draft[i] and (i + 1) % interval != 0 for i in range(count)]
        return recurrent, [not each for each in recurrent]
    return [False] * count, [True] * count


def _state(keys: _Keys, embedding: int, heads: int, size_k: int) -> int:
    """Return how many numbers a recurrent layer keeps: the convolution's past and the state."""
    if wkv := keys.get("wkv.head_size", 0):
        return keys.get("token_shift_count", 2) * embedding + embedding * wkv
    if cache := keys.get("shortconv.l_cache", 0):
        return embedding * (cache - 1)
    conv = keys.get("ssm.conv_kernel", 0)
    if kda := keys.get("kda.head_dim", 0):
        return 3 * (conv - 1 if conv else 3) * heads * kda + kda * kda * heads
    inner, size = keys.get("ssm.inner_size", 0), keys.get("ssm.state_size", 0)
    groups = keys.get("ssm.group_count", 0)
    past = (conv - 1 if conv else 0) * (inner + 2 * groups * size)
    if keys.arch == "minimax-01":
        return past + size_k * size_k * heads
    return past + size * inner


def _keeps(keys: _Keys, arch: str, count: int) -> Callable[[int], bool]:
    """Return whether a layer has keys and values of its own (Gemma's last layers share them)."""
    own = count
    if arch == "gemma3n":
        own = _GEMMA3N_KV_LAYERS
    elif arch == "gemma4":
        own = count - keys.get("attention.shared_kv_layers", 0)
    return lambda layer: layer < own
