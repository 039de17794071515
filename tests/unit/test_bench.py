"""``qbuild bench``: its arithmetic, its words, its refusals."""

import itertools
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.errors import UsageError, VerifyError
from qbuild.extras.bench import load, programs
from qbuild.extras.bench.model import Alone, Loaded, Measured, Reply, percentile, ratio, spread
from qbuild.extras.bench.run import Result, Wish, _ratios
from qbuild.extras.bench.table import render


@pytest.mark.parametrize(
    ("values", "percent", "result"),
    [
        ([], 50, None),
        ([3.0], 95, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 95, 4.0),
        ([float(n) for n in range(1, 101)], 95, 95.0),
        ([1.0, 2.0], 1, 1.0),
    ],
)
def test_percentiles_are_measured_values(
    values: list[float], percent: float, result: float | None
) -> None:
    assert percentile(values, percent) == result


def test_a_ratio_is_of_pairs_and_says_how_sure_it_is() -> None:
    found = ratio([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])  # the machine got faster; the ratio did not
    assert found is not None
    assert (found.median, found.low, found.high, found.rounds) == (2.0, 2.0, 2.0, 3)
    wide = ratio([1.0, 2.0], [1.0, 1.0])
    assert wide is not None
    assert wide.low < 1.0 < 2.0 < wide.high  # two pairs prove nothing
    assert ratio([], [1.0]) is None
    assert ratio([0.0], [1.0]) is None


def test_twice_and_half_as_fast_cancel() -> None:
    found = ratio([2.0, 1.0] * 6, [1.0, 2.0] * 6)
    assert found is not None
    assert found.low * found.high == pytest.approx(1.0, rel=1e-3)
    assert found.low < 1.0 < found.high


def test_a_spread() -> None:
    assert spread([3.0, 1.0, 2.0]).median == 2.0
    assert (spread([3.0, 1.0]).low, spread([3.0, 1.0]).high) == (1.0, 3.0)
    assert spread([]).count == 0


def reply(first: float | None = 0.5, answer: int = 10, error: str = "") -> Reply:
    return Reply(first=first, whole=2.0, prompt=7, answer=answer, error=error)


def test_errors_count_and_give_no_tokens() -> None:
    loaded = Loaded(
        users=2, tools=False, seconds=4.0, memory=5, replies=(reply(), reply(None, 9, "HTTP 500"))
    )
    data = loaded.as_json()
    assert data["tokens_per_second"] == 2.5
    assert (data["requests"], data["errors"], data["first_errors"]) == (2, 1, ["HTTP 500"])
    assert (data["first_token_p50"], data["whole_p95"], data["prompt_tokens"]) == (0.5, 2.0, 7)


def result(busy: bool) -> Result:
    zips = tuple(
        Measured(
            zip_name=f"{name}.zip",
            sha256="0" * 64,
            alone=tuple(Alone(prompt=speed * n, answer=speed, memory=10**8) for n in (1, 2)),
            loaded=(Loaded(users=1, tools=True, seconds=4.0, memory=9, replies=(reply(),)),),
        )
        for name, speed in (("new", 20.0), ("old", 10.0))
    )  # fmt: skip
    return Result(
        model="m.gguf", wish=Wish(rounds=2), threads=2, zips=zips, ratios=_ratios(zips),
        others=0.4, busy=busy,
    )  # fmt: skip


def test_a_busy_machine_is_said_first() -> None:
    text = render(result(busy=True))
    assert "MARKED: the machine was busy, others took up to 40 %" in text.replace("40%", "40 %")
    assert "MARKED" not in render(result(busy=False))
    assert "2.000 times as fast" in text
    assert "1 user, tools" in text
    assert result(busy=True).as_json()["machine_busy"] is True


def test_prompts_differ_from_their_first_word_on() -> None:
    several = [list(itertools.islice(load.prompts(seed), 9)) for seed in (1, 2)]
    firsts = [prompt.split()[0] for prompts in several for prompt in prompts]
    assert len(set(firsts)) == 18
    assert sorted({len(prompt.split()) for prompt in several[0]}) == [9, 49, 161]
    assert several[0] == list(itertools.islice(load.prompts(1), 9))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--users", "x"], "--users takes numbers"),
        (["--users", "0,1"], "--users takes numbers"),
        (["--users", "999"], "from 1 to 256"),
        (["--rounds", "0"], "--rounds takes a number from 1 on"),
        (["--seconds", "0"], "--seconds takes"),
        (["--model", "missing.gguf"], "there is no model missing.gguf"),
    ],
)
def test_wrong_words_are_told_before_anything_runs(
    tmp_path: Path, words: list[str], says: str
) -> None:
    zip_path, model = tmp_path / "a.zip", tmp_path / "m.gguf"
    zip_path.write_bytes(b"")
    model.write_bytes(b"")
    args = main.parse(["bench", str(zip_path), "--model", str(model), *words])
    from qbuild.cli import bench
    from qbuild.console import Silent

    with pytest.raises(UsageError) as caught:
        bench.execute(args, Silent())
    assert says in str(caught.value)


def test_a_program_that_is_not_inside_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="there is no llama-bench in this zip"):
        programs.Programs(root=tmp_path, suffix="").command("llama-bench", [])


def test_what_llama_bench_prints_is_read_or_refused() -> None:
    rows = b'[{"n_gen": 0, "avg_ts": 11.5}, {"n_gen": 16, "avg_ts": 2.5}]'
    assert programs._rates(rows) == {"prompt": 11.5, "answer": 2.5}
    for bad in (b"", b"[]", b'[{"n_gen": 0, "avg_ts": 1}]', b'{"a": 1}', b"[1]"):
        with pytest.raises(VerifyError, match="printed no figures"):
            programs._rates(bad)
