"""`qbuild model` and the real llama-server: do they refuse the same files?

``QBUILD_TEST_SERVER`` names a native llama-server, ``QBUILD_TEST_TEMPLATES`` the patched source's
``models/templates``. Every architecture of the pin, small models of random shape of break.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbuild.modelfile.projector_traps import projector_traps
from qbuild.modelfile.summary import summarise
from support import agreement, broken_models
from support import gguf_files as g

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[2]
FILES = 130


def setting(name: str) -> Path:
    value = os.environ.get(name)
    if not value or not Path(value).exists():
        pytest.skip(f"{name} names no file")
    return Path(value)


@pytest.fixture(scope="module")
def source() -> Path:
    return setting("QBUILD_TEST_TEMPLATES").parent.parent


@pytest.fixture(scope="module")
def models(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[broken_models.Made]:
    return list(broken_models.whole(source, tmp_path_factory.mktemp("keys")))


@pytest.mark.parametrize("script", ["gguf_loader.py", "launch_options.py"])
def test_the_table_is_the_pinned_sources(script: str, source: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "ci" / script), str(source), "--check"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_architecture_can_be_made(models: list[broken_models.Made]) -> None:
    assert len({each.arch for each in models}) >= 120


def test_sound_models_are_refused_by_nobody(
    models: list[broken_models.Made], tmp_path: Path
) -> None:
    server = setting("QBUILD_TEST_SERVER")
    chosen = [each for each in models if each.arch in ("llama", "qwen3", "qwen35moe", "gemma3",
              "mamba2", "lfm2", "deepseek2", "gpt-oss", "glm4moe", "bert")]  # fmt: skip
    rows = [agreement.compare(m.arch, m.write(tmp_path / "m.gguf"), server) for m in chosen]
    assert len(rows) == 10
    assert all(each.server and each.ours for each in rows), "\n".join(e.text() for e in rows)


def test_broken_models_are_refused_by_both(
    models: list[broken_models.Made], tmp_path: Path
) -> None:
    server = setting("QBUILD_TEST_SERVER")
    rows = [
        agreement.compare(what, made.write(tmp_path / "m.gguf"), server)
        for what, made in broken_models.broken(models, FILES)
    ]
    print(agreement.summary(rows))
    other = "\n".join(each.text() for each in rows if not each.agree)
    assert not [each for each in rows if each.ours and not each.server], other
    assert sum(1 for each in rows if each.agree) >= 0.98 * FILES, other
    assert sum(1 for each in rows if not each.server) >= FILES // 2  # they really are broken


PROJECTORS = {
    "sound": (g.projector(), g.qwen3),
    "deepstack for its model": (g.projector(deepstack=1), g.qwen3vl),
    "deepstack for another": (g.projector(deepstack=1), g.qwen3moe),
    "another width": (g.projector(512), g.qwen3),
    "no type": (g.projector(**{"clip.projector_type": None}), g.qwen3),
    "unknown type": (g.projector(kind="of_tomorrow"), g.qwen3),
    "no epsilon": (g.projector(**{"clip.vision.attention.layer_norm_epsilon": None}), g.qwen3),
    "no means": (g.projector(**{"clip.vision.image_mean": None}), g.qwen3),
    "no encoder": (g.projector(**{"clip.has_vision_encoder": None}), g.qwen3),
    **{
        f"without {name}": (
            (g.projector()[0], [each for each in g.projector()[1] if each[0] != name]),
            g.qwen3,
        )
        for name in ("mm.0.weight", "mm.2.weight", "mm.2.bias", "v.blk.0.attn_out.weight",
                     "v.blk.1.ffn_down.weight")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTORS)
def test_projectors(name: str, tmp_path: Path) -> None:
    server = setting("QBUILD_TEST_SERVER")
    (keys, tensors), base = PROJECTORS[name]
    model = g.write(tmp_path / "m.gguf", *base())
    projector = g.write(tmp_path / "mmproj.gguf", keys, tensors)
    healthy, said = agreement.ask_server(model, server, "--mmproj", str(projector))
    found = summarise(model, projector)
    assert found.shape and found.chat
    traps = [*projector_traps(found.model, found.shape, found.chat, projector)]
    assert (not traps) is healthy, (said, traps)
    assert found.loads is healthy


SWAPPED = [*g.TOKENS[:70], g.TOKENS[71], g.TOKENS[70], *g.TOKENS[72:]]


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({}, True),
        ({"tokenizer.ggml.tokens": SWAPPED}, False),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 257}, False),
        ({"tokenizer.ggml.add_eos_token": True}, False),
    ],
)  # fmt: skip
def test_a_draft_and_its_target(keys: g.Keys, fits: bool, tmp_path: Path) -> None:
    server = setting("QBUILD_TEST_SERVER")
    base, tensors = g.qwen3(layers=2)
    target = g.write(tmp_path / "m.gguf", base, tensors)
    draft = g.write(tmp_path / "d.gguf", base | keys, tensors)
    healthy, said = agreement.ask_server(
        target, server, "--spec-draft-model", str(draft), "--spec-type", "draft-simple"
    )
    assert healthy
    assert ("failed to initialize speculative decoding" in said) is not fits, said
    assert summarise(target, draft=draft).loads is fits
