"""Which recipe fits which machine, and how the machine is asked."""

from __future__ import annotations

import ctypes
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from qbuild.cli.main import run
from qbuild.doctor.detect import nvml, recommend
from qbuild.doctor.detect.hardware import nvidia_driver_version, parse_cpuinfo
from qbuild.doctor.detect.levels import (
    flags_from_windows,
    level_of_flags,
    missing_for,
)
from qbuild.doctor.detect.recommend import rules
from qbuild.doctor.machine_facts import CpuFacts, Facts, GpuFacts, parse_facts
from qbuild.recipe.levels import LEVELS, upto
from qbuild.recipe.load import known_recipes

MACHINES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "machines.toml").read_text(encoding="utf-8")
)["machine"]
NOW = ("avx2", "laptop", "baseline")
ALL = (*NOW, "gtx1060", "a100", "pascal-to-blackwell", "openblas")
SHORT = {"v2": "x86-64-v2", "v3": "x86-64-v3", "v4": "x86-64-v4"}


def _flags(words: str) -> list[str]:
    flags: list[str] = []
    for word in words.split():
        if word in SHORT:
            flags += [flag for level in upto(SHORT[word]) for flag in LEVELS[level].flags]
        else:
            flags.append(word)
    return flags


def _facts(machine: dict[str, Any]) -> Facts:
    data = dict(machine["facts"])
    if machine["flags"]:
        data["cpu"] = {**data.get("cpu", {}), "flags": _flags(machine["flags"])}
    return parse_facts(data)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine["name"]))
def test_the_right_recipe_for_each_machine(machine: dict[str, Any]) -> None:
    facts = _facts(machine)
    now, later = recommend(facts, NOW), recommend(facts, ALL)
    assert (now.recipe or "<none>") == machine["now"]
    assert (later.recipe or "<none>") == machine["all"]
    assert list(now.better) == machine.get("better", [])
    assert later.command == machine.get("command", "")
    assert later.better == ()
    assert later.recipe != "pascal-to-blackwell", "seven times the work for one machine"
    assert now.os == ("windows" if facts.os == "windows" else "linux")
    for text in machine.get("hints", ()):
        assert any(text in hint for hint in now.hints), (text, now.hints)
    for text in machine.get("all_hints", ()):
        assert any(text in hint for hint in later.hints), (text, later.hints)
    for text in machine.get("reasons", ()):
        assert any(text in reason for reason in later.reasons), (text, later.reasons)
    assert now.reasons
    assert later.reasons


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine["name"]))
def test_one_zip_for_every_pc_without_a_gpu(machine: dict[str, Any]) -> None:
    """Recipe `cpu` is offered where `avx2`, `baseline` or, for the processor's age, nothing was."""
    facts = _facts(machine)
    before, now = recommend(facts, ALL), recommend(facts, (*ALL, "cpu"))
    too_old = any("no recipe is made for less" in reason for reason in before.reasons)
    if before.recipe in ("avx2", "baseline") or too_old:
        assert now.recipe == "cpu"
    else:
        assert now.recipe == before.recipe


@pytest.mark.parametrize(
    "recipes, words",
    [
        (("avx2",), "AVX-512 is there: recipe `cpu` has code that uses it"),
        (("gtx1060",), "AVX-512 is there: `--set target.variants=true` adds code that uses it"),
        (("cpu",), ""),
    ],
)
def test_what_the_processor_has_beyond_the_recipe(recipes: tuple[str, ...], words: str) -> None:
    card = {"name": "NVIDIA GeForce GTX 1060 6GB", "driver": "582.28"}
    facts = parse_facts(
        {
            "os": "linux",
            "cpu": {"flags": _flags("v4")},
            "gpus": [card] if recipes == ("gtx1060",) else [],
        }
    )
    told = recommend(facts, recipes)
    assert told.recipe == recipes[0]
    assert [text for text in told.hints if "AVX-512" in text] == ([words] if words else [])


def test_enough_machines() -> None:
    assert len(MACHINES) >= 20


def test_no_recipe_is_invented() -> None:
    for machine in MACHINES:
        for available in ((), ("baseline",), ("gtx1060",), NOW):
            assert recommend(_facts(machine), available).recipe in (None, *available)


