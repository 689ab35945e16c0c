"""Every screen meets WCAG 2.2 AA, full, empty and in error, in every theme and width."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import DESKTOP, PHONE, Open, violations
from tests.console.site import Site

SCREENS = (
    "runs",
    "runs?f=status:error agent:nobody",
    "runs?tree=1",
    "runs/{refunded}",
    "runs/{family}",
    "runs/{done}?tab=steps",
    "runs/{hostile}?tab=messages",
    "runs/{refunded}?tab=evidence",
    "runs/{refunded}?tab=costs",
    "runs/{refunded}?tab=raw",
    "runs/{refunded}?rev=6&panel=prompt",
    "runs/{paused}?tab=events&rev=7",
    "runs/00-nothing",
    "jobs",
    "jobs?status=cancelled",
    "approvals",
    "approvals?decided=1",
    "queue",
    "workers",
    "agents",
    "agents?new=1",
    "plans",
    "plans?new=1",
    "compare",
    "compare?a={refunded}&b={paused}",
    "sessions",
    "sessions/ada",
    "costs",
    "schedules",
    "monitor",
    "settings",
    "settings?tab=server",
    "settings?tab=access",
    "settings?tab=about",
    "no-such-screen",
)
PLAIN = tuple(screen for screen in SCREENS if "{" not in screen)
WAYS = [(theme, size) for theme in ("light", "dark", "contrast") for size in (DESKTOP, PHONE)]


def show(page: Page, address: str, screen: str) -> None:
    """Go to a screen within the page, and wait until it has its content."""
    page.evaluate(
        """address => {
            history.pushState({}, '', address);
            dispatchEvent(new PopStateEvent('popstate'));
            return new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        }""",
        address + screen,
    )
    expect(page.locator("main h1, main .failed, main .empty").first).to_be_visible()
    expect(page.locator(".skeleton, .stale")).to_have_count(0)


def faults(page: Page, ways: Iterable[tuple[str, dict[str, int]]]) -> list[Any]:
    """Return what is wrong with the screen that is shown, in each theme and width."""
    found: list[Any] = []
    for theme, size in ways:
        page.set_viewport_size(size)  # type: ignore[arg-type]
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        found += [(theme, size["width"], *each) for each in violations(page)]
        wide, room = page.evaluate(
            """(() => {
                const parts = [document.documentElement, ...document.querySelectorAll('main, .view')];
                const widths = parts.map(each => [each.scrollWidth, each.clientWidth]);
                return widths.find(([wide, room]) => wide > room) ?? widths[0];
            })()"""
        )
        if wide > room:
            found.append((theme, size["width"], f"is {wide} wide"))
    page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    return found


def all_faults(page: Page, site: Site, screens: Iterable[str], ways: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for screen in screens:
        show(page, site.address, screen.format_map(site.runs))
        if wrong := faults(page, ways):
            found[screen] = wrong
    return found


def test_each_screen_meets_wcag_on_a_phone_in_the_dark_without_scrolling_sideways(
    open_page: Open, site: Site
) -> None:
    assert all_faults(open_page("runs"), site, SCREENS, [("dark", PHONE)]) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_each_screen_meets_wcag_in_every_theme_and_width(open_page: Open, site: Site, part: int) -> None:
    assert all_faults(open_page("runs"), site, SCREENS[part::4], WAYS) == {}


@pytest.mark.nightly
def test_each_screen_meets_wcag_while_there_is_nothing_and_while_the_log_is_out_of_reach(
    open_page: Open, tmp_path: Path
) -> None:
    with Site(tmp_path, full=False) as empty:
        page = open_page("runs", at=empty)
        assert all_faults(page, empty, PLAIN, WAYS) == {}
        empty.nats.kill()
        expect(page.locator(".stream")).to_contain_text("log unreachable")
        assert all_faults(page, empty, PLAIN, WAYS) == {}
