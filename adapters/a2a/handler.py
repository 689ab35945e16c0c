"""Handle A2A requests for one agent. The handler keeps no state: any server can read a task from the log."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from ...eventlog.errors import ConfigError, FoldlogError, LogUnavailable, RunFinished, RunGone, RunNotFound
from ...runtime.handle import RunHandle
from ...runtime.options import RunOptions
from ..protocols.connected import while_connected
from ..protocols.door import Door, Origin
from ..protocols.reading import Snapshot, going_on
from ..protocols.sse import until_closing
from .asked import answers_in, content_of
from .tasks import Reading, Update, said_in

logger = logging.getLogger("foldlog.a2a")

ORIGIN, REQUEST = "foldlog.origin", "foldlog.request"
"""The keys that we add to the SDK's state of a call."""
PAGE_MAX = 100
PAGE = 50
_LISTED = {
    TaskState.TASK_STATE_SUBMITTED: ("queued",),
    TaskState.TASK_STATE_WORKING: ("running", "paused"),
    TaskState.TASK_STATE_INPUT_REQUIRED: ("running", "paused"),
    TaskState.TASK_STATE_COMPLETED: ("completed",),
    TaskState.TASK_STATE_FAILED: ("error",),
    TaskState.TASK_STATE_CANCELED: ("cancelled",),
}


