"""The page: nothing of a zip becomes markup, and everybody can read it."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from qbuild.cli import main
from qbuild.extras.report import Report, collect, render
from qbuild.extras.report import page as pages
from qbuild.extras.report.boxes import clip
from qbuild.extras.report.data import Edge, Item, Needs
from qbuild.extras.report.graph import graph
from qbuild.extras.report.lanes import clock, lanes
from qbuild.extras.report.sizemap import treemap
from qbuild.store import Store
from support import report_zips

ATTACK = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'\u202e{{ 7*7 }}</style>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    root = tmp_path_factory.mktemp("page")
    path = report_zips.make(root)
    report_zips.add_records(path, Store(root / "store"))
    other = report_zips.make(root / "other", files=report_zips.linux_files(2))
    return collect(path, other=other, store=Store(root / "store"))


class Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in ("meta", "link", "br", "img", "input", "hr", "rect", "path", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def hostile(value: Any) -> Any:
    """Return the same data with an attack in every text of free form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fixed = ("kind", "state", "status", "area", "areas", "parts")
        return dataclasses.replace(value, **{
            field.name: hostile(getattr(value, field.name))
            for field in dataclasses.fields(value) if field.name not in fixed
        })  # fmt: skip
    if isinstance(value, tuple):
        return tuple(hostile(each) for each in value)
    return value + ATTACK if isinstance(value, str) and value else value


def test_the_page_is_well_formed_and_says_everything(report: Report) -> None:
    read = Reader(render(report))
    assert not read.open
    assert len(read.ids) == len(set(read.ids))
    for words in ("Checked and accepted", "libggml-cpu.so.0", "x86-64-v3", "One malformed call",
                  "0c1e57098bba43ac29e6e3b677cdceebdd22334f", "Wine is not installed",
                  "qbuild reproduce --recipe avx2 --os linux", "llama-model.cpp.o"):  # fmt: skip
        assert words in read.text, words
    links = [attrs["href"] for tag, attrs in read.tags if tag == "a"]
    assert all(link and link[0] == "#" and link[1:] in read.ids for link in links)


