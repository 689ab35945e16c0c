"""The page of stored agents: the form tells what is wrong at its key, and saves, compares, starts and removes."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console.conftest import Open, violations
from tests.console.site import Site


def test_an_agent_is_made_in_the_form_changed_compared_started_and_removed(
    open_page: Open, site: Site
) -> None:
    page = open_page("agents?new=1")
    expect(page.get_by_label(re.compile("^name"))).to_be_visible()
    assert violations(page) == []
    page.get_by_label(re.compile("^name")).fill("porter")
    page.get_by_label(re.compile("^model")).first.fill("scriptd:x")
    page.get_by_label(re.compile("^tools")).fill("stok")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.locator(".faults").filter(has_text="no worker has a tool 'stok'")).to_be_visible()
    expect(
        page.locator(".faults").filter(has_text="no worker has a model provider 'scriptd'")
    ).to_be_visible()
    agent = site.runtime.registry.agents["clerk"]
    page.get_by_label(re.compile("^model")).first.fill(agent.config.model)
    page.get_by_label(re.compile("^tools")).fill("stock")
    page.get_by_label("Why it is changed").fill("<b>first</b>")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.get_by_role("heading", name="porter")).to_be_visible()
    page.get_by_label(re.compile("^max_steps")).fill("7")
    page.get_by_role("button", name="Save as the next version").click()
    page.get_by_role("button", name="Compare with 1").click()
    expect(page.get_by_role("row").filter(has_text="max_steps")).to_contain_text("7")
    expect(page.get_by_text("<b>first</b>")).to_be_visible()
    assert violations(page) == []
    saved = site.do(site.runtime.agents.versions("porter"))
    assert [(each.version, each.config["max_steps"], each.via) for each in saved][1] == (2, 7, "console")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", name="No stored agents")).to_be_visible()
    assert violations(page) == []
