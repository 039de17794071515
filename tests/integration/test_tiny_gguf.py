"""The tiny model: same bytes each time, readable by the gguf library, small."""

import hashlib
from pathlib import Path

import pytest

from qbuild.errors import VerifyError
from qbuild.verify import tiny_gguf

pytestmark = pytest.mark.integration


def test_same_bytes_each_time(tmp_path: Path) -> None:
    first = tiny_gguf.write(tmp_path / "a.gguf").read_bytes()
    second = tiny_gguf.write(tmp_path / "b.gguf").read_bytes()
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
    assert len(first) < 500_000


def test_is_a_qwen3_model_with_the_kernels_people_use(tmp_path: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(tiny_gguf.write(tmp_path / "tiny.gguf"))
    assert reader.fields["general.architecture"].contents() == "qwen3"
    kinds = {tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds == {"F32", "Q4_0", "Q8_0", "Q4_K", "Q6_K"}


def test_each_letter_of_the_sentence_occurs_once() -> None:
    assert len(set(tiny_gguf.SENTENCE)) == len(tiny_gguf.SENTENCE)
    assert "\n" not in tiny_gguf.SENTENCE


def test_the_sentence_follows_from_the_output_matrix_alone(tmp_path: Path) -> None:
    """Without the block's disturbance the argmax chain spells the sentence, by a wide margin."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(tiny_gguf.write(tmp_path / "tiny.gguf"))
    weights = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
    }
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    letters = tiny_gguf.byte_tokens()
    token, said = tokens.index(letters[ord("\n")]), []
    for _ in range(20):
        logits = weights["output.weight"] @ weights["token_embd.weight"][token]
        best, second = np.sort(logits)[::-1][:2]
        assert best > 2 * second
        token = int(np.argmax(logits))
        if tokens[token] == "<|im_end|>":
            break
        said.append(letters.index(tokens[token]))
    assert bytes(said).decode() == tiny_gguf.SENTENCE


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="cannot be written"):
        tiny_gguf.write(tmp_path / "no" / "tiny.gguf")


def test_every_byte_has_its_own_token() -> None:
    tokens = tiny_gguf.byte_tokens()
    assert len(tokens) == len(set(tokens)) == 256
    assert tokens[ord("a")] == "a"
    assert tokens[ord(" ")] == "Ġ"
    assert tokens[ord("\n")] == "Ċ"