def test_nothing_is_loaded_and_nothing_runs(report: Report) -> None:
    text = render(report)
    read = Reader(text)
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "form", "base"}
    for tag, attrs in read.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("src", "style")], (
            tag
        )
    policy = next(
        attrs["content"] for tag, attrs in read.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'sha256-")


def test_a_hostile_zip_stays_text(report: Report) -> None:
    read = Reader(render(hostile(report)))
    clean = Reader(render(report))
    assert not read.open
    assert {tag for tag, _ in read.tags} == {tag for tag, _ in clean.tags}
    assert {name for _, attrs in read.tags for name in attrs} == {
        name for _, attrs in clean.tags for name in attrs
    }
    assert "<script>alert(1)</script>" in read.text  # as text
    assert "\u202e" not in render(hostile(report)) and "\\u{202e}" in read.text
    assert "{{ 7*7 }}" in read.text


def test_hidden_characters_become_visible() -> None:
    assert pages.visible("a\u202eb\x1bc\u200bd") == "a\\u{202e}b\\u{1b}c\\u{200b}d"
    assert pages.visible("模型 ü\tx\n") == "模型 ü\tx\n"
    assert len(pages.visible("x" * 100_000)) < 5000


def test_a_page_of_a_huge_zip_stays_small(report: Report) -> None:
    name = "<" * 200
    files = tuple(
        Item(path=f"{n}{name}", kind="other", size=9, packed=9, why=name) for n in range(300)
    )
    needs = tuple(
        Needs(name=f"{n}.so", kind="library", inside=tuple(f"{m}.so" for m in range(n + 1, 60)))
        for n in range(60)
    )
    edges = [[f"src/{n}{'x' * 150}.o", n, n + 500] for n in range(5000)]
    from qbuild.extras.report.history import timeline_of

    built = dataclasses.replace(report.built, timeline=timeline_of(edges))
    text = render(dataclasses.replace(report, files=files, needs=needs, built=built))
    assert len(text.encode()) < 1_000_000


def test_the_page_depends_on_the_report_only(report: Report) -> None:
    assert render(report) == render(report)


# -- colours ---------------------------------------------------------------------------------

CSS = (Path(pages.__file__).parent / "page.css").read_text(encoding="utf-8")
TEXT_ON = [
    *[(name, "paper") for name in ("ink", "muted", "accent", "ok", "bad", "open")],
    *[(name, "ground") for name in ("ink", "muted", "accent")],
    ("ok", "okbg"), ("bad", "badbg"), ("open", "openbg"), ("ink", "openbg"), ("ink", "badbg"),
    ("ink", "code"),
    *[("onfill", name) for name in ("program", "library", "backend", "script", "licence",
                                    "paperfile", "other", "tools", "link")],
]  # fmt: skip


def colours(dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    found: dict[str, str] = {}
    for block in blocks[: 2 if dark else 1]:
        found |= re.findall(r"--(\w+): (#[0-9a-f]{6})", block)
    return found


def luminance(colour: str) -> float:
    """Return the relative luminance that WCAG 2 defines."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
def test_text_has_the_contrast_of_wcag_aa(dark: bool, text: str, ground: str) -> None:
    found = colours(dark)
    light, deep = sorted((luminance(found[text]), luminance(found[ground])), reverse=True)
    assert (light + 0.05) / (deep + 0.05) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    "line", ["library", "faint", "open", "bad", "program", "backend", "script", "tools", "link"]
)
def test_lines_and_shapes_can_be_seen(dark: bool, line: str) -> None:
    found = colours(dark)
    light, deep = sorted((luminance(found[line]), luminance(found["paper"])), reverse=True)
    assert (light + 0.05) / (deep + 0.05) >= 3


# -- drawings --------------------------------------------------------------------------------


def items(*sizes: int) -> list[Item]:
    return [
        Item(path=f"f{n}", kind="library", size=size, packed=size, why="")
        for n, size in enumerate(sizes)
    ]


def test_areas_are_in_proportion_and_do_not_overlap() -> None:
    files = items(500, 300, 100, 60, 40)
    boxes = treemap(files, width=1000, height=400, words={i.path: "" for i in files})
    assert len(boxes) == 5
    for box, item in zip(boxes, files, strict=True):
        assert (box.w + 2) * (box.h + 2) == pytest.approx(item.size * 400, rel=0.02)
        assert -0.1 <= box.x <= box.x + box.w <= 1000.1
        assert -0.1 <= box.y <= box.y + box.h <= 400.1
    for n, one in enumerate(boxes):
        for two in boxes[n + 1 :]:
            apart = (one.x + one.w <= two.x + 0.2 or two.x + two.w <= one.x + 0.2
                     or one.y + one.h <= two.y + 0.2 or two.y + two.h <= one.y + 0.2)  # fmt: skip
            assert apart


def test_small_files_share_a_box() -> None:
    files = items(100_000, *[1] * 30)
    boxes = treemap(files, width=1000, height=400, words={i.path: "" for i in files})
    assert [box.title for box in boxes][1] == "30 small files"
    assert treemap(items(0, 0), width=9, height=9, words={}) == ()


def test_users_stand_above_what_they_load() -> None:
    drawn = graph([
        Needs(name="base.dll", kind="library", system=("KERNEL32.dll",)),
        Needs(name="mid.dll", kind="library", inside=("base.dll",), driver=("nvcuda.dll",)),
        Needs(name="a.exe", kind="program", inside=("mid.dll", "base.dll"),
              system=tuple(f"api-ms-win-crt-{n}.dll" for n in range(9)), missing=("no.dll",)),
    ])  # fmt: skip
    assert drawn is not None
    names = [box.text for box in drawn.boxes]
    assert names[:3] == ["a.exe", "mid.dll", "base.dll"]
    assert names[3:] == ["KERNEL32.dll", "api-ms-win-crt-*", "nvcuda.dll", "no.dll"]
    assert all(link.user < link.needed for link in drawn.links)
    assert drawn.width < 390 - 28  # fits a phone


def test_a_circle_of_libraries_is_drawn_too() -> None:
    drawn = graph([
        Needs(name="a.dll", kind="library", inside=("b.dll",)),
        Needs(name="b.dll", kind="library", inside=("a.dll",)),
    ])  # fmt: skip
    assert drawn is not None and len(drawn.boxes) == 2 and len(drawn.links) == 2
    assert graph([]) is None


def test_steps_at_the_same_time_have_lanes_of_their_own() -> None:
    edges = [
        Edge(output="a.o", start=0, end=10, area="ggml"),
        Edge(output="b.o", start=5, end=15, area="ggml"),
        Edge(output="c.o", start=10, end=20, area="llama"),
    ]
    drawn = lanes(edges, wall=20, width=1000, css={"ggml": "library", "llama": "program"})
    assert drawn is not None and drawn.count == 2
    assert [box.y for box in drawn.boxes] == [0, 22, 0]
    assert drawn.boxes[2].x == 500
    assert drawn.ticks[0] == (0, "0 s")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (2.25, "2.2 s"), (59.6, "60 s"), (61, "1 min 01 s"),
                           (120, "2 min"), (7260, "2 h 01 min")]
)  # fmt: skip
def test_times_in_words(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_long_names_keep_both_ends() -> None:
    assert clip("libllama-server-impl.so", 7 * 15) == "libllam…impl.so"
    assert clip("short", 100) == "short"
    assert clip("anything", 14) == ""


# -- the command -----------------------------------------------------------------------------


def test_the_page_lies_beside_the_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report_zips.make(tmp_path, "windows")
    assert main.run(["report", str(path), "--store", str(tmp_path / "s")]) == 0
    page = path.with_name(f"{path.name}.report.html")
    assert str(page) in capsys.readouterr().out
    assert "Checked and accepted" in page.read_text(encoding="utf-8")


def test_output_against_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report_zips.make(tmp_path / "a")
    other = report_zips.make(tmp_path / "b", "windows")
    page = tmp_path / "page.html"
    words = ["report", str(path), "--against", str(other), "-o", str(page), "--json"]
    assert main.run([*words, "--store", str(tmp_path / "s")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["page"] == str(page) and data["against"]["name"] == other.name
    assert data["format"] == 1 and data["checked"]["state"] == "accepted"
    assert "Difference to another zip" in page.read_text(encoding="utf-8")


def test_wrong_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report_zips.make(tmp_path)
    for words in (["report"], ["report", str(tmp_path / "none.zip")],
                  ["report", str(path), "--against", str(tmp_path)],
                  ["report", str(path), "-o", str(tmp_path)],
                  ["report", str(path), "-o", str(tmp_path / "no" / "x.html")]):  # fmt: skip
        assert main.run([*words, "--store", str(tmp_path / "s")]) == 2, words
        said = capsys.readouterr().err.splitlines()  # on a slow machine after lines of progress
        assert any(line.startswith("qbuild: ") for line in said)
    assert not list(tmp_path.glob("**/.*.part-*"))
