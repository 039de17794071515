"""What a run of test-backend-ops comes to: right, or an error that says what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild.cli.emulated_tests import _check_all_right, summarise
from qbuild.emulator import gpus
from qbuild.emulator.backend_ops import DIED, RIGHT, WRONG, Outcome, Program, Result, load, merged
from qbuild.errors import CompileError


def outcome(*statuses: str, findings: tuple[str, ...] = (), complete: bool = True) -> Outcome:
    results = [Result(case=f"ADD(n={at})", status=status) for at, status in enumerate(statuses)]
    return Outcome(
        results={each.case: each for each in results}, findings=[*findings], complete=complete
    )


def program(tmp_path: Path) -> Program:
    return Program(path=tmp_path / "t", env={}, log=tmp_path / "log", state=tmp_path / "state")


@pytest.mark.parametrize(
    ("ran", "says"),
    [
        (outcome(), "no case ran"),
        (outcome(RIGHT, WRONG), r"1 cases are wrong, first ADD\(n=1\)"),
        (outcome(DIED), "1 cases are wrong"),
        (outcome(RIGHT, findings=("race: shared memory at 8",)), "found 1 faults .* race: shared"),
        (outcome(RIGHT, complete=False), "no time for the others"),
    ],
)
def test_what_is_not_right_is_an_error(ran: Outcome, says: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=says):
        _check_all_right(ran, "GTX 1060", program(tmp_path))


def test_what_is_right_is_none(tmp_path: Path) -> None:
    _check_all_right(outcome(RIGHT, RIGHT), "GTX 1060", program(tmp_path))


def test_a_run_goes_on_behind_a_line_that_a_kill_cut(tmp_path: Path) -> None:
    state = tmp_path / "state"
    row = json.dumps({"case": "ADD(n=1)", "status": RIGHT, "said": ""})
    sums = {"ran": [["rows", "k", 2]], "findings": ["x"], "seconds": 1.5}
    state.write_text(f"{row}\n{json.dumps(sums)}\n{row[:20]}\n{json.dumps(sums)}\n")
    found = load(state)
    assert found.results.keys() == {"ADD(n=1)"}
    assert found.ran == {("rows", "k"): 4}
    assert (found.findings, found.seconds) == (["x"], 3.0)


def test_two_programs_are_one_outcome() -> None:
    first, second = outcome(RIGHT, findings=("x",)), outcome(RIGHT, WRONG, findings=("x", "y"))
    first.ran, second.ran = {("a", "k"): 1}, {("a", "k"): 2, ("b", "k"): 1}
    first.seconds, second.seconds = 1.0, 0.5
    both = merged(first, second)
    assert both.ran == {("a", "k"): 3, ("b", "k"): 1}
    assert (both.findings, both.seconds, both.complete) == (["x", "y"], 1.5, True)
    assert (both.count(RIGHT), len(both.failed)) == (1, 1)
    assert not merged(first, outcome(RIGHT, complete=False)).complete


def test_kernels_are_counted_by_unit_and_name() -> None:
    ran = outcome(RIGHT)
    ran.ran = {("a", "k"): 3, ("gone", "k"): 1}
    found = summarise(ran, {"a": ["k", "l"], "b": ["k"]}, gpus.find("GTX 1060"))
    assert (found["kernels"], found["kernels_ran"]) == (3, 1)
    assert found["not_run"] == {"a": ["l"], "b": ["k"]}
    assert found["validated"] is False


def test_what_a_gpu_can_reach_is_said_of_the_gpu_that_was_looked_into() -> None:
    fixup = "_ZL24mul_mat_q_stream_k_fixupIL9ggml_type2EEvPK"
    found = {
        name: summarise(outcome(RIGHT), {"mmq-q": [fixup]}, gpus.find(name))
        for name in ("P40", "A100")
    }
    assert [found["P40"][key] for key in ("reach_known", "kernels_out_of_reach")] == [True, 1]
    assert [found["A100"][key] for key in ("reach_known", "kernels_out_of_reach")] == [False, 0]
