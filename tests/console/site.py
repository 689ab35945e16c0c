"""A console of a small shop, served by this process from a real log: its runs have everything that the page shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from foldlog.adapters.console.app import console_app, console_door
from foldlog.adapters.console.options import ApiOptions
from foldlog.adapters.http.access import Access
from foldlog.adapters.http.server import served
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.ports import NEW, At, CommitWrite
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, Swarm, ToolContext, Worker, tool

from tests.unit.traces import Family

T = TypeVar("T")
READY_S = 120.0
"""So long may anything take on a busy machine: what is waited for is there, or never comes."""
HOSTILE = (
    "<img src=x onerror=\"document.body.dataset.hacked='1'\"><script>document.body.dataset.hacked='2'</script>"
    "[click](javascript:alert(1)) \u202egnp.exe\u202c zero\u200bwidth \x1b[31mred"
)
SLOW_S = 0.15


@tool(effect="pure")
async def find_order(order_id: str, context: ToolContext) -> str:
    """Look up an order."""
    for part in range(1, 4):
        await asyncio.sleep(SLOW_S / 3)
        context.progress(part, 3, f"table {part}")
    return f"Order {order_id}: 40 EUR, paid on Monday, paid again on Tuesday."


@tool(effect="pure")
async def read_mail(folder: str) -> str:
    """Read what strangers write."""
    return HOSTILE


@tool(effect="unsafe", rollback_hint="Ask the bank to take it back.")
def refund(order_id: str, amount_eur: int, reason: str = "paid twice") -> str:
    """Pay money back."""
    return f"{amount_eur} EUR were paid back for order {order_id}."


@tool(effect="pure")
async def stock(item: str) -> dict[str, Any]:
    """Count an item."""
    await asyncio.sleep(SLOW_S)
    return {"item": item, "left": 3, "places": ["Lyon", "Graz"]}


def _call(name: str, number: int, **arguments: Any) -> dict[str, Any]:
    return {"id": f"call-{number}", "name": name, "arguments": arguments}


def _usage(asked: int, told: int) -> dict[str, Any]:
    return {"usage": {"input_tokens": asked, "output_tokens": told}}


SCRIPTS: dict[str, Any] = {
    "refunds": {
        "turns": [
            {
                "reasoning": "The order first; then what was paid too much.",
                "tool_calls": [_call("find_order", 1, order_id="17")],
                "delay_ms": 60,
                **_usage(96, 14),
            },
            {
                "text": "Order 17 was paid twice. ",
                "tool_calls": [_call("refund", 2, order_id="17", amount_eur=40)],
                **_usage(141, 31),
            },
            {"text": ["Order 17 ", "is refunded."], **_usage(188, 7)},
        ]
    },
    "clerk": {
        "turns": [
            {
                "text": "I look at three shelves.",
                "tool_calls": [
                    _call("stock", 1, item="lamp"),
                    _call("stock", 2, item="desk"),
                    _call("stock", 3, item="chair"),
                ],
                "error": {"type": "transient"},
                **_usage(80, 40),
            },
            {
                "text": ["Three of each ", "are left, ", "in two places."],
                "chunk_delay_ms": 40,
                **_usage(210, 18),
            },
        ]
    },
    "mail": {
        "turns": [
            {"tool_calls": [_call("read_mail", 1, folder="in<b>box</b>")], **_usage(60, 12)},
            {"text": f"The mail says: {HOSTILE}", **_usage(160, 40)},
        ]
    },
    "broken": {"turns": [{"text": "", "error": {"type": "quota", "times": 99}}]},
}


BUDGETS = {
    "user:*": [
        {"tokens": 1_000_000, "per": "month", "time_zone": "Asia/Tokyo"},
        {"tokens": 5_000_000, "per": "total"},
    ],
    "agent:nobody": {"cost_usd": 50, "per": "day"},
}


class Site:
    """The shop on a server in a thread. `address` ends with a slash; `do` runs a coroutine in its loop."""

    def __init__(self, directory: Path, *, port: int = 0, full: bool = True, **options: Any) -> None:
        self.directory, self._full, self._port = directory, full, port
        self._tokens = options.pop("tokens", {})
        self._options = {"no_auth": True} | options
        self.address = ""
        self.runs: dict[str, str] = {}
        self._planted: dict[str, tuple[int, At]] = {}
        self.loop: asyncio.AbstractEventLoop
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._failure: BaseException | None = None
        self.runtime: Runtime
        self.nats: EphemeralServer
        self.worker: Worker | None = None

    def __enter__(self) -> Self:
        self._scripts_before = os.environ.get("FOLDLOG_SCRIPT_DIR", "")
        os.environ["FOLDLOG_SCRIPT_DIR"] = str(self.directory)
        for name, script in SCRIPTS.items():
            (self.directory / f"{name}.json").write_text(json.dumps(script))
        self._thread.start()
        if not self._ready.wait(READY_S):
            raise TimeoutError("the shop did not open")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(READY_S)
        os.environ["FOLDLOG_SCRIPT_DIR"] = self._scripts_before  # of a site that is open around this one

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(READY_S)

    def _serve(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self.loop = runner.get_loop()
                runner.run(self._opened())
        except BaseException as error:  # noqa: BLE001 - raised where the site is entered
            self._failure = error
        finally:
            self._ready.set()

    async def _opened(self) -> None:
        async with EphemeralServer() as self.nats, self.shop() as self.runtime:
            door = console_door(
                self.runtime,
                ApiOptions(executor="local", console=True, **self._options),
                Access.read(self._tokens),
            )
            self.door = door
            async with served(console_app(door), "127.0.0.1", self._port, 1.0) as address:
                self.address = f"{address}{door.options.base_path}/"
                if self._full:
                    await self.fill()
                self._ready.set()
                await self._over.wait()
                await door.aclose()
            self.nats.kill()

    def registry(self) -> Registry:
        """The agents of the shop."""
        clerk = Agent("clerk", model="scripted:clerk.json", tools=[stock], instructions="Count what is left.")
        mail = Agent("mail", model="scripted:mail.json", tools=[read_mail])
        return Registry(
            agents=[
                Agent(
                    "refunds",
                    model="scripted:refunds.json",
                    tools=[find_order, refund],
                    hitl_tools=["refund"],
                    instructions="Find the order, then refund what was paid too much.",
                ),
                clerk,
                mail,
                Swarm([clerk, mail], flow="clerk >> mail", name="team"),
                Agent("broken", model="scripted:broken.json"),
            ]
        )

    @contextlib.asynccontextmanager
    async def shop(self) -> AsyncIterator[Runtime]:
        """Open the runtime of the shop."""
        async with Runtime.open(
            self.nats.url, registry=self.registry(), namespace="shop", budgets=BUDGETS
        ) as runtime:
            yield runtime

    async def fill(self) -> None:
        """Let the shop have a day of work."""
        agents = self.runtime.registry.agents

        async def start(name: str, agent: str, text: str, **options: Any) -> RunHandle[Any]:
            run = await self.runtime.start(agents[agent], text, **options)
            self.runs[name] = run.run_id
            return run

        for name, agent, text in (
            ("done", "clerk", "How many lamps, desks and chairs are left?"),
            ("hostile", "mail", "Read the <b>mail</b> of\u202e today"),
            ("family", "team", "Count what is left, then read the mail"),
        ):
            await (await start(name, agent, text)).result()
        with contextlib.suppress(Exception):
            await (await start("failed", "broken", "Write the yearly report")).result()
        refunded = await start("refunded", "refunds", "Order 17 was paid twice", session="ada", user="ada")
        await self.decide(refunded, "approved", "Receipt seen")
        await refunded.result()
        paused = await start(
            "paused",
            "refunds",
            "Order 17, which I paid on Monday, was paid again\nPlease look",
            session="ada",
        )
        await self.until_asked(paused)
        cancelled = await start("cancelled", "refunds", "Order 99 was never mine")
        await self.until_asked(cancelled)
        await cancelled.cancel("asked by mistake", by="bo")
        await start("queued", "clerk", "Count the lamps in Graz", executor="durable")

    async def plant(self, family: Family) -> None:
        """Store commits that were made elsewhere, those of them that are not stored yet."""
        done, position = self._planted.get(family.root, (0, NEW))
        for each in family.stored[done:]:
            (at,) = await self.runtime.log.events.append(CommitWrite(each.subject, position, each.data))
            position = At(at)
        self._planted[family.root] = len(family.stored), position

    async def until_asked(self, run: RunHandle[Any]) -> str:
        """Wait until a run asks for an approval; return its id."""
        async with contextlib.aclosing(run.stream()) as events:
            asked = ""
            async for event in events:
                if event.type == "approval_requested":
                    asked = event.approval_id
                if event.type == "status" and event.status == "paused":
                    return asked
        raise RuntimeError("the run has ended without a question")

    async def decide(self, run: RunHandle[Any], decision: Any, note: str) -> None:
        """Answer the approval that a run asks for."""
        await run.resolve(await self.until_asked(run), decision, note, by="ada")


def wait_for(found: Callable[[], T], within_s: float = READY_S) -> T:
    """Return what is found as soon as it is true; raises after so many seconds."""

    until = time.monotonic() + within_s
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > until:
            raise TimeoutError(f"not seen within {within_s} s: {value!r}")
        time.sleep(0.02)