def test_shipped_recipes_are_in_the_table_with_their_level() -> None:
    """A recipe's level is written in its file; the table of rules must not say another."""
    levels = {rule.name: rule.cpu for rule in rules()}
    for name, path in known_recipes().items():
        target = tomllib.loads(path.read_text(encoding="utf-8")).get("target", {})
        if name in levels and "cpu" in target:
            assert levels[name] == target["cpu"], name


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("", "x86-64"),
        ("cx16 lahf_lm popcnt pni ssse3 sse4_1", "x86-64"),
        ("v2", "x86-64-v2"),
        ("v2 avx avx2 bmi1 bmi2 f16c fma abm movbe", "x86-64-v2"),  # no xsave: AVX is off
        ("v3", "x86-64-v3"),
        ("v3 avx512f avx512bw", "x86-64-v3"),
        ("v4 amx_tile", "x86-64-v4"),
    ],
)
def test_levels(words: str, level: str) -> None:
    assert level_of_flags(frozenset(_flags(words))) == level


def test_each_level_includes_the_ones_before() -> None:
    for flag in LEVELS["x86-64-v2"].flags:
        assert level_of_flags(frozenset(_flags("v4")) - {flag}) == "x86-64"


def test_what_is_missing_is_named() -> None:
    cpu = CpuFacts(flags=tuple(_flags("v2 avx xsave")))
    assert "avx2" in missing_for(cpu, "x86-64-v3")
    assert "avx" not in missing_for(cpu, "x86-64-v3")
    assert missing_for(CpuFacts(level="x86-64-v2"), "x86-64-v3") == ()


@pytest.mark.parametrize(
    ("present", "level"),
    [
        ((), "x86-64"),
        ((13, 14, 17, 36, 37, 38), "x86-64-v2"),
        ((13, 14, 17, 36, 37, 38, 39), "x86-64-v2"),
        ((13, 14, 17, 36, 37, 38, 39, 40), "x86-64-v3"),
        ((13, 14, 17, 36, 37, 38, 39, 40, 41, 60), "x86-64-v4"),
    ],
)
def test_levels_from_what_windows_tells(present: tuple[int, ...], level: str) -> None:
    flags = flags_from_windows(dict.fromkeys(present, True) | {99: True})
    assert level_of_flags(frozenset(flags)) == level


def test_cpuinfo_of_several_processors() -> None:
    text = (
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Core(TM) i5-2400\n"
        "flags\t\t: fpu avx sse4_2\n\nprocessor\t: 1\nflags\t\t: other\n"
    )
    assert parse_cpuinfo(text) == (
        "GenuineIntel",
        "Intel(R) Core(TM) i5-2400",
        ("avx", "fpu", "sse4_2"),
    )
    assert parse_cpuinfo("") == (None, None, ())
    assert parse_cpuinfo("processor : 0\nFeatures : fp asimd\n") == (None, None, ())


@pytest.mark.parametrize(
    ("windows", "nvidia"),
    [
        ("31.0.15.2833", "528.33"),
        ("32.0.15.6094", "560.94"),
        ("27.21.14.7196", "471.96"),
        ("1.2.3", None),
        ("", None),
        ("a.b.c.d", None),
    ],
)
def test_driver_versions_of_windows(windows: str, nvidia: str | None) -> None:
    assert nvidia_driver_version(windows) == nvidia


class FakeNvml:
    """Answers as libnvidia-ml does; `fails` names calls that give an error."""

    def __init__(self, cards: list[tuple[str, int, int, int]], fails: tuple[str, ...] = ()) -> None:
        self.cards, self.fails, self.open = cards, fails, 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            if name in self.fails:
                return 999
            return int(getattr(self, f"_{name}")(*args))

        return call

    def _nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def _nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def _nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"560.94"
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.cards)
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0

    def _nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        text.value = self.cards[handle.value - 1][0].encode()
        return 0

    def _nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        _, major._obj.value, minor._obj.value, _ = self.cards[handle.value - 1]
        return 0

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total = self.cards[handle.value - 1][3]
        return 0


CARDS = [("NVIDIA GeForce GTX 1060 6GB", 6, 1, 6 << 30), ("NVIDIA A100-SXM4-80GB", 8, 0, 80 << 30)]


def test_cards_from_nvml() -> None:
    library = FakeNvml(CARDS)
    found = nvml.cards(library)
    assert found == (
        GpuFacts(
            name="NVIDIA GeForce GTX 1060 6GB",
            vendor="nvidia",
            capability="6.1",
            vram_gb=6.0,
            driver="560.94",
        ),
        GpuFacts(
            name="NVIDIA A100-SXM4-80GB",
            vendor="nvidia",
            capability="8.0",
            vram_gb=80.0,
            driver="560.94",
        ),
    )
    assert library.open == 0


