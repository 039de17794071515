"""A model of random weights for the benchmarks that have no real one: speed does not ask for sense.

A Qwen3 shape of about 120 million parameters, in Q4_0, F16 or F32.
"""

from __future__ import annotations

from pathlib import Path

LAYERS, WIDTH, FEED, HEADS, HEAD, VOCABULARY = 12, 768, 2304, 12, 64, 8192


def write_model(path: Path, weights: str = "Q4_0") -> Path:
    """Write the model with weights in Q4_0, F16 or F32."""
    import gguf
    import numpy as np

    dice = np.random.default_rng(1)

    def q4_0(rows: int, columns: int) -> np.ndarray:
        raw = dice.integers(0, 256, (rows, columns // 32, 18), dtype=np.uint8)
        raw[:, :, :2] = np.array([0.002], dtype="<f2").view(np.uint8)
        return raw.reshape(rows, -1)

    def matrix(name: str, rows: int, columns: int) -> None:
        if weights == "Q4_0":
            kind = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor(name, q4_0(rows, columns), raw_dtype=kind)
        else:
            normal = dice.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
            writer.add_tensor(name, normal.astype({"F16": np.float16, "F32": np.float32}[weights]))

    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(1000000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)
    ones = np.ones(WIDTH, dtype=np.float32)
    matrix("token_embd.weight", VOCABULARY, WIDTH)
    matrix("output.weight", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", ones)
    for i in range(LAYERS):
        block = f"blk.{i}."
        for name, rows, columns in (
            ("attn_q", HEADS * HEAD, WIDTH),
            ("attn_k", HEADS * HEAD, WIDTH),
            ("attn_v", HEADS * HEAD, WIDTH),
            ("attn_output", WIDTH, HEADS * HEAD),
            ("ffn_gate", FEED, WIDTH),
            ("ffn_up", FEED, WIDTH),
            ("ffn_down", WIDTH, FEED),
        ):
            matrix(f"{block}{name}.weight", rows, columns)
        for name, size in (
            ("attn_norm", WIDTH),
            ("ffn_norm", WIDTH),
            ("attn_q_norm", HEAD),
            ("attn_k_norm", HEAD),
        ):
            writer.add_tensor(f"{block}{name}.weight", np.ones(size, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
