"""One connection to a server, from its handshake to its end.

The SDK's client opens cancel scopes that belong to the task that enters it. So a session has a task of its own, which
enters the client, waits, and leaves it; calls may come from any task. A closed session is not reopened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import anyio
import msgspec
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    InputResponses,
    RequestParamsMeta,
    Tool,
)

from ...runtime.agents.mcp_servers import ServerConfig, StdioServer
from .stdio import ServerProcess, stdio_transport
from .streamable_http import delivery, http_transport, unmarked
from .wire import Report, Transport, Wire

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

logger = logging.getLogger(__name__)

Elicit = Callable[[ElicitRequestParams], Awaitable[ElicitResult | ErrorData]]
"""Returns the answer to a question that a server asks during a call."""


class Given(NamedTuple):
    """Input of a call besides its arguments: the answers to the server's questions, and the state of these."""

    responses: InputResponses | None = None
    state: str | None = None


NOTHING_GIVEN = Given()
Era = Literal["auto", "legacy"]
"""The kind of handshake: with version discovery, or as servers before 2026 expect it."""

LEAVE_TIMEOUT_S = 10.0
"""Longer than a server process takes to end, even if it has to be killed."""
_FORCE_TIMEOUT_S = 5.0
_PAGES_MAX = 1000


class ConnectFailed(Exception):
    """Connecting failed. `hung_up`: the server took the first message and then ended the connection."""

    def __init__(self, reason: str, *, hung_up: bool = False) -> None:
        super().__init__(reason)
        self.hung_up = hung_up


