"""The routes of the Responses API: create, retrieve, cancel, and the agents as models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...eventlog.errors import ApprovalError, ConfigError, NotRegistered, RunGone, RunNotFound
from ...eventlog.events import ApprovalRequested
from ...runtime.handle import RunHandle
from ...runtime.options import RunOptions
from ..http.answers import Refused, answer
from ..http.bodies import check_json, parse_json, read_body
from ..protocols.connected import while_connected
from ..protocols.door import Door, Origin
from ..protocols.reading import Snapshot, going_on
from ..protocols.sse import event_stream, server_event
from .asked import PREVIOUS, Asked, read_asked
from .errors import BadRequest, answered
from .objects import APPROVAL, WAITING, response_of
from .output import Output, Sent, after

BODY_BYTES_MAX = 32 * 1024 * 1024
"""The largest request, with its files."""
NUMBER_DIGITS_MAX = 16
_END = {"completed": "completed", "failed": "failed", "cancelled": "failed"}


def responses_routes(door: Door) -> list[Route]:
    """Return the routes below `/v1`."""
    routes = _Responses(door)
    return [
        Route("/v1/models", answered(routes.models), methods=["GET"]),
        Route("/v1/models/{name}", answered(routes.model), methods=["GET"]),
        Route("/v1/responses", answered(routes.create), methods=["POST"]),
        Route("/v1/responses/{id}", answered(routes.retrieve), methods=["GET"]),
        Route("/v1/responses/{id}/cancel", answered(routes.cancel), methods=["POST"]),
        Route("/v1/responses{rest:path}", answered(_nothing), methods=["GET", "POST", "DELETE"]),
    ]


class _Responses:
    """The endpoints. They keep no state: each request reads the log."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def models(self, request: Request) -> Response:
        """List the agents."""
        self._door.origin(request, "viewer")
        return answer(200, {"object": "list", "data": [_model(name) for name in self._door.agents]})

    async def model(self, request: Request) -> Response:
        """Describe one agent."""
        self._door.origin(request, "viewer")
        name = request.path_params["name"]
        if name not in self._door.agents:
            raise Refused(404, f"there is no agent {name[:80]!r}")
        return answer(200, _model(name))

    async def create(self, request: Request) -> Response:
        """Start a run, or answer a run's approvals; `read_asked` defines the body."""
        origin = self._door.origin(request)
        check_json(request)
        asked = read_asked(parse_json(await read_body(request, BODY_BYTES_MAX)))
        if asked.decisions:
            run, seen = await self._answer(asked, origin), {each.approval_id for each in asked.decisions}
        else:
            run, seen = (
                await self._start(asked, origin, request.headers.get("idempotency-key", "")),
                set[str](),
            )
        if asked.stream:
            return self._streamed(self._stream(run, 0, seen))
        if asked.background:
            return answer(200, await self._now(run))
        return answer(200, await while_connected(request, self._rested(run, seen)))

    async def retrieve(self, request: Request) -> Response:
        """Return the response as it is now; with `stream=true`, stream its events after `starting_after`."""
        self._door.origin(request, "viewer")
        run = await self._run(request.path_params["id"])
        wants = request.query_params.get("stream", "false")
        if wants not in {"true", "false"}:
            raise BadRequest("stream must be true or false", "stream")
        if wants == "true":
            number = _number(request.query_params.get("starting_after"))
            return self._streamed(self._stream(run, number, set()))
        return answer(200, await self._now(run))

    async def cancel(self, request: Request) -> Response:
        """Cancel a run and all runs below it; a run that has ended stays as it is."""
        origin = self._door.origin(request)
        run = await self._run(request.path_params["id"])
        await run.cancel("cancelled by its caller", by=self._door.by(origin))
        return answer(200, await self._now(run))

    async def _run(self, run_id: str) -> RunHandle[Any]:
        """Return a handle on a run that exists."""
        run = self._door.runtime.get_run(run_id)
        try:
            await run.state()
        except RunGone:
            raise
        except (RunNotFound, ConfigError):  # ConfigError: the text is not a valid id
            raise Refused(404, f"there is no response {run_id[:80]!r}") from None
        return run

    async def _start(self, asked: Asked, origin: Origin, key: str) -> RunHandle[Any]:
        try:
            agent = self._door.agent(asked.model)
        except NotRegistered as error:
            raise BadRequest(str(error), "model", "model_not_found") from None
        session = asked.conversation or self._door.session_of(origin, key)
        if asked.previous is not None:
            session = await self._conversation_of(asked.previous)
        options = RunOptions(
            session=session,
            messages=asked.messages,
            metadata=asked.metadata | ({PREVIOUS: asked.previous} if asked.previous else {}),
        )
        if asked.user is not None:
            options["user"] = asked.user
        if asked.instructions:
            options["instructions_suffix"] = asked.instructions
        if asked.settings:
            options["settings"] = asked.settings  # type: ignore[typeddict-item] # checked by the runtime
        return await self._door.start(agent, asked.content, origin, key=key, options=options)

    async def _conversation_of(self, previous: str) -> str:
        """Return the session of a response. Raises `BadRequest` unless the response is the session's last one."""
        run = await self._run(previous)
        state = await run.state()
        session = state.submitted.session if state.submitted is not None else None
        if session is None:
            raise BadRequest(f"response {previous!r} belongs to no conversation", PREVIOUS)
        if state.paused is not None:
            raise BadRequest(f"response {previous!r} waits: answer its approvals, or cancel it", PREVIOUS)
        rows = await self._door.runtime.list_runs(session=session)
        latest = next((row.run_id for row in rows if row.buried != "deleted"), previous)
        if latest != previous:
            raise BadRequest(
                f"response {previous!r} is not the last of its conversation, which goes on from {latest!r}",
                PREVIOUS,
            )
        return session

    async def _answer(self, asked: Asked, origin: Origin) -> RunHandle[Any]:
        """Answer approvals of a run.

        The request must answer all open ones: otherwise the run would keep waiting for the rest unnoticed.
        """
        run = await self._run(asked.previous or "")
        wanted = {each.approval_id for each in asked.decisions}
        snapshot, known, still = Snapshot(self._door.runtime, run.run_id), set[str](), Output(run.run_id)
        async for event in snapshot.events():
            _read(still, event)
            if isinstance(event, ApprovalRequested):
                known.add(event.approval_id)
        if wanted - known:
            raise BadRequest(f"this response has no approval {min(wanted - known)[:80]!r}", "input")
        if missing := set(still.asked.open) - wanted:
            raise BadRequest(f"answer all approvals at once; missing: {', '.join(sorted(missing))}", "input")
        for each in asked.decisions:
            try:
                await self._door.answer(
                    run,
                    each.approval_id,
                    "approved" if each.approve else "rejected",
                    origin,
                    note=each.reason,
                )
            except ApprovalError as error:
                raise Refused(409, str(error)) from None
        await self._door.drive(run)
        return run

    async def _now(self, run: RunHandle[Any]) -> dict[str, Any]:
        """Build the response from the events stored so far."""
        output, snapshot = Output(run.run_id), Snapshot(self._door.runtime, run.run_id)
        async for event in snapshot.events():
            _read(output, event)
        return await self._response(run, output, waits=snapshot.waits)

    async def _rested(self, run: RunHandle[Any], answered: set[str]) -> dict[str, Any]:
        """Wait until the run ends or waits for another party; return the response."""
        output, over = Output(run.run_id), False
        async with contextlib.aclosing(going_on(run, answered)) as events:
            async for event in events:
                _read(output, event)
                over = event.is_end
        return await self._response(run, output, waits=not over)

    async def _response(self, run: RunHandle[Any], output: Output, *, waits: bool) -> dict[str, Any]:
        why = (APPROVAL if output.asked.open else WAITING) if waits else ""
        state = await run.state()
        if state.status == "completed" and state.output:
            list(output.say(state.output))
        return await response_of(run, output.items, waits=why)

    def _streamed(self, events: AsyncGenerator[Sent]) -> Response:
        async def told() -> AsyncGenerator[ServerSentEvent]:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield _sent(event)

        return event_stream(told(), _failed, self._door.closing)

    async def _stream(self, run: RunHandle[Any], number: int, answered: set[str]) -> AsyncGenerator[Sent]:
        """Yield the stream's events after `number`, and after the requests of the approvals in `answered`."""
        output, over, unseen = Output(run.run_id), False, set(answered)
        if not number:
            begun = await response_of(run, [])
            begun |= {
                "status": "in_progress",
                "incomplete_details": None,
                "error": None,
                "completed_at": None,
            }
            yield {"type": "response.created", "sequence_number": 0, "response": begun}
            yield {"type": "response.in_progress", "sequence_number": 1, "response": begun}
        async with contextlib.aclosing(going_on(run, answered)) as events:
            async for event in events:
                hidden = bool(unseen)
                for sent in output.feed(event):
                    if not hidden and (new := after(sent, number)) is not None:
                        yield new
                if isinstance(event, ApprovalRequested):
                    unseen.discard(event.approval_id)
                over = event.is_end
        state = await run.state()
        for sent in output.say(state.output) if state.status == "completed" and state.output else ():
            if (new := after(sent, number)) is not None:
                yield new
        response = await self._response(run, output, waits=not over)
        kind = _END.get(response["status"], "incomplete")
        yield {
            "type": f"response.{kind}",
            "sequence_number": max(output.number + 5, number + 1),
            "response": response,
        }


def _read(output: Output, event: Any) -> None:
    for _ in output.feed(event):
        pass


def _sent(event: Sent) -> ServerSentEvent:
    return server_event(event, event["type"])


def _failed(problem: Response) -> ServerSentEvent:
    told = msgspec.json.decode(bytes(problem.body))
    error = {"code": told.get("error") or "server_error", "message": told["detail"], "param": None}
    return _sent({"type": "error", "sequence_number": 0, **error})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "foldlog"}


def _number(given: str | None) -> int:
    if given is None:
        return 0
    if not (given.isascii() and given.isdecimal() and len(given) <= NUMBER_DIGITS_MAX):
        raise BadRequest("starting_after must be a sequence_number", "starting_after")
    return int(given)


async def _nothing(_: Request) -> Response:
    raise Refused(
        404,
        "responses are created, retrieved and cancelled here; nothing else is done over this API",
    )
