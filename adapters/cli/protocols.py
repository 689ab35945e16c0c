"""The protocols with which `foldlog serve` and `foldlog console` expose agents, by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import typer

from ...eventlog.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from ...eventlog.events import Via
    from ...runtime import Runtime
    from ..console.identity import Identity
    from ..http.access import Role
    from ..protocols.door import Door

NAMES = ("a2a", "agui", "mcp", "nats", "responses")


def read_names(given: str) -> tuple[str, ...]:
    """Parse `--protocols`, names separated by commas. Raises `BadParameter`."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"there is no protocol {name!r}; known are {', '.join(NAMES)}")
    return names


@contextlib.asynccontextmanager
async def protocol_routes(
    names: tuple[str, ...],
    runtime: Runtime,
    identity: Identity,
    *,
    executor: str,
    closing: asyncio.Event | None = None,
) -> AsyncIterator[list[Route]]:
    """Open the protocols; yields their routes. Set `closing` when no new requests are taken.

    Raises `ConfigError` if there is no agent, neither in the registry nor stored.
    """
    from ..console.identity import check_role
    from ..protocols.door import Door

    def identified(request: Request, role: Role) -> str:
        return check_role(identity.actor_of(request), role).name

    def door(via: Via) -> Door:
        return Door(runtime, identified, via=via, executor=executor, closing=closing, stored=stored)

    async with contextlib.AsyncExitStack() as stack:
        routes: list[Route] = []
        stored = await stack.enter_async_context(runtime.agents.followed()) if names else None
        if stored is not None and not (runtime.registry.agents or stored.agents):
            raise ConfigError(
                "--protocols needs agents: give their registry as MODULE:REGISTRY, or store one: "
                "foldlog agents save FILE"
            )
        if "responses" in names:
            from ..responses import responses_routes

            routes += responses_routes(door("responses"))
        if "a2a" in names:
            routes += _a2a_routes(door("a2a"))
        if "agui" in names:
            from ..agui import agui_routes

            routes += agui_routes(door("agui"))
        if "nats" in names:
            from ..nats_agents import nats_agents

            await stack.enter_async_context(nats_agents(door("nats")))
        if "mcp" in names:
            from ..mcp_server import mcp_routes

            routes += await stack.enter_async_context(mcp_routes(door("mcp")))
        yield routes


def _a2a_routes(door: Door) -> list[Route]:
    try:
        from ..a2a import a2a_routes
    except ImportError:
        raise ConfigError("the protocol a2a needs a2a-sdk: pip install 'foldlog[a2a]'") from None
    return a2a_routes(door)
