"""The page in a real browser, on a real server and a real log."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.console.conftest import DESKTOP, PHONE, Open
from tests.console.site import Site

SCREENS = ("runs", "runs/{refunded}", "approvals", "settings", "settings?tab=server")


def path_of(site: Site, screen: str) -> str:
    return screen.format_map(site.runs)


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_has_no_violation_of_wcag_in_any_theme_and_width(
    open_page: Open, site: Site, screen: str
) -> None:
    page = open_page(path_of(site, screen))
    expect(page.locator("h1")).to_be_visible()
    axe = Axe()
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for theme in ("light", "dark", "contrast"):
            page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            found = axe.run(
                page,
                options={
                    "resultTypes": ["violations"],
                    "runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"],
                },
            )
            assert [
                (each["id"], [node["html"][:160] for node in each["nodes"][:3]])
                for each in found.response["violations"]
            ] == []


def test_the_list_shows_each_run_with_its_status_and_counts(open_page: Open, site: Site) -> None:
    page = open_page("runs")
    expect(page.get_by_role("row")).to_have_count(len(site.runs) + 1)
    expect(
        page.get_by_role("group", name="By status").get_by_role("button", name=re.compile("^all"))
    ).to_have_text(f"all {len(site.runs)}")
    page.get_by_role("button", name=re.compile("^paused")).click()
    expect(page.get_by_role("row")).to_have_count(2)
    assert "f=status" in page.url
