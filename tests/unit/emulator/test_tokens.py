"""Two backends' answers: equal tokens, or a difference that the margins explain."""

from __future__ import annotations

import json
import math

import pytest

from qbuild.emulator import gpus, report
from qbuild.errors import UsageError
from qbuild.verify.emulate import DRAFTS
from qbuild.verify.tokens import Token, compare, drafted, judged_together, read_answer


def token(id: int, **choices: float) -> Token:
    return Token(id=id, choices={int(k[1:]): v for k, v in choices.items()})


def test_equal_answers_have_no_problem_and_tell_how_far_they_are_apart() -> None:
    cpu = [token(1, t1=-0.1, t2=-3.0), token(5, t5=-0.2, t6=-2.0)]
    gpu = [token(1, t1=-0.15, t2=-3.0), token(5, t5=-0.2, t6=-2.5)]
    found = compare(cpu, gpu)
    assert (found.equal, found.total, found.problem) == (2, 2, "")
    assert found.error == pytest.approx(0.5)


def test_a_difference_within_the_margin_is_none() -> None:
    cpu = [token(9, t9=-0.1, t8=-9.0), token(1, t1=-0.70, t2=-0.72)]
    gpu = [token(9, t9=-0.11, t8=-9.0), token(2, t1=-0.75, t2=-0.70)]
    assert compare(cpu, gpu).problem == ""


def test_a_first_token_that_differs_shows_nothing_by_itself() -> None:
    """Experts in MXFP4 said another first token, by a small margin: a row of nothing had passed."""
    one = compare([token(1, t1=-0.70, t2=-0.72)], [token(2, t1=-0.75, t2=-0.70)])
    assert one.by_few  # so other prompts are asked
    assert one.problem.startswith("the first token differs")
    near = [token(5, t5=-0.1, t6=-2.0)]
    other = compare(near, [token(5, t5=-0.13, t6=-2.0)])
    assert judged_together(one, [one, other]).problem == ""
    assert judged_together(one, [one, one]).problem == one.problem
    assert compare([], []).problem == ""


@pytest.mark.parametrize(("margin", "right"), [(0.19, True), (0.21, False)])
def test_both_numbers_of_a_margin_may_be_off_by_the_error(margin: float, right: bool) -> None:
    """The first 0.1 lower, the second 0.1 higher: a margin of nearly 0.2 is gone."""
    cpu = [token(9, t9=-0.1, t8=-9.0), token(1, t1=-0.7, t2=-0.7 - margin)]
    gpu = [token(9, t9=-0.2, t8=-9.0), token(2, t1=-0.8, t2=-0.6 - margin)]
    found = compare(cpu, gpu)
    assert found.bound == pytest.approx(0.2)
    assert (found.problem == "") == right


def test_a_larger_sample_of_the_difference_decides() -> None:
    """SmolLM2 in Q4_1: five tokens differed by 0.11, the sixth by 0.36, those of others by 0.3."""
    cpu = [token(9, t9=-0.1, t8=-9.0), token(1, t1=-0.7, t2=-1.06)]
    gpu = [token(9, t9=-0.21, t8=-9.0), token(2, t1=-0.9, t2=-0.8)]
    near = [token(5, t5=-0.1, t6=-2.0)]
    far = [token(5, t5=-0.4, t6=-2.0)]
    one = compare(cpu, gpu)
    assert one.by_few
    assert "token 2 differs" in one.problem
    assert judged_together(one, [compare(near, near)]).problem == one.problem
    assert judged_together(one, [compare(near, near), compare(near, far)]).problem == ""
    # What is wrong in the others is not lost, nor a number that is none.
    wrong = compare([token(1, t1=-0.1, t2=-3.0)], [token(2, t1=-3.0, t2=-0.1)])
    assert "token 1 differs" in judged_together(compare(near, near), [wrong]).problem
    nan = compare(near, [token(5, t5=math.nan, t6=-2.0)])
    assert "not numbers" in judged_together(one, [nan]).problem
    assert not compare(near, far).by_few  # all tokens equal
    assert not nan.by_few


def test_a_difference_beyond_the_margin_is_a_fault() -> None:
    cpu = [token(9, t9=0.0, t8=-9.0), token(1, t1=-0.1, t2=-3.0)]
    gpu = [token(9, t9=0.0, t8=-9.2), token(2, t1=-2.0, t2=-0.1)]
    found = compare(cpu, gpu)
    assert (found.equal, found.margin) == (1, pytest.approx(2.9))
    assert "token 2 differs" in found.problem


def test_equal_tokens_with_numbers_far_apart_are_a_fault() -> None:
    found = compare([token(1, t1=-0.1, t2=-3.0)], [token(1, t1=-2.1, t2=-3.0)])
    assert "differ by 2" in found.problem


