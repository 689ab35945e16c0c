"""The page in a real browser, on a real server and a real log."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog.events import Status
from foldlog.eventlog.ports import Presence
from foldlog.runtime import Agent, ToolContext, tool
from playwright.sync_api import Route, expect

from tests.console.conftest import PHONE, Open, violations
from tests.console.site import HOSTILE, Site, refund, stock, wait_for
from tests.console.test_wcag import faults, show
from tests.unit.traces import Family, step_started


def test_the_list_shows_each_run_and_its_chips_filter_it(open_page: Open, site: Site) -> None:
    async def two_runs() -> None:
        clerk, refunds = (site.runtime.registry.agents[name] for name in ("clerk", "refunds"))
        done = await site.runtime.start(clerk, "Order 17", session="of the list")
        await done.result()
        await site.until_asked(await site.runtime.start(refunds, "Order 18", session="of the list"))

    site.do(two_runs())  # what other tests have left does not matter
    page = open_page('runs?f=session:"of the list"')
    by_status = page.get_by_role("group", name="By status")
    expect(page.get_by_role("row")).to_have_count(3)
    expect(by_status.get_by_role("button", name=re.compile("^all"))).to_have_text("all 2")
    by_status.get_by_role("button", name=re.compile("^paused")).click()
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("row").nth(1)).to_contain_text("Order 18")
    page.get_by_label("Filter runs").fill('session:"of the list" agent:clerk "Order 17"')
    page.keyboard.press("Enter")
    expect(page.get_by_role("row").nth(1)).to_contain_text("Order 17")
    expect(page.get_by_role("row")).to_have_count(2)
    page.reload()  # the address has all of it
    expect(page.get_by_role("row").nth(1)).to_contain_text("Order 17")
    expect(page.get_by_role("row")).to_have_count(2)


def test_a_run_that_starts_now_appears_and_ends_without_a_reload(open_page: Open, site: Site) -> None:
    page = open_page("runs?f=agent:clerk status:completed")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    before = page.get_by_role("row").count()
    agent = site.runtime.registry.agents["clerk"]
    run = site.do(site.runtime.start(agent, "Count again"))
    site.do(run.result())
    expect(page.get_by_role("row")).to_have_count(before + 1)
    site.do(run.result())


def test_a_run_that_ends_between_the_list_and_its_stream_is_in_the_list(open_page: Open, site: Site) -> None:
    listed = "runs?f=agent:clerk status:completed"
    page, beside = open_page("settings"), open_page(listed)
    expect(beside.locator(".stream")).to_contain_text("live")
    started: list[str] = []

    def late(route: Any) -> None:
        if "runs" in route.request.url and not started:
            run = site.do(site.runtime.start(site.runtime.registry.agents["clerk"], "In between"))
            site.do(run.result())
            expect(beside.get_by_role("row").filter(has_text="In between")).to_be_visible()  # all were told
            started.append(run.run_id)
        route.continue_()

    page.add_init_script("delete window.SharedWorker")  # whose requests a test cannot hold back
    page.route(re.compile("/api/v1/stream"), late)
    page.goto(site.address + listed)
    wait_for(lambda: started or page.wait_for_timeout(10))
    expect(page.get_by_role("row").filter(has_text="In between")).to_contain_text("completed")


def test_a_list_that_could_not_be_read_is_read_again_by_itself_and_followed(
    open_page: Open, site: Site
) -> None:
    page = open_page("settings")
    status = 422

    def away(route: Any) -> None:
        if status:
            route.fulfill(status=status, json={"detail": "not now", "request_id": "r-1"})
        else:
            route.continue_()

    page.route(re.compile(r"/api/v1/runs\?"), away)
    page.goto(f"{site.address}runs?f=agent:clerk status:completed")
    failed, told = page.get_by_role("alert"), "It is tried again by itself"
    expect(failed).to_contain_text("not now")
    expect(failed).not_to_contain_text(told)  # the same question would have the same answer
    status = 503
    page.get_by_role("button", name="Retry").click()
    expect(failed).to_contain_text(told)
    status = 0
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    run = site.do(site.runtime.start(site.runtime.registry.agents["clerk"], "After the outage"))
    site.do(run.result(timeout_s=30))
    expect(page.get_by_role("row").filter(has_text="After the outage")).to_be_visible()


def test_a_run_is_shown_as_it_goes_on_with_all_of_its_events(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["refunds"]
    run = site.do(site.runtime.start(agent, "Order 17 was paid twice"))
    page = open_page(f"runs/{run.run_id}?level=engine")
    site.do(site.until_asked(run))
    expect(page.locator(".why-line")).to_contain_text("refund")
    page.get_by_role("link", name="Decide").click()
    page.get_by_role("button", name=re.compile("^Approve a")).click()
    page.get_by_role("button", name=re.compile("^Approve Ctrl")).click()
    result = site.do(run.result())
    assert result.output == "Order 17 is refunded."
    page.goto(f"{site.address}runs/{run.run_id}?level=engine")
    expect(page.locator(".run-head .status").first).to_contain_text("completed")
    head = site.do(run.state()).head.rev
    expect(page.locator(".events .bar")).to_contain_text(f"{head} events")
    resolved = next(e for e in site.do(events_of(run)) if e.type == "approval_resolved")
    assert resolved.by == "local"


async def events_of(run: Any) -> list[Any]:
    """Return the stored events of a run that is over."""
    async with contextlib.aclosing(run.stream()) as events:
        return [event async for event in events]


def test_the_last_events_are_followed_until_somebody_scrolls_up(open_page: Open, site: Site) -> None:
    family = Family("followed", start=time.time())
    family.begin()
    family.claim(1)

    def go_on(steps: range) -> str:
        for step in steps:
            family.commit(*step_started(step), epoch=1)
        site.do(site.plant(family))
        return str(family.events[-1].revision)

    head = go_on(range(1, 30))
    page = open_page(f"runs/{family.root}?tab=events&level=engine")
    grid, follow = page.get_by_role("grid", name="Events"), page.get_by_label("follow")
    last = grid.locator(".c-revision").last
    expect(last).to_have_text(head)
    grid.hover()
    page.mouse.wheel(0, -700)
    expect(follow).not_to_be_checked()
    expect(last).not_to_have_text(head)
    shown = grid.locator(".c-revision").all_inner_texts()
    assert shown == [str(each) for each in range(int(shown[0]), int(shown[0]) + len(shown))]
    head = go_on(range(30, 50))
    expect(page.locator(".events .bar")).to_contain_text(f"{head} events")
    assert grid.locator(".c-revision").all_inner_texts() == shown
    follow.check()
    expect(last).to_have_text(head)


def test_a_lost_worker_is_drawn_up_to_its_last_event_with_a_torn_edge(open_page: Open, site: Site) -> None:
    family = Family("torn", start=time.time() - 100)
    family.begin()
    family.claim(1)
    family.commit(*step_started(1), epoch=1)
    family.now += 20
    family.claim(2)
    family.now += 5
    family.commit(Status(status="completed"), epoch=2)
    site.do(site.plant(family))
    page = open_page(f"runs/{family.root}")
    expect(page.locator("canvas").first).to_have_attribute("data-bars", re.compile("[5-9]"))
    told, filled = page.evaluate(SWEPT)
    (lost,) = [text for text in told if "lost\n" in text]
    assert lost.startswith("worker-torn-1, lost")
    (taken,) = [text for text in told if "worker-torn-2" in text]
    assert "epoch 2; worker-torn-1 was lost, this one was there 21.0 s later" in taken
    assert len(set(filled)) > 2  # a whole bar ends at the same place in all of its lines


def test_of_a_damaged_run_the_page_shows_what_is_before_the_damage_and_names_its_place(
    open_page: Open, tmp_path: Path
) -> None:
    broken, whole = Family("damaged", start=time.time() - 100), Family("lost", start=time.time() - 100)
    broken.begin(text="Count the lamps")
    broken.claim(1)
    broken.commit(Status(status="completed"), epoch=1)
    whole.begin()
    for each in (broken, whole):
        each.damage()
    with Site(tmp_path, full=False) as damaged:
        damaged.do(damaged.plant(broken))
        page = open_page(f"runs/{broken.root}?tab=events", at=damaged)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The log is damaged")
        expect(alert).to_contain_text(f"Run {broken.root}, revision 4.")
        expect(page.get_by_text("Count the lamps").first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="claimed")).to_have_count(0)
        page.get_by_role("button", name="engine").click()
        expect(page.get_by_role("row").filter(has_text="claimed")).to_have_count(1)
        for tab in ("Timeline", "Steps", "Costs", "Raw"):
            page.get_by_role("tab", name=tab).click()
            expect(alert.first).to_contain_text("The log is damaged")
        damaged.do(damaged.plant(whole))
        page.goto(f"{damaged.address}runs/{whole.root}")
        expect(alert).to_contain_text(f"Run {whole.root}, revision 1.")
        for path in ("runs", "approvals"):
            page.goto(f"{damaged.address}{path}")
            expect(alert).to_contain_text("2 runs are damaged")
            expect(alert).to_contain_text(f"the log of run {broken.root} is damaged at revision 4: ")
        page.goto(f"{damaged.address}runs?f=damaged:yes")
        expect(page.get_by_role("row").filter(has_text="damaged at revision")).to_have_count(2)


SWEPT = """async () => {
    const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect(), ratio = devicePixelRatio;
    const told = new Set(), y = 41;
    let end = 0;
    for (let x = 80; x < box.width; x += 3) {
        canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + x, clientY: box.top + y}));
        await new Promise(requestAnimationFrame);
        const text = document.querySelector(".tip")?.innerText ?? "";
        if (text) told.add(text);
        if (text.includes("lost\\n")) end = x;
    }
    const pixels = canvas.getContext("2d"), filled = [];
    for (let line = y - 6; line < y + 6; line++) {
        const {data} = pixels.getImageData((end - 9) * ratio, line * ratio, 18 * ratio, 1);
        filled.push(data.filter((each, n) => n % 4 === 3 && each > 128).length);
    }
    return [[...told], filled];
}"""
"""Returns what is told of the bars in the first lane, and how wide each line of the lost one is at its end."""


def test_what_a_tool_returns_stays_text_wherever_it_is_shown(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['hostile']}?tab=steps")
    shown = page.locator(".call .result")
    expect(shown).to_contain_text("<img src=x onerror=")
    expect(shown).to_contain_text("⟨U+202E⟩gnp.exe")
    for tab in ("timeline", "events", "raw", "messages", "costs"):
        page.goto(f"{site.address}runs/{site.runs['hostile']}?tab={tab}&rev=9")
        expect(page.get_by_role("tabpanel")).to_be_visible()
    assert page.evaluate("document.body.dataset.hacked ?? 'no'") == "no"
    assert page.locator("img, script:not([src]), iframe").count() == 0
    assert "\u202e" not in page.inner_text("body")
    assert HOSTILE[:10] in page.content() or "&lt;img" in page.content()


def test_the_queue_shows_what_is_spent_of_budgets_and_their_users_stay_text(
    open_page: Open, site: Site
) -> None:
    user = f"{HOSTILE[:150]}{'x' * 80}"
    run = site.do(site.runtime.start(site.runtime.registry.agents["mail"], "Read it", user=user))
    site.do(run.result())
    page = open_page("queue", size=PHONE)
    shown = page.get_by_role("list", name="Budgets")
    month = shown.get_by_role("listitem").filter(has_text="<img src=x onerror=").filter(has_text="Asia/Tokyo")
    expect(month).to_contain_text("272 tokens")
    expect(month).to_contain_text("1,000,000 tokens a month")
    expect(month).to_contain_text("999,728 tokens left")
    expect(month.locator("time")).to_have_count(1)
    expect(shown.get_by_role("listitem").filter(has_text="agent:nobody")).to_contain_text("$50")
    assert shown.evaluate("each => each.scrollWidth <= each.clientWidth")
    assert page.evaluate("document.body.dataset.hacked ?? 'no'") == "no"
    assert page.locator("main img, script:not([src]), iframe").count() == 0
    assert "\u202e" not in page.inner_text("body")
    assert faults(page, [("dark", PHONE)]) == []


def test_a_budget_that_is_used_up_or_unknown_to_the_server_is_told_as_such(
    open_page: Open, site: Site
) -> None:
    of = {"per": "day", "time_zone": "UTC", "began_at": 0.0, "until": 86400.0, "calls": 3, "tokens": 1}
    spent = of | {"owner": "namespace", "amount": "2 USD a day", "when_spent": "wait", "cost_usd": "2.5"}
    strange = of | {"owner": "user:ada", "amount": "", "when_spent": "", "cost_usd": "0", "unpriced": 0}
    rows = [
        spent | {"unpriced": 1, "left_usd": "0", "left_tokens": None},
        strange | {"left_usd": None, "left_tokens": None},
    ]
    page = open_page("runs", size=PHONE)
    page.route("**/api/v1/budgets?*", lambda route: route.fulfill(json={"rows": rows, "next": "more"}))
    show(page, site.address, "queue")
    used_up, unknown = page.get_by_role("list", name="Budgets").get_by_role("listitem").all()
    expect(used_up).to_contain_text(
        "namespace: at least $2.50 spent of 2 USD a day, used up (day, UTC, until "
    )
    expect(unknown).to_contain_text(
        "user:ada: $0 and 1 token spent of an amount that is not known here (day, UTC, until "
    )
    expect(page.get_by_text("And more: foldlog budgets list has all.")).to_be_visible()
    assert faults(page, [("dark", PHONE)]) == []


def test_everything_is_reached_by_the_keyboard_alone(open_page: Open, site: Site) -> None:
    page = open_page("runs")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".grid-row.at")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("tablist")).to_be_visible()
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Steps")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("[")
    expect(page.get_by_role("complementary")).to_contain_text("Revision")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("grid", name="Runs")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.type("ga")  # at once: the second key has little time
    expect(page.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="A run").fill(site.runs["failed"])
    expect(page.locator("#found li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text(site.runs["failed"])
    page.keyboard.type("gr")
    page.get_by_label("Filter runs").focus()
    page.keyboard.type("ga?")  # in a field they are letters
    expect(page.get_by_label("Filter runs")).to_have_value("ga?")


def test_single_keys_do_nothing_once_they_are_turned_off(open_page: Open) -> None:
    page = open_page("settings")
    page.get_by_label("Off; Ctrl K, arrows and Enter stay").check()
    page.keyboard.press("?")
    page.keyboard.type("gr")
    expect(page.get_by_role("heading", name="Settings", level=1)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_approval_that_was_answered_by_another_says_by_whom(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["refunds"]
    run = site.do(site.runtime.start(agent, "Order 21"))
    approval = site.do(site.until_asked(run))
    page = open_page(f"approvals/{approval}")
    expect(page.get_by_role("button", name="Reject r")).to_be_visible()
    page.keyboard.press("r")
    page.get_by_label("Note").fill("no receipt")
    site.do(run.resolve(approval, "approved", by="bo"))
    page.keyboard.press("Control+Enter")
    expect(page.locator(".answered, .notes").first).to_contain_text("approved by bo")
    site.do(run.result())


def test_arguments_are_edited_with_a_check_and_the_change_is_shown(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["refunds"]
    run = site.do(site.runtime.start(agent, "Order 22"))
    approval = site.do(site.until_asked(run))
    page = open_page(f"approvals/{approval}")
    page.get_by_role("button", name="Edit and approve").click()
    expect(page.get_by_role("article", name="The chosen approval")).to_contain_text("Effectunsafe")
    send = page.get_by_role("button", name=re.compile("Approve with these arguments"))
    page.get_by_label("order_id").fill("17")
    page.get_by_label("amount_eur").fill("12.5")
    expect(page.locator(".faults")).to_have_text("amount_eur must be integer, not number")
    expect(send).to_be_disabled()
    page.get_by_label("amount_eur").fill("12")
    expect(page.locator(".patch")).to_contain_text("40")
    send.click()
    site.do(run.result())
    resolved = next(e for e in site.do(events_of(run)) if e.type == "approval_resolved")
    assert resolved.arguments == {"order_id": "17", "amount_eur": 12}


def test_after_an_answer_the_next_approval_has_the_focus(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["refunds"]
    runs = [site.do(site.runtime.start(agent, f"Order 5{n}")) for n in range(2)]
    asked = [site.do(site.until_asked(run)) for run in runs]
    page = open_page(f"approvals/{asked[0]}")
    expect(page.get_by_role("button", name="Approve a")).to_be_visible()
    page.keyboard.press("a")
    page.get_by_label("Note").fill("seen")
    page.keyboard.press("Control+Enter")
    expect(page).not_to_have_url(re.compile(asked[0]))
    expect(page.get_by_role("article", name="The chosen approval")).to_be_focused()
    site.do(runs[0].result())
    site.do(runs[1].cancel("over", by="ada"))


def test_the_times_of_all_views_change_by_one_switch(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['done']}")
    page.get_by_role("button", name="Local").click()
    expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")
    page.goto(f"{site.address}runs")
    expect(page.get_by_role("button", name="UTC")).to_be_visible()


@pytest.mark.nightly
def test_twelve_tabs_share_one_stream_and_each_is_live(open_page: Open, site: Site) -> None:
    first = open_page("runs?f=agent:mail")
    tabs = [first.context.new_page() for _ in range(11)]
    for tab in tabs:
        tab.goto(f"{site.address}runs?f=agent:mail")
    for tab in [first, *tabs]:
        expect(tab.locator(".stream")).to_contain_text("live")
    before = first.get_by_role("row").count()
    run = site.do(site.runtime.start(site.runtime.registry.agents["mail"], "Once more"))
    site.do(run.result())
    for tab in [first, *tabs]:
        expect(tab.get_by_role("row")).to_have_count(before + 1)


def test_an_empty_namespace_says_how_to_begin(open_page: Open, tmp_path: Path) -> None:
    with Site(tmp_path, full=False) as empty:
        page = open_page("runs", at=empty)
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        assert violations(page) == []
        page.goto(f"{empty.address}approvals")
        expect(page.get_by_role("heading", name="Nothing waits.")).to_be_visible()
        assert violations(page) == []
        empty.nats.kill()
        expect(page.locator(".stream")).to_contain_text("log unreachable")
        page.goto(f"{empty.address}runs")
        expect(page.locator(".failed")).to_be_visible()
        assert violations(page) == []
        empty.do(empty.nats.restart())
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        empty.do(empty.plant(twice_over()))
        badge = page.get_by_role("navigation", name="Screens").get_by_label("1 violations")
        expect(badge).to_be_visible()
        page.goto(f"{empty.address}monitor")
        expect(page.get_by_role("main")).to_contain_text("R6")
        page.get_by_text("Both events").click()
        expect(page.get_by_role("group", name=re.compile("^Event [34]"))).to_have_count(2)
        assert violations(page) == []


def twice_over() -> Family:
    """A run that ends twice, which no code of ours writes."""
    family = Family("twice")
    family.begin()
    family.commit(Status(status="completed"))
    family.commit(Status(status="completed"))
    return family


def test_a_browser_signs_in_by_the_key_once_and_by_a_token(open_page: Open, tmp_path: Path) -> None:
    tokens = {"vera": {"sha256": hashlib.sha256(b"fl_vera").hexdigest(), "role": "viewer"}}
    with Site(tmp_path, full=False, no_auth=False, tokens=tokens, base_path="/ops") as closed:
        assert closed.address.endswith("/ops/")
        key = closed.door.identity.one_time_key()
        page = open_page(f"#k={key}", at=closed)
        expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        assert "#" not in page.url
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.goto(f"{closed.address}settings?tab=server")
        page.get_by_role("main").get_by_role("button", name="Sign out").click()
        page.goto(f"{closed.address}runs#k={key}")
        expect(page.get_by_role("alert")).to_contain_text("this key was used")
        assert violations(page) == []
        page.get_by_label("Token").fill("fl_vera")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".who")).to_contain_text("vera")
        expect(page.get_by_role("button", name="Start a run")).to_have_count(0)
        assert "fl_vera" not in page.evaluate("JSON.stringify([location.href, localStorage, sessionStorage])")


def test_what_came_while_the_server_was_away_is_there_once_it_is_back(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["clerk"]
    run = site.do(site.runtime.start(agent, "Once"))
    page = open_page(f"runs/{run.run_id}?level=engine")
    expect(page.locator(".stream")).to_contain_text("live")
    expect(page.locator(".events .bar")).to_be_visible()
    page.context.set_offline(True)
    site.do(run.result())
    page.context.set_offline(False)
    head = site.do(run.state()).head.rev
    wait_for(lambda: f"{head} events" in page.locator(".events .bar").inner_text())


def test_a_prompt_is_shown_with_its_proof_and_a_state_with_what_changed(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['refunded']}?rev=14&panel=prompt")
    expect(page.locator(".proof")).to_contain_text("Proven")
    page.get_by_role("button", name="State").click()
    expect(page.locator(".patch")).to_contain_text("/calls/call-1/result")


def test_a_prompt_tells_what_is_new_since_the_one_before(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['refunded']}?rev=99&panel=prompt")
    expect(page.locator(".instant")).to_contain_text("prompt 3 of 3")
    expect(page.locator(".instant")).to_contain_text("Since the prompt before")
    expect(page.locator(".instant-body .messages .tag", has_text="new")).to_have_count(2)
    expect(page.locator(".instant-body .messages li").first).to_contain_text(re.compile(r"≈ \d+ tokens"))


def test_an_action_without_an_answer_says_so_and_asked_again_is_done_once(
    open_page: Open, site: Site
) -> None:
    text = "Order 61, asked for twice"
    run = site.do(site.runtime.start(site.runtime.registry.agents["clerk"], text))
    site.do(run.result())
    page = open_page(f"runs/{run.run_id}")
    retry = page.get_by_role("button", name="Retry")
    held: list[Route] = []

    def answered_but_lost(route: Route) -> None:
        assert route.fetch().ok
        route.abort()

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/retry", answered_but_lost)
    retry.click()
    notes = page.get_by_role("region", name="Messages")
    expect(notes).to_contain_text("Sent, not seen yet: the console's server did not answer.")
    page.unroute("**/retry")
    page.route("**/retry", hold)
    retry.click()
    expect(notes.get_by_text("Sent, not seen yet", exact=True)).to_be_visible()
    expect(retry).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(page).not_to_have_url(re.compile(run.run_id))

    async def same() -> int:
        return len([row for row in await (await site.runtime.index()).runs(100) if row.input == text])

    assert site.do(same()) == 2


def test_a_session_shows_its_lane_and_drops_the_turns_that_it_names(open_page: Open, site: Site) -> None:
    agents = site.runtime.registry.agents
    runs = [site.do(site.runtime.start(agents["clerk"], f"Count {n}", session="bo")) for n in (1, 2)]
    for run in runs:
        site.do(run.result(timeout_s=60))
    page = open_page("sessions/bo")
    expect(page.get_by_role("link", name=runs[0].run_id)).to_be_visible()
    page.get_by_label("Last").fill("2")
    page.get_by_role("button", name="Drop last turns").click()
    asked = page.get_by_role("dialog", name="Drop the last 2 turns of bo?")
    expect(asked).to_contain_text("Count 1")
    asked.get_by_role("button", name="Drop 2 turns").click()
    expect(page.get_by_role("heading", name="No turn has ended yet")).to_be_visible()
    waits = site.do(site.runtime.start(agents["refunds"], "Order 17", session="bo"))
    site.do(site.until_asked(waits))
    expect(page.get_by_role("listitem").filter(has_text=waits.run_id)).to_contain_text("paused since")
    page.goto(f"{site.address}compare?a={runs[1].run_id}")
    page.get_by_role("link", name="the one before it in its session").click()
    expect(page.get_by_role("status").filter(has_text="boundaries are equal")).to_be_visible()
    site.do(waits.cancel())


def test_a_fork_shows_its_plan_before_it_starts_and_then_leads_to_itself(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['refunded']}?rev=15")
    page.get_by_role("button", name="Fork here").click()
    expect(page.get_by_role("button", name="Start the fork")).to_have_count(0)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".plan")).to_contain_text("refund")
    page.get_by_role("button", name="Start the fork").click()
    expect(page).to_have_url(re.compile("then=compare"))
    fork = re.search("runs/([^?]+)", page.url)[1]  # type: ignore[index]
    handle = site.runtime.get_run(fork)
    site.do(site.decide(handle, "approved", "Go on"))
    expect(page).to_have_url(
        re.compile(rf"/compare\?a={site.runs['refunded']}&b={fork}")
    )  # once it has ended
    listed = open_page("runs?f=agent:refunds")
    expect(listed.get_by_role("row").nth(1)).to_be_visible()
    expect(listed.get_by_role("row").filter(has_text=fork[-7:])).to_have_count(0)
    listed.get_by_label("Filter runs").fill("agent:refunds forks:yes")
    listed.keyboard.press("Enter")
    expect(listed.get_by_role("row").filter(has_text=fork[-7:])).to_have_count(1)
    page.goto(f"{site.address}runs/{fork}")
    expect(page.get_by_role("link", name="compare", exact=True)).to_be_visible()
    page.get_by_text("Tree of forks and children").click()
    tree = page.get_by_role("group", name="Tree of forks and children")
    expect(tree).to_contain_text("fork at 15")
    expect(tree.get_by_role("link", name=site.runs["refunded"])).to_be_visible()
    page.get_by_role("link", name="compare", exact=True).click()
    expect(page.locator(".pair canvas")).to_have_count(2)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as a page").click()
    assert "foldlog diff" in saved.value.path().read_text()


def test_the_list_says_why_a_run_waits(open_page: Open, site: Site) -> None:
    page = open_page("runs?f=status:queued")
    expect(page.locator(".line.why").first).to_contain_text("No worker serves agent")


def test_on_a_phone_the_sign_of_why_a_run_waits_is_beside_its_text(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['paused']}", size=PHONE)
    line = page.locator(".why-line")
    sign, text = line.locator(".icon").bounding_box(), line.locator("> span").bounding_box()
    assert sign is not None
    assert text is not None
    assert sign["x"] + sign["width"] <= text["x"]
    assert text["y"] <= sign["y"] <= text["y"] + text["height"]


def test_a_worker_that_drains_is_shown_so(open_page: Open, site: Site) -> None:
    leaving = site.runtime.log.leases.presence(
        Presence(worker="w-old", serves=("clerk",), concurrency=4, draining=True)
    )
    site.do(leaving.__aenter__())
    page = open_page("workers")
    expect(page.get_by_role("row").filter(has_text="w-old")).to_contain_text("draining")
    site.do(leaving.__aexit__(None, None, None))
    expect(page.get_by_role("row").filter(has_text="w-old")).to_have_count(0)


def test_children_are_hidden_in_the_list_and_shown_below_their_parents_as_a_tree(
    open_page: Open, site: Site
) -> None:
    page = open_page("runs?f=agent:team")
    expect(page.get_by_role("row")).to_have_count(2)
    page.goto(f"{site.address}runs?tree=1&f=root:{site.runs['family']}")
    expect(page.get_by_role("row")).to_have_count(4)
    rows = [row.inner_text() for row in page.get_by_role("row").all()]
    assert ["level 1" in row for row in rows] == [False, False, True, True]
    page.goto(f"{site.address}runs/{site.runs['family']}")
    page.get_by_text("Tree of forks and children").click()
    expect(page.get_by_text("child, level 1")).to_have_count(2)


def test_several_approvals_get_one_answer_and_those_that_were_refused_say_why(
    open_page: Open, site: Site
) -> None:
    agent = site.runtime.registry.agents["refunds"]
    runs = [site.do(site.runtime.start(agent, f"Order 3{n}")) for n in range(3)]
    asked = [site.do(site.until_asked(run)) for run in runs]
    page = open_page("approvals")
    for run in runs:
        page.get_by_label(f"Choose refund of {run.run_id}").check()
    bar = page.get_by_role("toolbar", name="The chosen approvals")
    bar.get_by_label("Note").fill("all of the same order")
    site.do(runs[0].resolve(asked[0], "rejected", by="bo"))
    bar.get_by_role("button", name="Approve all").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    refused = page.get_by_role("list", name="Refused")
    expect(refused.get_by_role("listitem")).to_have_count(1)
    expect(refused).to_contain_text("bo")
    expect(bar).to_contain_text("1 approval chosen")
    for run in runs:
        site.do(run.result())
    answers = [next(e for e in site.do(events_of(run)) if e.type == "approval_resolved") for run in runs]
    assert [(each.decision, each.by) for each in answers] == [
        ("rejected", "bo"),
        ("approved", "local"),
        ("approved", "local"),
    ]
    assert answers[1].request_id == answers[2].request_id != ""


def test_a_rollback_shows_its_plan_before_it_starts_and_then_leads_to_itself(
    open_page: Open, site: Site
) -> None:
    agent = site.runtime.registry.agents["refunds"]
    run = site.do(site.runtime.start(agent, "Order 41"))
    site.do(site.decide(run, "approved", "seen"))
    site.do(run.result())
    page = open_page(f"runs/{run.run_id}")
    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".plan")).to_contain_text("Ask the bank to take it back.")
    assert violations(page) == []
    dialog.get_by_role("button", name="Roll back").click()
    expect(page).not_to_have_url(re.compile(run.run_id))
    expect(page.locator(".why-line")).to_contain_text("Waits for people")
    page.goto(f"{site.address}runs/{run.run_id}")
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("dialog")).to_contain_text("It is rolled back")


def test_a_run_and_its_retries_are_one_job_with_its_attempts(open_page: Open, site: Site) -> None:
    agent = site.runtime.registry.agents["broken"]
    first = site.do(site.runtime.start(agent, "Write it"))
    with contextlib.suppress(Exception):
        site.do(first.result())
    page = open_page("jobs?status=error")
    job = page.get_by_role("row").filter(has_text=first.run_id)
    expect(job).to_contain_text("broken")
    expect(job.get_by_role("link", name="1, error")).to_be_visible()
    page.goto(f"{site.address}runs/{first.run_id}")
    page.get_by_role("button", name="Retry").click()
    expect(page).not_to_have_url(re.compile(first.run_id))
    expect(page.get_by_role("banner").or_(page.locator(".run-head")).last).to_contain_text("Attempt at")
    page.goto(f"{site.address}jobs")
    expect(job.get_by_role("link", name=re.compile("^2, "))).to_be_visible()
    job.get_by_role("link", name=first.run_id).click()
    expect(page.get_by_role("grid", name="Runs").get_by_role("row")).to_have_count(3)


def test_the_chain_of_a_long_run_is_verified_by_one_question(open_page: Open, site: Site) -> None:
    page = open_page(f"runs/{site.runs['refunded']}?tab=raw")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    verify = page.get_by_role("button", name="Verify chain")
    expect(verify).to_be_enabled()
    asked.clear()
    verify.click()
    expect(page.locator("#tab-panel").get_by_role("status")).to_contain_text("every link of the chain holds")
    assert len([url for url in asked if "/events/" in url]) == 1


def test_the_time_that_is_left_for_an_approval_is_told_as_in_the_reason_of_its_run(
    open_page: Open, site: Site
) -> None:
    page = open_page(f"runs/{site.runs['paused']}")
    expect(page.locator(".why-line")).to_contain_text("expires in 6 d")
    page.get_by_role("link", name="Decide").click()
    expect(page.get_by_role("article", name="The chosen approval")).to_contain_text("in 6 d")


@tool(effect="pure", timeout_s=0.05, on_timeout="partial")
async def survey(context: ToolContext) -> str:
    """Report one shelf, and never the others."""
    context.partial("the lamps are counted")
    await asyncio.Event().wait()
    return "all is counted"


def test_a_result_that_is_partial_is_told_as_one_and_a_tool_that_was_removed_by_its_name(
    open_page: Open, site: Site
) -> None:
    asks = {"id": "c2", "name": "refund", "arguments": {"order_id": "5", "amount_eur": 1}}
    turns = [
        {"tool_calls": [{"id": "c1", "name": "survey", "arguments": {}}]},
        {"tool_calls": [asks]},
        {"text": "Done."},
    ]
    (site.directory / "surveyor.json").write_text(json.dumps({"turns": turns}))
    agent = Agent(
        "surveyor",
        model="scripted:surveyor.json",
        tools=[survey, stock, refund],
        hitl_tools=["refund"],
    )
    run = site.do(site.runtime.start(agent, "Count"))
    site.do(site.until_asked(run))
    page = open_page(f"runs/{run.run_id}", size={"width": 1280, "height": 2000})  # all rows are in sight
    rows = page.locator(".events")
    expect(rows).to_contain_text("← survey")
    expect(rows).to_contain_text("timed out; so far: the lamps are counted")
    site.do(run.refresh_tools(remove=["stock"], by="ada"))
    site.do(site.decide(run, "approved", "seen"))
    site.do(run.result())
    page.goto(f"{site.address}runs/{run.run_id}?level=engine")
    expect(rows).to_contain_text("removed: stock")
    assert violations(page) == []
