"""The MCP server: each agent is a tool, and each call of it a run, which goes on if the server is gone.

A call with `input` owns its run: a client that cancels the call cancels the run. A call with `run` only waits for an
existing run. In protocol version 2026-07-28 an open approval ends the call with a question, and the client repeats the
call with the answer: `request_state` is the id of the run, which needs no signature, because a client that may call an
agent may answer for any of its runs. In earlier versions the client is asked within the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types.version import is_version_at_least

from ...eventlog.errors import (
    ApprovalError,
    ConfigError,
    FoldlogError,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunGone,
    RunNotFound,
)
from ...eventlog.events import ApprovalResolved, DetailedEvent, McpProgress, Status, Step, ToolCall
from ...runtime.handle import RunHandle
from ...runtime.options import RunOptions
from ..http.answers import Refused
from ..protocols.asked import Asked
from ..protocols.door import Door, Origin
from ..protocols.questions import text_of
from ..protocols.reading import going_on
from .questions import answer_of, question_of

logger = logging.getLogger("foldlog.mcp_server")

ASKS_BY_RESULT = "2026-07-28"
"""The first protocol version in which a question ends the call."""
CANCEL_S = 0.5
"""Seconds to wait for a client's cancellation notice, which may arrive after the call itself is cancelled."""
TEXT_MAX = 1 << 20
_INPUT = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "What the agent is asked or told to do."},
        "conversation": {
            "type": "string",
            "description": "Name of a conversation; its calls come one after the other and remember what was said.",
        },
        "background": {"type": "boolean", "description": "Return the run's id at once, and let it go on."},
        "run": {"type": "string", "description": "Instead of an input: the id of a run to wait for."},
    },
}
Call = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult


def agent_server(door: Door, origin_of: Callable[[Call], Origin]) -> Server[Any]:
    """Return a server of the door's agents. `origin_of` identifies the caller, and raises `Refused`."""
    return _AgentServer(door, origin_of).server


class _Problem(Exception):
    """A call with invalid arguments or state; the message is for the calling model."""


