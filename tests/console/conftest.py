"""One shop and one browser for all tests of the page; each test has a tab of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.site import READY_S, Site

expect.set_options(timeout=1000 * READY_S)  # Five seconds are not enough for four browsers on one core.

ARGUMENTS = ["--no-sandbox", "--disable-smooth-scrolling"]
"""Without smooth scrolling, a page that was scrolled stands still as soon as it shows it."""
DEBIAN = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 320, "height": 640}
Open = Callable[..., Page]
SEEN_MS = 60_000
"""Longer than anything takes to be seen on a machine that does much else."""
expect.set_options(timeout=SEEN_MS)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """Return the rules that the page breaks, each with the first elements that do."""
    found = Axe().run(page, options={"resultTypes": ["violations"], "runOnly": RULES})
    return [
        (each["id"], [node["html"][:160] for node in each["nodes"][:3]])
        for each in found.response["violations"]
    ]


def chromium() -> str:
    """Return the path of the browser. Raises if there is none: the page is not tested without one."""
    found = next(filter(None, map(shutil.which, DEBIAN)), None)
    if found is None:
        raise FileNotFoundError(
            "the page is tested in Chromium, which is not there: apt-get install chromium"
        )
    return found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Open the browser for one module: while it is open, playwright's loop runs in this thread, and no other can."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[Open]:
    """Open a path of the page in a new tab. What the page logs as an error, or asks of others, fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(
        path: str, *, theme: str = "light", size: dict[str, int] = DESKTOP, at: Site | str = site
    ) -> Page:
        address = at if isinstance(at, str) else at.address
        context = browser.new_context(viewport=size, color_scheme="dark" if theme == "dark" else "light")  # type: ignore[arg-type]
        context.set_default_timeout(1000 * READY_S)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(SEEN_MS)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url.startswith((address, "blob:", "data:")) or wrong.append(asked.url),
        )
        page.goto(address + path.lstrip("/"))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
