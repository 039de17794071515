"""What is made of a program's output, and how a bundle is run where something is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from qbuild.verify import run, runners, tiny_gguf, trials, wine
from qbuild.verify.runners import plan_for
from qbuild.verify.sandbox import Ran

COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"


@pytest.mark.parametrize(
    ("output", "number", "says"),
    [
        ("version: 0.5.0-dev (build 0, commit 0c1e57098)\nbuilt with x\n", None, ""),
        ("noise\nversion: 0.5.0-dev (build 7001, commit 0c1e570)\n", 7001, ""),
        ("version: 0.5.0-dev (build 0, commit unknown)", None, "not the pin"),
        ("version: 0.5.0-dev (build 0, commit b3fed31b9)", None, "not the pin"),
        ("version: 0.5.0-dev (build 0, commit 0c1e5)", None, "not the pin"),
        ("version: 0.5.0-dev (build 0, commit 0c1e57098)", 7001, "the pin is build 7001"),
        ("", None, "prints no line"),
        ("version: 1", None, "prints no line"),
    ],
)
def test_version_line(output: str, number: int | None, says: str) -> None:
    problem = trials.version_problem(output, COMMIT, number)
    assert says in problem
    assert bool(problem) == bool(says)


def answers(**changes: Any) -> dict[str, Any]:
    chat = {"choices": [{"message": {"content": tiny_gguf.SENTENCE}}]}
    texts = {
        "health": {"status": "ok"},
        "completion": {"content": tiny_gguf.SENTENCE},
        "chat": chat,
        **changes,
    }
    made = [
        value if isinstance(value, dict) and "text" in value
        else {"status": 200, "text": json.dumps(value)}
        for value in texts.values()
    ]  # fmt: skip
    return {"problem": "", "answers": made}


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (answers(), ""),
        (answers(completion={"content": "qbuild worms"}), "/completion says 'qbuild worms'"),
        (answers(completion={"text": "boom", "status": 500}), "/completion answers 500: boom"),
        (answers(chat={"choices": []}), "/v1/chat/completions answers something unexpected"),
        (answers(health={"text": "<html>", "status": 200}), "/health answers something unexpected"),
        ({"problem": "the server ended with status 1", "answers": []}, "its log ends: last words"),
    ],
)
def test_server_answers(result: dict[str, Any], says: str) -> None:
    problems = trials.server_problems(result, ["first", " last words ", ""])
    assert bool(problems) == bool(says)
    assert says in "".join(problems)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"returncode": 3}, "ended with status 3 (why)"),
        ({"returncode": -4}, "was ended by SIGILL (why)"),
        ({"returncode": -9, "stopped": "time"}, "was stopped after 2 s (why)"),
        ({"returncode": -9, "stopped": "memory"}, "was stopped at 7 MiB of memory (why)"),
        ({"returncode": 1, "stderr": ""}, "ended with status 1"),
    ],
)
def test_how_a_run_ended(how: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {
        "stdout": "", "stderr": "noise\nwhy\n\n", "seconds": 2.0, "peak_memory": 7 << 20,
        "stopped": "", "network": "loopback",
    }  # fmt: skip
    assert Ran(**{**usual, **how}).how() == says


def plan(tmp_path: Path, **changes: Any) -> runners.Plan:
    usual: dict[str, Any] = {
        "target_os": "linux", "cpu_level": "x86-64-v3", "isa": (), "qemu_cpu": "",
        "host_os": "linux", "scratch": tmp_path, "cache_dir": None,
    }  # fmt: skip
    return plan_for(**{**usual, **changes})


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "host_lacks", lambda level: "")
    monkeypatch.setattr(runners, "find_qemu", lambda: "/x/qemu-x86_64")
    monkeypatch.setattr(wine, "find_wine", lambda: "/x/wine64")
    monkeypatch.setattr(wine, "wine_prefix", lambda loader, dest, cache: dest)
    monkeypatch.setattr(wine, "emulates", lambda qemu, loader, env, scratch: True)


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("changes", "runs", "missing"),
    [
        ({}, ["this machine", "qemu-user as Haswell"], []),
        ({"cpu_level": "x86-64-v2"}, ["this machine", "qemu-user as Nehalem"], []),
        ({"qemu_cpu": "Broadwell"}, ["this machine", "qemu-user as Broadwell"], []),
        ({"cpu_level": "x86-64-v4"}, ["this machine"], ["no AVX-512"]),
        ({"isa": ("avx512",)}, ["this machine"], ["no AVX-512"]),
        ({"isa": ("avx-vnni",)}, ["this machine"], ["checks.qemu_cpu"]),
        ({"cpu_level": ""}, ["this machine"], ["nothing says which CPU"]),
        ({"target_os": "windows"}, ["Wine", "Wine on qemu-user as Haswell"], []),
        (
            {"target_os": "windows", "host_os": "windows"},
            ["this machine"],
            ["Wine, which qemu-user would run it with, is missing"],
        ),
        ({"host_os": "darwin"}, ["qemu-user as Haswell"], ["runs darwin, not linux"]),
    ],
)
def test_ways_to_run(
    tmp_path: Path, changes: dict[str, Any], runs: list[str], missing: list[str]
) -> None:
    found = plan(tmp_path, **changes)
    assert [runner.label for runner in found.runners] == runs
    assert len(found.missing) == len(missing)
    for check, says in zip(found.missing, missing, strict=True):
        assert check.status == "not-run"
        assert says in check.details[0]


@pytest.mark.parametrize(
    ("missing", "changes", "id", "says"),
    [
        ("wine.find_wine", {"target_os": "windows"}, "run.wine", "apt-get install wine64"),
        ("wine.find_wine", {"target_os": "windows"}, "run.qemu", "apt-get install wine64"),
        ("runners.find_qemu", {}, "run.qemu", "apt-get install qemu-user"),
        ("runners.find_qemu", {"target_os": "windows"}, "run.qemu", "apt-get install qemu-user"),
    ],
)
@pytest.mark.usefixtures("tools")
def test_a_missing_tool_is_not_run_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, changes: dict[str, Any],
    id: str, says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(f"qbuild.verify.{missing}", lambda: None)
    found = {check.id: check for check in plan(tmp_path, **changes).missing}
    assert found[id].status == "not-run"
    assert says in found[id].details[0]


@pytest.mark.usefixtures("tools")
def test_an_old_build_machine_is_not_blamed_on_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "host_lacks", lambda level: "avx2")
    found = plan(tmp_path)
    assert [runner.id for runner in found.runners] == ["qemu"]
    assert found.missing[0].details == ("its CPU has no avx2",)


def test_windows_needs_no_wine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' own place for programs may be Wine, which shows the loader of the system below."""
    (tmp_path / "wine64").write_text("")
    (tmp_path / "wine64").chmod(0o755)
    monkeypatch.setattr(wine.shutil, "which", lambda name: str(tmp_path / name))
    monkeypatch.setattr("qbuild.host.system", lambda: "linux")
    assert wine.find_wine() == str(tmp_path / "wine64")
    monkeypatch.setattr("qbuild.host.system", lambda: "windows")
    assert wine.find_wine() is None


