"""A tiny Qwen3 model that says one known sentence, to show that a built llama.cpp computes right.

The trick: every token has a random ±1 embedding, and the output matrix's row for a token is the
embedding of the token *before* it in the sentence. After the one transformer block, whose random
quantised weights (Q4_0, Q8_0, Q4_K, Q6_K: the kernels people use) disturb the residual stream only
a little, the greedy next token is therefore known. A broken kernel shows as another sentence.

The bytes are a pure function of this file and of the ``gguf`` library's container format: weights
come from SHAKE-256, not from a random number generator whose stream may change.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.errors import VerifyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SENTENCE = "qbuild works"
"""What the model says after a prompt that ends in a line break; each letter occurs once."""

EMBEDDING = 256  # K-quants come in blocks of 256 values
HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64
CONTEXT = 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokens() -> list[str]:
    """Return GPT-2's printable stand-in for each byte value, in byte order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(stand_ins)) for b in range(256)]


def _noise(label: str, count: int) -> bytes:
    """Return ``count`` bytes that depend on the label alone."""
    return hashlib.shake_256(f"qbuild tiny model: {label}".encode()).digest(count)


def _signs(label: str, rows: int, columns: int) -> NDArray[np.float32]:
    """Return a matrix of ±1."""
    import numpy as np

    bits = np.unpackbits(np.frombuffer(_noise(label, rows * columns // 8), dtype=np.uint8))
    return (bits.astype(np.float32) * 2 - 1).reshape(rows, columns)


def _small(label: str, rows: int, columns: int) -> NDArray[np.float32]:
    """Return a matrix of exact multiples of 2**-12 between -2**-5 and 2**-5."""
    import numpy as np

    values = np.frombuffer(_noise(label, rows * columns), dtype=np.int8).astype(np.float32)
    return (values * np.float32(2.0**-12)).reshape(rows, columns)


def _q4_k(label: str, rows: int, columns: int) -> NDArray[np.uint8]:
    """Return random Q4_K blocks (the gguf library cannot quantise to it).

    A block of 256 values: fp16 scale, fp16 minimum, 12 bytes of 6-bit scales and minima, 128 bytes
    of 4-bit values; value = scale * sub_scale * q - minimum * sub_minimum. Scale 2**-15 with a
    minimum of 15/2 of it keeps the values near ±2**-6 and centred when the sub-scales are random.
    """
    import numpy as np

    blocks = rows * columns // 256
    raw = np.frombuffer(_noise(label, blocks * 144), dtype=np.uint8).reshape(blocks, 144).copy()
    head = np.array([2.0**-15, 2.0**-15 * 7.5], dtype="<f2").view(np.uint8)
    raw[:, :4] = head
    return raw.reshape(rows, columns // 256 * 144)


def _q6_k(label: str, rows: int, columns: int) -> NDArray[np.uint8]:
    """Return random Q6_K blocks: 128 + 64 bytes of 6-bit values, 16 int8 scales, one fp16 scale."""
    import numpy as np

    blocks = rows * columns // 256
    raw = np.frombuffer(_noise(label, blocks * 210), dtype=np.uint8).reshape(blocks, 210).copy()
    raw[:, 208:] = np.array([2.0**-17], dtype="<f2").view(np.uint8)
    return raw.reshape(rows, columns // 256 * 210)


def _tensors(vocabulary: int, follow: dict[int, int]) -> list[tuple[str, Any, Any]]:
    """Return name, data and quantisation (None: float32) of every tensor.

    Args:
        vocabulary: Number of tokens.
        follow: Token → the token that must come after it.
    """
    import numpy as np
    from gguf import GGMLQuantizationType as Q
    from gguf import quants

    def quantised(data: NDArray[np.float32], kind: Any) -> tuple[Any, Any]:
        return quants.quantize(data, kind), kind

    embedding = _signs("embedding", vocabulary, EMBEDDING)
    output = _signs("unused rows of the output", vocabulary, EMBEDDING) * np.float32(0.25)
    for before, after in follow.items():
        output[after] = embedding[before]
    ones = np.ones(EMBEDDING, dtype=np.float32)
    head_ones = np.ones(HEAD_SIZE, dtype=np.float32)
    q_rows, kv_rows = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    return [
        ("token_embd.weight", *quantised(embedding, Q.Q8_0)),
        ("output_norm.weight", ones, None),
        ("output.weight", *quantised(output, Q.Q8_0)),
        ("blk.0.attn_norm.weight", ones, None),
        ("blk.0.attn_q.weight", *quantised(_small("q", q_rows, EMBEDDING), Q.Q4_0)),
        ("blk.0.attn_k.weight", *quantised(_small("k", kv_rows, EMBEDDING), Q.Q8_0)),
        ("blk.0.attn_v.weight", *quantised(_small("v", kv_rows, EMBEDDING), Q.Q4_0)),
        ("blk.0.attn_output.weight", _q4_k("output", EMBEDDING, q_rows), Q.Q4_K),
        ("blk.0.attn_q_norm.weight", head_ones, None),
        ("blk.0.attn_k_norm.weight", head_ones, None),
        ("blk.0.ffn_norm.weight", ones, None),
        ("blk.0.ffn_gate.weight", _q4_k("gate", EMBEDDING, EMBEDDING), Q.Q4_K),
        ("blk.0.ffn_up.weight", *quantised(_small("up", EMBEDDING, EMBEDDING), Q.Q4_0)),
        ("blk.0.ffn_down.weight", _q6_k("down", EMBEDDING, EMBEDDING), Q.Q6_K),
    ]


def write(path: Path) -> Path:
    """Write the model (under 500 KB) and return its path.

    Args:
        path: File to write; its folder exists.

    Raises:
        VerifyError: The file cannot be written.
    """
    import gguf

    tokens = [*byte_tokens(), *SPECIALS]
    end = tokens.index("<|im_end|>")
    said = [tokens.index(byte_tokens()[b]) for b in b"\n" + SENTENCE.encode()]
    follow = dict(zip(said, [*said[1:], end], strict=True))
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    try:
        writer = gguf.GGUFWriter(path, "qwen3")
        writer.add_name("qbuild tiny")
        writer.add_block_count(1)
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(EMBEDDING)
        writer.add_feed_forward_length(EMBEDDING)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD_SIZE)
        writer.add_value_length(HEAD_SIZE)
        writer.add_rope_freq_base(1000000.0)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_K_M))
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types([normal] * 256 + [control] * len(SPECIALS))
        # llama.cpp wants a merge list; this pair never occurs in the sentence or the prompts.
        writer.add_token_merges(["ÿ ÿ"])
        writer.add_eos_token_id(end)
        writer.add_pad_token_id(tokens.index("<|endoftext|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(CHAT_TEMPLATE)
        for name, data, kind in _tensors(len(tokens), follow):
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    except OSError as error:
        raise VerifyError(
            "the tiny test model cannot be written",
            where=str(path),
            fix=error.strerror or "free some disk space",
        ) from error
    return path
