"""A tool of an MCP server: its effect decides what a lost connection means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from mcp import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult, Tool, ToolAnnotations

from ...eventlog.events import ToolEffect, ToolSpec
from ...runtime.agents.mcp_servers import ServerConfig
from ...runtime.ports.tools import Retryable, ToolContextPort, ToolFailed, ToolSourceUnavailable, ToolTimedOut
from .elicitation import Conversation, Interruption
from .results import outcome
from .server import Server
from .session import ConnectionLost, Given


class McpTool:
    """One tool of one server, for as long as its source is open."""

    def __init__(self, name: str, tool: Tool, server: Server) -> None:
        self.spec = _spec(name, tool, server)
        self.server = server
        self._tool = tool
        self._timeout_s = server.config.timeout_s

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Run one attempt. Progress that precedes the result on the wire is reported before this returns.

        Raises `ToolFailed`: `ToolTimedOut` after the configured time, `Retryable` if the connection was lost and the
        tool's effect allows a further attempt.
        """
        try:
            with anyio.move_on_after(self._timeout_s):
                return outcome(self._tool, await self._answer(arguments, context))
        except asyncio.CancelledError:
            self.server.interrupted = True
            raise
        raise ToolTimedOut(self._timeout_s)

    async def _answer(self, arguments: Mapping[str, Any], context: ToolContextPort) -> CallToolResult:
        again = self.spec.effect != "unsafe"

        async def send(given: Given) -> CallToolResult | InputRequiredResult:
            asked = Interruption(context, self.server, again=again)
            return await asked.over(
                self.server.call(
                    self._tool.name, arguments, context.progress, given=given, elicit=asked.elicit
                )
            )

        try:
            return await Conversation(context, send, again=again).hold()
        except ToolFailed:
            raise
        except ToolSourceUnavailable as unavailable:
            raise self._lost(f"{unavailable}; the call was not sent") from None
        except ConnectionLost as lost:
            about = f"MCP server {self.server.name!r}: {lost}"
            if not lost.sent:
                raise self._lost(f"{about}; the call was not sent") from None
            raise self._lost(
                f"{about}; the connection was lost during the call and its outcome is unknown", in_doubt=True
            ) from None
        except MCPError as error:
            raise ToolFailed(
                f"{error.message} (MCP error {error.code})",
                result=error.data,
                in_doubt=error.code == INTERNAL_ERROR,  # any other means that the call was refused
            ) from None
        except Exception as error:
            raise ToolFailed(
                f"MCP server {self.server.name!r} violated the protocol: {error}", in_doubt=True
            ) from error

    def _lost(self, message: str, *, in_doubt: bool = False) -> ToolFailed:
        failure = ToolFailed if self.spec.effect == "unsafe" else Retryable
        return failure(message, in_doubt=in_doubt)


def _spec(name: str, tool: Tool, server: Server) -> ToolSpec:
    effect = _effect(tool, server.config)
    return ToolSpec(
        name=name,
        description=tool.description or tool.title or "",
        parameters=tool.input_schema,
        effect=effect,
        lock=f"server:{server.name}",
        exclusive=effect != "pure",
        timeout_s=server.config.timeout_s,
        source=f"mcp:{server.name}",
    )


def _effect(tool: Tool, config: ServerConfig) -> ToolEffect:
    """Return the configured effect, else that of the annotations if they are trusted, else unsafe."""
    if tool.name in config.effects:
        return config.effects[tool.name]
    hints = tool.annotations or ToolAnnotations()
    if config.trust_annotations and hints.read_only_hint:
        return "pure"
    if config.trust_annotations and hints.idempotent_hint:
        return "idempotent"
    return "unsafe"
