"""A tiny model that says an exact text, so that every case runs through real sampling and HTTP.

Every token has a random ±1 embedding and the one transformer block has zero weights, so what comes
out of it is what went in. The output matrix's row for a token is the embedding of the token before
it in the script: the next token is known, by a margin that no temperature can bridge. The next
token depends on the last alone, so no piece of a script may occur twice; scripts that say the same
tag again spell it with other pieces.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EMBEDDING = 256
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FIRST_TURN = "\n"
"""A prompt that ends in a line break starts the first script: Qwen's templates end like that."""


def byte_tokens() -> list[str]:
    """Return GPT-2's printable stand-in for each byte value, in byte order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(stand_ins)) for b in range(256)]


def split(text: bytes, rng: random.Random, taken: set[bytes], longest: int = 9) -> list[bytes]:
    """Cut a text into pieces of two or more bytes that are all different.

    Args:
        text: What the model is to say.
        rng: Decides about the sizes.
        taken: Pieces that other scripts use; the new ones are added.
        longest: Size of the longest piece, unless only a longer one is new.
    """
    for _ in range(200):
        pieces: list[bytes] = []
        used = set(taken)
        at = 0
        while at < len(text):
            sizes = list(range(2, longest + 1))
            rng.shuffle(sizes)
            sizes += range(longest + 1, 4 * longest)
            for size in sizes:
                piece = text[at : at + size]
                left = len(text) - at - len(piece)
                if len(piece) >= 2 and piece not in used and left != 1:
                    break
            else:
                break
            pieces.append(piece)
            used.add(piece)
            at += len(piece)
        else:
            taken |= used
            return pieces
    raise ValueError(f"cannot cut {text[:60]!r} into pieces that are all different")


def write(
    path: Path,
    scripts: Mapping[str, str | bytes | Sequence[bytes]] | str | bytes,
    template: str,
    *,
    specials: Sequence[str] = (),
    seed: int = 1,
    context: int = 4096,
    metadata: Mapping[str, Any] | None = None,
    stop: bool = True,
    longest: int = 9,
    also_after: str = "",
) -> Path:
    """Write a model that says the scripts.

    Args:
        path: File to write.
        scripts: What to say; with several, by the last byte of the prompt that starts each.
            A sequence of bytes is taken as the pieces, in this order.
        template: Chat template.
        specials: More control tokens, such as ``<tool_call>``. A script says them as one token
            only when its pieces are given and one of them is exactly the token.
        seed: Decides about the pieces and the embeddings.
        context: Context size to declare.
        metadata: More keys; lists of integers and strings.
        stop: End each script with the end-of-turn token.
        longest: Size of the longest piece.
        also_after: More last bytes of a prompt that start the first script.
    """
    import gguf
    import numpy as np

    rng = random.Random(seed)
    stand_in = byte_tokens()

    def spelled(piece: bytes) -> str:
        return "".join(stand_in[b] for b in piece)

    if isinstance(scripts, (str, bytes)):
        scripts = {FIRST_TURN: scripts}
    tokens = [*stand_in, spelled(b"  "), *SPECIALS, *specials]
    number = {token: index for index, token in enumerate(tokens)}
    taken: set[bytes] = {b"  "}
    follow: dict[int, int] = {}
    end_of_turn = number["<|im_end|>"]
    for start, script in scripts.items():
        if isinstance(script, str):
            script = script.encode()
        pieces = split(script, rng, taken, longest) if isinstance(script, bytes) else list(script)
        last = number[spelled(start.encode())]
        befores = [last]
        if not follow:
            befores += [number[spelled(other.encode())] for other in also_after]
        for piece in pieces:
            text = piece.decode() if piece.decode("utf-8", "replace") in specials else ""
            token = text or spelled(piece)
            if not text:
                assert token not in number, f"the piece {piece!r} occurs twice"
                number[token] = len(tokens)
                tokens.append(token)
            assert last not in follow
            for before in befores:
                follow[before] = number[token]
            last = number[token]
            befores = [last]
        if stop:
            follow[last] = end_of_turn

    count = len(tokens)
    noise = np.random.default_rng(seed)
    embedding = (noise.integers(0, 2, (count, EMBEDDING)) * 2 - 1).astype(np.float32)
    output = np.zeros((count, EMBEDDING), dtype=np.float32)
    rows: dict[int, list[int]] = {}
    for before, after in follow.items():
        rows.setdefault(after, []).append(before)
    for after, sources in rows.items():
        output[after] = sum(embedding[b] for b in sources)

    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_name("scripted")
    writer.add_context_length(context)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_key_length(64)
    writer.add_value_length(64)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    control = {*SPECIALS}
    kinds = gguf.TokenType
    writer.add_token_types(
        [
            kinds.CONTROL if t in control else kinds.USER_DEFINED if t in specials else kinds.NORMAL
            for t in tokens
        ]
    )
    writer.add_token_merges([f"{stand_in[0x20]} {stand_in[0x20]}"])
    writer.add_eos_token_id(end_of_turn)
    writer.add_pad_token_id(number["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for key, value in (metadata or {}).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_string(key, str(value))

    ones = np.ones(EMBEDDING, dtype=np.float32)
    zero = np.zeros((EMBEDDING, EMBEDDING), dtype=np.float32)
    head_ones = np.ones(64, dtype=np.float32)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("blk.0.attn_norm.weight", ones)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.0.{name}.weight", zero)
    writer.add_tensor("blk.0.attn_q_norm.weight", head_ones)
    writer.add_tensor("blk.0.attn_k_norm.weight", head_ones)
    writer.add_tensor("blk.0.ffn_norm.weight", ones)
    small = np.zeros((32, EMBEDDING), dtype=np.float32)
    writer.add_tensor("blk.0.ffn_gate.weight", small)
    writer.add_tensor("blk.0.ffn_up.weight", small)
    writer.add_tensor("blk.0.ffn_down.weight", np.ascontiguousarray(small.T))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
