"""The header reader: what is there, cut off anywhere, damaged anywhere, made to harm."""

import random
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qbuild.errors import ModelError, UsageError
from qbuild.modelfile.header import List, _Reader, read_header
from qbuild.modelfile.summary import as_json, summarise
from support import gguf_files as g

SMALL_VOCABULARY = {
    "tokenizer.ggml.tokens": ["a", "b", "<|im_end|>"],
    "tokenizer.ggml.token_type": g.Signed([1, 1, 3]),
    "tokenizer.chat_template": "{{ messages }}",
}


def small(**more: Any) -> tuple[g.Keys, g.Tensors]:
    """A model whose header is short enough to be cut at every byte."""
    keys = g.common("qwen3", 1) | SMALL_VOCABULARY | more
    tensors: g.Tensors = [
        ("token_embd.weight", (256, 3), "q8_0"),
        *g.attention(0, "q8_0"),
    ]
    return keys, tensors


def check(path: Path, raw: bytes, data: int = 0) -> str:
    """Write a file and read it: an error that names something, or numbers that are numbers."""
    with path.open("wb") as stream:
        stream.write(raw)
        stream.truncate(len(raw) + data)
    try:
        found = as_json(summarise(path))
    except ModelError as error:
        assert error.what
        assert error.where
        return error.what
    assert 0 <= found.get("weights_bytes", 0) < 1 << 63
    return ""


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail when the process grew by more than 96 MB; Windows does not say how much it grew."""
    if sys.platform == "win32":
        yield
        return
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 96 << 10


def test_everything_is_read(tmp_path: Path) -> None:
    keys, tensors = small(**{"general.truth": True, "general.list": [1.5, 2.5]})
    path = g.write(tmp_path / "m.gguf", keys, tensors)
    head = read_header(path)
    raw, data = g.header(keys, tensors)
    assert (head.version, head.data_offset, head.data_end) == (3, len(raw), len(raw) + data)
    assert head.text("general.architecture") == "qwen3"
    assert head.integer("qwen3.attention.head_count_kv") == 2
    assert head.number("qwen3.rope.freq_base") == 1e6
    assert head.flag("general.truth") is True
    listed = head.keys["general.list"]
    assert isinstance(listed, List)
    assert (listed.kind, listed.count) == (6, 2)
    assert head.texts("tokenizer.ggml.tokens", [2, 0, 99]) == ["<|im_end|>", "a"]
    assert head.positions("tokenizer.ggml.token_type", (3, 4), most=9) == [2]
    first = head.tensors[0]
    assert (first.name, first.shape, first.type.name) == ("token_embd.weight", (256, 3), "q8_0")
    assert first.size == 3 * 8 * 34
    assert first.values == 768
    assert head.text("not.there") is None


@pytest.mark.parametrize("arch", g.ARCHITECTURES)
def test_every_architecture(arch: str, tmp_path: Path) -> None:
    path = g.write(tmp_path / "m.gguf", *g.ARCHITECTURES[arch]())
    head = read_header(path)
    assert head.data_end == head.size == path.stat().st_size
    found = summarise(path)
    assert found.loads, found.traps
    assert found.weights is not None
    assert found.weights.total + found.weights.drafts == sum(t.size for t in head.tensors)


def test_cut_off_at_every_byte(tmp_path: Path) -> None:
    keys, tensors = small()
    raw, _ = g.header(keys, tensors)
    path = tmp_path / "m.gguf"
    said = set()
    for length in range(len(raw.rstrip(b"\0"))):
        what = check(path, raw[:length])
        assert what, length
        assert "empty" in what if length == 0 else ("ends inside" in what or length < 4), what
        said.add(what.partition(" in ")[2] or what)
    # each field is named: magic, counts, each key and list, each tensor
    assert {"the version", "the number of tensors", "the number of keys"} <= said
    for key in keys:
        assert any(f"`{key}`" in each for each in said), key
    assert any("(`blk.0.attn_k_norm.weight`)" in each for each in said)


def test_the_data_is_cut_off(tmp_path: Path) -> None:
    keys, tensors = small()
    raw, data = g.header(keys, tensors)
    path = tmp_path / "m.gguf"
    for missing in (1, 1000, data):
        path.write_bytes(raw + bytes(data - missing))
        trap = next(each for each in summarise(path).traps if each.severity == "error")
        assert trap.id == "truncated"
        assert f"{len(raw) + data - missing:,} of {len(raw) + data:,}" in trap.what


def test_every_byte_damaged(tmp_path: Path) -> None:
    keys, tensors = small()
    raw, data = g.header(keys, tensors)
    path = tmp_path / "m.gguf"
    dice = random.Random(1)
    with little_memory():
        for at in range(len(raw)):
            wrong = bytearray(raw)
            wrong[at] = dice.choice((0, 0xFF, 0x80, wrong[at] ^ 1, wrong[at] ^ 0x40))
            check(path, bytes(wrong), data)


HUGE = (0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 1 << 62, 1 << 40, 1 << 32, 1 << 24, 1 << 20)


def test_every_number_made_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file of 20 GB, so that its size forbids nothing."""
    keys, tensors = small()
    raw, data = g.header(keys, tensors)
    path = tmp_path / "m.gguf"
    fields: list[tuple[int, str]] = []
    number = _Reader._number

    def noting(self: _Reader, code: str, what: str) -> Any:
        fields.append((self.at, code))
        return number(self, code, what)

    with monkeypatch.context() as patched:
        patched.setattr(_Reader, "_number", noting)
        assert not check(path, raw, data)
    lists = [value for value in read_header(path).keys.values() if isinstance(value, List)]
    fields += [(start, "Q") for each in lists for start in each.starts or ()]
    assert len(fields) > 100
    with little_memory():
        for at, code in fields:
            size = struct.calcsize(code)
            for huge in HUGE if size == 8 else HUGE[:2]:
                wrong = raw[:at] + struct.pack("<Q", huge)[:size] + raw[at + size :]
                check(path, wrong, 20 << 30)


