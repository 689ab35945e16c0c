"""A server's questions to the user during a call, and the answers (MCP elicitation).

In protocol version 2026-07-28 a server ends the call with its questions and a sealed state; the answers go with a new
call, which carries that state, also after a restart of either side. So each round is stored before the questions are
asked. A server that no longer knows its state is called again, unless the tool is unsafe; its repeated questions are
matched to their answers by content.

In earlier versions a server asks within the call, which would have to wait. If the tool may run again, the call is
cancelled and repeated when the answer is there; for an unsafe tool the server gets `cancel` as the answer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from mcp import MCPError
from mcp_types import (
    INVALID_REQUEST,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequests,
    InputRequiredResult,
    InputResponses,
)

from ...eventlog.names import digest_of
from ...runtime.ports.tools import Answer, ToolContextPort, ToolFailed
from .session import NOTHING_GIVEN, Given

if TYPE_CHECKING:
    from .server import Server

logger = logging.getLogger(__name__)

ROUNDS_MAX = 16
STATE_ONLY_DELAY_S = 0.25

Send = Callable[[Given], Awaitable[CallToolResult | InputRequiredResult]]
"""Makes the call, with the answers to its earlier questions and the state that came with them."""


class _Settled(Exception):
    def __init__(self, result: CallToolResult) -> None:
        super().__init__()
        self.result = result


class Conversation:
    """One attempt of one call: its rounds of questions, and the answers."""

    def __init__(self, context: ToolContextPort, send: Send, *, again: bool) -> None:
        self._context, self._send, self._again = context, send, again
        self._names: Counter[str] = Counter()

    async def hold(self) -> CallToolResult:
        """Return the call's result once all questions are answered. Raises `ToolFailed`, and the errors of `send`."""
        try:
            return await self._hold("first")
        except MCPError:
            if not self._again or not self._names:  # without questions, a lost state is not the cause
                raise
        self._names.clear()
        return await self._hold("second")

    async def _hold(self, which: str) -> CallToolResult:
        given = NOTHING_GIVEN
        for number in range(ROUNDS_MAX):
            try:
                make = functools.partial(self._round, given)
                stored = await self._context.memo(f"mcp-{which}-{number}", make)
            except _Settled as settled:
                return settled.result
            wanted = InputRequiredResult.model_validate(stored)
            given = Given(await self._answers(wanted.input_requests or {}), wanted.request_state)
        raise ToolFailed(f"the server asked for input more than {ROUNDS_MAX} times")

    async def _round(self, given: Given) -> dict[str, Any]:
        """Return the server's questions; raises `_Settled` with the result if it has one."""
        while True:
            answer = await self._send(given)
            if isinstance(answer, CallToolResult):
                raise _Settled(answer)
            if answer.input_requests:
                return answer.model_dump(mode="json", by_alias=True, exclude_none=True)
            given = Given(None, answer.request_state)
            await asyncio.sleep(STATE_ONLY_DELAY_S)

    async def _answers(self, requests: InputRequests) -> InputResponses:
        found: InputResponses = {}
        for key, request in requests.items():
            if not isinstance(request, ElicitRequest):
                raise ToolFailed(f"the server requests {request.method}, which is not supported")
            name = name_of(request.params)
            self._names[name] += 1
            found[key] = elicited(
                request.params, await asked(self._context, request.params, self._names[name])
            )
        return found


class Interruption:
    """Questions of servers before 2026, within a call: they get a stored answer, or the call is ended."""

    def __init__(self, context: ToolContextPort, server: Server, *, again: bool) -> None:
        self._context, self._server, self._again = context, server, again
        self._scope = anyio.CancelScope()
        self._ended = asyncio.Event()
        self._names: Counter[str] = Counter()
        self._open: tuple[ElicitRequestParams, int] | None = None

    async def over(
        self, calling: Awaitable[CallToolResult | InputRequiredResult]
    ) -> CallToolResult | InputRequiredResult:
        """Make the call; if a question interrupted it, ask the question, which ends the attempt."""
        try:
            with self._scope:
                return await calling
        finally:
            self._ended.set()
        self._server.interrupted = True  # it may still be at work
        if self._open is not None:
            await asked(self._context, *self._open)
        raise ToolFailed("the call was interrupted by a question of the server")

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Return the answer for the server."""
        if not self._again:
            logger.warning(
                "an MCP server asked a question in a call that must not be repeated; it got `cancel`"
            )
            return ElicitResult(action="cancel")
        name = name_of(params)
        self._names[name] += 1
        answer = self._context.answer(asked_as(name, self._names[name]))
        if answer is not None:
            return elicited(params, answer)
        self._open = params, self._names[name]
        self._scope.cancel()
        await self._ended.wait()  # the server gets the cancellation first
        return ErrorData(code=INVALID_REQUEST, message="the call is repeated when there is an answer")


def name_of(params: ElicitRequestParams) -> str:
    """Return the name of a question, a digest of its content."""
    form = params.requested_schema if isinstance(params, ElicitRequestFormParams) else None
    return f"mcp-{digest_of(params.message, msgspec.json.encode(form, order='sorted').decode())[:16]}"


def asked_as(name: str, time: int) -> str:
    """Return the name of a question that is asked for the n-th time (1, 2, ...)."""
    return f"{name}-{time}"


async def asked(context: ToolContextPort, params: ElicitRequestParams, time: int) -> Answer:
    """Return the user's answer; without one yet, end the attempt."""
    name = asked_as(name_of(params), time)
    if isinstance(params, ElicitRequestFormParams):
        return await context.ask(params.message, params.requested_schema, name=name)
    return await context.ask(f"{params.message} ({params.url})", name=name)


def elicited(params: ElicitRequestParams, answer: Answer) -> ElicitResult:
    """Return the answer in the form of the protocol."""
    form = isinstance(params, ElicitRequestFormParams) and answer.accepted
    content: Mapping[str, Any] | None = (answer.content or {}) if form else None
    return ElicitResult(action=answer.action, content=dict(content) if content is not None else None)