def test_a_wrong_token_with_small_errors_is_a_fault() -> None:
    cpu = [token(1, t1=-0.1, t2=-3.0)]
    gpu = [token(7, t1=-0.1, t2=-3.0, t7=-0.05)]
    assert "token 1 differs" in compare(cpu, gpu).problem


def test_numbers_that_are_none_are_a_fault() -> None:
    row = {"id": 1, "logprob": None, "top_logprobs": [{"id": 1, "logprob": None}]}
    answer = read_answer(json.dumps({"completion_probabilities": [row]}))
    assert math.isnan(answer[0].choices[1])
    found = compare([token(1, t1=-0.1)], answer)
    assert "not numbers" in found.problem


def test_a_drafted_token_measures_nothing_and_is_compared_all_the_same() -> None:
    cpu = [token(1, t1=-0.9, t2=-1.6), token(5, t5=-0.2, t6=-2.0), token(3, t3=-0.1, t4=-4.0)]
    gpu = [token(1, t1=0.0), token(5, t5=-0.3, t6=-2.0), token(4, t4=0.0)]
    found = compare(cpu, gpu)  # of tokens 1 and 4 the server says "probability 1", whatever it was
    assert (found.equal, found.error) == (2, pytest.approx(0.1))
    assert found.problem.startswith("token 3 differs though the CPU prefers its own by 3.9")


def test_what_is_likelier_than_the_chosen_token_was_forbidden() -> None:
    # a model of random weights whose request forbade token 165: 117 was chosen, 70 was near
    cpu = [token(77, t77=-3.86, t19=-4.09), token(117, t165=-3.0629, t117=-3.4334, t70=-3.4464)]
    gpu = [token(77, t77=-3.86, t19=-4.19), token(70, t165=-3.0149, t117=-3.4235, t70=-3.3679)]
    found = compare(cpu, gpu)
    assert (cpu[1].second, found.margin) == (70, pytest.approx(0.013))
    assert found.problem == ""


def test_a_margin_that_nobody_told_is_unknown_not_infinite() -> None:
    found = compare([token(1, t1=0.0)], [token(2, t2=-0.1, t1=-3.0)])
    assert found.margin is None
    assert found.problem == "token 1 differs, and the CPU's second choice there is not known"


def test_the_reference_does_not_draft() -> None:
    assert DRAFTS.drafts and DRAFTS.undrafted == ("-fa", "on")
    assert DRAFTS.on_cpu == ("-fa", "on", "--device", "none")
    assert drafted('{"timings": {"draft_n": 5}}') == 5
    assert drafted("{}") == 0


def test_reports_of_several_runs_are_added_up() -> None:
    text = "mmvq\tk\t2\t20\t640\t0.5\nmmvq\tk\t1\t1\t32\t0.25\nbroken line\n"
    (ran,) = report.read(text)
    assert (ran.launches, ran.blocks, ran.threads, ran.seconds) == (3, 21, 672, 0.75)


def test_a_gpu_is_found_whatever_its_spelling() -> None:
    assert gpus.find("gtx1060").name == "GTX 1060"
    with pytest.raises(UsageError, match="no emulated GPU is called 'GTX 1061'") as error:
        gpus.find("GTX 1061")
    assert "GTX 1060" in str(error.value.fix)


def test_the_gpu_of_a_recipe_is_one_that_its_kernels_run_on() -> None:
    assert gpus.for_archs([80]).name == "A100"
    assert gpus.for_archs([61, 80]).name == "GTX 1060"
    assert gpus.for_archs([61], "p40").name == "P40"
    with pytest.raises(UsageError, match="no kernels for an emulated GTX 1060") as error:
        gpus.for_archs([80], "GTX 1060")
    assert error.value.fix == "it runs on A100"


def test_the_runtime_reads_every_key_that_is_written(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "toolchain" / "emulator" / "device.c").read_text()
    for pair in gpus.find("GTX 1060").words().split(";"):
        assert f'strcmp(key, "{pair.split("=")[0]}")' in text


def test_nothing_is_read_behind_a_token_whose_probabilities_are_left_out() -> None:
    def row(id: int) -> dict[str, object]:
        return {"id": id, "logprob": -0.1, "top_logprobs": [{"id": id, "logprob": -0.1}]}

    # the server tells nothing of token 8, half a character: the sides may have parted there
    answer = {"completion_probabilities": [row(7), row(9)], "tokens": [7, 8, 9]}
    assert [each.id for each in read_answer(json.dumps(answer))] == [7]
    del answer["tokens"]
    assert [each.id for each in read_answer(json.dumps(answer))] == [7, 9]
