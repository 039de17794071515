"""Generated GGUF files: whole models of several architectures with weights of zeros.

Written without the gguf library: each byte of the header is under the test's control, and a file
of 20 GB costs nothing (its weights are a hole). llama.cpp loads these models.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qbuild.modelfile.tables import types_by_name
from qbuild.verify.tiny_gguf import byte_tokens

Tensors = list[tuple[str, tuple[int, ...], str]]
Keys = dict[str, Any]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    'Answer with <tool_call>{"name": …, "arguments": …}</tool_call>{% endif %}' + CHATML
)
XML = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "<tool_call>\n<function=f>\n<parameter=p>\nv\n</parameter>\n</function>\n</tool_call>"
    "{% endif %}" + CHATML
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
TOKENS = (*byte_tokens(), *SPECIALS)
EMBEDDING, FEED, HEADS, KV_HEADS, HEAD = 256, 512, 8, 2, 64
ALIGN = 32


def text(value: str) -> bytes:
    """Return a GGUF string."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(value: Any) -> tuple[int, bytes]:
    """Return GGUF type and bytes of one value: u32, f32, bool or text."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, Short):
        return 2, struct.pack("<H", value)
    if isinstance(value, Int):
        return 5, struct.pack("<i", value)
    if isinstance(value, int):
        return (4, struct.pack("<I", value)) if value >= 0 else (5, struct.pack("<i", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, text(value)


class Short(int):
    """A number that is written as u16, as llama.cpp wants those of split models."""


class Int(int):
    """A number that is written as i32."""


class Signed(list[int]):
    """A list that is written as i32, as llama.cpp wants token types."""


class Unsigned64(list[int]):
    """A list that is written as u64."""


def key(name: str, value: Any) -> bytes:
    """Return one key with its value."""
    if isinstance(value, Unsigned64):
        return text(name) + struct.pack(f"<iiQ{len(value)}Q", 9, 10, len(value), *value)
    if isinstance(value, Signed):
        body = struct.pack(f"<iiQ{len(value)}i", 9, 5, len(value), *value)
        return text(name) + body
    if isinstance(value, (list, tuple)):
        items = [scalar(each) for each in value]
        kind = items[0][0] if items else 4
        body = b"".join(data for _, data in items)
        return text(name) + struct.pack("<iiQ", 9, kind, len(items)) + body
    kind, data = scalar(value)
    return text(name) + struct.pack("<i", kind) + data


def tensor_size(shape: Iterable[int], kind: str) -> int:
    """Return a tensor's bytes."""
    values = 1
    for each in shape:
        values *= each
    return types_by_name()[kind].row(values)