class _AgentServer:
    def __init__(self, door: Door, origin_of: Callable[[Call], Origin]) -> None:
        self._door, self._origin_of = door, origin_of
        self._cancelled: dict[tuple[str, Any], asyncio.Event] = {}
        self.server: Server[Any] = Server(
            "foldlog", on_list_tools=self._tools, on_call_tool=self._call, version="1"
        )
        self.server.middleware.append(self._hears_of_cancels)

    async def _tools(self, _: Call, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=f"Ask the {agent.kind} {name}.", input_schema=_INPUT)
                for name, agent in self._door.agents.items()
            ]
        )

    async def _call(self, call: Call, params: types.CallToolRequestParams) -> Result:
        try:
            return await self._called(call, params)
        except RunFailed as failed:
            return _told(f"The run failed: {failed}", failed.run_id, "error")
        except RunCancelled as cancelled:
            return _told(f"The run was cancelled: {cancelled}", cancelled.run_id, "cancelled")
        except (_Problem, Refused, FoldlogError) as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        except Exception:
            logger.exception("a call failed")
            text = "the log cannot be reached now; call again"
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)

    async def _called(self, call: Call, params: types.CallToolRequestParams) -> Result:
        origin, given = self._origin_of(call), params.arguments or {}
        if params.name not in self._door.agents:
            raise _Problem(f"there is no agent {params.name!r:.80}")
        _check(given)
        state = params.request_state
        if state is None and "run" not in given:
            run, owns, answered = await self._start(params.name, given, origin), True, list[str]()
            if given.get("background"):
                return _told(f"The run {run.run_id} goes on.", run.run_id, "running")
        else:
            run, owns = await self._found(params.name, state or given["run"]), state is not None
            answered = await self._answer(run, params.input_responses or {}, origin)
            await self._door.drive(run)
        mark = (_session_of(call), call.request_id)
        heard = self._cancelled[mark] = asyncio.Event()
        try:
            return await self._waited(call, run, origin, answered)
        except anyio.get_cancelled_exc_class():
            if owns and not self._door.closing.is_set():
                with anyio.CancelScope(shield=True):
                    await self._cancel(call, run, origin, heard)
            raise
        finally:
            del self._cancelled[mark]

    async def _start(self, name: str, given: Mapping[str, Any], origin: Origin) -> RunHandle[Any]:
        options = RunOptions()
        if given.get("conversation"):
            options["session"] = given["conversation"]
        return await self._door.start(self._door.agent(name), given["input"], origin, options=options)

    async def _found(self, name: str, run_id: str) -> RunHandle[Any]:
        run = self._door.runtime.get_run(run_id)
        try:
            agent = (await run.state()).agent
        except RunGone:
            raise
        except (RunNotFound, ConfigError):
            raise _Problem(f"there is no run {run_id[:80]!r}") from None
        if agent != name:
            raise _Problem(f"run {run_id} is one of {agent!r}: call that tool")
        return run

    async def _answer(self, run: RunHandle[Any], answers: Mapping[str, Any], origin: Origin) -> list[str]:
        """Store the client's answers to the questions of its previous call; return the ids of answered approvals."""
        asked = Asked()
        if answers:
            async with contextlib.aclosing(run.until_waiting(detailed=True)) as events:
                async for event in events:
                    asked.feed(event)
        return [
            approval_id
            for approval_id, result in answers.items()
            if approval_id in asked.open and await self._resolve(run, asked, approval_id, result, origin)
        ]

    async def _resolve(
        self, run: RunHandle[Any], asked: Asked, approval_id: str, result: object, origin: Origin
    ) -> bool:
        """Store an answer; return false if the client gave none. Raises `_Problem` for one that is refused."""
        answered = answer_of(asked.open[approval_id], result)
        if answered is None:
            return False
        try:
            await self._door.answer(run, approval_id, origin=origin, **answered._asdict())
        except RunFinished:
            pass  # the run ended without the answer
        except ApprovalError as error:
            raise _Problem(f"{error}; call again with run {run.run_id!r} to be asked again") from None
        return True

    async def _waited(
        self, call: Call, run: RunHandle[Any], origin: Origin, answered: Collection[str]
    ) -> Result:
        """Wait until the run ends or asks; return its result or its questions."""
        asked, told = Asked(), _Told(call)
        while True:
            over, status = False, ""
            async with contextlib.aclosing(going_on(run, answered, told.cursor)) as events:
                async for event in events:
                    asked.feed(event)
                    await told.feed(event)
                    over = event.is_end
            if over:
                return _told(str((await run.result()).output), run.run_id, "completed")
            if not asked.open:
                status = (await run.state()).paused or "a signal"
                return _told(
                    f"The run waits: {status}. Call again with run {run.run_id!r}.", run.run_id, "paused"
                )
            capabilities = call.session.client_capabilities
            if capabilities is None or capabilities.elicitation is None:
                return _told(_waits(run.run_id, asked), run.run_id, "paused")
            if is_version_at_least(call.protocol_version, ASKS_BY_RESULT):
                questions: types.InputRequests = {key: question_of(each) for key, each in asked.open.items()}
                return types.InputRequiredResult(input_requests=questions, request_state=run.run_id)
            answered = list(asked.open)
            if not await self._ask(call, run, asked, told.cursor, origin):
                return _told(_waits(run.run_id, asked), run.run_id, "paused")
            await self._door.drive(run)

    async def _ask(
        self, call: Call, run: RunHandle[Any], asked: Asked, after: str | None, origin: Origin
    ) -> bool:
        """Ask the questions within the call, one after the other; return false if the client dismissed one."""
        for approval_id, request in list(asked.open.items()):
            params = question_of(request).params
            assert isinstance(params, types.ElicitRequestFormParams)  # noqa: S101 - as it was made
            asking = asyncio.ensure_future(
                call.session.elicit_form(params.message, params.requested_schema, call.request_id)
            )
            elsewhere = asyncio.ensure_future(_resolved(run, approval_id, after))
            try:
                await asyncio.wait({asking, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    continue
                if not await self._resolve(run, asked, approval_id, asking.result(), origin):
                    return False
            finally:
                for task in (asking, elsewhere):
                    task.cancel()
                await asyncio.gather(asking, elsewhere, return_exceptions=True)
        return True

    async def _cancel(self, call: Call, run: RunHandle[Any], origin: Origin, heard: asyncio.Event) -> None:
        """Cancel the run if the client cancelled the call, but not if its connection was lost.

        Over HTTP, a client of the 2026 version can cancel only by closing the stream, so there the two look the same.
        """
        by_closing = call.request is not None and is_version_at_least(call.protocol_version, ASKS_BY_RESULT)
        if not by_closing:
            with anyio.move_on_after(CANCEL_S):
                await heard.wait()
        if by_closing or heard.is_set():
            with contextlib.suppress(FoldlogError):
                await run.cancel("its caller cancelled the call", by=self._door.by(origin))

    async def _hears_of_cancels(self, ctx: Call, call_next: CallNext) -> HandlerResult:
        if ctx.method == "notifications/cancelled" and ctx.params is not None:
            heard = self._cancelled.get((_session_of(ctx), ctx.params.get("requestId")))
            if heard is not None:
                heard.set()
        return await call_next(ctx)


class _Told:
    """Reports a run's progress to the client; `cursor` is that of the last event reported."""

    def __init__(self, call: Call) -> None:
        self.cursor: str | None = None
        self._call, self._count = call, 0

    async def feed(self, event: DetailedEvent) -> None:
        """Report one event. The progress number only counts reports; the message says what happened."""
        self.cursor = event.cursor or self.cursor
        message = ""
        match event:
            case Step(status="started"):
                message = f"{event.agent}: step {event.step}"
            case ToolCall():
                message = f"{event.agent} calls {event.tool_name}"
            case McpProgress():
                share = f"{event.progress:g}" + (f"/{event.total:g}" if event.total is not None else "")
                message = f"{event.tool_name} {share} {event.message}".strip()
            case Status(status="paused"):
                message = f"{event.agent} waits: {event.reason}"
            case _:
                return
        self._count += 1
        await self._call.session.report_progress(self._count, None, message)


async def _resolved(run: RunHandle[Any], approval_id: str, after: str | None) -> None:
    """Wait until any party has answered the approval, or the run ends."""
    async with contextlib.aclosing(run.stream(detailed=True, after=after)) as events:
        async for event in events:
            if isinstance(event, ApprovalResolved) and event.approval_id == approval_id:
                return


def _session_of(call: Call) -> str:
    """Return the id of a message's session; empty over stdio, which has only one."""
    return "" if call.request is None else str(call.request.headers.get("mcp-session-id", ""))


def _check(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in _INPUT["properties"]:
            raise _Problem(f"there is no argument {name[:80]!r}; known are {', '.join(_INPUT['properties'])}")
        wanted = bool if name == "background" else str
        if not isinstance(value, wanted) or (wanted is str and not value):
            raise _Problem(
                f"{name} must be {'true or false' if wanted is bool else 'a text that is not empty'}"
            )
        if isinstance(value, str) and len(value) > TEXT_MAX:
            raise _Problem(f"{name} has more than {TEXT_MAX:,} characters")
    if ("input" in given) == ("run" in given):
        raise _Problem("give an input, or the run to wait for")


def _told(text: str, run_id: str, status: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content={"run_id": run_id, "status": status, "output": text},
        is_error=status in {"error", "cancelled"},
    )


def _waits(run_id: str, asked: Asked) -> str:
    """Return a text for the model about approvals that only a person can give, elsewhere."""
    lines = [f"- {text_of(each)}: foldlog approvals approve {key}" for key, each in asked.open.items()]
    return "\n".join(
        [
            f"The run {run_id} waits for a person:",
            *lines,
            f"Call this tool again with run {run_id!r} once that is done.",
        ]
    )
