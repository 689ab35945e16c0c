"""The API in this process: an application on a log in memory, with a token of each role."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
from foldlog.adapters.console.app import console_app, console_door
from foldlog.adapters.console.options import ApiOptions
from foldlog.adapters.console.routing import Door
from foldlog.adapters.http.access import Access
from foldlog.eventlog import Log
from foldlog.runtime import Agent, Registry, Runtime, tool

BASE = "http://127.0.0.1:7717"
ROLES = ("viewer", "operator", "admin")
TOKENS = {
    f"the-{role}": {"sha256": hashlib.sha256(role.encode()).hexdigest(), "role": role} for role in ROLES
}


def bearer(role: str) -> dict[str, str]:
    """Return the header of the holder of a role's token."""
    return {"Authorization": f"Bearer {role}"}


@tool(effect="unsafe")
def charge(order: str, euros: int) -> str:
    """Take money."""
    return f"charged {order}: {euros}"


@tool(effect="unsafe", compensate=lambda args, _result: charge(**args))
def refund(order: str, euros: int) -> str:
    """Pay back."""
    return f"refunded {order}: {euros}"


def desk() -> Agent:
    """Return an agent that asks whether it may pay back, and then says so; it may be asked any number of times."""
    return Agent("desk", model="scripted:desk.json", tools=[refund], hitl_tools=["refund"])


def triager() -> Agent:
    """Return an agent that answers at once."""
    return Agent("triager", model="scripted:triage.json")


class Api:
    """A served API: `door` is what its routes share."""

    def __init__(self, door: Door, app: Any) -> None:
        self.door, self.app, self.runtime = door, app, door.runtime

    def client(self, role: str = "", **headers: str) -> httpx.AsyncClient:
        """Return a client with the token of a role; without one nobody is signed in."""
        given = (bearer(role) if role else {}) | {k.replace("_", "-"): v for k, v in headers.items()}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url=f"{BASE}/api/v1", headers=given
        )


@contextlib.asynccontextmanager
async def api(log: Log, *, parts: Any = (), budgets: Any = None, **options: Any) -> AsyncIterator[Api]:
    """Open a runtime on the log, with the application around it."""
    async with (
        Runtime.open(
            log=log, registry=Registry(agents=[desk(), triager()], tools=[charge]), budgets=budgets
        ) as runtime,
        Access.read(TOKENS).following(log) as access,
    ):
        door = console_door(runtime, ApiOptions(executor="local", **options), access)
        try:
            yield Api(door, console_app(door, *parts))
        finally:
            await door.aclose()


async def paused(runtime: Runtime, **options: Any) -> tuple[str, str]:
    """Start a run that waits for an approval; return the ids of both."""
    run = await runtime.start(runtime.registry.agents["desk"], "Order 17 is broken", **options)
    async with contextlib.aclosing(run.stream()) as events:
        async for event in events:
            if event.type == "approval_requested":
                approval = event.approval_id
            if event.type == "status" and event.status == "paused":
                break
    return run.run_id, approval