class ConnectionLost(Exception):
    """A call got no answer. `sent`: the server may have seen it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Refused(MCPError):
    """The server refused a call with an HTTP client error (4xx), and did not execute it."""


class Session:
    """A connection and the tools the server listed on it.

    `in_doubt`: a call was refused or lost on it, so the server may no longer know the session.
    """

    def __init__(self, config: ServerConfig, era: Era) -> None:
        self.tools: list[Tool] = []
        self.in_doubt = False
        self._config = config
        self._calls = 0
        self._elicits: list[Elicit] = []
        self._retired = False
        self._leave = asyncio.Event()
        self._entered = asyncio.Event()
        self._wire = Wire(self._leave.set)
        self._process: ServerProcess | None = None
        self._client: Client | None = None
        self._failure: BaseException | None = None
        self._task = asyncio.create_task(self._hold(era), name="MCP session")

    @classmethod
    async def open(cls, config: ServerConfig, era: Era) -> Session:
        """Connect and list the tools, within the configured time. Raises `ConnectFailed`; leaves nothing behind."""
        session = cls(config, era)
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                await session._entered.wait()
                await session.list_tools()
        except TimeoutError:
            await session.aclose()
            raise ConnectFailed(
                session._told(f"it did not answer within {config.connect_timeout_s:g} s")
            ) from None
        except Exception as error:  # noqa: BLE001 - any error of the SDK means no connection
            cause = cause_of(session._failure or error)
            await session.aclose()
            raise ConnectFailed(session._told(cause), hung_up=session._wire.hung_up) from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.aclose()
            raise
        return session

    @property
    def is_open(self) -> bool:
        """Return whether a call can be sent, as far as is known."""
        if self._client is None or self._retired or self._leave.is_set():
            return False
        return self._process is None or self._process.is_running

    @property
    def is_busy(self) -> bool:
        """Return whether calls are in flight."""
        return self._calls > 0

    @property
    def progress_dropped(self) -> int:
        """Number of progress notifications that came after their call's response, or without a call."""
        return self._wire.progress_dropped

    async def list_tools(self) -> list[Tool]:
        """List all tools, page by page, and keep them. Raises `ConnectionLost`, and the errors of the SDK."""
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES_MAX):
            page = await self._connected.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                self.tools = tools
                return tools
        raise ConnectFailed(f"its list of tools has more than {_PAGES_MAX} pages")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        report: Report,
        *,
        given: Given = NOTHING_GIVEN,
        elicit: Elicit | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; all progress that precedes the result on the wire is reported before this returns.

        The answer may be that input is required, which is `given` with the next call; `elicit` answers questions of
        servers before 2026, which ask within the call.

        Raises `ConnectionLost`, `MCPError` for an error that the server returned (`Refused`: as an HTTP error), and
        other errors of the SDK for an answer that violates the protocol. Cancelling notifies the server.
        """
        with self._in_use(), self._asked_by(elicit), self._wire.call(report) as call:
            try:
                meta = cast("RequestParamsMeta", {"progressToken": call.token})
                return await self._connected.session.call_tool(
                    tool,
                    dict(arguments),
                    input_responses=given.responses,
                    request_state=given.state,
                    meta=meta,
                    allow_input_required=True,
                )
            except Exception as error:
                known = delivery(error) if isinstance(error, MCPError) else None
                self.in_doubt = self.in_doubt or known is not None
                if known in ("unsent", "lost"):
                    raise ConnectionLost(cause_of(error), sent=known == "lost") from None
                if isinstance(error, MCPError) and known == "refused":
                    raise Refused.from_error_data(unmarked(error).error) from None
                if call.answered or not self._wire.ended:
                    raise
        await self.aclose()
        raise ConnectionLost(self._told(cause_of(self._failure)), sent=call.sent)

    def retire(self) -> None:
        """Take no more calls, and end the connection when the calls in flight are done."""
        self._retired = True
        if not self._calls:
            self._leave.set()

    async def aclose(self) -> None:
        """End the connection, and the server process of a stdio server. Bounded; safe to repeat and to cancel."""
        self._leave.set()
        if not self._entered.is_set() and not self._task.cancelling():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=LEAVE_TIMEOUT_S)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_FORCE_TIMEOUT_S)
        if not self._task.done():
            logger.warning("a connection to an MCP server does not end; it is abandoned")

    @contextmanager
    def _asked_by(self, elicit: Elicit | None) -> Iterator[None]:
        """Register the call that answers questions of the server."""
        if elicit is None:
            yield
            return
        self._elicits.append(elicit)
        try:
            yield
        finally:
            self._elicits.remove(elicit)

    async def _elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Answer a question of a server before 2026, which does not say to which call it belongs."""
        del context
        if len(self._elicits) != 1:
            logger.warning(
                "an MCP server asked a question during %d calls; it got `cancel`", len(self._elicits)
            )
            return ElicitResult(action="cancel")
        return await self._elicits[0](params)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._retired and not self._calls:
                self._leave.set()

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise ConnectionLost(cause_of(self._failure), sent=False)
        return self._client

    async def _hold(self, era: Era) -> None:
        """Enter the client, and leave it when the session ends: the task that owns the client."""
        info = Implementation(name="foldlog", version=version("foldlog"))
        try:
            transport = self._wire.over(await self._transport())
            async with Client(
                transport, mode=era, cache=None, client_info=info, elicitation_callback=self._elicit
            ) as client:
                vars(client.session)["_output_schema_validator"] = _output_validator
                self._client = client
                self._entered.set()
                await self._leave.wait()
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - reported to the caller that opens or calls
            self._failure = failure
        finally:
            self._client = None
            self._wire.end()
            self._entered.set()

    async def _transport(self) -> Transport:
        if not isinstance(self._config, StdioServer):
            return http_transport(self._config)
        self._process = await ServerProcess.start(self._config)
        return stdio_transport(self._process)

    def _told(self, reason: str) -> str:
        """Return the reason with the exit code and the last output of the server process."""
        left = "" if self._process is None else self._process.obituary(ended=self._wire.hung_up)
        return f"{reason}; {left}" if left else reason


def _output_validator(tool: str, schema: dict[str, Any]) -> Validator:
    """Return the SDK's validator of structured answers; its own one matches patterns in exponential time."""
    from jsonschema import SchemaError

    try:
        return _checked_validator(msgspec.json.encode(schema))
    except SchemaError as error:
        raise RuntimeError(f"Invalid schema for tool {tool}: {error}") from None


@lru_cache(maxsize=64)
def _checked_validator(schema: bytes) -> Validator:
    """Return a validator with linear-time patterns. Raises `SchemaError`."""
    from referencing import Registry

    from ...runtime.ports.schema_validators import linear_validator

    decoded = msgspec.json.decode(schema)
    validator = linear_validator(decoded, registry=Registry())
    validator.check_schema(decoded)
    return validator


def cause_of(error: BaseException | None) -> str:
    """Return the message of the first cause of an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "the connection has ended"
    return error.message if isinstance(error, MCPError) else str(error) or type(error).__name__
