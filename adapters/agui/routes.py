"""The routes of AG-UI.

If a run pauses for approvals, the request ends with interrupts, and the thread's next request answers them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...eventlog.errors import ApprovalError, RunFinished
from ...eventlog.events import ApprovalRequested, ApprovalResolved, DetailedEvent
from ...runtime.handle import RunHandle
from ...runtime.options import RunOptions
from ..http.answers import Refused, answer, answer_to
from ..http.bodies import check_json, parse_json, read_body
from ..protocols.door import Door, Origin
from ..protocols.questions import Answered, answer_by
from ..protocols.reading import Snapshot, going_on
from ..protocols.sse import event_stream, server_event
from .asked import Answer, Asked, read_asked
from .telling import Sent, Telling, wait_of

PROTOCOL_VERSION = "1.0"
BODY_BYTES_MAX = 32 * 1024 * 1024
"""The largest request: a client sends all messages of its thread, with their files."""
DISMISSED = "dismissed by the user"


def agui_routes(door: Door) -> list[Route]:
    """Return the routes below `/agui`."""
    routes = _Agui(door)
    return [
        Route("/agui/{agent}", _answered(routes.run), methods=["POST"]),
        Route("/agui/{agent}/cancel", _answered(routes.cancel), methods=["POST"]),
    ]


def _answered(endpoint: Any) -> Any:
    async def guarded(request: Request) -> Response:
        try:
            found: Response = await endpoint(request)
        except Exception as error:  # noqa: BLE001 - `answer_to` logs what it does not know
            problem = answer_to(error)
            kept = {k: v for k, v in problem.headers.items() if k in {"retry-after", "www-authenticate"}}
            body = msgspec.json.encode(_error(problem))
            return Response(body, problem.status_code, headers=kept, media_type="application/json")
        return found

    return guarded


class _Agui:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def run(self, request: Request) -> Response:
        """Start a run, or answer the interrupts of one; stream its events.

        Repeating a request starts nothing new: it streams the same run from its beginning.
        """
        origin = self._door.origin(request)
        check_json(request)
        asked = read_asked(parse_json(await read_body(request, BODY_BYTES_MAX)))
        if asked.answers:
            run = await self._answer(request.path_params["agent"], asked, origin)
        else:
            run = await self._start(request.path_params["agent"], asked, origin)
        return event_stream(self._events(run, asked), _failed, self._door.closing)

    async def cancel(self, request: Request) -> Response:
        """Cancel a run. Closing the stream does not cancel it, because a lost connection looks the same."""
        origin = self._door.origin(request)
        check_json(request)
        body = parse_json(await read_body(request))
        given = body.get("foldlogRunId") if isinstance(body, dict) else None
        if not isinstance(given, str):
            raise Refused(422, "foldlogRunId must be the id in the metadata of RUN_STARTED")
        run = self._door.runtime.get_run(given)
        await self._of_agent(run, request.path_params["agent"])
        status = await run.cancel("cancelled by its user", by=self._door.by(origin))
        return answer(200, {"runId": given, "status": status})

    async def _of_agent(self, run: RunHandle[Any], agent: str) -> None:
        if (await run.state()).agent != agent:
            raise Refused(404, f"agent {agent[:80]!r} has no such run")

    async def _start(self, name: str, asked: Asked, origin: Origin) -> RunHandle[Any]:
        if name not in self._door.agents:
            raise Refused(404, f"there is no agent {name[:80]!r}")
        options = RunOptions(session=asked.thread)
        if asked.before and not await self._door.runtime.list_runs(session=asked.thread):
            options["messages"] = asked.before
        if asked.instructions:
            options["instructions_suffix"] = asked.instructions
        if asked.properties is not None:
            options["metadata"] = {"forwardedProps": asked.properties}
        key = f"{asked.thread}:{asked.run}"
        return await self._door.start(self._door.agent(name), asked.content, origin, key=key, options=options)

    async def _answer(self, name: str, asked: Asked, origin: Origin) -> RunHandle[Any]:
        """Answer the interrupts of a thread's run.

        The request must answer all open ones: otherwise the run would keep waiting for the rest unnoticed.
        """
        run = await self._waiting(asked)
        await self._of_agent(run, name)
        told, requests = Telling(run.run_id, []), dict[str, ApprovalRequested]()
        async for event in Snapshot(self._door.runtime, run.run_id).events():
            told.asked.feed(event)
            if isinstance(event, ApprovalRequested):
                requests[event.approval_id] = event
        given = {each.interrupt: each for each in asked.answers if wait_of(each.interrupt) is None}
        if unknown := given.keys() - requests.keys():
            raise Refused(422, f"resume: this thread has no interrupt {min(unknown)[:80]!r}")
        if missing := told.asked.open.keys() - given.keys():
            raise Refused(
                422, f"resume: answer all interrupts at once; missing: {', '.join(sorted(missing))}"
            )
        decided = {key: _decided(requests[key], each) for key, each in given.items()}
        for key, decision in decided.items():
            try:
                await self._door.answer(run, key, origin=origin, **decision._asdict())
            except ApprovalError as error:
                raise Refused(409, str(error)) from None
            except RunFinished:
                break
        await self._door.drive(run)
        return run

    async def _waiting(self, asked: Asked) -> RunHandle[Any]:
        """Return the thread's run that raised these interrupts."""
        wanted = {each.interrupt for each in asked.answers}
        waits = {wait.run for each in wanted if (wait := wait_of(each)) is not None}
        for row in await self._door.runtime.list_runs(session=asked.thread):
            if row.run_id in waits:
                return self._door.runtime.get_run(row.run_id)
            approvals = await (await self._door.runtime.index()).approvals(None, None)
            if any(each.root_id == row.run_id and each.approval_id in wanted for each in approvals):
                return self._door.runtime.get_run(row.run_id)
        raise Refused(422, "resume: this thread has no such interrupt")

    async def _events(self, run: RunHandle[Any], asked: Asked) -> AsyncGenerator[ServerSentEvent]:
        """Yield what the client has not seen: the whole run, or everything after its answers."""
        ids = {"threadId": asked.thread, "runId": asked.run}
        about = {"foldlog": {"runId": run.run_id}}
        yield _sent({"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION, "metadata": about})
        told, over = Telling(run.run_id, asked.messages), False
        seen = _Seen(asked.answers)
        answered = [each.interrupt for each in asked.answers if wait_of(each.interrupt) is None]
        async with contextlib.aclosing(going_on(run, answered)) as events:
            async for event in events:
                if seen.ends_with(event):
                    for sent in told.resumed():
                        yield _sent(sent)
                for sent in told.feed(event):
                    if not seen.all_so_far:
                        yield _sent(sent)
                over = event.is_end
        for sent in told.suspended():
            yield _sent(sent)
        yield _sent(await self._end(run, told, ids, over=over))

    async def _end(self, run: RunHandle[Any], told: Telling, ids: dict[str, str], *, over: bool) -> Sent:
        state, used = await run.state(), (await run.usage()).usage
        usage = [
            {
                "inputTokens": used.input_tokens,
                "outputTokens": used.output_tokens,
                "totalTokens": used.total_tokens,
                "reasoningTokens": used.reasoning_tokens,
                "cachedInputTokens": used.cached_input_tokens,
            }
        ]
        if over and state.status == "error":
            kind, text = (state.error.error_type, state.error.error) if state.error else ("unknown", "")
            return {"type": "RUN_ERROR", "message": text or "the run failed", "code": kind, "usage": usage}
        outcome: dict[str, Any] = {"type": "success"}
        if over and state.status == "cancelled":
            outcome = {"type": "cancelled"}
        elif not over:
            interrupts = told.interrupts(state.paused or "a signal")
            outcome = {"type": "interrupt", "interrupts": interrupts}
        result = {"result": state.output} if over and state.status == "completed" else {}
        return {"type": "RUN_FINISHED", **ids, "outcome": outcome, "usage": usage, **result}


class _Seen:
    """Tracks which events a client that resumes a run has seen: those before its answers, or up to a wait's cursor."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.all_so_far = bool(answers)
        waits = [wait for each in answers if (wait := wait_of(each.interrupt)) is not None]
        self._answered = {each.interrupt for each in answers}
        self._up_to = max((wait.cursor for wait in waits), default="")

    def ends_with(self, event: DetailedEvent) -> bool:
        """Return true for the first event that the client has not seen, and only for that one."""
        if not self.all_so_far:
            return False
        answered = isinstance(event, ApprovalResolved) and event.approval_id in self._answered
        passed = self._up_to and (event.cursor is None or event.cursor > self._up_to)
        self.all_so_far = not (answered or passed)
        return not self.all_so_far


def _decided(asked: ApprovalRequested, given: Answer) -> Answered:
    if given.payload is None:
        return Answered("rejected", DISMISSED)
    found = answer_by(asked, given.payload)
    if found is None:
        raise Refused(422, f"resume: the payload for {asked.approval_id} must meet its responseSchema")
    return found


def _sent(event: Sent) -> ServerSentEvent:
    return server_event(event)


def _error(problem: Response) -> Sent:
    told = msgspec.json.decode(bytes(problem.body))
    return {"type": "RUN_ERROR", "message": told["detail"], "code": told.get("error") or "refused"}


def _failed(problem: Response) -> ServerSentEvent:
    return _sent(_error(problem))
