"""Text of strangers stays text: on every screen, in what is saved, and in notifications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from foldlog.runtime import Schedule
from playwright.sync_api import Page, expect

from tests.console.conftest import Open
from tests.console.site import HOSTILE, Site
from tests.console.test_wcag import SCREENS, show

NAMES: dict[str, Any] = {"session": "<b>s</b>\u202e", "user": "<i>u</i>", "metadata": {"<b>m</b>": HOSTILE}}
TABS = ("timeline", "steps", "events", "messages", "evidence", "costs", "raw")
LONG = f"{HOSTILE} {'x' * 800_000}"


def text_only(page: Page) -> list[str]:
    """Return what is there that no text can make."""
    made = page.evaluate(
        "[...document.querySelectorAll('main img, script:not([src]), iframe, object, [onerror], [onclick]')]"
        ".map(each => each.outerHTML.slice(0, 100))"
    )
    links = page.evaluate(
        "[...document.querySelectorAll('a')].map(a => a.protocol).filter(p => !/^(https?|blob):$/.test(p))"
    )
    hacked = page.evaluate("document.body.dataset.hacked ?? ''")
    shown = page.inner_text("body")
    signs = [sign for sign in ("\u202e", "\u200b", "\x1b") if sign in shown]
    return [*made, *links, *([hacked] if hacked else []), *map(repr, signs)]


@pytest.fixture(scope="module")
def run_id(site: Site) -> Iterator[str]:
    """A run of which everything is written by a stranger, and that ends with a million characters on one line."""
    agents = site.runtime.registry.agents

    async def written() -> str:
        run = await site.runtime.start(agents["mail"], LONG, **NAMES)
        await run.result()
        asked = await site.runtime.start(agents["refunds"], HOSTILE, user=NAMES["user"])
        await asked.inject(LONG, by=HOSTILE)
        await site.decide(asked, "approved", HOSTILE)
        await asked.result()
        waits = await site.runtime.start(agents["refunds"], HOSTILE)
        await site.until_asked(waits)
        site.runs["of_strangers"] = asked.run_id
        steps = [{"text": HOSTILE, "note": HOSTILE}, "x" * 4000]
        await site.runtime.plans.save("strange", steps, goal=HOSTILE, note=HOSTILE, by=HOSTILE)
        model = agents["clerk"].config.model
        strange = {"name": "strange", "model": model, "instructions": LONG[:9000]}
        await site.runtime.agents.save(strange, note=HOSTILE, by=HOSTILE)
        await site.runtime.agents.save(strange | {"instructions": HOSTILE}, note=HOSTILE, by=HOSTILE)
        await site.runtime.schedules.apply(Schedule("strange", "clerk", HOSTILE, every="1h"))
        return str(run.run_id)

    yield site.do(written())
    site.do(site.runtime.schedules.delete("strange"))
    site.do(site.runtime.plans.remove("strange"))
    site.do(site.runtime.agents.remove("strange"))


@pytest.mark.nightly
def test_what_strangers_write_stays_text_on_every_screen(open_page: Open, site: Site, run_id: str) -> None:
    page = open_page("runs")
    found: dict[str, list[str]] = {}
    of_runs = [f"runs/{run}?tab={tab}&rev=6" for run in (run_id, site.runs["of_strangers"]) for tab in TABS]
    stored = ("plans", "plans/strange", "agents", "agents/strange?version=2&before=1")
    for screen in (
        *SCREENS,
        *of_runs,
        *stored,
        f"sessions/{quote(NAMES['session'])}",
        f"compare?a={run_id}&b={site.runs['of_strangers']}&rows=all",
    ):
        show(page, site.address, screen.format_map(site.runs))
        if wrong := text_only(page):
            found[screen] = wrong
    assert found == {}


@pytest.mark.nightly
def test_what_strangers_write_stays_text_in_what_is_saved(open_page: Open, site: Site, run_id: str) -> None:
    page = open_page(f"compare?a={run_id}&b={site.runs['of_strangers']}")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as a page").click()
    html = saved.value.path().read_text()
    assert "<script>" not in html
    assert "<img" not in html
    assert "\u202e" not in html
    show(page, site.address, "costs?by=user")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as CSV").click()
    rows = saved.value.path().read_text().split("\r\n")
    assert all(row.startswith('"') for row in rows)


@pytest.mark.nightly
def test_a_notification_is_one_line_of_visible_text(open_page: Open, site: Site, run_id: str) -> None:
    page = open_page("approvals")
    expect(page.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    told: Any = page.evaluate(
        """async text => {
            const shell = await import(new URL('shell.js', document.querySelector('script').src));
            return shell.notification({tool_name: text, agent_path: text, kind: 'tool'});
        }""",
        "\u202e<b>\nrefund\x1b[31m",
    )
    assert "⟨U+202E⟩" in told
    assert not {"\u202e", "\x1b", "\n"} & set(told)