def _told(error: Exception) -> A2AError:
    """Translate an exception into an error of the protocol."""
    match error:
        case A2AError():
            return error
        case RunGone():  # the protocol has no error for a deleted task
            return TaskNotFoundError(str(error))
        case RunNotFound():
            return TaskNotFoundError()
        case LogUnavailable() | TimeoutError():
            return InternalError("the log cannot be reached now; send the same again")
        case FoldlogError():
            return InvalidParamsError(str(error))
        case _:
            logger.error("a request failed", exc_info=error)
            return InternalError("the log cannot be reached now; send the same again")


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it raises only errors of the protocol."""

    @functools.wraps(method)
    async def answered(self: Any, params: Any, context: ServerCallContext) -> Any:
        try:
            return await method(self, params, context)
        except Exception as error:  # noqa: BLE001 - logged, if it is not known
            raise _told(error) from None

    return validate_request_params(answered)


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def told(self: Any, params: Any, context: ServerCallContext) -> AsyncIterator[Any]:
        try:
            async with contextlib.aclosing(method(self, params, context)) as events:
                async for event in events:
                    yield event
        except Exception as error:  # noqa: BLE001 - logged, if it is not known
            raise _told(error) from None

    return validate_request_params(told)


class AgentHandler(RequestHandler):
    """The tasks of one agent."""

    def __init__(self, door: Door, agent: str) -> None:
        self._door, self._agent = door, agent

    @_answering
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Start a task, answer its approvals, or send it a message; return the task once it ends or waits."""
        run, answered = await self._taken(params, context)
        if params.configuration.return_immediately:
            return await self._task(run, _length(params.configuration))
        task: Task = await while_connected(
            context.state[REQUEST], self._rested(run, answered, _length(params.configuration))
        )
        return task

    @_telling
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | Update]:
        """Do what `on_message_send` does, and yield the task, then its updates until it ends or waits."""
        run, answered = await self._taken(params, context)
        async with contextlib.aclosing(self._updates(run, answered)) as updates:
            async for update in until_closing(updates, self._door.closing):
                yield update

    @_telling
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | Update]:
        """Yield the task as it is now, then its updates until it ends or waits."""
        run = await self._run(params.id)
        if (await run.state()).over:
            raise UnsupportedOperationError("the task is over: get it instead")
        async with contextlib.aclosing(self._updates(run, ())) as updates:
            async for update in until_closing(updates, self._door.closing):
                yield update

    @_answering
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return the task as recorded in the log."""
        return await self._task(await self._run(params.id), _length(params))

    @_answering
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return one page of the agent's tasks, newest first. Deleted and archived tasks are left out."""
        size = params.page_size or PAGE
        if not 1 <= size <= PAGE_MAX:
            raise InvalidParamsError(f"page_size is 1 to {PAGE_MAX}")
        rows = [
            row
            for row in await self._door.runtime.list_runs(session=params.context_id or None)
            if row.agent == self._agent and row.run_id == row.root_id and _fits(row.status, params)
        ]
        runs, erased = [row.run_id for row in rows], {row.run_id for row in rows if row.buried}
        if params.page_token and params.page_token not in runs:
            raise InvalidParamsError("page_token is of no task in this list: begin at the first page")
        after = runs.index(params.page_token) + 1 if params.page_token else 0
        left = [run for run in runs[after:] if run not in erased]
        tasks = [await self._task(self._door.runtime.get_run(run), _length(params)) for run in left[:size]]
        return ListTasksResponse(
            tasks=tasks,
            next_page_token=left[size - 1] if len(left) > size else "",
            page_size=size,
            total_size=len(rows) - len(erased),
        )

    @_answering
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel a task and all runs below it."""
        run = await self._run(params.id)
        if (await run.cancel("cancelled by its caller", by=self._door.by(_origin(context)))) != "cancelled":
            raise TaskNotCancelableError
        return await self._task(run, None)

    async def _taken(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> tuple[RunHandle[Any], Collection[str]]:
        """Start, answer or message a run as the request asks; return the run and the ids of the approvals answered."""
        message, origin = params.message, _origin(context)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        if not message.task_id:
            return await self._start(message, params, origin), ()
        run = await self._run(message.task_id)
        snapshot, reading = await self._read(run)
        if reading.asked.open:
            answers = answers_in(message, reading.asked.open)
            for approval_id, answered in answers.items():
                await self._door.answer(run, approval_id, origin=origin, **answered._asdict())
            await self._door.drive(run)
            return run, answers
        if (await run.state()).over:
            raise UnsupportedOperationError("the task is over: send the message without its id")
        if snapshot.waits:
            raise UnsupportedOperationError("the task waits for something that this protocol does not answer")
        try:
            await run.inject(content_of(message), by=self._door.by(origin))
        except RunFinished:
            raise UnsupportedOperationError("the task is over: send the message without its id") from None
        return run, ()

    async def _start(self, message: Message, params: SendMessageRequest, origin: Origin) -> RunHandle[Any]:
        given = {**MessageToDict(params.metadata), **MessageToDict(message.metadata)}
        session = message.context_id or self._door.session_of(origin, message.message_id)
        options = RunOptions(session=session)
        if given:
            options["metadata"] = given
        return await self._door.start(
            self._door.agent(self._agent),
            content_of(message),
            origin,
            key=message.message_id,
            options=options,
        )

    async def _run(self, run_id: str) -> RunHandle[Any]:
        """Return a run of this agent. Raises `TaskNotFoundError`."""
        run = self._door.runtime.get_run(run_id)
        try:
            agent = (await run.state()).agent
        except ConfigError:  # the text is not a valid id
            raise TaskNotFoundError from None
        if agent != self._agent:
            raise TaskNotFoundError
        return run

    async def _read(self, run: RunHandle[Any]) -> tuple[Snapshot, Reading]:
        """Read the stored events of a run, and fold them."""
        snapshot, reading = Snapshot(self._door.runtime, run.run_id), await self._reading(run)
        async for event in snapshot.events():
            for _ in reading.feed(event):  # type: ignore[arg-type]
                pass
        return snapshot, reading

    async def _reading(self, run: RunHandle[Any]) -> Reading:
        submitted = (await run.state()).submitted
        return Reading(run.run_id, submitted.session or "" if submitted is not None else "")

    async def _task(self, run: RunHandle[Any], history: int | None) -> Task:
        snapshot, reading = await self._read(run)
        return await self._told(run, reading, history, waits=snapshot.waits)

    async def _told(self, run: RunHandle[Any], reading: Reading, history: int | None, *, waits: bool) -> Task:
        state = await run.state()
        context = state.submitted.session or "" if state.submitted is not None else ""
        said = said_in(run.run_id, context, await run.history(), history)
        return reading.task(state, waits=waits, history=said)

    async def _rested(self, run: RunHandle[Any], answered: Collection[str], history: int | None) -> Task:
        reading = await self._reading(run)
        async with contextlib.aclosing(going_on(run, answered)) as events:
            async for event in events:
                for _ in reading.feed(event):
                    pass
        return await self._told(run, reading, history, waits=not reading.over)

    async def _updates(self, run: RunHandle[Any], answered: Collection[str]) -> AsyncGenerator[Task | Update]:
        snapshot, reading = await self._read(run)
        yield await self._told(run, reading, None, waits=snapshot.waits)
        missing = reading.asked.open.keys() & set(answered)
        if reading.over or (snapshot.waits and not missing):
            return
        async with contextlib.aclosing(going_on(run, missing, reading.cursor or None)) as events:
            async for event in events:
                for update in reading.feed(event):
                    yield update
        for update in reading.ended(await run.state(), waits=not reading.over):
            yield update

    async def on_create_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        """Refuse: foldlog sends no push notifications; a service that needs them can follow the log."""
        _refuse_push()

    async def on_get_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        """Refuse: there are no push notifications."""
        _refuse_push()

    async def on_list_task_push_notification_configs(self, params: Any, context: ServerCallContext) -> Any:
        """Refuse: there are no push notifications."""
        _refuse_push()

    async def on_delete_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        """Refuse: there are no push notifications."""
        _refuse_push()

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> Any:
        """Refuse: the public card is complete."""
        raise ExtendedAgentCardNotConfiguredError


def _refuse_push() -> NoReturn:
    raise PushNotificationNotSupportedError


def _origin(context: ServerCallContext) -> Origin:
    origin: Origin = context.state[ORIGIN]
    return origin


def _length(asked: Any) -> int | None:
    """Return the requested number of history messages; None for all of them."""
    if not asked.HasField("history_length"):
        return None
    length: int = asked.history_length
    if length < 0:
        raise InvalidParamsError("history_length is not negative")
    return length


def _fits(status: str, params: ListTasksRequest) -> bool:
    return not params.status or status in _LISTED.get(params.status, ())
