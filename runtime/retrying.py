"""Retries: a new run of the same job, with what the first one was submitted with; and where a failed run is forked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..eventlog.commits import decode
from ..eventlog.errors import ConfigError, RunGone, RunNotFound
from ..eventlog.events import (
    PROGRAM,
    Actor,
    CancelRequested,
    Claimed,
    Error,
    ForkTools,
    LeftToOthers,
    ModelFailed,
    ModelRequested,
    Parked,
    Released,
    Status,
    Step,
    StoredEvent,
    Submitted,
    TimerFired,
    Trigger,
    Unknown,
)
from ..eventlog.names import digest_of
from ..projections.run_list import job_of
from ..projections.run_state import RunState
from .burying.family import tombstone_of
from .core.rules import RULES_NOW
from .core.submission import with_actor
from .journal.keys import key_of_retry, run_of_key

if TYPE_CHECKING:
    from ..eventlog.ports import Log, Subject
    from .handle import RunHandle
    from .ports.runnable import Runnable

NUMBER_MAX = 1000
"""The most retries of one run."""
_ORIGIN_MAX = 54
"""The length of an id of a run that is part of the ids of its retries from a failure as it is, in characters."""

_OF_A_FAILURE = (
    CancelRequested,
    Claimed,
    Error,
    LeftToOthers,
    ModelFailed,
    ModelRequested,
    Parked,
    Released,
    TimerFired,
)


def check_retryable(state: RunState) -> Submitted:
    """Return the submission of a run that may be retried. Raises `ConfigError`."""
    submitted = state.submitted
    if submitted is None or not state.over:
        raise ConfigError(f"run {state.run} is not over: cancel it before you retry it")
    if submitted.parent is not None:
        raise ConfigError(f"run {state.run} belongs to run {state.root}: retry that one")
    if submitted.trigger is not None and submitted.trigger.kind == "rollback":
        raise ConfigError(
            f"run {state.run} is a rollback: roll back run {submitted.trigger.key} again instead"
        )
    return submitted


def trigger_of(submitted: Submitted, run: str) -> Trigger:
    """Return the trigger of a retry: it names the job, and keeps what the first trigger was about."""
    before = submitted.trigger or PROGRAM
    return msgspec.structs.replace(
        before, kind="retry", key=job_of(submitted, run), fired_at=None, by="", via=""
    )


def again(submitted: Submitted, run: str, number: int, executor: str) -> Submitted:
    """Return the submission of a retry. Raises `ConfigError` for a fork, whose history is not in its submission."""
    if submitted.fork is not None:
        raise ConfigError(f"run {run} is a fork: retry it from where it failed, or fork its original again")
    return msgspec.structs.replace(
        submitted,
        executor=executor,
        idempotency_key=key_of_retry(run, number),
        trigger=trigger_of(submitted, run),
        rules=RULES_NOW,
        start_at=None,
    )


def before_failure(history: Sequence[StoredEvent | Unknown]) -> int:
    """Return the last revision of a run before the attempts that failed. Raises `ConfigError` if it did not fail."""
    ends = [n for n, event in enumerate(history) if isinstance(event, Status) and _failed(event)]
    if not ends:
        raise ConfigError("the run has not failed: retry it, or fork it at a revision of your choice")
    revision = ends[-1]
    while revision > 1 and _belongs(history[revision - 1]):
        revision -= 1
    return revision


def _failed(event: Status) -> bool:
    return event.status in {"error", "cancelled"}


def _belongs(event: StoredEvent | Unknown) -> bool:
    """Return whether the event belongs to what failed: another attempt begins before it."""
    if isinstance(event, Status):
        return event.status in {"paused", "resumed"}
    return isinstance(event, _OF_A_FAILURE) or (isinstance(event, Step) and event.status == "started")


class Retrier(Protocol):
    """The part of `Runtime` that a retry needs."""

    @property
    def log(self) -> Log:
        """The log."""
        ...

    def get_run(self, run_id: str) -> RunHandle[Any]:
        """Return a handle on a run."""
        ...

    async def locate(self, run_id: str) -> Subject:
        """Return the subject of a run. Raises `RunNotFound`."""
        ...

    async def fork(
        self,
        run_id: str,
        *,
        at: int,
        tools: ForkTools = "ask",
        executor: str = "local",
        agent: Runnable[Any] | None = None,
        fork_id: str | None = None,
        trigger: Trigger | None = None,
        by: str | Actor = "",
    ) -> RunHandle[Any]:
        """Start a fork."""
        ...


Submit = Callable[[Submitted, "Runnable[Any] | None"], Awaitable["RunHandle[Any]"]]
"""Starts a run by a submission."""


class Retrying:
    """A run that is retried by a runtime."""

    def __init__(
        self,
        runtime: Retrier,
        submit: Submit,
        run_id: str,
        executor: str | None,
        agent: Runnable[Any] | None,
        actor: Actor,
    ) -> None:
        self._submit, self._actor = submit, actor
        self._runtime, self._run_id, self._executor, self._agent = runtime, run_id, executor, agent

    async def retry(self, *, from_failure: bool, number: int | None) -> RunHandle[Any]:
        """Return the retry, started if it is new."""
        if number is not None and (type(number) is not int or not 1 <= number <= NUMBER_MAX):
            raise ConfigError(f"a retry has a number from 1 to {NUMBER_MAX}, not {number!r:.40}")
        state = await self._runtime.get_run(self._run_id).state()
        submitted = check_retryable(state)
        executor = self._executor or submitted.executor
        chosen = number if number is not None else await self._next(state.run, from_failure=from_failure)
        if from_failure:
            return await self._fork(state.run, submitted, chosen, executor)
        wish = again(submitted, state.run, chosen, executor)
        wish = msgspec.structs.replace(
            wish, trigger=with_actor(self._trigger(submitted, state.run), self._actor)
        )
        return await self._submit(wish, self._agent)

    async def next_number(self, *, from_failure: bool) -> int:
        """Return the number of the retry that a retry without a number is. Raises as it does."""
        state = await self._runtime.get_run(self._run_id).state()
        check_retryable(state)
        return await self._next(state.run, from_failure=from_failure)

    async def _next(self, run: str, *, from_failure: bool) -> int:
        """Return the number of the last retry if it is open or completed, else the next one."""
        for number in range(1, NUMBER_MAX + 1):
            found = await self._found(run, number, from_failure=from_failure)
            if found is None:
                return number
            if await self._is_open_or_completed(found):
                return number
        raise ConfigError(f"run {run} has been retried {NUMBER_MAX} times")

    async def _is_open_or_completed(self, run: str) -> bool:
        try:
            state = await self._runtime.get_run(run).state()
        except RunGone:
            tombstone = await tombstone_of(self._runtime.log, await self._runtime.locate(run))
            return tombstone is None or tombstone.event.row.get("status") == "completed"
        return not state.over or state.status == "completed"

    async def _found(self, run: str, number: int, *, from_failure: bool) -> str | None:
        if not from_failure:
            return await run_of_key(self._runtime.log, key_of_retry(run, number))
        try:
            return (await self._runtime.locate(_fork_id(run, number))).id
        except RunNotFound:
            return None

    async def _fork(self, run: str, submitted: Submitted, number: int, executor: str) -> RunHandle[Any]:
        log = self._runtime.log
        stored = [each async for each in log.events.read(await self._runtime.locate(run))]
        history = [event for each in stored for event in decode(each.data).events]
        return await self._runtime.fork(
            run,
            at=before_failure(history),
            tools="replay",
            executor=executor,
            agent=self._agent,
            fork_id=_fork_id(run, number),
            trigger=self._trigger(submitted, run),
            by=self._actor,
        )

    def _trigger(self, submitted: Submitted, run: str) -> Trigger:
        """Return the trigger of the retry; the request that asks for it counts, not that of the first run."""
        found = trigger_of(submitted, run)
        return msgspec.structs.replace(found, request_id=self._actor.request_id or found.request_id)


def _fork_id(run: str, number: int) -> str:
    known = run if len(run) <= _ORIGIN_MAX else f"{run[: _ORIGIN_MAX - 17]}-{digest_of(run)[:16]}"
    return f"{known}-retry{number}"
