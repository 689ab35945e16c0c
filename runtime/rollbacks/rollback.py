"""Rollbacks: a run that is over is undone by a table of compensations, one rollback at a time (W42).

The key of a rollback is `rollback:<run>`, that of a further one, after one that did not complete, has its number. So
a caller who asks again gets the rollback that is open, and a further one has only what is not compensated yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...eventlog.commits import decode
from ...eventlog.errors import ConfigError, LogUnavailable
from ...eventlog.events import NOBODY, PROGRAM, Actor, Event, Submitted, Trigger
from ...eventlog.names import shard_in
from ...eventlog.offload import restore
from ...eventlog.ports import Family
from ...projections.run_state import RunState
from ..agents.registry import Registry
from ..agents.workflow.table import WorkflowTable
from ..core.submission import submitted_event, with_actor
from ..journal.journal import Journal
from ..journal.keys import run_of_key
from ..journal.outages import REFUSALS_MAX, STALE_READ_S
from .plan import METADATA, Compensation, compensations, done_calls, table_of

if TYPE_CHECKING:
    from ...eventlog.ports import Log, Stored, Subject

NUMBER_MAX = 100
"""The most rollbacks of one run."""

Policy = Callable[[WorkflowTable], Awaitable[Mapping[str, Any]]]
"""Returns the policy of the namespace for a run of this table."""


class RollbackPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a rollback: its steps in their order.

    `rollback` is the run that does it already, or has done it; null if it would be a new one, with this `number`.
    """

    run: str
    number: int
    steps: tuple[Compensation, ...] = ()
    rollback: str | None = None
    submitted: Submitted | None = None
    """The submission of the run that is rolled back."""

    @property
    def submitted_executor(self) -> str:
        """The executor of the run that is rolled back."""
        return self.submitted.executor if self.submitted is not None else "local"

    def as_json(self) -> dict[str, Any]:
        """Return the plan as the command line and the API show it: `run`, `number`, `rollback`, `steps`."""
        steps = [
            {
                "step": each.step,
                "tool": each.tool or None,
                "arguments": each.arguments if each.tool else None,
                "by_hand": None if each.tool else each.text,
                "undoes": {"run": each.call.run, "call": each.call.call, "tool": each.call.tool},
            }
            for each in self.steps
        ]
        return {"run": self.run, "number": self.number, "rollback": self.rollback, "steps": steps}


class Earlier(msgspec.Struct):
    """The rollbacks of a run so far. `open` is the one that is not over, `last` the last one."""

    number: int = 1
    open: str | None = None
    last: str | None = None
    completed: bool = False
    done: set[str] = set()
    """The ids of the calls that are compensated."""
    doubtful: set[str] = set()
    """The ids of the calls whose compensation had started when its rollback ended."""


def key_of_rollback(run: str, number: int = 1) -> str:
    """Return the idempotency key of a run's `number`-th rollback."""
    return f"rollback:{run}" if number == 1 else f"rollback:{run}:{number}"


async def plan_rollback(
    log: Log, registry: Registry, subject: Subject, *, from_step: str | None = None
) -> RollbackPlan:
    """Return the plan of the rollback of a run that is over, storing nothing.

    Raises `RunNotFound`, `ConfigError` for a run that is open, belongs to another, is a rollback itself or has nothing
    to be rolled back, `NotRegistered`.
    """
    state = await Journal(log, subject).load()
    submitted = _may_be_rolled_back(state)
    plan = await _plan(log, registry, subject, submitted, from_step)
    if plan.rollback is None and not plan.steps:
        why = "no call of it has changed anything"
        if plan.number > 1:
            why = "all is undone" if from_step is None else f"all from call {from_step} on is undone"
        raise ConfigError(f"run {state.run} has nothing to be rolled back: {why}")
    return plan


async def plan_of_failed(log: Log, registry: Registry, subject: Subject) -> RollbackPlan:
    """Return the plan of the rollback that a table starts before it ends; it may have no steps. Raises as above."""
    journal = Journal(log, subject, wait_for_log=True)
    await journal.load()
    await journal.follow_until(lambda state: state.exists)  # its driver asks: a read that lacks it is stale
    assert journal.state.submitted is not None  # noqa: S101 - it exists
    return await _plan(log, registry, subject, journal.state.submitted, None)


async def _plan(
    log: Log, registry: Registry, subject: Subject, submitted: Submitted, from_step: str | None
) -> RollbackPlan:
    run = subject.id
    earlier = await _earlier(log, run)
    if earlier.open is not None:
        return RollbackPlan(run=run, number=earlier.number, rollback=earlier.open, submitted=submitted)
    events = await _events(log, subject)
    for below in _tables_below(events, run):
        own = await _earlier(log, below)
        if own.open is not None:
            raise ConfigError(
                f"run {below}, below run {run}, is being rolled back by run {own.open}: wait for it"
            )
        earlier.done |= own.done
        earlier.doubtful |= own.doubtful
    calls = done_calls(events, run)
    steps = compensations(calls, earlier.done, earlier.doubtful, registry, from_step)
    if not steps and earlier.completed:
        return RollbackPlan(run=run, number=earlier.number, rollback=earlier.last, submitted=submitted)
    return RollbackPlan(run=run, number=earlier.number, steps=tuple(steps), submitted=submitted)


