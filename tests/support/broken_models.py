"""Small models of the pin's architectures, each with one thing broken, and what is done to them.

A model is made by the pin's own rules (:mod:`support.loader_models`); a breaker changes one thing
of it. What comes out may still be right: the real server decides, never a list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild.modelfile.program import RefusedError, UnsureError
from support import gguf_files as g
from support import loader_models

NOT_RUN: Final = {
    "clip": "a stub that only quantising knows",
    "wavtokenizer-dec": "makes sound, no text",
    "chameleon": "half implemented upstream",
    "t5encoder": "an encoder, which the server does not answer with",
    "plm": "upstream's fixture does not fit its graph (a TODO there)",
    "rwkv6qwen2": "upstream's fixture crashes it, as its own test says",
    "qwen3tts": "makes sound; its fixture needs a vocabulary of its own",
}
"""Architectures that are left out, and why."""
_LAYERS: Final = 2


@dataclass
class Made:
    """A model, before it is written."""

    arch: str
    keys: g.Keys
    tensors: g.Tensors
    tail: bytes = b""
    cut: int = 0

    def copy(self) -> Made:
        return Made(self.arch, dict(self.keys), list(self.tensors))

    def write(self, path: Path) -> Path:
        g.write(path, self.keys, self.tensors)
        with path.open("r+b") as stream:
            stream.seek(0, 2)
            stream.write(self.tail)
            if self.cut:
                stream.truncate(path.stat().st_size - self.cut)
        return path


def more_keys(arch: str) -> dict[str, Any]:
    """Return what upstream's fixture leaves out for an architecture."""
    if arch in ("bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe"):
        return {"tokenizer.ggml.token_type_count": 2}
    if arch in ("gemma4", "gemma4-assistant"):
        return {f"{arch}.attention.sliding_window_pattern": [1, 1, 1, 1, 0]}
    found: dict[str, Any] = {}
    if arch in ("rwkv7", "arwkv7"):
        names = ("decay", "iclr", "value_residual_mix", "gate")
        found |= {f"{arch}.attention.{name}_lora_rank": 64 for name in names}
    if arch in ("rwkv6qwen2", "arwkv7"):
        found[f"{arch}.token_shift_count"] = 1
    return found


def whole(source: Path, folder: Path, *, vocabulary: str = "gpt2") -> Iterator[Made]:
    """Yield a sound model of each architecture whose loader can be satisfied."""
    from qbuild.modelfile.loader import program

    for arch in program()["architectures"]:
        if arch in NOT_RUN:
            continue
        for experts in (False, True):
            keys = loader_models.keys_of(source, arch, experts=experts)
            keys |= more_keys(arch)
            if vocabulary != "test":
                keys |= {k: v for k, v in g.common(arch, 1).items() if k.startswith("tokenizer.")}
                keys.pop("tokenizer.ggml.scores", None)
                keys[f"{arch}.vocab_size"] = len(g.TOKENS)
            try:
                tensors = loader_models.model(keys, folder)
            except (RefusedError, UnsureError):
                continue
            yield Made(arch, keys, tensors)
            break


# What is broken

Breaker = Callable[[Made, random.Random], str]


def drop_tensor(made: Made, rng: random.Random) -> str:
    at = rng.randrange(len(made.tensors))
    return f"without {made.tensors.pop(at)[0]}"


def add_tensor(made: Made, rng: random.Random) -> str:
    name = rng.choice(
        ["v.blk.0.attn_q.weight", "blk.0.attn_sinks.weight", "extra.weight", "mm.0.weight",
         "blk.7.attn_norm.weight", "blk.0.ffn_norm.bias", "rope_freqs.weight", "output.bias"]
    )  # fmt: skip
    if name not in [each[0] for each in made.tensors]:
        made.tensors.append((name, (32,), "f32"))
    return f"with {name}"


