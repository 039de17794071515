"""Everything that people write is read in one way: the same faults are told alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from qbuild import bounds
from qbuild.patches.series import TABLE
from qbuild.recipe.config import SETTINGS
from qbuild.recipe.load import RECIPE
from qbuild.recipe.lock import LOCKFILE
from qbuild.recipe.written import Form, dotted

FORMS = [RECIPE, LOCKFILE, SETTINGS, TABLE]


@pytest.fixture(params=FORMS, ids=lambda form: form.called)
def form(request: pytest.FixtureRequest) -> Form:
    """One kind of file after the other."""
    found: Form = request.param
    return found


@pytest.mark.parametrize(
    ("make", "what", "where"),
    [
        (lambda path: None, "is missing", ""),
        (lambda path: path.mkdir(), "cannot be read", ""),
        (lambda path: path.write_bytes(b"a = '" + b"x" * bounds.TEXT + b"'"), "larger than", ""),
        (lambda path: path.write_bytes(b"a = '\xff'"), "is not UTF-8", ", byte 5"),
    ],
)
def test_a_file_that_cannot_be_read(
    form: Form, make: Callable[[Path], object], what: str, where: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    make(path)
    with pytest.raises(form.error, match=what) as caught:
        form.read(path)
    assert caught.value.what.startswith(form.called)
    assert caught.value.where == f"{path}{where}"


def test_a_mark_of_the_encoding_is_no_text(form: Form, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert form.parse(form.read(path), "mine.toml") == {"a": 1}


def test_a_text_that_is_no_toml_is_told_with_its_line(form: Form) -> None:
    with pytest.raises(form.error, match=re.escape(f"{form.called} is not valid TOML")) as caught:
        form.parse("a = 1\nb = = 2\n", "mine.toml")
    assert caught.value.where == "mine.toml:2"


def test_paths_are_spelled_as_in_json() -> None:
    assert dotted(("wheel", "2", "sha256")) == "wheel[2].sha256"
    assert dotted(("0",)) == "[0]"