async def submission_of(
    plan: RollbackPlan, registry: Registry, executor: str, policy: Policy, actor: Actor = NOBODY
) -> tuple[Submitted, WorkflowTable]:
    """Return the submission of a rollback, and its table, with the tools of the registry. Raises `ConfigError`."""
    assert plan.submitted is not None  # noqa: S101 - a plan to be carried out has it
    name = str(plan.submitted.config.get("name", ""))
    data, values = table_of(name, plan.run, plan.steps)
    table = registry.table(WorkflowTable.from_config(data).to_config(), registry.agents.get(name))
    submitted = submitted_event(
        table,
        msgspec.json.encode(values).decode(),
        executor=executor,
        user=plan.submitted.user,
        metadata={METADATA: {"run": plan.run, "calls": {each.step: each.call.id for each in plan.steps}}},
        idempotency_key=key_of_rollback(plan.run, plan.number),
        policy=await policy(table),
        trigger=_trigger(plan.submitted, plan.run, actor),
        priority=plan.submitted.priority,
    )
    return submitted, table


def _trigger(submitted: Submitted, run: str, actor: Actor) -> Trigger | None:
    """Return the trigger of a rollback; one that nobody requested belongs to the request of the run."""
    before = submitted.trigger or PROGRAM
    request = actor.request_id or before.request_id
    trigger = Trigger(kind="rollback", key=run, request_id=request, traceparent=before.traceparent)
    return with_actor(trigger, actor)


def _may_be_rolled_back(state: RunState) -> Submitted:
    submitted = state.submitted
    if submitted is None or not state.over:
        raise ConfigError(
            f"run {state.run} is open: wait for its end, or cancel it, before it is rolled back"
        )
    if submitted.parent is not None:
        raise ConfigError(f"run {state.run} belongs to run {state.root}: roll that one back")
    if submitted.trigger is not None and submitted.trigger.kind == "rollback":
        raise ConfigError(f"run {state.run} is a rollback itself, of run {submitted.trigger.key}")
    return submitted


def _tables_below(events: Iterable[Event], run: str) -> list[str]:
    """Return the tables of a family, other than this run: each may have been rolled back by itself."""
    return [
        event.run_id
        for event in events
        if isinstance(event, Submitted) and event.run_id != run and "steps" in event.config
    ]


async def _earlier(log: Log, run: str) -> Earlier:
    """Return the rollbacks of a run so far, and the calls that they have compensated."""
    earlier = Earlier()
    for number in range(1, NUMBER_MAX + 1):
        earlier.number = number
        found = await run_of_key(log, key_of_rollback(run, number))
        if found is None:
            return earlier
        subject = await log.events.find(shard_in(found) or 0, found)
        if subject is None:  # it is recorded and not stored yet: its next reader stores it
            return earlier
        state = await Journal(log, subject).load()
        earlier.last = found
        if not state.over:
            earlier.open = found
            return earlier
        earlier.completed = state.status == "completed"
        _note(earlier, state)
    raise ConfigError(f"run {run} has been rolled back {NUMBER_MAX} times")


def _note(earlier: Earlier, state: RunState) -> None:
    """Note which calls a rollback that is over has compensated."""
    metadata = state.submitted.metadata if state.submitted is not None else {}
    calls = metadata.get(METADATA, {}).get("calls", {})
    ended = state.flow.ended if state.flow is not None else {}
    for place, end in ended.items():
        call = calls.get(place.partition("/")[0])
        if call is not None and end.status in {"success", "approved"}:
            earlier.done.add(call)
    for place, open_call in state.calls.items():
        call = calls.get(place.partition("/")[0])
        if call is not None and open_call.started:
            earlier.doubtful.add(call)


async def _events(log: Log, subject: Subject) -> tuple[Event, ...]:
    """Return all events of a family in log order, with their large values.

    A read may be stale, and a plan that lacks a call would leave it undone for ever: so the leader says how far the run
    reaches. Raises `LogUnavailable` if no read does.
    """
    last = await log.events.last_position(subject)
    for _ in range(REFUSALS_MAX):
        found = [stored async for stored in log.events.read(Family(subject.shard, subject.root))]
        if any(stored.subject == subject and stored.position >= last for stored in found):
            return await _restored(log, subject, found)
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"run {subject.id} cannot be read up to its last known position; try again")


async def _restored(log: Log, subject: Subject, found: Sequence[Stored]) -> tuple[Event, ...]:
    events: list[Event] = []
    for stored in found:
        recorded = decode(stored.data)
        agent = recorded.path.rpartition("/")[2]
        events += [
            msgspec.structs.replace(event, run_id=recorded.run, agent=agent, revision=recorded.rev + index)
            for index, event in enumerate(recorded.events)
        ]
    return tuple(await restore(events, log.artifacts.of(subject.root)))