def wrong_header(counts: bytes = b"", body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<I", version) + counts + body


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "empty"),
        (b"GG", "no GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>login", "web page"),
        (b'{"error": "not found"}', "JSON"),
        (b"PK\x03\x04...", "zip"),
        (b"lmgg" + bytes(20), "before GGUF"),
        (b"\x40\0\0\0\0\0\0\0{" + b'"__metadata__"', "safetensors"),
        (bytes(600), "nothing but zeros"),
        (b"MZ\x90", "Windows program"),
        (wrong_header(version=1), "version 1"),
        (wrong_header(version=4), "version 4"),
        (wrong_header(version=0), "version 0"),
        (wrong_header(version=3 << 24), "big-endian"),
        (wrong_header(struct.pack("<qq", -1, 0)), "-1 tensors"),
        (wrong_header(struct.pack("<qq", 0, -1)), "-1 keys"),
        (wrong_header(struct.pack("<qq", 0, 1 << 40)), "keys"),
        (wrong_header(struct.pack("<qq", 0, 1), g.text("")), "empty name"),
        (wrong_header(struct.pack("<qq", 0, 2), g.key("a", 1) + g.key("a", 2)), "twice"),
        (wrong_header(struct.pack("<qq", 0, 1), g.text("a") + struct.pack("<i", 99)), "type 99"),
        (
            wrong_header(struct.pack("<qq", 0, 1), g.text("a") + struct.pack("<iiQ", 9, 9, 1)),
            "items of `a` have type 9",
        ),
        (
            wrong_header(struct.pack("<qq", 0, 1), g.key("general.alignment", 24)),
            "no power of two",
        ),
        (
            wrong_header(struct.pack("<qq", 0, 1), g.key("general.alignment", "x")),
            "no power of two",
        ),
        (
            wrong_header(struct.pack("<qq", 0, 1), g.text("a") + struct.pack("<iQ", 8, 1 << 50)),
            "bytes long",
        ),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=what) as caught:
        read_header(path)
    assert caught.value.fix
    assert str(path) in (caught.value.where or "")


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    return (
        g.text(name)
        + struct.pack(f"<I{len(shape)}q", len(shape), *shape)
        + struct.pack("<iQ", kind, offset)
    )


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([tensor("t", (32,), 999)], "fork"),
        ([tensor("t", (32,), 137)], "fork"),
        ([tensor("t", (32,), 31)], "Q4_0_4_4"),
        ([tensor("t", (32,), 4)], "Q4_2"),
        ([tensor("t", (32,), -1)], "type -1"),
        ([tensor("t", (33,), 8)], "no multiple of 32"),
        ([tensor("t", (), 8)], "have 1 values, no multiple of 32"),
        ([tensor("t", (-32,), 0)], "shape"),
        ([tensor("t", (1 << 40, 1 << 40), 0)], "shape"),
        ([tensor("t", (1, 1, 1, 1, 1), 0)], "5 dimensions"),
        ([tensor("t", (32,), 0, 32)], "lies at 32, not at 0"),
        ([tensor("t", (32,), 0), tensor("t", (32,), 0, 128)], "twice"),
        ([tensor("t" * 64, (32,), 0)], "64 bytes long"),
    ],
)
def test_wrong_tensors(entries: list[bytes], what: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(wrong_header(struct.pack("<qq", len(entries), 0), b"".join(entries)))
    with pytest.raises(ModelError, match=what):
        read_header(path)


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a file"):
        read_header(tmp_path)
    with pytest.raises(UsageError, match="there is no file"):
        read_header(tmp_path / "none.gguf")


def test_a_vocabulary_larger_than_the_block_that_is_read(tmp_path: Path) -> None:
    tokens = [f"token {i} " + "x" * (i % 97) for i in range(40_000)]
    keys, tensors = small(
        **{
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": g.Signed([1] * 39_999 + [3]),
            "tokenizer.ggml.merges": tokens,
        }
    )
    tensors[0] = ("token_embd.weight", (256, 40_000), "q8_0")
    path = g.write(tmp_path / "m.gguf", keys, tensors)
    found = summarise(path)
    assert found.chat is not None
    assert found.chat.control == (tokens[-1],)
    assert found.shape is not None
    assert found.shape.vocabulary == 40_000
    picked = [0, 1, 12_345, 20_000, 39_999]
    assert read_header(path).texts("tokenizer.ggml.tokens", picked) == [tokens[i] for i in picked]


def test_only_the_head_of_a_large_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, tensors = g.qwen3()
    path = g.write(tmp_path / "m.gguf", keys, [*tensors, ("big", (1 << 20, 20_000), "q8_0")])
    assert path.stat().st_size > 20 << 30
    read = 0
    take = Path.open

    def counting(self: Path, *args: Any, **kwargs: Any) -> Any:
        stream = take(self, *args, **kwargs)
        if self != path:
            return stream
        inner = stream.read

        class Counting:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                stream.close()

            def seek(self, *where: int) -> int:
                return int(stream.seek(*where))

            def read(self, size: int = -1) -> bytes:
                nonlocal read
                data: bytes = inner(size)
                read += len(data)
                return data

        return Counting()

    monkeypatch.setattr(Path, "open", counting)
    traps = [each.id for each in summarise(path).traps if each.severity == "error"]
    assert traps == ["tensors-unread"]  # nobody reads one of that name
    assert 0 < read < 3 << 20
