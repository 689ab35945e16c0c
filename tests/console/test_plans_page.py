"""The page of standing plans: one is written, changed and removed, and a change that came first is told."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.conftest import DESKTOP, PHONE, Open, violations
from tests.console.site import Site
from tests.console.test_wcag import faults


def test_a_plan_is_written_changed_by_keyboard_and_removed(open_page: Open, site: Site) -> None:
    page = open_page("plans?new=1")
    page.get_by_label("Name").fill("release")
    page.get_by_label("Goal").fill("<b>2.0</b>")
    page.get_by_label("Text of step 1").fill("Ship it")
    page.get_by_role("button", name="Add a step").press("Enter")
    page.get_by_label("Text of step 2").fill("Build it")
    page.get_by_role("button", name="Move step 2 up").press("Enter")
    page.get_by_role("button", name="Save as the next version").press("Enter")
    expect(page.get_by_role("heading", name="release")).to_be_visible()
    assert faults(page, [("light", PHONE), ("dark", DESKTOP)]) == []
    plan = site.do(site.runtime.plans.get("release"))
    assert [(each.id, each.text) for each in plan.steps] == [("1", "Build it"), ("2", "Ship it")]
    assert (plan.goal, plan.via) == ("<b>2.0</b>", "console")
    site.do(site.runtime.plans.set_step("release", "2", "in_progress", by="bo"))
    page.get_by_label("Status of step 1").select_option("completed")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.get_by_text("it was changed to version 2 by bo").first).to_be_visible()
    page.reload()
    page.get_by_label("Status of step 1").select_option("completed")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.get_by_text("version 3 of 3, in progress, 1 of 2 done")).to_be_visible()
    page.get_by_role("button", name="Remove", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", name="No standing plans")).to_be_visible()
    assert violations(page) == []
