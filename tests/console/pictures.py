"""Write the pictures of the documents: `python -m tests.console.pictures`, into docs/console/."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.console.conftest import DESKTOP, chromium
from tests.console.site import Site

DIRECTORY = Path(__file__).parents[2] / "docs" / "console"
PICTURES = {
    "runs": "runs",
    "run": "runs/{paused}",
    "steps": "runs/{done}?tab=steps",
    "event": "runs/{refunded}?rev=14",
    "approvals": "approvals",
    "prompt": "runs/{refunded}?rev=6&panel=prompt",
    "queue": "queue",
    "workers": "workers",
    "compare": "compare?a={refunded}&b={paused}",
    "sessions": "sessions/ada",
    "costs": "costs",
    "agents": "agents/porter?before=1",
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


if __name__ == "__main__":
    write()
