"""Write the pictures of the documents: `python -m tests.console.pictures`, into docs/console/."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.console.conftest import DESKTOP, chromium
from tests.console.site import Site
from tests.unit.traces import Family, final_step, step_completed, step_started, tool_call, tool_result, usage

DIRECTORY = Path(__file__).parents[2] / "docs" / "console"
PICTURES = {
    "runs": "runs",
    "run": "runs/{paused}",
    "steps": "runs/{done}?tab=steps",
    "event": "runs/{refunded}?rev=14",
    "jobs": "jobs",
    "approvals": "approvals",
    "prompt": "runs/{refunded}?rev=6&panel=prompt",
    "queue": "queue",
    "workers": "workers",
    "compare": "compare?a={refunded}&b={paused}",
    "sessions": "sessions/ada",
    "costs": "costs",
    "agents": "agents/porter?before=1",
    "plans": "plans/release",
    "takeover": "runs/root-taken",
    "schedules": "schedules",
    "monitor": "monitor",
    "settings": "settings",
}
PHONE = {"width": 390, "height": 780}
DREW_MS = 700


def write() -> None:
    """Take each picture, light and dark, and some as on a phone."""
    DIRECTORY.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        Site(Path(directory)) as site,
        sync_playwright() as playwright,
    ):
        _store_an_agent(site)
        site.do(_write_a_plan(site))
        site.do(site.plant(_taken_over()))
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for kind, size in (("", DESKTOP), ("-phone", PHONE)):
                page = browser.new_page(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
                for name, path in PICTURES.items():
                    if kind and name not in {"runs", "run", "approvals"}:
                        continue
                    page.goto(site.address + path.format_map(site.runs))
                    page.locator(".stream.is-live").wait_for()
                    page.wait_for_timeout(DREW_MS)
                    page.screenshot(path=DIRECTORY / f"{name}{kind}-{theme}.png")
                page.close()
        browser.close()


def _store_an_agent(site: Site) -> None:
    agents, model = site.runtime.agents, site.runtime.registry.agents["clerk"].config.model  # type: ignore[attr-defined]
    first = {"name": "porter", "model": model, "instructions": "Count what is asked for.", "tools": ["stock"]}
    site.do(agents.save(first, note="a first try", by="ada"))
    site.do(agents.save({**first, "max_steps": 7}, note="it needs fewer steps", by="bo"))


async def _write_a_plan(site: Site) -> None:
    steps = ["Build the packages", "Write the notes", "Ship it"]
    await site.runtime.plans.save("release", steps, goal="Release 2.0", by="ada")
    await site.runtime.plans.set_step("release", "1", "completed", note="2 wheels", by="clerk")
    await site.runtime.plans.set_step("release", "2", "in_progress", note="a draft is with bo", by="bo")


def _taken_over() -> Family:
    """Return a run whose worker was lost in its second step."""
    family = Family("taken", start=time.time() - 60)
    family.begin(text="Count the lamps")
    family.claim(1)
    family.commit(*step_started(1), epoch=1)
    family.commit(usage(1), tool_call(1, family.call(1), n=1), epoch=1)
    family.commit(tool_result(1, family.call(1), family.now), step_completed(1), epoch=1)
    family.commit(*step_started(2), epoch=1)
    family.now += 4
    family.claim(2)
    family.commit(*step_started(2), epoch=2)
    family.commit(*final_step(2), epoch=2)
    return family


if __name__ == "__main__":
    write()