def header(keys: Mapping[str, Any], tensors: Tensors, *, version: int = 3) -> tuple[bytes, int]:
    """Return a header (padded) and the size of the data that must follow."""
    out = [b"GGUF", struct.pack("<Iqq", version, len(tensors), len(keys))]
    out += [key(name, value) for name, value in keys.items()]
    offset = end = 0
    for name, shape, kind in tensors:
        dims = struct.pack(f"<I{len(shape)}q", len(shape), *shape)
        out.append(text(name) + dims + struct.pack("<iQ", types_by_name()[kind].id, offset))
        end = offset + tensor_size(shape, kind)
        offset = -(-end // ALIGN) * ALIGN
    raw = b"".join(out)
    return raw + bytes(-len(raw) % ALIGN), end


def write(path: Path, keys: Mapping[str, Any], tensors: Tensors) -> Path:
    """Write a model whose weights are a hole of zeros."""
    raw, data = header(keys, tensors)
    with path.open("wb") as stream:
        stream.write(raw)
        stream.truncate(len(raw) + data)
    return path


def common(arch: str, layers: int, **more: Any) -> Keys:
    """Return the keys that every model has."""
    names = {
        "block_count": layers,
        "context_length": 32768,
        "embedding_length": EMBEDDING,
        "feed_forward_length": FEED,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1000000.0,
        "rope.dimension_count": HEAD,
        **more,
    }
    return {
        "general.architecture": arch,
        "general.name": f"generated {arch}",
        "general.file_type": 7,
        **{f"{arch}.{name}": value for name, value in names.items() if value is not None},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.token_type": Signed([1] * 256 + [3] * 3 + [4] * 2),
        "tokenizer.ggml.merges": ["ÿ ÿ"],
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.padding_token_id": 256,
        "tokenizer.chat_template": HERMES,
    }


def ends(*, output: bool = True) -> Tensors:
    """Return the tensors around the layers."""
    found: Tensors = [("token_embd.weight", (EMBEDDING, len(TOKENS)), "q8_0")]
    found.append(("output_norm.weight", (EMBEDDING,), "f32"))
    if output:
        found.append(("output.weight", (EMBEDDING, len(TOKENS)), "q8_0"))
    return found


def attention(
    i: int, kind: str, *, norms: bool = True, gate: int = 1, kv: int = KV_HEADS
) -> Tensors:
    """Return one attention block's tensors."""
    blk = f"blk.{i}."
    found: Tensors = [
        (blk + "attn_norm.weight", (EMBEDDING,), "f32"),
        (blk + "attn_q.weight", (EMBEDDING, HEADS * HEAD * gate), kind),
        (blk + "attn_k.weight", (EMBEDDING, kv * HEAD), kind),
        (blk + "attn_v.weight", (EMBEDDING, kv * HEAD), kind),
        (blk + "attn_output.weight", (HEADS * HEAD, EMBEDDING), kind),
    ]
    if norms:
        found.append((blk + "attn_q_norm.weight", (HEAD,), "f32"))
        found.append((blk + "attn_k_norm.weight", (HEAD,), "f32"))
    return found


def feed(i: int, kind: str, norm: str = "ffn_norm") -> Tensors:
    """Return one dense feed-forward block's tensors."""
    blk = f"blk.{i}."
    return [
        (blk + norm + ".weight", (EMBEDDING,), "f32"),
        (blk + "ffn_gate.weight", (EMBEDDING, FEED), kind),
        (blk + "ffn_up.weight", (EMBEDDING, FEED), kind),
        (blk + "ffn_down.weight", (FEED, EMBEDDING), kind),
    ]


def experts(i: int, kind: str, count: int, size: int) -> Tensors:
    """Return one block's experts."""
    blk = f"blk.{i}."
    return [
        (blk + "ffn_gate_inp.weight", (EMBEDDING, count), "f32"),
        (blk + "ffn_gate_exps.weight", (EMBEDDING, size, count), kind),
        (blk + "ffn_up_exps.weight", (EMBEDDING, size, count), kind),
        (blk + "ffn_down_exps.weight", (size, EMBEDDING, count), kind),
    ]


def shared_expert(i: int, kind: str, size: int) -> Tensors:
    """Return one block's shared expert."""
    blk = f"blk.{i}."
    return [
        (blk + "ffn_gate_inp_shexp.weight", (EMBEDDING,), "f32"),
        (blk + "ffn_gate_shexp.weight", (EMBEDDING, size), kind),
        (blk + "ffn_up_shexp.weight", (EMBEDDING, size), kind),
        (blk + "ffn_down_shexp.weight", (size, EMBEDDING), kind),
    ]


def qwen3(kind: str = "q8_0", layers: int = 6) -> tuple[Keys, Tensors]:
    """A dense model."""
    tensors = ends()
    for i in range(layers):
        tensors += attention(i, kind) + feed(i, kind)
    return common("qwen3", layers), tensors


def qwen3vl(kind: str = "q8_0", layers: int = 2) -> tuple[Keys, Tensors]:
    """A model that takes pictures, and one more layer of their features (deepstack)."""
    keys = common("qwen3vl", layers, **{"rope.dimension_sections": [24, 20, 20, 0]})
    keys["qwen3vl.n_deepstack_layers"] = 1
    tensors = ends()
    for i in range(layers):
        tensors += attention(i, kind) + feed(i, kind)
    return keys, tensors


def bert(kind: str = "q8_0", layers: int = 2) -> tuple[Keys, Tensors]:
    """An encoder."""
    keys = common(
        "bert",
        layers,
        **{
            "attention.head_count_kv": HEADS,
            "attention.key_length": None,
            "attention.value_length": None,
            "rope.dimension_count": None,
            "attention.layer_norm_epsilon": 1e-6,
            "context_length": 512,
        },
    )
    keys["tokenizer.ggml.token_type_count"] = 2
    tensors: Tensors = [
        ("token_embd.weight", (EMBEDDING, len(TOKENS)), "q8_0"),
        ("token_types.weight", (EMBEDDING, 2), "f32"),
        ("position_embd.weight", (EMBEDDING, 512), "f32"),
    ]
    tensors += [(f"token_embd_norm.{end}", (EMBEDDING,), "f32") for end in ("weight", "bias")]
    for i in range(layers):
        blk = f"blk.{i}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors += [(f"{blk}{name}.weight", (EMBEDDING, EMBEDDING), kind),
                        (f"{blk}{name}.bias", (EMBEDDING,), "f32")]  # fmt: skip
        for name in ("attn_output_norm", "layer_output_norm"):
            tensors += [(f"{blk}{name}.{end}", (EMBEDDING,), "f32") for end in ("weight", "bias")]
        for name, one, other in (("ffn_up", EMBEDDING, FEED), ("ffn_down", FEED, EMBEDDING)):
            tensors += [(f"{blk}{name}.weight", (one, other), kind),
                        (f"{blk}{name}.bias", (other,), "f32")]  # fmt: skip
    return keys, tensors


