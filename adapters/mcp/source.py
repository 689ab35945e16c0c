"""Open the servers of an agent's configuration, and provide their tools under the names that a model sees."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from ...runtime.agents.mcp_servers import ServerConfig, check_named_tools, parse_servers, resolve
from ...runtime.ports.tools import Tool, ToolSourceUnavailable
from .names import tool_names

if TYPE_CHECKING:
    # The SDK takes most of a second to import, so modules that need it are imported when servers are opened.
    import mcp_types

    from .sharing import Lease, ServerPool

IDLE_S = 30.0


class McpTools:
    """The tools of some servers. `tools` maps the full name to the tool."""

    def __init__(self, tools: Mapping[str, Tool], leases: list[Lease]) -> None:
        self.tools = tools
        self._leases = leases

    @property
    def progress_dropped(self) -> int:
        """Number of progress notifications of these servers that came after their call's result, or without a call."""
        return sum(lease.server.progress_dropped for lease in self._leases)

    async def aclose(self) -> None:
        """Release the servers. Safe to repeat; an unused server is closed after a while.

        A server with an interrupted call is closed at once, with all processes that it started.
        """
        for lease in self._leases:
            await lease.release(at_once=lease.server.interrupted)


class McpToolSource:
    """The factory of tool sources for `mcp_servers`. A server is closed `idle_s` seconds after its last use.

    Close the factory in the event loop that it was used in: it closes the remaining servers.
    """

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._pool: ServerPool | None = None

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `ConfigError` for a wrong entry, naming the key. Does not connect or read variables."""
        parse_servers(servers)

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> McpTools:
        """Connect to all servers at once and list their tools.

        Raises `ConfigError` for a wrong entry, an unset variable or the name of a tool that the server does not offer,
        and `ToolSourceUnavailable`, which names the server; then servers that only this call needed are closed.
        """
        from .sharing import ServerPool

        configs = parse_servers(servers)
        resolved = {name: resolve(name, config, os.environ) for name, config in configs.items()}
        if self._pool is None:
            self._pool = ServerPool(self._idle_s)
        leases = {name: self._pool.lease(name, resolved[name], configs[name].address) for name in configs}
        try:
            offered = await _list_all(leases)
            return McpTools(_tools(configs, offered, leases), list(leases.values()))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*(lease.release(at_once=True) for lease in leases.values()))
            raise

    async def aclose(self) -> None:
        """Close all servers of the running event loop. Safe to repeat; the factory can be used again."""
        if self._pool is not None:
            await self._pool.aclose()


async def _list_all(leases: Mapping[str, Lease]) -> dict[str, list[mcp_types.Tool]]:
    """Return the tools that each server offers. The first failure cancels the other listings."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(lease.server.list_tools()) for name, lease in leases.items()}
    except* ToolSourceUnavailable as failures:
        unavailable = failures.exceptions[0]
    else:
        return {name: task.result() for name, task in tasks.items()}
    raise unavailable


def _selected(
    configs: Mapping[str, ServerConfig], offered: Mapping[str, list[mcp_types.Tool]]
) -> dict[tuple[str, str], mcp_types.Tool]:
    """Return the tools to offer, by server and tool. Raises like `McpToolSource.open`."""
    selected: dict[tuple[str, str], mcp_types.Tool] = {}
    names = tool_names([(server, tool.name) for server, tools in offered.items() for tool in tools])
    for server, config in configs.items():
        shown = {
            tool.name: names[server, tool.name].removeprefix(f"mcp__{server}__") for tool in offered[server]
        }
        check_named_tools(server, config, list(shown), shown.values())
        for tool in offered[server]:
            if (server, tool.name) in selected:
                raise ToolSourceUnavailable(
                    f"MCP server {server!r} ({config.address}) lists two tools {tool.name!r}"
                )
            either = {tool.name, shown[tool.name]}
            if either.isdisjoint(config.exclude) and (
                config.tools is None or not either.isdisjoint(config.tools)
            ):
                selected[server, tool.name] = tool
    return selected


def _tools(
    configs: Mapping[str, ServerConfig],
    offered: Mapping[str, list[mcp_types.Tool]],
    leases: Mapping[str, Lease],
) -> dict[str, Tool]:
    """Return the tools to offer by full name, with their postconditions. Raises like `McpToolSource.open`."""
    from .tool import McpTool
    from .verified import verified

    selected = _selected(configs, offered)
    names = tool_names(selected)
    tools: dict[str, Tool] = {}
    for (server, name), tool in selected.items():
        made = McpTool(names[server, name], tool, leases[server].server)
        written = configs[server].postconditions.get(name)
        path = f"mcp_servers.{server}.postconditions.{name}"
        tools[made.spec.name] = made if written is None else verified(path, made, written, offered[server])
    return tools
