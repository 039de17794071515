"""The report in a real browser: on a desktop, on a phone, in the dark, on paper, without scripts.

``QBUILD_TEST_SCREENSHOTS`` names a folder that the screenshots are kept in, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbuild.extras.report import collect, render
from qbuild.store import Store
from support import report_zips
from support.chromium import PATIENCE_MS, chromium, page_of

pytestmark = pytest.mark.browser

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: GPU code, a verdict, a timeline, a difference, an attack."""
    root = tmp_path_factory.mktemp("report")
    files = report_zips.linux_files(40)
    needs = ("libggml-base.so.0", "libcuda.so.1", "libc.so.6")
    files["bin/libggml-cuda.so"] = report_zips.fat_elf(needs, (61, 80))
    evil = (
        report_zips.SERIES[0]
        .patches[0]
        .__class__(
            file="<script>document.title='run'</script>",
            subject="<img src=x onerror=\"document.title='run'\">",
            why="'><svg onload=\"document.title='run'\">",
            sha256="6" * 64,
        )
    )
    series = (*report_zips.SERIES, report_zips.SERIES[0].__class__(
        name="evil", summary="", digest="7" * 64, patches=(evil,)
    ))  # fmt: skip
    path = report_zips.make(root, files=files, series=series, cmake={"GGML_BACKEND_DL": True})
    report_zips.add_records(path, Store(root / "store"))
    other = report_zips.make(root / "other", "windows")
    page = root / "report 模型.html"
    report = collect(path, other=other, store=Store(root / "store"))
    page.write_text(render(report), encoding="utf-8")
    return page


def keep(page: Any, name: str) -> None:
    """Save a screenshot where somebody asked for it."""
    if folder := os.environ.get("QBUILD_TEST_SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        page.screenshot(path=path, full_page=True, timeout=PATIENCE_MS)


@pytest.mark.parametrize(
    ("name", "view", "scheme"),
    [("desktop", DESKTOP, "light"), ("dark", DESKTOP, "dark"), ("phone", PHONE, "dark")],
)
def test_it_fits_and_is_silent(
    browser: Any, page_file: Path, name: str, view: dict[str, int], scheme: str
) -> None:
    with page_of(browser, viewport=view, color_scheme=scheme) as (page, heard):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        # The test's recipe is not the shipped one: six digits of its changes stand in the name.
        title = r"llama-g0c1e57098-avx2-[0-9a-f]{6}-linux-x86_64\.zip – qbuild report"
        assert re.fullmatch(title, page.title())
        assert asked == [page_file.as_uri()]
        # Nothing hangs out of the page sideways: what is wide scrolls by itself.
        assert page.evaluate("document.documentElement.scrollWidth") == view["width"]
        style = page.evaluate(
            "(({backgroundColor: b, color: c}) => [b, c])(getComputedStyle(document.body))"
        )
        assert style[0] == ("rgb(17, 21, 26)" if scheme == "dark" else "rgb(255, 255, 255)")
        shown = page.locator(".map:visible, .graph:visible")
        assert shown.count() == 2
        # Every name in the size map lies inside its own box.
        assert page.evaluate(
            """() => [...document.querySelectorAll('.map g')].filter(g => {
                const box = g.querySelector('rect').getBoundingClientRect();
                return [...g.querySelectorAll('text')].some(
                    t => t.getBoundingClientRect().right > box.right + 1);
            }).length"""
        ) == 0  # fmt: skip
        keep(page, name)
    assert heard == []


def test_content_without_scripts_and_on_paper(browser: Any, page_file: Path) -> None:
    with page_of(browser, viewport=DESKTOP, java_script_enabled=False) as (page, heard):
        page.goto(page_file.as_uri())
        text = page.inner_text("body")
        for words in ("Checked and accepted", "sm_61 machine code", "Pascal 6.1: runs natively",
                      "libcuda.so.1", "needed by llama-server", "One malformed call", "ops.cpp",
                      "<img src=x onerror=", "Difference to another zip", "only here"):  # fmt: skip
            assert words in text, words
        assert page.title().endswith("qbuild report")  # none of the attacks renamed it
        page.pdf(path=page_file.with_suffix(".pdf"), format="A4")
    assert heard == []
    assert page_file.with_suffix(".pdf").read_bytes()[:5] == b"%PDF-"


def test_pointing_at_a_file_shows_only_its_lines(browser: Any, page_file: Path) -> None:
    with page_of(browser, viewport=DESKTOP) as (page, _):
        page.goto(page_file.as_uri())
        node = page.locator(".node", has_text="libmtmd.so.0")
        number = node.get_attribute("id")[1:]
        node.focus()
        page.wait_for_function(
            "n => getComputedStyle(document.querySelector('.l' + n)).opacity == 1", arg=number
        )
        page.wait_for_function(
            "n => getComputedStyle(document.querySelector('.edge:not(.l' + n + ')')).opacity < 0.2",
            arg=number,
        )