def llama(kind: str = "q8_0", layers: int = 6) -> tuple[Keys, Tensors]:
    """A dense model whose output matrix is its token embeddings."""
    tensors = ends(output=False)
    for i in range(layers):
        tensors += attention(i, kind, norms=False) + feed(i, kind)
    return common("llama", layers), tensors


def qwen3moe(kind: str = "q8_0", layers: int = 6) -> tuple[Keys, Tensors]:
    """A mixture of experts."""
    keys = common(
        "qwen3moe", layers, expert_count=8, expert_used_count=2, expert_feed_forward_length=128
    )
    tensors = ends()
    for i in range(layers):
        tensors += attention(i, kind)
        tensors.append((f"blk.{i}.ffn_norm.weight", (EMBEDDING,), "f32"))
        tensors += experts(i, kind, 8, 128)
    return keys, tensors


def gemma3(kind: str = "q8_0", layers: int = 12) -> tuple[Keys, Tensors]:
    """Five of six layers look back over a window only."""
    keys = common("gemma3", layers, **{"attention.sliding_window": 512})
    tensors = ends(output=False)
    for i in range(layers):
        tensors += attention(i, kind) + feed(i, kind)
        tensors.append((f"blk.{i}.post_attention_norm.weight", (EMBEDDING,), "f32"))
        tensors.append((f"blk.{i}.post_ffw_norm.weight", (EMBEDDING,), "f32"))
    return keys, tensors


SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 64,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 4,
}


def delta_net(i: int, kind: str) -> Tensors:
    """Return one linear-attention block's tensors (Qwen3.5)."""
    blk = f"blk.{i}."
    keys, values = 64 * 4, 64 * 8
    return [
        (blk + "attn_norm.weight", (EMBEDDING,), "f32"),
        (blk + "attn_qkv.weight", (EMBEDDING, 2 * keys + values), kind),
        (blk + "attn_gate.weight", (EMBEDDING, values), kind),
        (blk + "ssm_conv1d.weight", (4, 2 * keys + values), "f32"),
        (blk + "ssm_dt.bias", (8,), "f32"),
        (blk + "ssm_a", (8,), "f32"),
        (blk + "ssm_beta.weight", (EMBEDDING, 8), "f32"),
        (blk + "ssm_alpha.weight", (EMBEDDING, 8), "f32"),
        (blk + "ssm_norm.weight", (64,), "f32"),
        (blk + "ssm_out.weight", (values, EMBEDDING), kind),
    ]


def qwen35(kind: str = "q8_0", layers: int = 8, drafts: int = 1) -> tuple[Keys, Tensors]:
    """Three of four layers are recurrent; one more layer drafts (MTP)."""
    keys = common(
        "qwen35",
        layers + drafts,
        **SSM,
        full_attention_interval=4,
        nextn_predict_layers=drafts or None,
        **{"rope.dimension_sections": [11, 11, 10, 0]},
    )
    keys["tokenizer.ggml.pre"] = "qwen35"
    keys["tokenizer.chat_template"] = XML
    tensors = ends()
    for i in range(layers + drafts):
        full = i >= layers or (i + 1) % 4 == 0
        tensors += attention(i, kind, gate=2) if full else delta_net(i, kind)
        tensors += feed(i, kind, "post_attention_norm")
        if i >= layers:
            blk = f"blk.{i}.nextn."
            tensors.append((blk + "eh_proj.weight", (2 * EMBEDDING, EMBEDDING), kind))
            tensors.append((blk + "enorm.weight", (EMBEDDING,), "f32"))
            tensors.append((blk + "hnorm.weight", (EMBEDDING,), "f32"))
    return keys, tensors


