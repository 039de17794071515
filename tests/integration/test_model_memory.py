"""`qbuild model` against llama.cpp itself: buffer sizes, refusals, and the tables of what it knows.

``QBUILD_TEST_SERVER`` names a native llama-server, ``QBUILD_TEST_TEMPLATES`` the patched source's
``models/templates``.
"""

import contextlib
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qbuild.errors import ModelError
from qbuild.modelfile.chat import chat_of
from qbuild.modelfile.memory import MIB, Context, kept_bytes
from qbuild.modelfile.parts import open_model
from qbuild.modelfile.summary import summarise
from qbuild.modelfile.tables import chat_formats, table
from support import gguf_files as g

pytestmark = pytest.mark.server

BUFFER = re.compile(r"(\w+) (model|KV|RS) buffer size = +([0-9.]+) MiB")
DONE = re.compile(r"compute buffer size|error loading model|listening on|failed to load")


def setting(name: str) -> Path:
    value = os.environ.get(name)
    if not value or not Path(value).exists():
        pytest.skip(f"{name} names no file")
    return Path(value)


def load(model: Path, *flags: str, until: int = 1) -> str:
    """Load a model in llama-server and return what it printed until it had made its buffers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = setting("QBUILD_TEST_SERVER")
    command = [str(server), "-m", str(model), "--host", "127.0.0.1", "--port", port, *flags]
    # without mmap and repacking each buffer holds just the tensors that belong there
    command += ["--load-mode", "none", "--no-repack", "--no-warmup", "--fit", "off", "-lv", "4"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            if DONE.search(line):
                until -= 1
            if until == 0 or ("error" in line and "load" in line):
                break
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            process.stdout.close()
    return "".join(lines)


def buffers(log: str) -> dict[str, float]:
    """Return kind → MiB."""
    found: dict[str, float] = {}
    for _, kind, size in BUFFER.findall(log):
        found[kind] = found.get(kind, 0.0) + float(size)
    return found


CONTEXTS: dict[str, tuple[Context, list[str]]] = {
    "8K": (Context(tokens=8192), []),
    "odd, q8_0, two slots": (
        Context(tokens=20000, keys="q8_0", values="q8_0", slots=2),
        ["-ctk", "q8_0", "-ctv", "q8_0"],
    ),
    "32K, q4_0": (
        Context(tokens=32768, keys="q4_0", values="q4_0"),
        ["-ctk", "q4_0", "-ctv", "q4_0"],
    ),
}


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("arch", g.ARCHITECTURES)
def test_memory_is_what_llama_cpp_takes(arch: str, name: str, tmp_path: Path) -> None:
    context, flags = CONTEXTS[name]
    model = g.write(tmp_path / "m.gguf", *g.ARCHITECTURES[arch]())
    flags = ["-c", str(context.tokens), "--parallel", str(context.slots), *flags]
    printed = buffers(load(model, *flags))
    found = summarise(model)
    assert found.shape is not None
    assert found.weights is not None
    kept = kept_bytes(found.shape, context) / MIB
    # what is printed is rounded to 0.01 MiB, once per buffer
    assert printed["model"] == pytest.approx(found.weights.total / MIB, rel=0.001, abs=0.011)
    assert printed.get("KV", 0) + printed.get("RS", 0) == pytest.approx(kept, rel=0.001, abs=0.03)


def test_memory_of_drafting(tmp_path: Path) -> None:
    model = g.write(tmp_path / "m.gguf", *g.qwen35())
    flags = ["-c", "8192", "--parallel", "1", "--spec-type", "draft-mtp"]
    printed = buffers(load(model, *flags, until=2))
    found = summarise(model)
    assert found.shape is not None
    assert found.weights is not None
    whole = (found.weights.total + found.weights.drafts) / MIB
    assert printed["model"] == pytest.approx(whole, rel=0.001, abs=0.011)
    kept = kept_bytes(found.shape, Context(tokens=8192, mtp=True)) / MIB
    assert printed["KV"] + printed["RS"] == pytest.approx(kept, rel=0.001, abs=0.03)


def with_keys(**more: Any) -> tuple[g.Keys, g.Tensors]:
    keys, tensors = g.qwen3(layers=2)
    changed = {name: value for name, value in (keys | more).items() if value is not None}
    return changed, tensors


REFUSED = {
    "pre": with_keys(**{"tokenizer.ggml.pre": "of-tomorrow"}),
    "tokenizer": with_keys(**{"tokenizer.ggml.model": "of-tomorrow"}),
    "architecture": with_keys(**{"general.architecture": "tomorrow"}),
    "no merges": with_keys(**{"tokenizer.ggml.merges": None}),
    "no tokens": with_keys(**{"tokenizer.ggml.tokens": None}),
    "no block count": with_keys(**{"qwen3.block_count": None}),
    "more layers": with_keys(**{"qwen3.block_count": 3}),
    "other KV heads": with_keys(**{"qwen3.attention.head_count_kv": 4}),
    "other width": with_keys(**{"qwen3.embedding_length": 512}),
    "too many layers": with_keys(**{"qwen3.block_count": 1 << 20}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_refuses_is_an_error_here(name: str, tmp_path: Path) -> None:
    keys, tensors = REFUSED[name]
    model = g.write(tmp_path / "m.gguf", keys, tensors)
    log = load(model, "-c", "512")
    assert "model buffer size" not in log
    with contextlib.suppress(ModelError):  # says it even earlier
        assert not summarise(model).loads


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    model = g.write(tmp_path / "m.gguf", *g.qwen3(layers=2))
    with model.open("r+b") as stream:
        stream.truncate(model.stat().st_size - 1)
    assert "model buffer size" not in load(model, "-c", "512")
    assert not summarise(model).loads


def test_split_models_load(tmp_path: Path) -> None:
    first = g.write_split(tmp_path, "m", *g.qwen3(layers=3), parts=3)
    printed = buffers(load(first, "-c", "512"))
    found = summarise(first)
    assert found.weights is not None
    assert printed["model"] == pytest.approx(found.weights.total / MIB, rel=0.001, abs=0.011)


def source() -> Path:
    return setting("QBUILD_TEST_TEMPLATES").parent.parent


def test_the_tables_are_the_pinned_sources() -> None:
    root = source()
    arch = (root / "src" / "llama-arch.cpp").read_text(encoding="utf-8")
    names = arch[arch.index("LLM_ARCH_NAMES = {") :]
    names = names[: names.index("};")]
    known = set(re.findall(r'\{ LLM_ARCH_\w+,\s*"([^"(]+)"', names))
    assert known == set(table()["architectures"]["known"])
    vocab = (root / "src" / "llama-vocab.cpp").read_text(encoding="utf-8")
    begin, end = vocab.index('tokenizer_pre == "default"'), vocab.index("unknown pre-tokenizer")
    assert set(re.findall(r'tokenizer_pre == "([^"]+)"', vocab[begin:end])) == set(
        table()["tokenizers"]["pre"]
    )
    models = set(re.findall(r'tokenizer_model == "([^"]+)"', vocab))
    assert models == set(table()["tokenizers"]["models"])
    ggml = (root / "ggml" / "include" / "ggml.h").read_text(encoding="utf-8")
    ids = {int(n) for n in re.findall(r"^ +GGML_TYPE_(?!COUNT)\w+ += (\d+),", ggml, re.M)}
    assert ids == {row["id"] for row in table()["types"].values()}
    llama = (root / "include" / "llama.h").read_text(encoding="utf-8")
    ftypes = re.findall(r"^ +LLAMA_FTYPE_(?:ALL|MOSTLY)_(\w+) += (\d+),", llama, re.M)
    assert {n: name for name, n in ftypes} == dict(table()["file_types"])
    kinds = (root / "common" / "arg.cpp").read_text(encoding="utf-8")
    kinds = kinds[kinds.index("kv_cache_types = {") :]
    cache = re.findall(r"GGML_TYPE_(\w+)", kinds[: kinds.index("};")])
    assert {each.lower() for each in cache} == set(table()["cache"]["types"])
    windows = {
        path.stem
        for path in (root / "src" / "models").glob("*.cpp")
        if re.search(r"swa_type\s*=\s*LLAMA_SWA_TYPE_(STANDARD|CHUNKED)", path.read_text("utf-8"))
    }
    files = {"openai-moe": "gpt-oss", "granite-swa": "granite_swa", "spark2-5": "spark2_5"}
    none_or_more = {*table()["memory"]["none"], *table()["memory"]["more"]}
    assert {files.get(each, each) for each in windows} - none_or_more == set(
        table()["memory"]["window"]
    )


def test_upstreams_templates(tmp_path: Path) -> None:
    keys, tensors = g.qwen3(layers=1)
    found = {}
    for path in sorted(setting("QBUILD_TEST_TEMPLATES").glob("*.jinja")):
        keys["tokenizer.chat_template"] = path.read_text(encoding="utf-8")
        model = open_model(g.write(tmp_path / "m.gguf", keys, tensors))
        chat = chat_of(model.head)
        found[path.stem] = chat.format.parser or chat.format.name if chat.format else chat.tools
    assert {found[each] for each in ("Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash")} == {
        "qwen3-xml"
    }
    assert {found[each] for each in ("Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct")} == {"hermes"}
    assert found["google-gemma-2-2b-it"] is False
    assert found["microsoft-Phi-3.5-mini-instruct"] is False
    assert found["openai-gpt-oss-120b"] == "GPT-OSS (channels)"
    assert found["google-gemma-4-31B-it"] == "Gemma 4"
    # each rule but those that upstream has no template of is met
    met = {*found.values()}
    unmet = {each.name for each in chat_formats() if (each.parser or each.name) not in met}
    assert unmet == {"MTP (<|tool_call_start|>)"}
