"""Budgets of the console: time, CPU, memory and places, of a process of its own and of a real browser.

`pytest -m nightly tests/console/test_budgets.py --log-cli-level=INFO` tells the figures. A machine that others use,
too, shows in the best of some tries what it can do; and work takes at most the CPU time of all that take part.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import httpx2 as httpx
import nats
import psutil
import pytest
from foldlog.eventlog.commits import Commit, digest_of_bytes, encode
from foldlog.eventlog.events import Status, StoredEvent, Submitted
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.names import run_subject
from foldlog.eventlog.ports import NEW, At, CommitWrite
from playwright.sync_api import Page

from tests.cli.commands import Project
from tests.console.conftest import Open
from tests.console.consoles import console, desk
from tests.console.site import Site, wait_for
from tests.http.test_stream import parsed
from tests.unit.traces import Family, final_step, step_completed, step_started, tool_call, tool_result, usage

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

logger = logging.getLogger(__name__)
EVENTS, RUNS, VIEWERS = 10_000, 100_000, 50
STEP_EVENTS, RUN_EVENTS = 6, 3
TRIES = 5
MB = 1 << 20


def told(figure: str, value: float, most: float, unit: str) -> float:
    """Tell a figure with its budget, and return it."""
    logger.info("%s: %.3g %s of at most %g", figure, value, unit, most)
    return value


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A shop without work, on a server of its own."""
    with Site(tmp_path_factory.mktemp("budgets"), full=False) as opened:
        yield opened


