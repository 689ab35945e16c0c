"""What an operator does without a mouse: each test presses keys only, and each focus that it uses can be seen."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Open
from tests.console.site import Site

TABS_MAX = 80
_FOCUSED = """element => element === document.activeElement
  && (getComputedStyle(element).outlineStyle !== "none" || getComputedStyle(element).boxShadow !== "none")"""


def tab_to(page: Page, wanted: Locator, key: str = "Tab") -> None:
    """Press Tab until the element has the focus, and shows it. Raises `AssertionError` if it is never reached."""
    expect(wanted).to_be_visible()
    for _ in range(TABS_MAX):
        page.keyboard.press(key)
        if wanted.evaluate(_FOCUSED):
            return
    raise AssertionError(f"{TABS_MAX} times {key} do not lead to {wanted}")


def test_two_runs_are_chosen_and_compared_and_all_rows_are_shown_by_keys(open_page: Open) -> None:
    page = open_page("runs?f=session:ada")
    expect(page.get_by_role("row").nth(2)).to_be_visible()
    for key in "jxjx":
        page.keyboard.press(key)
    tab_to(page, page.get_by_role("toolbar", name="The chosen runs").get_by_role("link", name="Compare"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="boundaries are equal")).to_contain_text("different")
    rows = page.get_by_role("group", name="Aligned rows").get_by_role("row")
    only, every = (page.get_by_role("button", name=name, exact=True) for name in ("only differences", "all"))
    expect(rows.filter(has_text="same")).to_have_count(0)
    tab_to(page, every)
    page.keyboard.press("Space")
    expect(rows.filter(has_text="same").first).to_be_visible()
    page.reload()  # the address has it
    expect(rows.filter(has_text="same").first).to_be_visible()
    tab_to(page, only)
    page.keyboard.press("Enter")
    expect(rows.filter(has_text="same")).to_have_count(0)


def test_filters_are_typed_taken_off_and_saved_as_a_view_by_keys(open_page: Open, site: Site) -> None:
    page = open_page("runs")
    expect(page.get_by_role("row").nth(len(site.runs))).to_be_visible()
    everything = page.get_by_role("row").count()
    page.keyboard.press("/")
    page.keyboard.type("agent:team status:completed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    page.keyboard.press("Escape")
    tab_to(page, page.get_by_role("button", name="Save view"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Forget view")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="status completed"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="status completed")).to_have_count(0)
    tab_to(page, page.get_by_role("button", name="agent team"), "Shift+Tab")
    page.keyboard.press("Space")
    expect(page.get_by_role("row")).to_have_count(everything)
    tab_to(page, page.get_by_label("Saved views"))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("row")).to_have_count(2)
    paused = page.get_by_role("group", name="By status").get_by_role("button", name="paused")
    tab_to(page, paused)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="None of")).to_be_visible()


def test_an_agent_is_stored_from_the_form_by_keys_with_its_faults_at_their_fields(
    open_page: Open, site: Site
) -> None:
    page = open_page("agents?new=1")

    def write(label: str, text: str, key: str = "Tab") -> None:
        tab_to(page, page.get_by_label(re.compile(f"^{label}")).first, key)
        page.keyboard.press("Control+a")
        page.keyboard.type(text)

    write("name", "guard")
    write("model", site.runtime.registry.agents["clerk"].config.model)
    write("tools", "stok")
    save = page.get_by_role("button", name="Save as the next version")
    tab_to(page, save)
    page.keyboard.press("Enter")
    expect(page.locator(".faults").filter(has_text="no worker has a tool 'stok'")).to_be_visible()
    write("tools", "stock", "Shift+Tab")
    tab_to(page, page.get_by_text("All other keys"))
    page.keyboard.press("Space")
    write("max_steps", "7")
    tab_to(page, save)
    page.keyboard.press("Space")
    expect(page.get_by_role("heading", name="guard")).to_be_visible()
    stored = site.do(site.runtime.agents.versions("guard"))
    assert [(each.config["tools"], each.config["max_steps"]) for each in stored] == [(["stock"], 7)]
    tab_to(page, page.get_by_role("button", name="Remove"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Remove")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No stored agents")).to_be_visible()
