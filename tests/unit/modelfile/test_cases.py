"""Model files as people have them: what each is said to be, and what is said to be wrong."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qbuild.errors import ModelError
from qbuild.modelfile.memory import MIB, Context, kept_bytes
from qbuild.modelfile.summary import Summary, as_json, lines, summarise
from support import gguf_files as g

Make = Callable[[Path], Path]


def model(
    name: str = "m.gguf", base: Callable[..., tuple[g.Keys, g.Tensors]] = g.qwen3, **more: Any
) -> Make:
    """A model with some keys changed (``None``: taken out); its bytes are really written."""

    def make(folder: Path) -> Path:
        keys, tensors = base()
        changed = {k: v for k, v in (keys | more).items() if v is not None}
        raw, data = g.header(changed, tensors)
        path = folder / name
        path.write_bytes(raw + bytes(data))
        return path

    return make


def kind(types: str) -> Callable[[], tuple[g.Keys, g.Tensors]]:
    return lambda: g.qwen3(types)


def split(*without: int, parts: int = 3, name: int = 1) -> Make:
    def make(folder: Path) -> Path:
        g.write_split(folder, "m", *g.qwen3(), parts=parts)
        for number in without:
            (folder / f"m-{number:05}-of-{parts:05}.gguf").unlink()
        return folder / f"m-{name:05}-of-{parts:05}.gguf"

    return make


def renamed(old: str, new: str, made: Make) -> Make:
    def make(folder: Path) -> Path:
        made(folder)
        return (folder / old).replace(folder / new)

    return make


def projector(
    width: int, name: str = "mmproj-m.gguf", *, without: str = "", deepstack: int = 0, **more: Any
) -> Make:
    def make(folder: Path) -> Path:
        keys, tensors = g.projector(width, deepstack=deepstack, **more)
        return g.write(folder / name, keys, [each for each in tensors if each[0] != without])

    return make


VISION = {
    "tokenizer.ggml.tokens": [*g.TOKENS[:256], "<|image_pad|>", *g.TOKENS[257:]],
    "tokenizer.ggml.token_type": g.Signed([1] * 256 + [3] * 5),
}


def beside(made: Make, *others: Make) -> Make:
    def make(folder: Path) -> Path:
        for other in others:
            other(folder)
        return made(folder)

    return make


def cut(made: Make, by: int) -> Make:
    def make(folder: Path) -> Path:
        path = made(folder)
        with path.open("r+b") as stream:
            stream.truncate(path.stat().st_size - by)
        return path

    return make


def copied(path: Path, name: str) -> Path:
    shutil.copy(path, path.with_name(name))
    return path


def mixed(folder: Path) -> Path:
    """Part 1 of one split, part 2 of another that was cut elsewhere."""
    keys, tensors = g.qwen3()
    first = g.write_split(folder, "m", keys, tensors, parts=2)
    (folder / "other").mkdir()
    g.write_split(folder / "other", "m", keys, [*tensors[20:], *tensors[:20]], parts=2)
    shutil.copy(folder / "other" / "m-00002-of-00002.gguf", folder / "m-00002-of-00002.gguf")
    return first


def touched(made: Make, ending: str) -> Make:
    def make(folder: Path) -> Path:
        path = made(folder)
        path.with_name(path.name + ending).touch()
        return path

    return make


def changed(made: Callable[[g.Tensors], g.Tensors], base: Any = g.qwen3) -> Make:
    """A model whose tensors are changed."""
    return lambda folder: g.write(folder / "m.gguf", base()[0], made(base()[1]))


def without(name: str, base: Any = g.qwen3) -> Make:
    return changed(lambda tensors: [each for each in tensors if each[0] != name], base)


def with_tensors(*names: str) -> Make:
    return changed(lambda tensors: [*tensors, *((name, (32,), "f32") for name in names)])


def joined(folder: Path) -> Path:
    """What `cat a-00001-of-00002.gguf a-00002-of-00002.gguf > m.gguf` makes."""
    first = g.write_split(folder, "a", *g.qwen3(), parts=2)
    parts = [first, first.with_name("a-00002-of-00002.gguf")]
    whole = folder / "m.gguf"
    whole.write_bytes(b"".join(each.read_bytes() for each in parts))
    for each in parts:
        each.unlink()
    return whole


TWICE = [*g.TOKENS[:-1], "!"]


@dataclass(frozen=True)
class Case:
    make: Make
    trap: str = ""
    says: str = ""
    error: str = ""
    loads: bool = True


CASES = {
    # what is fine
    "dense": Case(model(), says="qwen3"),
    "tied output": Case(model(base=g.llama), says="llama"),
    "experts": Case(model(base=g.qwen3moe), says="experts:  8, 2 used per token"),
    "window": Case(model(base=g.gemma3), says="12: 10 look back 512 tokens only"),
    "hybrid": Case(model(base=g.qwen35), says="8: 6 are recurrent, 2 keep KV"),
    "hybrid with experts": Case(model(base=g.qwen35moe), says="experts:  8"),
    "drafts": Case(model(base=g.qwen35), says="MTP:      1 layer that drafts"),
    "short convolution": Case(model(base=g.lfm2), says="6: 4 are recurrent, 2 keep KV"),
    "recurrent only": Case(model(base=g.mamba2), says="6: 6 are recurrent, 0 keep KV"),
    "latent attention": Case(model(base=g.deepseek2), says="deepseek2"),
    "split, first part": Case(split(), says="3 parts"),
    "split, last part": Case(split(name=3), says="3 parts"),
    "quant as named": Case(model("m-Q8_0.gguf"), says="Q8_0: q8_0 100%"),
    "dynamic quant": Case(model("m-UD-Q8_K_XL.gguf")),
    "yarn": Case(
        model(
            **{
                "qwen3.rope.scaling.type": "yarn",
                "qwen3.rope.scaling.factor": 4.0,
                "qwen3.rope.scaling.original_context_length": 8192,
            }
        ),
        says="RoPE base 1,000,000, yarn ×4 from 8,192",
    ),
    "hermes": Case(model(), says="reads it as hermes"),
    "qwen xml": Case(model(base=g.qwen35), says="reads it as qwen3-xml"),
    "projector beside it": Case(beside(model(**VISION), projector(256)), says="mmproj-m.gguf"),
    "a projector": Case(projector(256), says="(mmproj), qwen3vl_merger"),
    "an adapter": Case(model(**{"general.type": "adapter"}), says="LoRA adapter"),
    "an encoder": Case(model(base=g.bert), says="no context is kept"),
    # what will surprise
    "renamed quant": Case(model("m-Q4_K_M.gguf"), trap="quant-name"),
    "quant that the header denies": Case(
        model("m-Q4_0.gguf", base=kind("q4_0"), **{"general.file_type": 15}), trap="quant-name"
    ),
    "content that is not as named": Case(
        model("m-Q8_0.gguf", base=kind("q4_0")), trap="quant-name"
    ),
    "no template": Case(model(**{"tokenizer.chat_template": None}), trap="no-template"),
    "no tools": Case(model(**{"tokenizer.chat_template": g.CHATML}), trap="no-tools"),
    "no tool tokens": Case(
        model(**{"tokenizer.ggml.token_type": g.Signed([1] * 261)}), trap="no-tool-tokens"
    ),
    "pre-tokenizer not said": Case(model(**{"tokenizer.ggml.pre": None}), trap="pre-missing"),
    "mmproj missing": Case(model(**VISION), trap="mmproj-missing"),
    "mmproj of another model": Case(
        beside(model(**VISION), projector(512)), trap="mmproj-other", loads=False
    ),
    "heads that draft were taken out": Case(
        model(base=lambda: (g.qwen35()[0], [t for t in g.qwen35()[1] if "nextn" not in t[0]])),
        trap="tensor-missing",
        loads=False,
    ),
    "a hole": Case(lambda folder: g.write(folder / "m.gguf", *g.qwen3()), trap="holes"),
    # public reports (their ids)
    "101-split-joined-with-cat": Case(joined, error="joined with `cat`"),
    "104-vision-tensors-inside": Case(
        with_tensors("v.blk.0.attn_q.weight", "mm.0.weight", "v.patch_embd.weight"),
        trap="tensors-unread",
        loads=False,
    ),
    "105-one-tensor-too-many": Case(
        with_tensors("extra.weight"), trap="tensors-unread", loads=False
    ),
    "106-norm-missing": Case(without("blk.0.attn_norm.weight"), trap="tensor-missing", loads=False),
    "110-rope-sections-three": Case(
        model(base=g.qwen35, **{"qwen35.rope.dimension_sections": [11, 11, 10]}),
        trap="key-wrong",
        loads=False,
    ),
    "111-rope-sections-missing": Case(
        model(base=g.qwen35, **{"qwen35.rope.dimension_sections": None}),
        trap="key-missing",
        loads=False,
    ),
    "116-mmproj-deepstack-on-qwen3moe": Case(
        beside(model(base=g.qwen3moe), projector(256, deepstack=3)),
        trap="mmproj-other",
        loads=False,
    ),
    "118-mmproj-without-projector-type": Case(
        beside(model(), projector(256, **{"clip.projector_type": None})),
        trap="mmproj-refused",
        loads=False,
    ),
    "120-mmproj-tensor-missing": Case(
        beside(model(), projector(256, without="mm.2.weight")), trap="mmproj-refused", loads=False
    ),
    "126-template-syntax-error": Case(
        model(**{"tokenizer.chat_template": "{% for m in messages %}{{ m.content }}"}),
        trap="template",
        loads=False,
    ),
    # more of these kinds
    "output norm missing": Case(without("output_norm.weight"), trap="tensor-missing", loads=False),
    "an expert's tensor missing": Case(
        without("blk.3.ffn_up_exps.weight", g.qwen3moe), trap="tensor-missing", loads=False
    ),
    "a convolution missing": Case(
        without("blk.1.ssm_conv1d.weight", g.qwen35), trap="tensor-missing", loads=False
    ),
    "a norm of another size": Case(
        changed(
            lambda ts: [
                (n, (512,), k) if n == "blk.2.ffn_norm.weight" else (n, s, k) for n, s, k in ts
            ]
        ),
        trap="dimensions",
        loads=False,
    ),
    "a layer too many": Case(
        with_tensors("blk.6.attn_norm.weight"), trap="tensors-unread", loads=False
    ),
    "rms epsilon missing": Case(
        model(**{"qwen3.attention.layer_norm_rms_epsilon": None}), trap="key-missing", loads=False
    ),
    "a signed number": Case(
        model(**{"qwen3.attention.key_length": g.Int(64)}), trap="key-wrong", loads=False
    ),
    "a number as float": Case(
        model(base=g.qwen3moe, **{"qwen3moe.expert_count": 8.0}),
        error="expert_count",
    ),
    "more experts used than there are": Case(
        model(base=g.qwen3moe, **{"qwen3moe.expert_used_count": 9}), trap="key-wrong", loads=False
    ),
    "a token twice": Case(
        model(**{"tokenizer.ggml.tokens": TWICE}), trap="vocabulary", loads=False
    ),
    "too few token types": Case(
        model(**{"tokenizer.ggml.token_type": g.Signed([1] * 200)}), trap="vocabulary", loads=False
    ),
    "too few scores": Case(
        model(**{"tokenizer.ggml.scores": [0.0] * 9}), trap="vocabulary", loads=False
    ),
    "a signed token id": Case(
        model(**{"tokenizer.ggml.eos_token_id": g.Int(258)}), trap="vocabulary", loads=False
    ),
    "template: endif without if": Case(
        model(**{"tokenizer.chat_template": "{{ messages }}{{ tools }}<tool_call>{% endif %}"}),
        trap="template",
        loads=False,
    ),
    "template: text not closed": Case(
        model(**{"tokenizer.chat_template": "{{ 'x }}"}), trap="template", loads=False
    ),
    "template that includes": Case(
        model(**{"tokenizer.chat_template": "{% include 'x' %}"}), trap="template", loads=False
    ),
    "template with generation": Case(
        model(**{"tokenizer.chat_template": g.HERMES + "{% generation %}x{% endgeneration %}"})
    ),
    "mmproj without means": Case(
        beside(model(), projector(256, **{"clip.vision.image_mean": None})),
        trap="mmproj-refused",
        loads=False,
    ),
    "mmproj of nothing": Case(
        beside(model(), projector(256, **{"clip.has_vision_encoder": None})),
        trap="mmproj-refused",
        loads=False,
    ),
    "mmproj with deepstack for its model": Case(
        beside(model(base=g.qwen3vl), projector(256, deepstack=1)), says="mmproj-m.gguf"
    ),
    "mmproj with more deepstack than its model": Case(
        beside(model(base=g.qwen3vl), projector(256, deepstack=2)), trap="mmproj-other", loads=False
    ),
    "a norm as f16": Case(
        changed(lambda ts: [(n, s, "f16" if "attn_norm" in n else k) for n, s, k in ts]),
        trap="key-wrong",
        loads=False,
    ),
    "template with an unknown filter": Case(
        model(**{"tokenizer.chat_template": "{{ messages[0].content | no_such_filter }}"}),
        trap="template",
        loads=False,
    ),
    "mmproj of another model, in a folder of many": Case(
        beside(model(), projector(512), model("other.gguf"))
    ),
    "rope base of Qwen3.5 left out": Case(
        model(base=g.qwen35, **{"qwen35.rope.freq_base": None}), trap="rope-base"
    ),
    "rope base of Qwen3.5 too small": Case(
        model(base=g.qwen35moe, **{"qwen35moe.rope.freq_base": 10000.0}), trap="rope-base"
    ),
    "control tokens beyond the vocabulary": Case(
        model(**{"qwen3.control_token_ids": [259, 9999]}), trap="control-ids"
    ),
    "control tokens as texts": Case(
        model(**{"qwen3.control_token_ids": ["<tool_call>"]}), trap="control-ids"
    ),
    "control tokens": Case(model(**{"qwen3.control_token_ids": [259, 260]})),
    # what does not load
    "truncated": Case(cut(model(), 1), trap="truncated", loads=False),
    "half of it": Case(cut(model(), 3_000_000), trap="truncated", loads=False),
    "part missing": Case(split(2), trap="part-missing", loads=False),
    "two parts missing": Case(split(2, 3), trap="part-missing", loads=False),
    "part truncated": Case(cut(split(name=3), 100), trap="truncated", loads=False),
    "still downloading": Case(touched(model(), ".aria2"), trap="unfinished", loads=False),
    "unknown pre-tokenizer": Case(
        model(**{"tokenizer.ggml.pre": "tomorrow"}), trap="pre-unknown", loads=False
    ),
    "unknown tokenizer": Case(
        model(**{"tokenizer.ggml.model": "tomorrow"}), trap="tokenizer", loads=False
    ),
    "no tokenizer": Case(model(**{"tokenizer.ggml.model": None}), trap="no-tokenizer", loads=False),
    "no tokens": Case(model(**{"tokenizer.ggml.tokens": None}), trap="no-tokens", loads=False),
    "no merges": Case(model(**{"tokenizer.ggml.merges": None}), trap="no-merges", loads=False),
    "unknown architecture": Case(
        model(
            **{"general.architecture": "tomorrow"}
            | {f"tomorrow.{k[6:]}": v for k, v in g.qwen3()[0].items() if k.startswith("qwen3.")}
        ),
        trap="architecture",
        loads=False,
    ),
    "vocabulary only": Case(model(base=lambda: (g.qwen3()[0], [])), trap="no-tensors", loads=False),
    "a layer less": Case(model(**{"qwen3.block_count": 7}), trap="layers-missing", loads=False),
    "other heads": Case(
        model(**{"qwen3.attention.head_count_kv": 4}), trap="dimensions", loads=False
    ),
    "other width": Case(model(**{"qwen3.embedding_length": 512}), trap="dimensions", loads=False),
    # what cannot be read as a model at all
    "first part missing": Case(split(1, name=2), error="first part of the model is missing"),
    "part renamed": Case(
        renamed("m-00001-of-00003.gguf", "whole.gguf", split()), error="part 1 of 3"
    ),
    "parts mixed up": Case(
        renamed("m-00002-of-00003.gguf", "m-00001-of-00003.gguf", split()),
        error="the file is part 2 of 3, its name says 1 of 3",
    ),
    "one part twice": Case(
        lambda folder: copied(split()(folder), "m-00002-of-00003.gguf"),
        error="the file is part 1 of 3, its name says 2",
    ),
    "parts of two models": Case(mixed, error="tensor of the same name"),
    "whole file named as a part": Case(
        renamed("m.gguf", "m-00001-of-00001.gguf", model()), error="the file does not"
    ),
    "part 4 of 3": Case(
        renamed("m-00003-of-00003.gguf", "m-00004-of-00003.gguf", split()), error="part 4 of 3"
    ),
    "cut up by bytes": Case(
        renamed("m.gguf", "m.gguf.part1of2", model()), error="a piece of a file"
    ),
    "no architecture": Case(model(**{"general.architecture": None}), error="which architecture"),
    "no block count": Case(model(**{"qwen3.block_count": None}), error="block_count` is missing"),
    "a million layers": Case(model(**{"qwen3.block_count": 1 << 20}), error="block_count"),
    "text for a number": Case(
        model(**{"qwen3.block_count": "six"}), error="must be a whole number"
    ),
    "too few heads listed": Case(
        model(**{"qwen3.attention.head_count_kv": [2, 2]}), error="for each of 6 layers"
    ),
    "number for a text": Case(model(**{"tokenizer.ggml.pre": 7}), error="must be a text"),
}


def test_there_are_enough() -> None:
    assert len(CASES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path, told: Callable[[str], None]) -> None:
    case = CASES[name]
    path = case.make(tmp_path)
    if case.error:
        with pytest.raises(ModelError, match=case.error) as caught:
            summarise(path)
        assert caught.value.fix
        told(caught.value.render())
        return
    found = summarise(path)
    told("; ".join(f"{each.severity} [{each.id}] {each.what}" for each in found.traps))
    seen = {trap.id for trap in found.traps if case.loads or trap.severity == "error"}
    # split models are written with holes, which is said as well
    assert seen - {"holes"} == ({case.trap} - {"holes"} - {""}), found.traps
    if case.trap == "holes" and hasattr(os.stat_result, "st_blocks"):  # which Windows lacks
        assert "holes" in seen
    assert found.loads is case.loads
    assert case.says in "\n".join(lines(found))
    assert as_json(found)["loads"] is case.loads


def summary(base: Callable[..., tuple[g.Keys, g.Tensors]], folder: Path) -> Summary:
    return summarise(g.write(folder / "m.gguf", *base()))


@pytest.mark.parametrize(
    ("base", "context", "mib"),
    [
        # what the pinned llama-server printed for these files (KV and RS buffers together)
        (g.qwen3, Context(tokens=8192), 24.00),
        (g.qwen3, Context(tokens=32768), 96.00),
        (g.qwen3, Context(tokens=20000, keys="q8_0", values="q8_0", slots=2), 31.88),
        (g.llama, Context(tokens=8192), 24.00),
        (g.qwen3moe, Context(tokens=8192), 24.00),
        (g.gemma3, Context(tokens=8192), 8.00 + 5.00),
        (g.gemma3, Context(tokens=20000, keys="q4_0", values="q4_0", slots=3), 5.70 + 4.22),
        (g.qwen35, Context(tokens=8192), 8.00 + 0.82),
        (g.qwen35, Context(tokens=8192, slots=2), 8.00 + 1.64),
        (g.qwen35, Context(tokens=8192, mtp=True), 8.00 + 3.28 + 4.00),
        (g.qwen35moe, Context(tokens=8192), 8.00 + 0.82),
        (g.lfm2, Context(tokens=8192), 8.00 + 0.01),
        (g.mamba2, Context(tokens=8192), 0.82),
        (g.deepseek2, Context(tokens=8192), 10.00),
    ],
)
def test_memory(
    base: Callable[..., tuple[g.Keys, g.Tensors]], context: Context, mib: float, tmp_path: Path
) -> None:
    found = summary(base, tmp_path)
    assert found.shape is not None
    assert kept_bytes(found.shape, context) / MIB == pytest.approx(mib, abs=0.02)


@pytest.mark.parametrize(
    ("base", "kv", "windows"),
    [
        (g.gemma3, set(range(12)), set(range(12)) - {5, 11}),
        (g.qwen35, {3, 7}, set()),
        (g.lfm2, {2, 5}, set()),
        (g.mamba2, set(), set()),
    ],
)
def test_which_layers_keep_what(
    base: Callable[..., tuple[g.Keys, g.Tensors]],
    kv: set[int],
    windows: set[int],
    tmp_path: Path,
) -> None:
    shape = summary(base, tmp_path).shape
    assert shape is not None
    assert {i for i, each in enumerate(shape.layers) if each.keys} == kv
    assert {i for i, each in enumerate(shape.layers) if each.window} == windows
    recurrent = {i for i, each in enumerate(shape.layers) if each.state}
    assert not recurrent & kv
    assert recurrent | kv == set(range(len(shape.layers)))


@pytest.mark.parametrize(
    ("base", "mib"),
    [
        (g.qwen3, 4.53),
        (g.llama, 4.46),
        (g.gemma3, 8.89),
        (g.qwen3moe, 6.97),
        (g.qwen35, 7.65),
        (g.qwen35moe, 11.70),
        (g.lfm2, 3.94),
        (g.mamba2, 3.47),
        (g.deepseek2, 2.84),
    ],
)
def test_weights(base: Callable[..., tuple[g.Keys, g.Tensors]], mib: float, tmp_path: Path) -> None:
    found = summary(base, tmp_path)
    assert found.weights is not None
    assert found.weights.total / MIB == pytest.approx(mib, abs=0.006)


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    path = model(**{"general.name": "bad\x1b[2J\nname"})(tmp_path)
    shown = "\n".join(lines(summarise(path)))
    assert "\x1b" not in shown
    assert "bad\ufffd[2J\ufffdname" in shown
    for keys, end in (
        ({"general.architecture": "a\x1b[2J"}, None),
        ({"x\x1b[2J": "v" * 99}, -60),
        ({"general.architecture": 7, "general.name": "a\x1b"}, None),
        ({"general.architecture": "a", "a.block_count": "\x1b[2J"}, None),
    ):
        raw, _ = g.header(keys, [])
        path.write_bytes(raw[:end])
        with pytest.raises(ModelError) as caught:
            summarise(path)
        assert "\x1b" not in str(caught.value)


def test_122_draft_of_another_vocabulary(tmp_path: Path, told: Callable[[str], None]) -> None:
    target = model()(tmp_path)
    (tmp_path / "other").mkdir()

    def trap_of(**more: Any) -> tuple[str, ...]:
        draft = model("draft.gguf", **more)(tmp_path / "other")
        found = summarise(target, draft=draft)
        return tuple(each.what for each in found.traps if each.id == "draft-other")

    assert trap_of() == ()
    swapped = [*g.TOKENS[:70], g.TOKENS[71], g.TOKENS[70], *g.TOKENS[72:]]
    told(trap_of(**{"tokenizer.ggml.tokens": swapped})[0])
    assert (
        "token 70 is 'F' in one and 'G' in the other"
        in trap_of(**{"tokenizer.ggml.tokens": swapped})[0]
    )
    # the first five may differ, and the last hundred may be missing
    begin = ["~1", "~2", "~3", "~4", "~5", *g.TOKENS[5:]]
    assert trap_of(**{"tokenizer.ggml.tokens": begin}) == ()
    kinds = {"tokenizer.ggml.token_type": None}
    assert trap_of(**{"tokenizer.ggml.tokens": g.TOKENS[:160]} | kinds) == ()
    assert "261 and 100 tokens" in trap_of(**{"tokenizer.ggml.tokens": g.TOKENS[:100]} | kinds)[0]
    assert "tokenizers are gpt2 and llama" in trap_of(**{"tokenizer.ggml.model": "llama"})[0]
    adds = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 257}
    assert "only one of them adds a first token" in trap_of(**adds)[0]
    assert "only one of them adds a last" in trap_of(**{"tokenizer.ggml.add_eos_token": True})[0]


def test_every_trap_is_in_the_reference() -> None:
    import re

    import qbuild.modelfile

    root = Path(__file__).parents[3]
    names = ("traps", "demands", "projector_traps", "pair", "promises")
    folder = Path(qbuild.modelfile.__file__).parent
    code = "".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in names)
    page = (root / "docs" / "reference" / "model.md").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([a-z-]+)"', code)
    assert len(ids) > 15
    for each in ids:
        assert f"`{each}`" in page
        tested = any(case.trap == each for case in CASES.values())
        assert tested or each in ("draft-other", "diffusion", "mtp-stripped")
