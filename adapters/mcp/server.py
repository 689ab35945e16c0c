"""One configured server: connects when needed, and handles lost connections.

A call that the server cannot have seen is sent again on a new connection, a few times. A call that it may have seen is
not: `ConnectionLost` goes to the caller, which knows the tool's effect.

An HTTP server that was restarted no longer knows the session. The protocol has status 404 for that, but servers also
answer with 400 and others, so the status is not conclusive: after any refusal, the tools are listed on the session. If
that works, the call itself was refused; if not, the call is sent on a new session.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult, InputRequiredResult, Tool

from ...runtime.agents.mcp_servers import ServerConfig
from ...runtime.ports.tools import ToolSourceUnavailable
from .session import NOTHING_GIVEN, ConnectFailed, ConnectionLost, Elicit, Era, Given, Refused, Session
from .wire import Report

RECONNECT_DELAYS_S = (0.0, 0.2, 1.0)
"""Delays before each further attempt to deliver a call."""


class Server:
    """A server with its resolved configuration. `address` names it in messages, without the values of variables."""

    def __init__(self, name: str, config: ServerConfig, address: str) -> None:
        self.name = name
        self.config = config
        self.address = address
        self._era: Era = "auto"
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._retired: list[Session] = []
        self._progress_dropped = 0
        self._closed = False
        self.interrupted = False
        """A call was cancelled: the server, or a child process of it, may still be working on it."""

    @property
    def progress_dropped(self) -> int:
        """Number of progress notifications that came too late or without a call, on all its connections."""
        return self._progress_dropped + sum(session.progress_dropped for session in self._sessions)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the server offers now. Raises `ToolSourceUnavailable`."""
        before = self._session
        session = await self._connected()
        if session is before and not await self._answers(session):
            session = await self._connected()
        return session.tools

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        report: Report,
        *,
        given: Given = NOTHING_GIVEN,
        elicit: Elicit | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by the server's name for it, reconnecting if necessary.

        Raises `ConnectionLost`, `ToolSourceUnavailable`, and the errors of `Session.call`.
        """
        once = functools.partial(self._call_once, tool, arguments, report, given, elicit)
        for delay_s in RECONNECT_DELAYS_S:
            try:
                return await once()
            except ToolSourceUnavailable:
                if self._closed:
                    raise
            except ConnectionLost as lost:
                if lost.sent:
                    raise
            await asyncio.sleep(delay_s)
        return await once()

    async def aclose(self) -> None:
        """End all connections. Bounded; safe to repeat."""
        self._closed = True
        await asyncio.gather(*(session.aclose() for session in self._sessions))

    @property
    def _sessions(self) -> list[Session]:
        return [*self._retired, *filter(None, (self._session,))]

    async def _call_once(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        report: Report,
        given: Given,
        elicit: Elicit | None,
    ) -> CallToolResult | InputRequiredResult:
        session = await self._connected()
        try:
            return await session.call(tool, arguments, report, given=given, elicit=elicit)
        except ConnectionLost as lost:
            if not lost.sent:
                self._retire(session)
            raise
        except Refused as refused:
            if await self._connected() is session:
                raise
            raise ConnectionLost(refused.message, sent=False) from None

    async def _connected(self) -> Session:
        """Return the open connection, or a new one. Raises `ToolSourceUnavailable`."""
        async with self._lock:
            if self._session is not None and not self._session.is_open:
                self._retire(self._session)
            if self._session is not None and self._session.in_doubt:
                await self._answers(self._session)
            await self._sweep()
            if self._session is None and not self._closed:
                self._session = await self._connect()
            if self._session is None or self._closed:
                await self.aclose()
                raise self._unavailable("it has been closed")
            return self._session

    async def _answers(self, session: Session) -> bool:
        """List the tools, and return whether that worked. A connection that does not answer is retired."""
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                await session.list_tools()
        except Exception:  # noqa: BLE001 - if its replacement fails too, that is reported
            self._retire(session)
            return False
        session.in_doubt = False
        return True

    async def _connect(self) -> Session:
        try:
            return await Session.open(self.config, self._era)
        except ConnectFailed as failed:
            if not failed.hung_up or self._era == "legacy":
                raise self._unavailable(str(failed)) from None
        # Some servers before 2026 hang up if the first message is not `initialize`.
        try:
            session = await Session.open(self.config, "legacy")
        except ConnectFailed as failed:
            raise self._unavailable(str(failed)) from None
        self._era = "legacy"
        return session

    def _retire(self, session: Session) -> None:
        session.retire()
        if session is self._session:
            self._session = None
            self._retired.append(session)

    async def _sweep(self) -> None:
        """Wait until retired connections have ended, except those with calls in flight."""
        for session in [each for each in self._retired if not each.is_busy]:
            await session.aclose()
            self._retired.remove(session)
            self._progress_dropped += session.progress_dropped

    def _unavailable(self, reason: str) -> ToolSourceUnavailable:
        return ToolSourceUnavailable(f"MCP server {self.name!r} ({self.address}) is not available: {reason}")
