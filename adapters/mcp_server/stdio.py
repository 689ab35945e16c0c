"""The MCP server over standard input and output, for a client that starts it."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from ...runtime import Runtime
from ..protocols.door import Door, Origin
from .server import agent_server


async def serve_stdio(runtime: Runtime, *, executor: str, actor: str) -> None:
    """Serve the agents of a runtime until standard input ends. Events name the client as `actor`."""
    async with runtime.agents.followed() as stored:
        door = Door(runtime, _unnamed, via="mcp", executor=executor, stored=stored)
        server = agent_server(door, lambda _: Origin(actor))
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())


def _unnamed(*_: object) -> str:
    raise AssertionError("there are no requests over HTTP")
