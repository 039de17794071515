"""The emulated GPU computes what host code computes, and names the fault of each bad kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qbuild.emulator import counted, gpus
from qbuild.store import Store
from support.emulated import build

DATA = Path(__file__).parents[1] / "data" / "emulator"
pytestmark = [pytest.mark.integration, pytest.mark.emulated]


@pytest.fixture(scope="module")
def store(user_store: Store) -> Path:
    return user_store.root  # gtx1060's CUDA tree is made here when it lacks it (0.4 GB of wheels)


@pytest.fixture(scope="module")
def faults(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([DATA / "faults.cu"], tmp_path_factory.mktemp("faults"), store=store, checks=True)


@pytest.fixture(scope="module")
def counting(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        [DATA / "counted.cu"], tmp_path_factory.mktemp("counted"), store=store, counts=True
    )


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], env={**os.environ, **variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_operations_agree_with_host_code(store: Path, tmp_path: Path) -> None:
    program = build([DATA / "operations.cu"], tmp_path, store=store)
    for seed in ("0", "1", "2"):
        ran = run(program, QBUILD_EMULATOR_SHUFFLE=seed)
        assert ran.stdout == "0 wrong, error 0\n", ran.stderr
    report = tmp_path / "report.tsv"
    run(program, QBUILD_EMULATOR_REPORT=str(report))
    # A line at the first launch, for programs that are killed, and one at the end with the count.
    kernels = [line.split("\t")[1] for line in report.read_text().splitlines()]
    assert sorted(kernels) == sorted([*set(kernels)] * 2)
    assert [name for name in kernels if "warps" in name] and len(set(kernels)) == 5


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("right", 0, ()),
        ("race", 0, ("race: shared memory", "reverse", "store of thread 32", "load of thread 31")),
        ("lockstep", 0, ("lockstep: shared memory", "lockstepPf")),
        ("behind-the-buffer", 719, ("256 bytes into a buffer of 256 bytes", "behind_the_buffer")),
        ("behind-the-array", 719, ("at 128 of a shared array of 128 bytes", "thread (31,0,0)")),
        (
            "divergent",
            719,
            ("lanes ffffff80 wait at a block barrier", "lanes 0000007f wait in shfl.bfly"),
        ),
        ("too-much-shared", 1, ("49153 bytes of shared memory, the limit is 49152",)),
        ("too-many-threads", 9, ("1025 threads in a block, the limit is 1024",)),
    ],
)
def test_a_fault_is_named(faults: Path, name: str, error: int, words: tuple[str, ...]) -> None:
    ran = run(faults, name)
    assert ran.stdout.split()[0] == str(error), ran.stdout + ran.stderr
    for word in words:
        assert word in ran.stderr
    assert bool(ran.stderr) == bool(words)


def test_counters_say_what_kernels_do(counting: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts.tsv"
    ran = run(counting, QBUILD_EMULATOR_COUNTS=str(counts), QBUILD_EMULATOR_SHUFFLE="3")
    assert ran.stdout == "error 0\n", ran.stderr
    close_by, far_apart, dots, *_ = counted.read(counts)  # in the order of their first launch
    assert (close_by.blocks, close_by.threads, close_by.instructions["fma"]) == (8, 512, 512)
    issued = close_by.memory.pop("issued")
    # 256 floats of x and as many of y, in each of two launches
    assert (close_by.memory.pop("distinct"), close_by.memory.pop("launches")) == (128, 2)
    assert close_by.memory.pop("tensor") == close_by.memory.pop("shared_least") == 0
    assert sum(close_by.instructions.values()) == 32 * issued
    assert close_by.memory == {
        "shared_loads": 0, "shared_stores": 0, "loads": 512, "stores": 512,
        "bytes_read": 2048, "bytes_written": 2048, "requests": 32, "sectors": 128,
        "shared_parts": 0, "shared_passes": 0,
    }  # fmt: skip
    assert close_by.used == 1.0
    assert (far_apart.memory["requests"], far_apart.memory["sectors"]) == (2, 32 + 4)
    assert dots.instructions["dp4a"] == dots.instructions["barrier"] == 64
    assert (dots.memory["shared_stores"], dots.memory["shared_loads"]) == (64, 64)
    assert (dots.memory["loads"], dots.memory["stores"]) == (128, 32)
    assert (dots.together, dots.passes) == (1.0, 1.0)  # whole warps leave, whole rows are read


def test_counters_see_bank_conflicts_and_lanes_that_part(counting: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts.tsv"
    run(counting, QBUILD_EMULATOR_COUNTS=str(counts))
    *_, banks, parting, fours = counted.read(counts)
    # 32 rows are written; eight bytes a lane take two passes; then a word of every row
    # (all in one bank), every fourth word, one word for all.
    assert banks.memory["shared_parts"] == 32 + 2 + 1 + 1 + 1
    assert banks.memory["shared_passes"] == 32 + 2 + 32 + 4 + 1
    assert banks.memory["shared_least"] == banks.memory["shared_passes"]
    assert banks.together == 1.0
    assert {name: fours.memory[name] for name in ("loads", "stores", "shared_loads")} == {
        "loads": 32, "stores": 32, "shared_loads": 32,
    }  # fmt: skip
    assert (fours.memory["sectors"], fours.memory["shared_parts"], fours.passes) == (32, 8, 1.0)
    assert parting.together == pytest.approx(8 / 32, abs=0.02)  # all but the first instructions


@pytest.fixture(scope="module")
def tensor(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([DATA / "tensor.cu"], tmp_path_factory.mktemp("tensor"), store=store, arch="80")


def test_matrix_instructions_agree_with_plain_loops(tensor: Path) -> None:
    for seed in ("0", "1", "2"):
        a100 = gpus.environment([gpus.find("A100")])
        ran = run(tensor, QBUILD_EMULATOR_SHUFFLE=seed, **a100)
        assert ran.stdout == "0 wrong, error 0\n", ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lane-missing", "lanes ffffffdf wait in movmatrix for lanes ffffffff"),
        ("warp-incomplete", "lanes 00ffffff wait in movmatrix for lanes ffffffff"),
        ("row-not-aligned", "loads is not aligned to 16 bytes, in kernel"),
    ],
)
def test_a_matrix_instruction_that_is_not_allowed_is_named(
    tensor: Path, name: str, words: str
) -> None:
    ran = run(tensor, name)
    assert ran.stdout == "error 719\n"
    assert words in ran.stderr


def test_copies_are_checked(store: Path, tmp_path: Path) -> None:
    program = build([DATA / "tensor.cu"], tmp_path, store=store, arch="80", checks=True)
    right = run(program)
    assert (right.stdout, right.stderr) == ("0 wrong, error 0\n", "")
    raced = run(program, "copy-raced")
    assert raced.stdout == "error 0\n"
    assert "lockstep: shared memory at" in raced.stderr
    outside = run(program, "copy-outside")
    assert outside.stdout == "error 719\n"
    assert "512 bytes into a buffer of 512 bytes" in outside.stderr
    assert "copy_raced" in outside.stderr


def test_a_copy_that_nobody_waits_for_shows(tensor: Path) -> None:
    ran = run(tensor, "not-waited")
    assert ran.stdout == "896 words differ\nerror 0\n"


def test_uninitialised_shared_memory_is_not_a_number(faults: Path) -> None:
    assert "nan" in run(faults, "uninitialised").stdout


def test_memory_is_as_small_as_the_card(faults: Path) -> None:
    assert run(faults, "out-of-memory").stdout.split()[0] == "2"  # cudaErrorMemoryAllocation
    large = run(faults, "out-of-memory", QBUILD_EMULATED_GPU="name=P40;memory=23040")
    assert large.stdout.split()[0] == "0"


def test_a_race_shows_as_another_result_under_another_order(store: Path, tmp_path: Path) -> None:
    program = build([DATA / "faults.cu"], tmp_path, store=store)
    right = {run(program, "right", QBUILD_EMULATOR_SHUFFLE=str(n)).stdout for n in range(6)}
    racing = {run(program, "race", QBUILD_EMULATOR_SHUFFLE=str(n)).stdout for n in range(6)}
    assert len(right) == 1
    assert len(racing) > 1
