"""Drives Debian's Chromium through Playwright: pages as people see them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",  # CI runs as root, where Chromium's own sandbox cannot start
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 180_000
"""A busy machine needs minutes for what takes a second."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Give a running browser, or skip where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed (ci/apt.txt)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(FLAGS), timeout=PATIENCE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def page_of(browser: Any, **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """Give a page and the list that its complaints and its requests to elsewhere go to."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("requestfailed", lambda request: heard.append(f"failed: {request.url}"))
    try:
        yield page, heard
    finally:
        context.close()
