"""Hooks on the ends of runs: a run that ends starts another one, once.

Every worker that serves the target agent follows the log, and starts the run under a key that names the hook and the
run that ended (W26). So it does not matter how many do, or which of them dies. How far a shard was followed is kept
in a register, which is moved on after the runs up to there were started (W41): a worker that starts later goes on from
it. A hook that is new begins where its register was stored, and starts nothing for runs that had ended before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ...eventlog.commits import Commit, Head, decode
from ...eventlog.errors import (
    AppendUnsure,
    ConfigError,
    Conflict,
    FoldlogError,
    KeyMissing,
    LogUnavailable,
    RunConflict,
    RunNotFound,
)
from ...eventlog.events import HookAdvanced, Status, Trigger, is_terminal
from ...eventlog.names import check_name, hook_subject, run_subject
from ...eventlog.ports import Log, Shard, Stored, Subject
from ...eventlog.priorities import Priority
from ...projections.run_state import RunState
from ..core.templates import Filled, Missing
from ..journal.journal import Journal
from ..journal.outages import OUTAGE_POLL_S, STALE_READ_S
from ..journal.register import read_register, register_write
from ..ports.conditions import Condition, ConditionFailed
from .schedule import check_priority
from .starting import Start, Starter

logger = logging.getLogger("foldlog.hooks")

On = Literal["run.completed", "run.failed", "run.cancelled", "run.ended"]
STATUSES: Mapping[str, frozenset[str]] = {
    "run.completed": frozenset({"completed"}),
    "run.failed": frozenset({"error"}),
    "run.cancelled": frozenset({"cancelled"}),
    "run.ended": frozenset({"completed", "error", "cancelled"}),
}
DEPTH_MAX = 8
"""The most hooks on ends in a row that lead to a run; a loop that no check could see ends there."""
ADVANCE_S = 5.0
"""The time after which the place that was followed to is stored; what came since is only looked at again."""
ATTEMPTS = 5
BROKEN_DELAY_S = 30.0


class EventHook(msgspec.Struct, frozen=True, kw_only=True):
    """Starts a run of `agent` when a root run of one of the agents `of` ends as `on` says, and `when` is met.

    `when` is a condition over `run`, with `id`, `agent`, `status`, `error_type`, `output`, `user`, `session` and
    `metadata`; `input` is a template over the same, such as `${run.output}`. `priority` is that of its runs.
    """

    name: str
    on: On
    of: tuple[str, ...]
    agent: str
    input: str | dict[str, Any] = "${run.output}"
    when: str | None = None
    priority: Priority | int = "normal"


class _Ready(msgspec.Struct, frozen=True):
    hook: EventHook
    input: Filled
    when: Condition | None


def checked_hooks(hooks: Sequence[EventHook], where: Mapping[str, str] | None = None) -> tuple[_Ready, ...]:
    """Return the hooks, ready to be followed. Raises `ConfigError`, also for hooks that lead back to themselves."""
    places = where or {}
    ready = []
    for hook in hooks:
        place = places.get(hook.name, f"hook {hook.name!r}")
        check_name(place, hook.name)
        check_name(f"{place}: the agent", hook.agent)
        if hook.on not in STATUSES:
            raise ConfigError(f"{place}: on must be one of {', '.join(STATUSES)}, not {hook.on!r:.40}")
        if not hook.of:
            raise ConfigError(
                f"{place}: of must name the agents whose runs end: a hook on all would start itself"
            )
        check_priority(hook.priority, place)
        when = None if hook.when is None else Condition(hook.when, f"{place}.when", ["run"])
        ready.append(_Ready(hook, Filled(hook.input, f"{place}.input", "run"), when))
    for hook in hooks:
        if (circle := _circle(hook, hooks)) is not None:
            told = " -> ".join(circle)
            raise ConfigError(
                f"{places.get(hook.name, f'hook {hook.name!r}')}: it would start itself: {told}"
            )
    return tuple(ready)


def _circle(hook: EventHook, hooks: Sequence[EventHook]) -> list[str] | None:
    """Return the cycle of agents from a hook's agent back to one that the hook waits for; null if there is none."""
    paths = [[hook.agent]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path[-1] in hook.of:
            return path if len(path) > 1 else [path[0], path[0]]
        if path[-1] not in seen:
            seen.add(path[-1])
            paths += [[*path, other.agent] for other in hooks if path[-1] in other.of]
    return None


class HookFollower:
    """Follows the ends of runs for a worker."""

    def __init__(self, log: Log, starter: Starter, hooks: Sequence[_Ready]) -> None:
        self._log, self._starter, self._hooks = log, starter, hooks

    async def run(self) -> None:
        """Follow all shards until cancelled. Survives outages of the log."""
        if self._hooks:
            shards = range(self._log.events.shards)
            await asyncio.gather(*(self._follow(shard, each) for shard in shards for each in self._hooks))

    async def _follow(self, shard: int, ready: _Ready) -> None:
        while True:
            delay_s = OUTAGE_POLL_S
            try:
                await self._from_here(shard, ready)
            except LogUnavailable:
                pass
            except KeyMissing as error:
                logger.warning("hook %s: left to another worker: %s", ready.hook.name, error)
                delay_s = BROKEN_DELAY_S
            except Exception:
                logger.exception("hook %s: shard %d cannot be followed", ready.hook.name, shard)
                delay_s = BROKEN_DELAY_S
            await self._log.clock.sleep(delay_s)

    async def _from_here(self, shard: int, ready: _Ready) -> None:
        place = _Place(self._log, hook_subject(shard, ready.hook.name), ready.hook.name)
        begin = await place.read()
        advancing = asyncio.create_task(place.keep())
        try:
            async with contextlib.aclosing(self._log.events.follow(Shard(shard), begin)) as commits:  # type: ignore[type-var] # iterators of logs can be closed
                async for stored in commits:
                    await self._look_at(stored, ready)
                    place.position = stored.position
        finally:
            advancing.cancel()
            await asyncio.gather(advancing, return_exceptions=True)

    async def _look_at(self, stored: Stored, ready: _Ready) -> None:
        commit = decode(stored.data)
        status = _end_in(commit)
        if (
            status not in STATUSES[ready.hook.on]
            or commit.path not in ready.hook.of
            or commit.root != commit.run
        ):
            return
        with contextlib.suppress(RunNotFound):  # it was erased since
            journal = Journal(self._log, run_subject(stored.subject.shard, commit.run, commit.run))
            await journal.load()
            state = await journal.follow_until(lambda state: state.over)
            await self._start(state, ready)

    async def _start(self, state: RunState, ready: _Ready) -> None:
        """Start the run for one that ended, unless the condition excludes it."""
        hook, run = ready.hook, _as_json(state)
        trigger = _trigger(hook, state, self._log.clock.now())
        if trigger.depth > DEPTH_MAX:
            logger.error(
                "hook %s: run %s comes from %d hooks in a row: it starts nothing",
                hook.name,
                state.run,
                DEPTH_MAX,
            )
            return
        try:
            if ready.when is not None and not ready.when.is_met({"run": run}):
                return
            wish = Start(
                agent=hook.agent,
                input=ready.input.fill(run),
                key=f"hook:{hook.name}:{state.run}",
                trigger=trigger,
                user=run["user"],
                priority=hook.priority,
            )
        except (ConditionFailed, Missing) as error:
            logger.error("hook %s: run %s starts nothing: %s", hook.name, state.run, error)  # noqa: TRY400 - no bug
            return
        for attempt in range(ATTEMPTS):
            try:
                started = await self._starter.start(wish)
            except (LogUnavailable, KeyMissing):  # who lacks a key leaves it to others (W60)
                raise
            except (
                RunConflict,
                RunNotFound,
            ):  # it was started, before the template was changed, or erased since
                return
            except FoldlogError as error:
                if attempt == ATTEMPTS - 1:
                    logger.error("hook %s: run %s starts nothing: %s", hook.name, state.run, error)  # noqa: TRY400
                await self._log.clock.sleep(0.2 * 2**attempt)
            else:
                logger.info("hook %s: run %s for the end of run %s", hook.name, started, state.run)
                return


def _end_in(commit: Commit) -> str | None:
    ends = (e for e in commit.events if isinstance(e, Status) and is_terminal(e) and not e.agent_path)
    return next((event.status for event in ends), None)


def _as_json(state: RunState) -> dict[str, Any]:
    """Return what conditions and templates see of a run."""
    submitted = state.submitted
    return {
        "id": state.run,
        "agent": state.agent,
        "status": state.status,
        "error_type": state.error.error_type if state.error is not None else "",
        "output": state.output,
        "user": submitted.user if submitted is not None else None,
        "session": submitted.session if submitted is not None else None,
        "metadata": submitted.metadata if submitted is not None else {},
    }


def _trigger(hook: EventHook, state: RunState, now: float) -> Trigger:
    before = state.submitted.trigger if state.submitted is not None else None
    return Trigger(
        kind="hook",
        name=hook.name,
        key=state.run,
        fired_at=now,
        request_id=before.request_id if before is not None else "",
        traceparent=before.traceparent if before is not None else "",
        depth=1 + (before.depth if before is not None else 0),
    )


class _Place:
    """The place up to which a hook has followed a shard."""

    def __init__(self, log: Log, subject: Subject, name: str) -> None:
        self._log, self._subject, self._name = log, subject, name
        self.position = self._stored = 0

    async def read(self) -> int:
        """Return the position to go on after; that of the register's first commit, which is stored if there is none."""
        while True:
            head, events = await read_register(self._log, self._subject)
            for event in events:
                if isinstance(event, HookAdvanced):
                    self.position = self._stored = event.position or head.position
                    return self.position
            with contextlib.suppress(Conflict, AppendUnsure):
                await self._store(head, 0)
                continue
            await self._log.clock.sleep(
                STALE_READ_S
            )  # a read may be stale: give the replica time to catch up

    async def keep(self) -> None:
        """Store the position at intervals, as far as it is ahead of what other workers have stored."""
        while True:
            await self._log.clock.sleep(ADVANCE_S)
            with contextlib.suppress(Conflict, LogUnavailable):
                if self.position > self._stored:
                    self._stored = self.position
                    head, events = await read_register(self._log, self._subject)
                    known = [each.position for each in events if isinstance(each, HookAdvanced)]
                    if self.position > max(known, default=0):
                        await self._store(head, self.position)

    async def _store(self, head: Head, position: int) -> None:
        event = HookAdvanced(name=self._name, position=position)
        await self._log.events.append(register_write(self._log, self._subject, head, event))