def other_side(made: Made, rng: random.Random) -> str:
    at = rng.randrange(len(made.tensors))
    name, shape, kind = made.tensors[at]
    side = rng.randrange(len(shape))
    wanted = shape[side] + rng.choice([32, 64, max(shape[side], 32)])
    made.tensors[at] = (name, (*shape[:side], wanted, *shape[side + 1 :]), kind)
    return f"{name}: side {side} is {wanted}, not {shape[side]}"


def turned(made: Made, rng: random.Random) -> str:
    flat = [
        i for i, each in enumerate(made.tensors) if len(each[1]) == 2 and each[1][0] != each[1][1]
    ]
    at = rng.choice(flat)
    name, shape, kind = made.tensors[at]
    made.tensors[at] = (name, (shape[1], shape[0]), kind)
    return f"{name} turned"


def _own(made: Made) -> list[str]:
    return [each for each in made.keys if each.startswith(f"{made.arch}.")]


def drop_key(made: Made, rng: random.Random) -> str:
    key = rng.choice(_own(made))
    del made.keys[key]
    return f"without {key}"


def drop_asked_key(made: Made, rng: random.Random) -> str:
    names = ("context_length", "embedding_length", "block_count", "layer_norm_rms_epsilon",
             "layer_norm_epsilon", "sliding_window", "expert_feed_forward_length",
             "dimension_sections", "conv_kernel", "inner_size", "state_size", "head_count",
             "kv_lora_rank", "feed_forward_length", "vocab_size")  # fmt: skip
    key = rng.choice([each for each in _own(made) if each.endswith(names)])
    del made.keys[key]
    return f"without {key}"


def other_type(made: Made, rng: random.Random) -> str:
    key = rng.choice([each for each in _own(made) if not isinstance(made.keys[each], list)])
    value = made.keys[key]
    if isinstance(value, bool):
        made.keys[key] = int(value)
    elif isinstance(value, int):
        made.keys[key] = rng.choice([g.Int(value), float(value), str(value), g.Short(value)])
    elif isinstance(value, float):
        made.keys[key] = rng.choice([int(value), str(value)])
    return f"{key} as {type(made.keys[key]).__name__}"


def other_length(made: Made, rng: random.Random) -> str:
    lists = [each for each in _own(made) if isinstance(made.keys[each], list)]
    count = made.keys[f"{made.arch}.block_count"]
    scalar = [f"{made.arch}.{n}" for n in ("attention.head_count_kv", "feed_forward_length",
                                           "attention.head_count")]  # fmt: skip
    key = rng.choice([*lists, *(each for each in scalar if each in made.keys)])
    value = made.keys[key]
    if isinstance(value, list):
        made.keys[key] = (
            value[:-1] if rng.random() < 0.5 and len(value) > 1 else [*value, value[-1]]
        )
    else:
        made.keys[key] = [value] * (count + rng.choice([-1, 0, 1]))
    return f"{key} has {len(made.keys[key])} items"


def other_number(made: Made, rng: random.Random) -> str:
    names = ("block_count", "embedding_length", "head_count", "head_count_kv", "key_length",
             "value_length", "feed_forward_length", "expert_count", "expert_used_count",
             "dimension_count", "vocab_size", "inner_size", "leading_dense_block_count",
             "nextn_predict_layers", "expert_shared_count", "time_step_rank")  # fmt: skip
    keys = [each for each in _own(made) if each.endswith(names) and type(made.keys[each]) is int]
    key = rng.choice(keys)
    value = made.keys[key]
    made.keys[key] = rng.choice([value * 2, value + 1, max(value - 1, 0), 0])
    return f"{key} is {made.keys[key]}, not {value}"


def other_kind(made: Made, rng: random.Random) -> str:
    f32 = [i for i, each in enumerate(made.tensors) if each[2] == "f32" and each[1][0] % 32 == 0]
    at = rng.choice(f32)
    name, shape, _ = made.tensors[at]
    kind = rng.choice(["f16", "q8_0", "bf16"])
    made.tensors[at] = (name, shape, kind)
    return f"{name} as {kind}"


