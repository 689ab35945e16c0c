"""A server of protocols in this process, which can be restarted on its log, and the agents that it serves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Self

from foldlog.adapters.cli.protocols import NAMES, protocol_routes
from foldlog.adapters.console.app import console_door
from foldlog.adapters.console.options import ApiOptions
from foldlog.adapters.console.serving import shielded
from foldlog.adapters.http.access import Access
from foldlog.adapters.http.app import application
from foldlog.adapters.http.server import served
from foldlog.eventlog import Log
from foldlog.projections.run_state import RunState
from foldlog.runtime import Agent, Host, Registry, Runtime, ToolContext, Worker, tool

HTTP = tuple(name for name in NAMES if name != "nats")
TOKENS = {name: f"fl_{name}" for name in ("ada", "bo", "vera")}


@tool(effect="pure")
def find_order(order_id: str, context: ToolContext) -> str:
    """Find what is known of an order."""
    context.progress(1, 1, "found")
    return f"order {order_id}: paid twice"


@tool(effect="unsafe")
def refund(order_id: str, amount_eur: int) -> str:
    """Pay money back."""
    return f"{amount_eur} EUR were paid back for order {order_id}"


class Counter:
    """A server, the runtime of its process, and a worker if its executor needs one."""

    def __init__(self, log: Log, executor: str, tokens: Mapping[str, Mapping[str, Any]]) -> None:
        self.log, self.executor, self.address = log, executor, ""
        self.asleep, self._tokens = asyncio.Event(), tokens
        self._server, self._workers = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        self.runtime: Runtime

        @tool(effect="pure")
        async def sleep() -> str:
            """Sleep until the run is cancelled."""
            self.asleep.set()
            await asyncio.Event().wait()
            return "slept"

        agents = [
            Agent(
                "refunds", model="scripted:refunds.json", tools=[find_order, refund], hitl_tools=["refund"]
            ),
            Agent("greeter", model="scripted:greeter.json"),
            Agent("sleeper", model="scripted:sleeper.json", tools=[sleep]),
        ]
        self.registry = Registry(agents=agents)

    async def __aenter__(self) -> Self:
        if self.executor == "durable":
            worker = Worker(
                Host(log=self.log, registry=self.registry, worker="w-1"), grace_s=5.0, stored=True
            )
            task = asyncio.create_task(worker.serve())
            self._workers.push_async_callback(self._leave, worker, task)
        await self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.aclose()
        await self._workers.aclose()

    async def restart(self) -> None:
        """Put another server and another runtime in the place of these, on the same log and address."""
        await self._server.aclose()
        await self._serve(int(self.address.rpartition(":")[2]))

    async def state(self, run_id: str) -> RunState:
        """Return the state of a run."""
        return await self.runtime.get_run(run_id).state()

    async def _serve(self, port: int = 0) -> None:
        stack = self._server = contextlib.AsyncExitStack()
        self.runtime = await stack.enter_async_context(Runtime.open(log=self.log, registry=self.registry))
        closing = asyncio.Event()
        door = console_door(self.runtime, ApiOptions(), Access.read(self._tokens))
        routes = await stack.enter_async_context(
            protocol_routes(HTTP, self.runtime, door.identity, executor=self.executor, closing=closing)
        )
        app = application(shielded(routes, door))
        self.address = await stack.enter_async_context(served(app, "127.0.0.1", port, 1.0))
        stack.callback(closing.set)

    async def _leave(self, worker: Worker, task: asyncio.Task[None]) -> None:
        worker.stop()
        await task