@pytest.fixture
def project(shop: Site, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return desk(shop, tmp_path_factory.mktemp("project"))


def add_a_step(family: Family, step: int) -> None:
    call = family.call(step)
    family.commit(*step_started(step), epoch=1)
    family.commit(usage(step), tool_call(step, call, n=step), epoch=1)
    family.commit(tool_result(step, call, family.now), step_completed(step), epoch=1)


@pytest.fixture(scope="module")
def long_run(shop: Site) -> str:
    """A run of some 10,000 events that is over."""
    family = Family("long")
    family.begin()
    family.claim(1)
    for step in range(1, EVENTS // STEP_EVENTS + 1):
        add_a_step(family, step)
    last = EVENTS // STEP_EVENTS + 1
    family.commit(*step_started(last), *final_step(last), epoch=1)
    shop.do(shop.plant(family))
    return family.root


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def all_cpu_s(*pids: int) -> float:
    """Return the CPU time of these processes, and of all children of this one: browser, and servers of the log."""
    found = sum(map(cpu_s, pids))
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.pid not in pids and not child.name().startswith("node"):  # that drives the browser
                found += cpu_s(child.pid)
    return found


def best(work: Callable[[], Any], most: float, *pids: int) -> float:
    """Return the seconds that work takes, in the best of some tries or the first that keeps within `most`."""
    found = float("inf")
    for _ in range(TRIES):
        cpu, began = all_cpu_s(*pids), time.monotonic()
        work()
        took = time.monotonic() - began
        found = min(found, took, all_cpu_s(*pids) - cpu)
        if found <= most:
            break
    return found


SHOWN = """async ([selector, text]) => {
    while (!document.querySelector(selector)?.innerText.includes(text)) await new Promise(requestAnimationFrame);
}"""


def until(page: Page, text: str, selector: str = ".events .bar") -> None:
    """Wait, within the page, until an element has a text."""
    page.evaluate(SHOWN, [selector, text])


def memory(page: Page) -> float:
    """Return the bytes that the page's scripts hold, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["JSHeapUsedSize"])


def test_a_run_of_ten_thousand_events_is_there_in_two_seconds_in_a_small_page(
    shop: Site, project: Project, long_run: str, open_page: Open
) -> None:
    with console(project) as (process, address):
        page = open_page("settings", at=address + "/")

        def show() -> None:
            page.goto(f"{address}/runs/{long_run}?level=engine")
            until(page, "10,005 events")

        assert told("a run of 10,000 events", best(show, 2.0, process.process.pid), 2.0, "s") <= 2.0
        nodes = page.evaluate("document.querySelectorAll('*').length")
        assert told("its nodes", nodes, 6000, "nodes") <= 6000
        assert told("its heap", memory(page) / MB, 30, "MB") <= 30
        canvas = page.locator("canvas").first

        def drawn() -> float:
            page.keyboard.press("+")
            page.evaluate("new Promise(requestAnimationFrame)")
            return float(canvas.get_attribute("data-drawn") or "inf")

        drawn_ms = min(drawn() for _ in range(10))
        assert told("its timeline, drawn", drawn_ms, 50, "ms") <= 50
        before = canvas.get_attribute("data-drawn")
        page.get_by_role("grid", name="Events").evaluate("each => each.scrollTop = each.scrollHeight")
        page.evaluate("new Promise(then => requestAnimationFrame(() => requestAnimationFrame(then)))")
        assert canvas.get_attribute("data-drawn") == before


class Writer:
    """Appends steps to a run, at most so many events a second, until it is left."""

    def __init__(self, shop: Site, name: str, events_a_second: float) -> None:
        self._shop, self._rate = shop, events_a_second
        self.family, self.at = Family(name), dict[int, float]()
        """`at` has the time of each revision, Unix seconds."""
        self._over = threading.Event()
        self._position: Any = NEW
        self.family.begin()
        self.family.claim(1)
        shop.do(self._store())

    async def _store(self) -> None:
        stored, self.family.stored[:] = list(self.family.stored), []
        for each in stored:
            (at,) = await self._shop.runtime.log.events.append(
                CommitWrite(each.subject, self._position, each.data)
            )
            self._position = At(at)

    async def _write(self) -> None:
        step, began, revision = 0, time.time(), 4
        while not self._over.is_set():
            await asyncio.sleep(max(0.0, began + step * STEP_EVENTS / self._rate - time.time()))
            step += 1
            self.family.now = time.time() - 3.0
            add_a_step(self.family, step)
            for each in range(revision, revision + STEP_EVENTS):
                self.at[each] = time.time()
            revision += STEP_EVENTS
            await self._store()

    def __enter__(self) -> Self:
        self._writing = asyncio.run_coroutine_threadsafe(self._write(), self._shop.loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._writing.result(60)


NOTE = """() => {
    window.seen = {};
    const events = document.querySelector('.events');
    const look = () => {
        const now = Date.now() / 1000;
        for (const cell of events.querySelectorAll('.c-revision')) seen[cell.textContent] ??= now;
    };
    new MutationObserver(look).observe(events, {subtree: true, childList: true, characterData: true});
}"""
"""Notes when each revision is first in the document, Unix seconds."""


def test_events_are_in_the_page_a_tenth_of_a_second_after_they_are_stored(
    shop: Site, project: Project, open_page: Open
) -> None:
    """At 500 events a second, from the time of the commit to the row in the document."""
    found: list[tuple[float, float]] = []
    with console(project) as (_, address):
        for number in range(TRIES):
            writer = Writer(shop, f"live-{number}", 500)
            page = open_page(f"runs/{writer.family.root}?tab=events&level=engine", at=f"{address}/")
            until(page, "events")
            page.evaluate(NOTE)
            with writer:
                wait_for(lambda writer=writer: len(writer.at) >= 4000, 60)
            page.wait_for_timeout(500)
            seen = {int(revision): at for revision, at in page.evaluate("window.seen").items() if revision}
            late = sorted(1000 * (at - writer.at[rev]) for rev, at in seen.items() if rev in writer.at)
            page.close()
            assert len(late) >= 0.25 * len(writer.at)  # others came and went within one frame
            found.append((statistics.median(late), late[int(0.99 * len(late))]))
            if found[-1][0] <= 100 and found[-1][1] <= 500:
                break
    median, last = min(found)
    assert told("live at 500 events a second, the median", median, 100, "ms") <= 100
    assert told("its 99th percentile", last, 500, "ms") <= 500


def test_fifty_viewers_of_a_run_cost_the_server_two_seconds_of_cpu(
    shop: Site, project: Project, long_run: str
) -> None:
    with console(project) as (process, address):
        began = cpu_s(process.process.pid)
        rows = shop.do(viewed(address, long_run))
        took = cpu_s(process.process.pid) - began
    assert rows == [EVENTS + 5] * VIEWERS
    assert told("50 viewers of a run of 10,000 events", took, 2, "s of CPU") <= 2


async def viewed(address: str, run: str) -> list[int]:
    """Return the number of rows that each of many viewers gets at once, up to the end of the run."""

    async def rows(client: httpx.AsyncClient) -> int:
        found, buffer = 0, b""
        async with client.stream("GET", f"{address}/api/v1/stream?t=run:{run}") as answer:
            async for chunk in answer.aiter_bytes():
                *blocks, buffer = (buffer + chunk).split(b"\n\n")
                for block in blocks:
                    if (got := parsed(block)) is not None:
                        found += len(got.data["rows"])
                if found >= EVENTS + 5:
                    return found
        return found

    limits = httpx.Limits(max_connections=VIEWERS)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        return list(await asyncio.gather(*(rows(client) for _ in range(VIEWERS))))


async def fill(url: str, shards: int) -> None:
    """Store 100,000 runs of an afternoon that are over: of 20 agents, each tenth failed."""
    layout, connection = Layout("shop"), await nats.connect(url, pending_size=64 * MB)
    stream, began = connection.jetstream(), time.time() - 4 * 3600
    for number in range(RUNS):
        run = f"{number % shards:02x}-{number:020x}"
        subject = layout.subject(run_subject(number % shards, run, run)).decode()
        end: StoredEvent = Status(status="error" if number % 10 == 0 else "completed")
        submitted = Submitted(
            kind="agent",
            config={"name": f"agent-{number % 20}"},
            config_digest="c",
            input=f"Order {number} was paid twice",
            input_digest="i",
            session=f"s-{number % 5000}",
            user=f"u-{number % 1000}",
            executor="durable" if number % 2 else "local",
        )
        revision, previous = 1, ""
        for events in ((submitted,), (Status(status="starting"), end)):
            commit = Commit(
                run=run,
                root=run,
                rev=revision,
                append=f"{run}-{revision}",
                prev=previous,
                epoch=0,
                at=began + number / 10,
                path=f"agent-{number % 20}",
                events=events,
            )
            data = encode(commit)
            revision, previous = revision + len(events), digest_of_bytes(data)
            if number % 250:
                await connection.publish(subject, data)
            else:  # what the server has not stored yet waits in a queue with an end
                await stream.publish(subject, data)
    await stream.account_info()
    await connection.close()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Project]]:
    """A shop with 100,000 runs that a console has read once."""
    with Site(tmp_path_factory.mktemp("crowd"), full=False) as opened:
        asyncio.run_coroutine_threadsafe(
            fill(opened.nats.url, opened.runtime.log.events.shards), opened.loop
        ).result(300)
        project = desk(opened, tmp_path_factory.mktemp("project"))
        project.environ["FOLDLOG_PROJECTIONS"] = str(project.place / "projections.sqlite")
        with console(project) as (_, address):
            wait_for(lambda: ready(address), 300)
        yield opened, project


def ready(address: str) -> bool:
    return httpx.get(f"{address}/api/v1/ready", timeout=120).status_code == 200


FILTERS = (
    "",
    "status=error",
    "status=paused",
    "agent=agent-7",
    "agent=agent-7&status=error",
    "agent=nobody",
    "session=s-4321",
    "user=u-321",
    "user=u-321&status=completed",
    "executor=durable",
    "kind=agent&children=0",
    "children=0&forks=0",
    "children=0&forks=0&status=error",
    "error_type=internal",
    "waiting_for=approval",
    "model=nothing",
    "order=updated&status=completed",
    "from=0&to=1",
    "q=Order 4321",
    "q=nowhere",
)


def test_a_page_of_a_hundred_thousand_runs_is_found_by_any_filter_at_once(
    crowd: tuple[Site, Project], open_page: Open
) -> None:
    _, project = crowd
    began = time.monotonic()
    with (
        console(project) as (process, address),
        httpx.Client(base_url=f"{address}/api/v1", timeout=120) as api,
    ):
        wait_for(lambda: ready(address), 60)
        took = min(time.monotonic() - began, cpu_s(process.process.pid))
        assert told("a console of 100,000 runs, ready", took, 2, "s") <= 2
        assert (
            sum(int(count) for count in api.get("/runs/counts?agent=agent-7").json().values()) == RUNS // 20
        )
        slow = {}
        for query in FILTERS:
            for path in ("/runs", "/runs/counts"):
                if path == "/runs" or "order" not in query:
                    slow[f"{path}?{query}"] = 1000 * answer_s(api, f"{path}?{query}", process.process.pid)
        slowest = max(slow, key=lambda each: slow[each])
        told(f"a filter of 100,000 runs, at most ({slowest})", slow[slowest], 50, "ms")
        page = open_page("settings", at=f"{address}/")

        def show() -> None:
            page.goto(f"{address}/runs")
            until(page, "", ".grid-row")

        rows = best(show, 0.5, process.process.pid)
        assert told("the first rows of 100,000 runs", rows, 0.5, "s") <= 0.5
        assert {query: took for query, took in slow.items() if took > 50} == {}


def answer_s(api: httpx.Client, address: str, pid: int) -> float:
    """Return the seconds that an answer takes: the fastest of some, or the server's CPU time for each of them."""
    taken, times, cpu = [], 10, cpu_s(pid)
    for _ in range(times):
        began = time.monotonic()
        assert api.get(address).status_code == 200, address
        taken.append(time.monotonic() - began)
    return min(*taken, (cpu_s(pid) - cpu) / times)


HOUR_RUNS, SOME_RUNS = 36_000, 1_500
"""At 100 events a second, ten of them a run; and as many as are written here, twice."""


def test_a_list_that_is_left_open_grows_by_less_than_twenty_megabytes_an_hour(
    shop: Site, project: Project, open_page: Open
) -> None:
    """An hour's runs would come in an hour: the growth over some of them, as fast as they can be stored, is scaled."""
    with console(project) as (process, address):
        page = open_page("runs", at=f"{address}/")
        until(page, "live", ".stream")
        sizes = []
        for half in range(2):
            for number in range(SOME_RUNS):
                family = Family(f"soak-{half}-{number}", start=time.time())
                family.begin()
                family.commit(Status(status="completed"))
                shop.do(shop.plant(family))
            until(page, f"soak-{half}-{SOME_RUNS - 1}"[-7:], ".grid-row")
            sizes.append((memory(page), psutil.Process(process.process.pid).memory_info().rss))
        grown, served = (HOUR_RUNS / SOME_RUNS * (now - then) / MB for then, now in zip(*sizes, strict=True))
        told("an hour's growth of the server, with its projections in memory", served, 200, "MB")
        assert told("an hour's growth of a list that is left open", grown, 20, "MB") <= 20
