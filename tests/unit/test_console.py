"""What a person sees of a long task, on lines of every length."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from qbuild.console import Unit, _columns


def shown(width: int, unit: Unit) -> str:
    """Return a task's line when 100 of 216 parts are done."""
    console = Console(width=width, file=io.StringIO(), record=True)
    bars = Progress(*_columns(unit, width), console=console, expand=width < 50)
    size = 10**6 if unit == "bytes" else 1
    bars.add_task("compile (-j2)", total=216 * size, completed=100 * size, note="ops.cpp.o")
    console.print(bars.get_renderable())
    return console.export_text()


@pytest.mark.parametrize("unit", ["steps", "bytes"])
@pytest.mark.parametrize("width", [20, 30, 49, 50, 64, 75, 76, 80, 120, 300])
def test_what_it_is_and_how_far_it_is_fit_into_one_line(width: int, unit: Unit) -> None:
    text = shown(width, unit).rstrip("\n")
    assert len(text.splitlines()) == 1
    assert text.startswith("compile (-j")
    assert ("100/216" in text) if unit == "steps" else ("46%" in text or "100.0/216.0" in text)


@pytest.mark.parametrize(("width", "there"), [(75, False), (76, True)])
def test_what_is_worked_on_is_shown_where_there_is_room(width: int, there: bool) -> None:
    assert ("ops.cpp.o" in shown(width, "steps")) is there


def test_a_line_of_ten_letters_still_says_how_far() -> None:
    assert "100/216" in shown(10, "steps")
