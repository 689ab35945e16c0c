"""Consoles as processes of their own: killed in the middle of an action, beside each other, and started again."""

from __future__ import annotations

import contextlib
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from foldlog.replay import load_trace
from playwright.sync_api import expect

from tests.cli.commands import Project
from tests.console.conftest import Open
from tests.console.consoles import console, desk
from tests.console.site import Site, wait_for

pytestmark = pytest.mark.nightly


@pytest.fixture
def project(site: Site, tmp_path: Path) -> Project:
    return desk(site, tmp_path)


def stored(site: Site, run_id: str, event_type: str) -> list[Any]:
    """Return the events of a type that the log has of a run."""
    trace = site.do(load_trace(site.runtime.log, run_id))
    return [event for event in trace.events if event.run_id == run_id and event.type == event_type]


class Sent:
    """A request on its way, from a thread; that its server dies does not matter to it."""

    def __init__(self, address: str, path: str, body: Any, key: str) -> None:
        self._url, self._body, self._key = f"{address}/api/v1{path}", body, key
        self._thread = threading.Thread(target=self._post, daemon=True)
        self._thread.start()

    def _post(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            answered(self._url, self._body, self._key)

    def join(self) -> None:
        self._thread.join(60)


def answered(url: str, body: Any, key: str) -> Any:
    given = httpx.post(url, json=body, headers={"Idempotency-Key": key}, timeout=120)
    assert given.status_code < 300, given.text
    return given.json()


@pytest.mark.parametrize("when", ["as it is sent", "once it is stored"])
def test_a_console_that_is_killed_within_an_action_neither_loses_nor_doubles_it(
    site: Site, project: Project, when: str
) -> None:
    """The same request with the same key, at the console beside it: it is done once, as the log says."""
    agent = site.runtime.registry.agents["refunds"]
    with console(project) as (_, beside):
        for action in ("message", "decision", "start", "batch"):
            words, key = f"{action} {when} {uuid.uuid4()}", str(uuid.uuid4())
            run = site.do(site.runtime.start(agent, "Order 51"))
            approval = site.do(site.until_asked(run))
            path, body, done = {
                "message": (
                    f"/runs/{run.run_id}/messages",
                    {"content": words},
                    lambda run=run: stored(site, run.run_id, "message_queued"),
                ),
                "decision": (
                    f"/approvals/{approval}/decision",
                    {"decision": "approved", "note": words},
                    lambda run=run: stored(site, run.run_id, "approval_resolved"),
                ),
                "start": (
                    "/runs",
                    {"agent": "clerk", "input": words, "executor": "durable"},
                    lambda words=words: started(beside, words),
                ),
                "batch": (
                    "/batch",
                    {"action": "reject", "ids": [approval], "note": words},
                    lambda run=run: stored(site, run.run_id, "approval_resolved"),
                ),
            }[action]
            with console(project) as (doomed, address):
                sent = Sent(address, path, body, key)
                if when == "once it is stored":
                    wait_for(done)
                doomed.kill()
                sent.join()
            told = answered(f"{beside}/api/v1{path}", body, key)
            assert len(done()) == 1, (action, told)
            if action == "batch":
                assert [each["status"] for each in told["results"]] == [200]
            assert answered(f"{beside}/api/v1{path}", body, key) == told
            if action in {"message", "start"}:
                site.do(run.cancel("over"))
        with console(project) as (_, another):
            for path in ("/runs?limit=500", "/runs/counts", "/approvals?limit=500", f"/runs/{run.run_id}"):
                one, other = (httpx.get(f"{at}/api/v1{path}", timeout=120).json() for at in (beside, another))
                assert one == other


def started(address: str, words: str) -> list[Any]:
    rows: list[Any] = httpx.get(f"{address}/api/v1/runs", params={"q": words}, timeout=120).json()["rows"]
    return rows


def test_a_page_whose_console_is_killed_and_started_again_has_every_event_once(
    open_page: Open, site: Site, project: Project
) -> None:
    run = site.do(site.runtime.start(site.runtime.registry.agents["refunds"], "Order 61"))
    approval = site.do(site.until_asked(run))
    with console(project) as (first, address):
        page = open_page(
            f"runs/{run.run_id}?level=engine", at=address + "/", size={"width": 1280, "height": 3000}
        )
        expect(page.locator(".events .bar")).to_contain_text("events")
        first.kill()
        expect(page.locator(".stream")).to_contain_text("reconnecting")
        site.do(run.inject("while it was away"))
        site.do(run.resolve(approval, "approved", by="ada"))
        site.do(run.result())
        head = site.do(run.state()).head.rev
        with console(project, int(address.rpartition(":")[2])):
            wait_for(lambda: f"{head} events" in page.locator(".events .bar").inner_text())
            shown = [int(cell) for cell in page.locator(".events .c-revision").all_inner_texts()]
    assert shown == list(range(1, head + 1))
    assert len(stored(site, run.run_id, "message_queued")) == 1