@pytest.mark.usefixtures("tools")
def test_a_wine_that_leaves_the_emulated_cpu_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wine, "emulates", lambda qemu, loader, env, scratch: False)
    found = plan(tmp_path, target_os="windows")
    assert [runner.id for runner in found.runners] == ["wine"]
    assert found.missing[0].id == "run.qemu"
    assert "does not stay on the CPU" in found.missing[0].details[0]


@pytest.mark.parametrize(
    ("lives", "works"),
    [((False, True), True), ((True, True), False), ((False, False), False)],
)
def test_only_working_emulation_kills_and_spares_the_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: tuple[bool, bool], works: bool
) -> None:
    cpus: list[str] = []

    def run_canary(argv: list[str], **options: Any) -> Ran:
        assert Path(argv[-1]).read_bytes()[:2] == b"MZ"
        cpus.append(argv[2])
        return Ran(
            returncode=0 if lives[len(cpus) - 1] else 29, stdout="", stderr="", seconds=0.0,
            peak_memory=0, stopped="", network="loopback",
        )  # fmt: skip

    monkeypatch.setattr(wine, "run", run_canary)
    assert wine.emulates("/x/qemu", "/x/wine64", {}, tmp_path) is works
    assert cpus == ["Nehalem", "Haswell"]


def test_a_bundle_without_programs_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: None
) -> None:
    monkeypatch.setattr(runners, "find_qemu", lambda: None)
    (tmp_path / "b").mkdir()
    checks = run.run_checks(
        tmp_path / "b", target_os="linux", cpu_level="x86-64-v3", commit=COMMIT, host_os="linux"
    )
    assert {check.status for check in checks} == {"not-run"}
    assert checks[0].details == ("there is no llama-cli or llama-server in this bundle",)


@pytest.mark.parametrize(
    ("out", "err", "says"),
    [
        ("Available devices:\n  (none)\n", "ggml_cuda_init: failed to initialize CUDA: no", ""),
        ("Available devices:\n  CUDA0: NVIDIA GeForce GTX 1060 (6063 MiB)\n", "", ""),
        ("Available devices:\n  (none)\n", "", "the backend was not loaded"),
        ("", "ggml_cuda_init: failed to initialize CUDA", "prints no list of devices"),
    ],
)
def test_the_cuda_backend_speaks_for_itself(out: str, err: str, says: str) -> None:
    problems = trials.devices_problems("llama-cli.exe", out, err)
    assert says in "".join(problems)
    assert bool(problems) == bool(says)
