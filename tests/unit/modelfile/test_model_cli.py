"""``qbuild model`` as it is typed."""

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from qbuild.cli.main import run
from qbuild.recipe.levels import LEVELS
from support import gguf_files as g

ALL_V3 = [each for level in ("x86-64-v2", "x86-64-v3") for each in LEVELS[level].flags]
FACTS = {
    "os": "windows",
    "ram_gb": 32,
    "cpu": {"arch": "x86_64", "cores": 6, "flags": []},
    "gpus": [{"name": "GTX 1060 6GB", "vendor": "nvidia", "vram_gb": 6, "capability": "6.1"}],
}


@pytest.fixture
def facts(tmp_path: Path) -> str:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(FACTS), encoding="utf-8")
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    keys, tensors = g.qwen35moe()
    raw, data = g.header(keys, tensors)
    path = tmp_path / "m 模型-Q8_0.gguf"
    path.write_bytes(raw + bytes(data))
    return str(path)


def test_a_table_and_a_command(model: str, facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", model, "--facts", facts, "--recipe", "avx2", "--os", "linux"]) == 0
    out = capsys.readouterr().out
    assert "8: 6 are recurrent, 2 keep KV" in out
    assert "with recipe avx2: no GPU, 30.00 GiB of RAM usable" in out
    assert "      8192     8.8 MiB     5.1 MiB     3.1 MiB" in out
    command = shlex.split(out.strip().splitlines()[-1])
    assert command[:3] == ["./llama-server", "-m", model]
    assert command[3:] == ["--ctx-size", "8192", "--parallel", "1"]


def test_windows_quoting(model: str, facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", model, "--facts", facts, "--recipe", "laptop"]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith(f'.\\llama-server.exe -m "{model}" --ctx-size')


def test_json(model: str, facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["model", model, "--facts", facts, "--recipe", "avx2", "--json", "--sha256"]
    assert run([*args, "--ctx-size", "16384", "--cache-type", "q8_0", "--parallel", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["architecture"] == "qwen35moe"
    assert found["chat"]["parser"] == "hermes"
    assert found["quantisation"]["header"] == "Q8_0"
    assert found["loads"] is True
    digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    assert found["sha256"] == {Path(model).name: digest}
    suggested = found["fit"]["suggested"]
    assert (suggested["context"], suggested["cache_type"]) == (16384, "q8_0")
    assert found["fit"]["notes"] == ["recipe avx2 uses no GPU"]
    assert found["fit"]["command"].endswith("--cache-type-v q8_0 --parallel 2")
    assert (
        found["fit"]["rows"][0]["kept_bytes"]["f16"] > found["fit"]["rows"][0]["kept_bytes"]["q4_0"]
    )


def test_more_context_than_the_model_knows(
    model: str, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["model", model, "--facts", facts, "--recipe", "avx2", "--ctx-size", "65536"]
    assert run(args) == 0
    assert "trained for 32768 tokens of context, not 65536" in capsys.readouterr().out


def test_little_memory_is_left_for_prompts(
    model: str, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["model", model, "--facts", facts, "--recipe", "avx2", "--json"]
    assert run([*args, "--ram", "4"]) == 0
    (_, note) = json.loads(capsys.readouterr().out)["fit"]["notes"]
    assert "--cache-ram 30" in note  # 3 GiB less 20 MiB of weights and context, and computing
    assert run([*args, "--ram", "16"]) == 0
    assert len(json.loads(capsys.readouterr().out)["fit"]["notes"]) == 1


@pytest.mark.parametrize("recipe", ["gtx1060", "a100"])
def test_a_recipe_with_cuda(
    recipe: str, model: str, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["model", model, "--facts", facts, "--recipe", recipe, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["fit"]
    if recipe == "gtx1060":
        assert found["gpu_bytes"] == [5 << 30]
        assert found["suggested"]["where"] == "gpu"
        assert found["suggested"]["n_gpu_layers"] == 9
    else:  # machine code for 8.0 only
        assert found["gpu_bytes"] == []
        assert found["notes"] == ["recipe a100 has no code for GTX 1060 6GB"]


def test_a_card_by_name_brings_its_recipe(
    model: str, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(Path(facts).read_text()) | {"gpus": []}
    data["cpu"] = {"arch": "x86_64", "flags": ALL_V3}
    Path(facts).write_text(json.dumps(data), encoding="utf-8")
    assert run(["model", model, "--facts", facts, "--gpu", "GTX 1060", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["fit"]
    assert (found["recipe"], found["gpu_bytes"]) == ("gtx1060", [5 << 30])


def test_a_model_that_does_not_load(
    tmp_path: Path, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = g.write(tmp_path / "m.gguf", *g.qwen3())
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)
    assert run(["model", str(path), "--facts", facts]) == 17
    out = capsys.readouterr().out
    assert "error [truncated] m.gguf ends 2.3 MiB too early" in out
    assert "32768    96.0 MiB" in out  # the numbers are right all the same


def test_no_model_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("<html>not found</html>")
    assert run(["model", str(path)]) == 17
    assert "this is no GGUF file: a web page" in capsys.readouterr().err
    assert run(["model", str(path), "--json"]) == 17
    assert json.loads(capsys.readouterr().out)["error"] == "model"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--cache-type", "q9_0"], "there is no cache type `q9_0`"),
        (["--ctx-size", "0"], "--ctx-size takes"),
        (["--parallel", "0"], "--parallel takes"),
        (["--vram", "-1"], "--vram"),
        (["--gpu", "no such card"], "no GPU called"),
    ],
)
def test_options_that_do_not_fit(
    more: list[str], what: str, model: str, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["model", model, "--facts", facts, *more]) == 2
    assert what in capsys.readouterr().err


def test_a_named_projector_of_another_model(
    model: str, tmp_path: Path, facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = g.write(tmp_path / "other.gguf", *g.projector(1024))
    assert run(["model", model, "--facts", facts, "--mmproj", str(other)]) == 17
    out = capsys.readouterr().out
    assert "error [mmproj-other]" in out
    assert "other.gguf gives 1024 numbers per token" in " ".join(out.split())
    assert "the mmproj takes 1.0 MiB more" in out
    assert run(["model", model, "--facts", facts, "--mmproj", model]) == 17
    assert "this is no mmproj file" in capsys.readouterr().err
