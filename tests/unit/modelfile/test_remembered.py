"""Answers that are remembered: the right one, or a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.modelfile import template
from qbuild.modelfile.remembered import FOLDER, remembered

BROKEN = "{% for m in messages %}{{ m.content }}"
FOREIGN = "{% include 'x' %}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("qbuild.host.user_folder", lambda _: tmp_path / "cache")
    return tmp_path / "cache" / FOLDER


class Asked:
    """Counts how often it had to be asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> str:
        self.times += 1
        return f"answer {self.times}"


def test_the_same_question_is_asked_once(cache: Path) -> None:
    asked = Asked()
    for _ in range(3):
        assert remembered(["Zürich \udc80", "code"], asked) == "answer 1"
    assert remembered(["Zürich \udc80", "other code"], asked) == "answer 2"
    assert remembered(["Zürich \udc80"], asked) == "answer 3"
    assert len(list(cache.iterdir())) == 3


def test_texts_of_the_same_checksum_are_told_apart(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zlib.crc32", lambda _: 7)
    asked = Asked()
    assert remembered(["a"], asked) == "answer 1"
    assert remembered(["b"], asked) == "answer 2"
    assert [each.name for each in cache.iterdir()] == ["00000007.json"]


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"asked": ["q"]}', b'{"asked": ["q"], "answer": 1}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_file_is_no_answer(cache: Path, rubbish: bytes) -> None:
    asked = Asked()
    remembered(["q"], asked)
    (file,) = cache.iterdir()
    file.write_bytes(rubbish)
    assert remembered(["q"], asked) == "answer 2"
    assert remembered(["q"], asked) == "answer 2"


def test_where_nothing_can_be_kept_it_is_answered_all_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.write_text("a file where the folder would be")
    asked = Asked()
    assert [remembered(["q"], asked) for _ in range(2)] == ["answer 1", "answer 2"]
    monkeypatch.setattr("qbuild.host.user_folder", lambda _: None)  # nobody's home
    assert remembered(["q"], asked) == "answer 3"


@pytest.mark.usefixtures("cache")
def test_a_template_gets_the_same_verdict_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = "{% for m in messages %}{{ m.content }}{% endfor %}"
    first = [template.template_problem(each) for each in (BROKEN, FOREIGN, sound)]
    assert first[0].startswith("line 1: ")
    assert first[1:] == ["line 1: llama.cpp's templates have no `include`", ""]

    def unwanted(source: str) -> str:
        raise AssertionError(source)

    monkeypatch.setattr(template, "_problem", unwanted)
    assert [template.template_problem(each) for each in (BROKEN, FOREIGN, sound)] == first


@pytest.mark.usefixtures("cache")
def test_another_release_or_table_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def problem(source: str) -> str:
        asked.append(source)
        return ""

    monkeypatch.setattr(template, "_problem", problem)
    template.template_problem("x")
    template.template_problem("x")
    monkeypatch.setattr(template, "_release", lambda _: "another jinja2")
    template.template_problem("x")
    known = {"filters": ["tojson"], "tests": []}
    monkeypatch.setattr(template, "program", lambda: {"templates": known})
    template.template_problem("x")
    assert asked == ["x"] * 3
