"""The selection of cases: what it may hold, what reaches the program, what came of it."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qbuild import resources
from qbuild.cli import emulated_tests
from qbuild.emulator import backend_ops, cases, make
from qbuild.emulator.backend_ops import Program, run_selection
from qbuild.errors import CompileError, ToolchainError, UsageError

HEADER = """
    enum ggml_type {
        GGML_TYPE_F32     = 0,
        // GGML_TYPE_Q4_2 = 4, support has been removed
        GGML_TYPE_Q4_0    = 2, // a note
        GGML_TYPE_COUNT   = 43,
    };
    enum ggml_op {
        GGML_OP_NONE = 0,

        GGML_OP_DUP,
        GGML_OP_MUL_MAT,
        GGML_OP_COUNT,
    };
"""
OWN = "f32[16,9] = MUL_MAT(3, 0.5) q4_0[256,16] f32[256,9]"


def test_numbers_come_from_the_header() -> None:
    numbers = cases.numbers_in(HEADER)
    assert numbers["op"] == {"NONE": 0, "DUP": 1, "MUL_MAT": 2, "COUNT": 3}
    assert numbers["type"] == {"F32": 0, "Q4_0": 2, "COUNT": 43}
    with pytest.raises(ToolchainError, match="does not declare"):
        cases.numbers_in("enum ggml_op { };")


def test_a_case_of_ours_reaches_the_program_in_its_own_format() -> None:
    own = cases.parse(OWN, "x").own
    # op, type, shape, two parameters (0.5 is 0x3f000000), two sources with shape and strides
    assert cases.test_file(own, cases.numbers_in(HEADER)) == (
        "2 0 16 9 1 1 2 3 1056964608 2 "
        "2 256 16 1 1 18 144 2304 2304 "
        "0 256 9 1 1 4 1024 9216 9216 -\n"
    )


def test_an_operation_that_the_pin_lacks_is_named() -> None:
    own = cases.parse("f32[4] = ROLL f32[4]", "x").own
    with pytest.raises(ToolchainError, match="no op ROLL"):
        cases.test_file(own, cases.numbers_in(HEADER))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NORM", "neither NAME"),
        ("f32[4] = NORM", "neither NAME"),
        ("f32[4] = NORM q9_9[4]", "no tensor"),
        ("f32[4] = NORM q4_0[4]", "no shape that q4_0 can have"),
        ("f32[1,2,3,4,5] = NORM f32[4]", "no shape"),
        ("f32[4] = NORM(a.b) f32[4]", "could not convert"),
    ],
)
def test_a_line_that_is_no_case_is_named_with_its_place(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        cases.parse(f"# a note\n\n{line}\n", "list.txt")
    assert error.value.where == "list.txt:3"


@pytest.mark.parametrize("arch", cases.CHOSEN_FOR)
def test_the_committed_selections_are_sound(arch: str) -> None:
    chosen = cases.selection(arch)
    names = [*chosen.named, *(case.text for case in chosen.own)]
    assert len(names) == len(set(names)) > 1000
    ops = {name.split("(")[0] for name in chosen.named} | {case.op for case in chosen.own}
    assert {"MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT", "GATED_DELTA_NET", "ROPE", "CPY"} <= ops


@pytest.mark.parametrize(
    ("kernel", "reached"),
    [
        ("_ZL24mul_mat_q_stream_k_fixupIL9ggml_type2ELi8ELb0EL9ggml_prec30EEvPKi", False),
        ("_ZL9mul_mat_qIL9ggml_type2ELi64ELb1EL9ggml_prec30EEvPKcPKiS5", True),
        ("_ZL9mul_mat_qIL9ggml_type2ELi24ELb0EL9ggml_prec30EEvPKcPKiS5", True),
        ("_ZL9mul_mat_qIL9ggml_type2ELi24ELb1EL9ggml_prec30EEvPKcPKiS5", False),
        ("_ZL9mul_mat_qIL9ggml_type2ELi128ELb0EL9ggml_prec30EEvPKcPKiS5", False),
        ("_ZL9mul_mat_qIL9ggml_type39ELi8ELb0EL9ggml_prec40EEvPKcPKiS5", False),
        ("_ZL13mul_mat_vec_fI6__halfS0_Li1ELi32ELb1ELb1EEvPKT_", False),
        ("_ZL13mul_mat_vec_fI6__halffLi1ELi32ELb1ELb0EEvPKT_", True),
        ("_ZL13mul_mat_vec_fI6__halffLi1ELi32ELb1ELb1EEvPKT_", False),
        # A pair of types that no kernel was compiled for goes to that of F16, also two columns.
        ("_ZL18flash_attn_ext_vecILi128ELi2EL9ggml_type1ELS0_1ELb0EEvPKcS2_", True),
        # No function of ggml.c makes these, and the backend takes them from whoever does.
        ("_ZL10tri_kernelI6__halfLb1ELi0EEvPKT_PS1_llllllllllll", True),
        ("_ZL16k_get_rows_floatI6__halfiEvPKT_PKiPT0_ll5uint3mmmmmmmmm", True),
    ],
)
def test_what_the_gpu_cannot_reach_is_told_apart(kernel: str, reached: bool) -> None:
    found = cases.unreached([("unit", kernel)], "61")
    assert found is not None
    assert (("unit", kernel) not in found) is reached


# -- running pieces --------------------------------------------------------------------------


class Played:
    """Stands for test-backend-ops: knows some cases, dies in one of them."""

    def __init__(self, tmp_path: Path, dies_in: str = "") -> None:
        self.asked: list[list[str]] = []
        self.dies_in = dies_in
        self.program = Program(
            path=tmp_path / "test-backend-ops",
            env={},
            log=tmp_path / "log",
            state=tmp_path / "state.jsonl",
        )

    def popen(self, command: Sequence[str], **_: Any) -> Any:
        named = command[command.index("-o") + 1]
        self.asked.append(named.replace("),", ")\n").split("\n"))
        return _Process(self)


class _Process:
    def __init__(self, played: Played) -> None:
        self.played, self.code = played, 0
        self.stdout = self._lines()  # a generator: it can be closed, as a file can

    def _lines(self) -> Any:
        for name in sorted(self.played.asked[-1]):  # in an order of its own
            if name == self.played.dies_in:
                self.code = -11
                return
            yield "emulated GPU: race: shared memory at 8\n"
            bad = "[A] ERR = 0.5 > 0.1   " if "wrong" in name else "  "
            yield f"{bad}{name}: \x1b[1;32m{'FAIL' if 'wrong' in name else 'OK'}\x1b[0m\n"

    def wait(self) -> int:
        return self.code

    def poll(self) -> int:
        return self.code


def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str = "") -> Played:
    one = Played(tmp_path, dies_in)
    monkeypatch.setattr(subprocess, "Popen", one.popen)
    return one


NAMES = ("C(x=1)", "A(x=1)", "B(x=wrong)")


def test_results_are_kept_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = played(tmp_path, monkeypatch)
    chosen = cases.Selection(named=NAMES, own=())
    first = run_selection(one.program, chosen, {}, progress=lambda *_: None)
    assert first.complete
    assert [(each.case, each.said) for each in first.failed] == [
        ("B(x=wrong)", "[A] ERR = 0.5 > 0.1")
    ]
    assert first.findings == ["race: shared memory at 8"]
    with one.program.state.open("a") as state:
        state.write('{"case": "D(x=1)", "sta')  # cut off by a kill
    again = cases.Selection(named=(*NAMES, "D(x=1)"), own=())
    second = run_selection(one.program, again, {}, progress=lambda *_: None)
    assert one.asked == [list(NAMES), ["D(x=1)"]]
    assert second.count(backend_ops.RIGHT) == 3


def test_the_case_in_which_the_program_dies_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = played(tmp_path, monkeypatch, dies_in="A(x=1)")
    done = run_selection(
        one.program, cases.Selection(named=NAMES, own=()), {}, progress=lambda *_: None
    )
    statuses = {name: result.status for name, result in done.results.items()}
    assert statuses == {"A(x=1)": "died", "B(x=wrong)": "wrong", "C(x=1)": "right"}
    assert done.results["A(x=1)"].said == "exit code -11"


def test_no_further_piece_is_begun_after_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = played(tmp_path, monkeypatch)
    chosen = cases.Selection(named=NAMES, own=())
    done = run_selection(one.program, chosen, {}, until=0.0, progress=lambda *_: None)
    assert not done.complete and not one.asked


def test_a_program_that_knows_no_case_is_told(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="exit code 7"):
        backend_ops._settle(backend_ops.Outcome(), (), 7)


def test_the_sample_is_small_and_names_what_the_selection_has() -> None:
    sample = cases.sample()
    chosen = sample.selection
    assert 1 <= len(sample.units) <= 6
    graphs = "".join(path.read_text() for path in (make.sources() / "tests").iterdir())
    assert all(f'"{operation}"' in graphs for operation in sample.graphs)
    assert sample.graph("CHAIN(op=ADD,many=0)") and not sample.graph("CHAIN(op=ADD,many=1)")
    every = cases.selection("61")
    assert set(chosen.named) <= set(every.named) and set(chosen.own) <= set(every.own)
    operations = resources.read_table(cases.SAMPLE)["operations"]
    ran = {name.partition("(")[0] for name in chosen.named} | {case.op for case in chosen.own}
    assert ran == set(operations)  # none is misspelt, or gone from the selection


def test_a_sample_brings_its_own_cases() -> None:
    args = argparse.Namespace(sample=True, cases=None, ops="ADD", params=None, count=None)
    with pytest.raises(UsageError, match="--sample brings its own cases"):
        emulated_tests._sample(args)


@pytest.mark.parametrize(
    "more", [{"check": True, "ops": "ADD"}, {"sample": True}, {}, {"check": True, "cases": "x"}]
)
def test_counting_is_for_chosen_cases(more: dict[str, object]) -> None:
    nothing = dict.fromkeys(("sample", "check", "ops", "params", "cases"))
    args = argparse.Namespace(**{**nothing, "count": "mmvq", **more})
    with pytest.raises(UsageError, match="--count is for chosen cases, without checks"):
        emulated_tests._sample(args)


def test_a_kernel_is_unreached_or_not_run_never_both() -> None:
    cooperative = ("attention", "_ZL29soft_max_f32_parallelize_colsPKfPfS1_S1_15soft_max_params")
    refused = ("elementwise", "_ZL11k_bin_bcastIXadL_ZL9op_repeatffEE13__nv_bfloat16S0_S0_JEE")
    by_hand = ("elementwise", "_ZL11k_bin_bcastIXadL_ZL9op_repeatffEE13__nv_bfloat16fS0_JEE")
    every = [cooperative, refused, by_hand]
    assert cases.unrun(every).keys() == {cooperative}
    assert (cases.unreached(every, "61") or {}).keys() == {refused}