def tokenizer(made: Made, rng: random.Random) -> str:
    keys = made.keys
    what = rng.choice(
        ["merges", "tokens", "model", "pre", "twice", "scores", "types", "eos", "no pre", "bos",
         "merges type", "added"]
    )  # fmt: skip
    tokens = list(keys["tokenizer.ggml.tokens"])
    if what in ("merges", "tokens", "model"):
        del keys[f"tokenizer.ggml.{what}"]
    elif what == "pre":
        keys["tokenizer.ggml.pre"] = "of-tomorrow"
    elif what == "no pre":
        del keys["tokenizer.ggml.pre"]
    elif what == "twice":
        keys["tokenizer.ggml.tokens"] = [*tokens[:-1], tokens[65]]
    elif what == "scores":
        keys["tokenizer.ggml.scores"] = [0.0] * (len(tokens) - 1)
    elif what == "types":
        keys["tokenizer.ggml.token_type"] = g.Signed([1] * (len(tokens) - 3))
    elif what == "eos":
        keys["tokenizer.ggml.eos_token_id"] = g.Int(258)
    elif what == "bos":
        keys["tokenizer.ggml.bos_token_id"] = 1 << 20
    elif what == "merges type":
        keys["tokenizer.ggml.merges"] = [1.0, 2.0]
    elif what == "added":
        keys["tokenizer.ggml.add_bos_token"] = 1
    return f"tokenizer: {what}"


def template(made: Made, rng: random.Random) -> str:
    text = rng.choice(
        [
            "{% for m in messages %}{{ m.content }}",
            "{% if add_generation_prompt %}x{% endfor %}",
            "{{ messages[0]['content' }}",
            "{% for m in messages %}{{ m['content'] | }}{% endfor %}",
            "{%- macro x( -%}{% endmacro %}{{ messages[0].content }}",
            "{{ messages[0].content }",
            "{% set x = %}{{ messages[0].content }}",
            "{% frobnicate %}{{ messages[0].content }}",
            "{# never closed {{ messages[0].content }}",
            "{{ 'unclosed }}",
            "{% elif x %}{{ messages[0].content }}{% endif %}",
            "{{ messages[0].content | no_such_filter }}",
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
            "{% set ns = namespace(x=1) %}{% for m in messages %}{{ m.content }}{% endfor %}",
        ]
    )
    made.keys["tokenizer.chat_template"] = text
    return f"template {text!r}"


def file(made: Made, rng: random.Random) -> str:
    what = rng.choice(["cut", "tail", "part", "architecture", "no architecture", "alignment"])
    if what == "cut":
        made.cut = rng.choice([1, 100, 5000])
    elif what == "tail":
        made.tail = b"\0" * 4096
    elif what == "part":
        made.keys |= {"split.no": g.Short(0), "split.count": g.Short(2),
                      "split.tensors.count": g.Int(2 * len(made.tensors))}  # fmt: skip
    elif what == "architecture":
        made.keys["general.architecture"] = made.arch + "-next"
    elif what == "no architecture":
        del made.keys["general.architecture"]
    else:
        made.keys["general.alignment"] = rng.choice([24, 64, 0])
    return f"file: {what}"


BREAKERS: Final[dict[str, Breaker]] = {
    each.__name__: each
    for each in (drop_tensor, add_tensor, other_side, turned, drop_key, drop_asked_key, other_type,
                 other_length, other_number, other_kind, tokenizer, template, file)
}  # fmt: skip


def broken(models: list[Made], count: int, seed: int = 1) -> Iterator[tuple[str, Made]]:
    """Yield so many broken models: every architecture, every breaker in turn, told by a seed."""
    rng = random.Random(seed)
    kinds = list(BREAKERS)
    for number in range(count):
        made = models[(number * 7 + number // len(models)) % len(models)].copy()
        name = kinds[number % len(kinds)]
        try:
            what = BREAKERS[name](made, rng)
        except IndexError:  # the model has nothing of that kind
            what = drop_tensor(made, rng)
        yield f"{made.arch}: {re.sub(r'[^ -~]', '?', what)}", made