def qwen35moe(kind: str = "q8_0", layers: int = 8) -> tuple[Keys, Tensors]:
    """The same with experts: the family of the 35B-A3B models."""
    keys = common(
        "qwen35moe",
        layers,
        **SSM,
        expert_count=8,
        expert_used_count=2,
        expert_feed_forward_length=128,
        expert_shared_feed_forward_length=128,
        **{"rope.dimension_sections": [11, 11, 10, 0]},
    )
    keys["tokenizer.ggml.pre"] = "qwen35"
    tensors = ends()
    for i in range(layers):
        tensors += attention(i, kind, gate=2) if (i + 1) % 4 == 0 else delta_net(i, kind)
        tensors.append((f"blk.{i}.post_attention_norm.weight", (EMBEDDING,), "f32"))
        tensors += experts(i, kind, 8, 128) + shared_expert(i, kind, 128)
    return keys, tensors


def lfm2(kind: str = "q8_0", layers: int = 6) -> tuple[Keys, Tensors]:
    """Every third layer attends, the others are short convolutions."""
    kv = [KV_HEADS if i % 3 == 2 else 0 for i in range(layers)]
    keys = common(
        "lfm2",
        layers,
        **{
            "attention.head_count_kv": kv,
            "attention.head_count": EMBEDDING // HEAD,
            "shortconv.l_cache": 3,
        },
    )
    keys["tokenizer.ggml.pre"] = "lfm2"
    tensors: Tensors = [
        ("token_embd.weight", (EMBEDDING, len(TOKENS)), "q8_0"),
        ("token_embd_norm.weight", (EMBEDDING,), "f32"),
    ]
    for i in range(layers):
        blk = f"blk.{i}."
        tensors += feed(i, kind)
        if kv[i]:
            tensors += [
                (name, (EMBEDDING, EMBEDDING), kind)
                if name.endswith("attn_q.weight") or name.endswith("attn_output.weight")
                else (name, shape, type_)
                for name, shape, type_ in attention(i, kind)
            ]
        else:
            tensors += [
                (blk + "attn_norm.weight", (EMBEDDING,), "f32"),
                (blk + "shortconv.conv.weight", (3, EMBEDDING), "f32"),
                (blk + "shortconv.in_proj.weight", (EMBEDDING, 3 * EMBEDDING), kind),
                (blk + "shortconv.out_proj.weight", (EMBEDDING, EMBEDDING), kind),
            ]
    return keys, tensors


def mamba2(kind: str = "q8_0", layers: int = 6) -> tuple[Keys, Tensors]:
    """All layers are recurrent."""
    keys = common(
        "mamba2",
        layers,
        **SSM,
        **{
            "attention.head_count": 0,
            "attention.head_count_kv": 0,
            "attention.key_length": None,
            "attention.value_length": None,
            "rope.dimension_count": None,
        },
    )
    tensors = ends()
    for i in range(layers):
        blk = f"blk.{i}."
        conv = 512 + 2 * 4 * 64
        tensors += [
            (blk + "attn_norm.weight", (EMBEDDING,), "f32"),
            (blk + "ssm_in.weight", (EMBEDDING, 512 + conv + 8), kind),
            (blk + "ssm_conv1d.weight", (4, conv), "f32"),
            (blk + "ssm_conv1d.bias", (conv,), "f32"),
            (blk + "ssm_dt.bias", (8,), "f32"),
            (blk + "ssm_a", (1, 8), "f32"),
            (blk + "ssm_d", (1, 8), "f32"),
            (blk + "ssm_norm.weight", (128, 4), "f32"),
            (blk + "ssm_out.weight", (512, EMBEDDING), kind),
        ]
    return keys, tensors


