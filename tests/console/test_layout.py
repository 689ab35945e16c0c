"""What is shown has its room: at every width, with long content, on any day."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.console.conftest import DESKTOP, Open
from tests.console.site import Site
from tests.unit.traces import Family, final_step, step_started

CUT = """names => names.flatMap(name => [...document.querySelectorAll(`.grid-row .c-${name}`)])
    .filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"""
"""Returns the texts in cells of these columns that have less room than they need."""


def test_the_list_has_all_columns_on_a_laptop_and_each_time_is_whole_at_every_width(
    open_page: Open, site: Site
) -> None:
    family = Family("of-another-day", start=time.time() - 3 * 86_400)
    family.begin(text="Count the lamps of the whole of the warehouse, and of its yard")
    family.claim(1)
    family.commit(*step_started(1), *final_step(1), epoch=1)
    site.do(site.plant(family))
    page = open_page("runs")
    expect(page.get_by_role("row").filter(has_text="Count the lamps of the whole")).to_be_visible()
    for width in (320, 768, 1024, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator(".grid.narrow")).to_have_count(1 if width <= 900 else 0)
        grid = page.get_by_role("grid", name="Runs")
        assert grid.evaluate("each => each.scrollWidth - each.clientWidth") == 0, width
        assert page.evaluate(CUT, ["started", "when", "took", "meta", "usage", "cost"]) == [], width
        if width >= 1280:
            heads = " ".join(page.get_by_role("columnheader").all_inner_texts()).lower()
            for wanted in ("agent", "input", "why", "took", "tokens", "steps", "cost", "session", "worker"):
                assert wanted in heads, (width, heads)


def test_the_row_of_a_revision_that_an_address_names_is_in_sight_beside_its_panel(
    open_page: Open, site: Site
) -> None:
    page = open_page(f"runs/{site.runs['refunded']}?rev=28&panel=event", size=DESKTOP)
    expect(page.get_by_role("complementary", name="Revision 28")).to_contain_text("tool_result")
    chosen = page.locator(".grid-row.at")
    expect(chosen).to_contain_text("28")
    expect(chosen).to_be_in_viewport(ratio=0.95)  # a fraction of a pixel aside
    told = chosen.locator(".c-what").bounding_box()
    assert told is not None
    assert told["width"] > 200


def test_a_time_of_another_day_has_its_date_and_of_another_year_the_year_too(open_page: Open) -> None:
    page = open_page("workers")
    expect(page.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    now = datetime(2026, 11, 27, 12, 30, tzinfo=UTC).timestamp()
    told = page.evaluate(
        """async ([now, ...times]) => {
            const {ago} = await import(new URL('text.js', document.querySelector('script').src));
            return times.map(at => ago(at, now, true));
        }""",
        [now, now - 90, now - 3 * 3600, now - 25 * 3600, now - 366 * 86_400, now + 50 * 3600],
    )
    assert told == ["1 min ago", "09:30:00", "26 Nov 11:30", "2025-11-26 12:30", "29 Nov 14:30"]


def test_what_is_written_on_a_bar_of_the_timeline_is_whole_or_ends_with_a_sign(open_page: Open) -> None:
    page = open_page("workers")
    expect(page.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    told = page.evaluate(
        """async rooms => {
            const {Timeline} = await import(new URL('run/timeline.js', document.querySelector('script').src));
            const pen = {measureText: text => ({width: 10 * text.length})}, bar = {start: 1, end: 3};
            return rooms.map(room => Timeline.prototype.fitting(pen, bar, 'find_order', room));
        }""",
        [300, 120, 60, 9],
    )
    assert told == ["find_order  2.0 s", "find_order", "find_…", ""]
