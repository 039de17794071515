"""The documentation's commands exist: each is parsed, its recipe and its files are looked up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cli.main import parse
from qbuild.recipe.load import known_recipes, load_recipe

ROOT = resources.data_root()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```(?:sh|console|bat|powershell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)(?:#[^)]*)?\)")


def commands(page: Path) -> list[str]:
    """Return the lines of code blocks that call qbuild."""
    found = []
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\|?|;", line.split("  #")[0]):
                words = part.strip().removeprefix("$ ")
                if re.match(r"(\.venv/bin/|(?:\.\\)?\.venv\\Scripts\\)?qbuild(\.exe)?( |$)", words):
                    found.append(words)
    return found


CASES = [(page, line) for page in PAGES for line in commands(page)]


def test_there_are_commands_in_the_docs() -> None:
    assert len(CASES) > 30
    assert {page.name for page, _ in CASES} >= {"README.md", "README.zh-CN.md", "tutorial.md"}


@pytest.mark.parametrize(("page", "line"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_command_of_the_docs_exists(page: Path, line: str) -> None:
    words = shlex.split(line.split(" > ")[0], comments=True)[1:]
    args = parse(words)  # an unknown command or option raises
    recipe = getattr(args, "recipe", None) or (
        getattr(args, "name", None)
        if args.command in ("build", "show", "plan", "reproduce")
        else ""
    )
    if recipe and "/" not in recipe and recipe not in ("R", "NAME", "mine"):
        assert recipe in known_recipes()
        load_recipe(
            recipe, os=getattr(args, "os", None) or None, overrides=getattr(args, "overrides", ())
        )


def test_the_windows_runner_types_what_readme_and_the_page_say() -> None:
    from qbuild.extras.ci.jobs import table

    steps = table()["workflows"]["windows"]["jobs"]["on-windows"]["steps"]
    one, two = (step["run"] for step in steps if "README" in step.get("name", ""))
    for name in ("README.md", "docs/how-to/windows-host.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f"```powershell\n{one}\n{two}```" in text, name


_PATH = re.compile(r"`((?:[a-z_]+/)+[a-z0-9_.-]*)`")
_ROOMS = ROOT / "toolchain" / "qbuild"


GUIDES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/first-change.md")


@pytest.mark.parametrize("name", GUIDES)
def test_files_that_a_programmer_is_sent_to_exist(name: str) -> None:
    """``steps/NAME.py`` stands for a file to write; the others are the repository's or a room's."""
    said = _PATH.findall((ROOT / name).read_text(encoding="utf-8"))
    tops = {path.name for path in [*ROOT.iterdir(), *_ROOMS.iterdir()]} - {"dist"}
    paths = [path for path in said if path.partition("/")[0] in tops]
    assert paths
    assert [p for p in paths if not (ROOT / p).exists() and not (_ROOMS / p).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