def deepseek2(kind: str = "q8_0", layers: int = 4) -> tuple[Keys, Tensors]:
    """Multi-head latent attention: one compressed key per token, no values."""
    lora, rot, nope, size_v = 128, 32, 32, 32
    keys = common(
        "deepseek2",
        layers,
        leading_dense_block_count=layers,
        expert_count=8,
        expert_used_count=2,
        expert_shared_count=1,
        expert_feed_forward_length=128,
        **{
            "attention.head_count_kv": 1,
            "attention.key_length": lora + rot,
            "attention.value_length": lora,
            "attention.key_length_mla": nope + rot,
            "attention.value_length_mla": size_v,
            "attention.q_lora_rank": 128,
            "attention.kv_lora_rank": lora,
            "rope.dimension_count": rot,
        },
    )
    tensors = ends()
    for i in range(layers):
        blk = f"blk.{i}."
        tensors += [
            (blk + "attn_norm.weight", (EMBEDDING,), "f32"),
            (blk + "attn_q_a_norm.weight", (128,), "f32"),
            (blk + "attn_kv_a_norm.weight", (lora,), "f32"),
            (blk + "attn_q_a.weight", (EMBEDDING, 128), kind),
            (blk + "attn_q_b.weight", (128, HEADS * (nope + rot)), kind),
            (blk + "attn_kv_a_mqa.weight", (EMBEDDING, lora + rot), kind),
            (blk + "attn_k_b.weight", (nope, lora, HEADS), kind),
            (blk + "attn_v_b.weight", (lora, size_v, HEADS), kind),
            (blk + "attn_output.weight", (HEADS * size_v, EMBEDDING), kind),
        ]
        tensors += feed(i, kind)
    return keys, tensors


ARCHITECTURES = {
    each.__name__: each
    for each in (qwen3, llama, qwen3moe, gemma3, qwen35, qwen35moe, lfm2, mamba2, deepseek2)
}


def write_split(folder: Path, stem: str, keys: Keys, tensors: Tensors, *, parts: int) -> Path:
    """Write a split model and return its first part."""
    share = -(-len(tensors) // parts)
    for number in range(parts):
        split = {
            "split.no": Short(number),
            "split.count": Short(parts),
            "split.tensors.count": Int(len(tensors)),
        }
        write(
            folder / f"{stem}-{number + 1:05}-of-{parts:05}.gguf",
            (keys if number == 0 else {}) | split,
            tensors[number * share : (number + 1) * share],
        )
    return folder / f"{stem}-00001-of-{parts:05}.gguf"


def projector(
    width: int = EMBEDDING, *, deepstack: int = 0, kind: str = "qwen3vl_merger", **more: Any
) -> tuple[Keys, Tensors]:
    """Return a small whole projector (mmproj): two blocks of a vision encoder and its last step.

    Args:
        width: Of the model that it is for.
        deepstack: Blocks whose features are handed over as well.
        kind: Projector type.
        more: Keys to change; ``None`` takes one out.
    """
    size, feed_, merged = 64, 128, 256
    names = {
        "embedding_length": size, "attention.head_count": 2, "feed_forward_length": feed_,
        "block_count": 2, "projection_dim": width, "attention.layer_norm_epsilon": 1e-6,
        "image_size": 64, "patch_size": 16, "spatial_merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }  # fmt: skip
    keys: Keys = {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.use_gelu": True,
        **{f"clip.vision.{name}": value for name, value in names.items()},
    }
    tensors: Tensors = [
        ("v.patch_embd.weight", (16, 16, 3, size), "f16"),
        ("v.patch_embd.weight.1", (16, 16, 3, size), "f16"),
        ("v.patch_embd.bias", (size,), "f32"),
        ("v.position_embd.weight", (size, 16), "f32"),
        ("v.post_ln.weight", (size,), "f32"),
        ("v.post_ln.bias", (size,), "f32"),
    ]
    for i in range(2):
        blk = f"v.blk.{i}."
        for name, one, other in (("attn_qkv", size, 3 * size), ("attn_out", size, size),
                                 ("ffn_up", size, feed_), ("ffn_down", feed_, size)):  # fmt: skip
            tensors += [(f"{blk}{name}.weight", (one, other), "f16"),
                        (f"{blk}{name}.bias", (other,), "f32")]  # fmt: skip
        for name in ("ln1", "ln2"):
            tensors += [(f"{blk}{name}.{end}", (size,), "f32") for end in ("weight", "bias")]
    for i in range(deepstack):
        blk = f"v.deepstack.{i}."
        tensors += [(f"{blk}norm.{end}", (merged,), "f32") for end in ("weight", "bias")]
        for name, one, other in (("fc1", merged, merged), ("fc2", merged, width)):
            tensors += [(f"{blk}{name}.weight", (one, other), "f16"),
                        (f"{blk}{name}.bias", (other,), "f32")]  # fmt: skip
    for name, one, other in (("mm.0", merged, merged), ("mm.2", merged, width)):
        tensors += [(f"{name}.weight", (one, other), "f16"), (f"{name}.bias", (other,), "f32")]
    changed = {name: value for name, value in (keys | more).items() if value is not None}
    return changed, tensors