def test_nvml_that_fails() -> None:
    assert nvml.cards(None) is None
    assert nvml.cards(FakeNvml(CARDS, ("nvmlInit_v2",))) is None
    broken = FakeNvml(CARDS, ("nvmlDeviceGetCount_v2",))
    assert nvml.cards(broken) is None
    assert broken.open == 0
    assert nvml.cards(FakeNvml(CARDS, ("nvmlDeviceGetHandleByIndex_v2",))) == ()
    (first, _) = nvml.cards(
        FakeNvml(CARDS, ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMemoryInfo"))
    ) or (None, None)
    assert first
    assert (first.capability, first.vram_gb) == (None, None)
    assert ctypes.sizeof(nvml._Memory) == 24  # nvmlMemory_t: three unsigned long longs


def _file(tmp_path: Path, data: object) -> str:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


def test_command_prints_machine_recipe_and_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = next(each for each in MACHINES if each["name"] == "i5-2400")
    path = _file(tmp_path, _facts(machine).as_json())
    assert run(["detect", "--facts", path]) == 0
    out = capsys.readouterr().out
    for text in ("i5-2400", "recipe: cpu (windows)", "qbuild --recipe cpu --os windows"):
        assert text in out


def test_command_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, _facts(MACHINES[0]).as_json())
    assert run(["detect", "--facts", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["recommendation"]["os"] == "windows"
    assert data["recommendation"]["recipe"] in known_recipes()
    assert data["machine"]["level"] == "x86-64-v3"


def test_command_fails_where_no_recipe_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, {"os": "linux", "cpu": {"arch": "aarch64"}})
    assert run(["detect", "--facts", path]) == 3
    assert "no recipe makes a bundle that runs on this machine" in capsys.readouterr().err
    assert run(["detect", "--facts", path, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["recommendation"]["recipe"] is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "must be an object"),
        ({"cpu": []}, "must be an object"),
        ({"gpus": [{"nmae": "x"}]}, "`nmae` is not a fact"),
        ({"ram_gb": "8"}, "must be a number"),
        ({"schema": 2}, "format 2"),
    ],
)
def test_command_refuses_what_are_no_facts(
    data: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["detect", "--facts", _file(tmp_path, data)]) == 2
    assert says in capsys.readouterr().err


def test_cards_of_a_kind_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = {"name": "NVIDIA A100-SXM4-80GB", "driver": "535.183.01", "vram_gb": 80}
    other = {**card, "name": "NVIDIA A100-PCIE-40GB", "vram_gb": 40}
    cpu = {"level": "x86-64-v3", "cores": 64}
    data = {"os": "linux", "cpu": cpu, "gpus": [card] * 4}
    assert run(["detect", "--facts", _file(tmp_path, data)]) == 0
    said = capsys.readouterr().out
    assert "GPU:    4 x NVIDIA A100-SXM4-80GB, compute capability 8.0, 80 GB" in said
    assert "- 4 cards: NVIDIA A100-SXM4-80GB (compute capability 8.0" in said
    assert said.count("SXM4-80GB") == 2

    data["gpus"] = [card, other, card]
    assert run(["detect", "--facts", _file(tmp_path, data)]) == 0
    assert "- 3 cards: 2 x NVIDIA A100-SXM4-80GB" in capsys.readouterr().out


def test_the_reason_names_the_option_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ada = {"name": "NVIDIA L20", "driver": "551.61"}
    turing = {"name": "NVIDIA GeForce RTX 2060", "driver": "551.61"}
    for cards, says in (([ada], "GPU code for 89: --gpu"), ([ada, turing], "75, 89: --cuda-arch")):
        cpu = {"level": "x86-64-v3", "cores": 8}
        assert run(["detect", "--facts", _file(tmp_path, {"cpu": cpu, "gpus": cards})]) == 0
        said = capsys.readouterr().out
        assert says in said
        assert says.rpartition(" ")[2] in said.splitlines()[-1]


def test_a_fact_that_is_none_brings_the_names_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"gpus": [{"name": "A100", "memory_gb": 80}]}
    assert run(["detect", "--facts", _file(tmp_path, data)]) == 2
    assert "there is capability, driver, name, vendor, vram_gb" in capsys.readouterr().err
