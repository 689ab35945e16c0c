"""Forks: a run of its own that shares another run's history up to a revision and goes on live from there.

What is shared is copied into the fork's log (`shared_history`), so that the fork is folded, checked and exported alone;
`submitted.fork` says where it came from. All of it is stored in one batch, with a timer that wakes a worker should this
process be gone before anybody drives the fork.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from ..eventlog.commits import ORIGIN, Commit, Recorded, digest_of_bytes, encode, verify
from ..eventlog.errors import AppendUnsure, ConfigError, Conflict, LogUnavailable, PayloadTooLarge
from ..eventlog.events import (
    ApprovalRequested,
    Effect,
    ForkLink,
    ForkTools,
    Status,
    StoredEvent,
    Submitted,
    Text,
    TokenUsage,
    ToolCall,
    Usage,
)
from ..eventlog.offload import spill
from ..eventlog.ports import COMMIT_BYTES_MAX, NEW, CommitWrite, Log, Subject, Timer, TimerWrite, Wakeup
from ..projections.fold import fold_commit
from ..projections.messages import canonical_json, sha256_hex
from ..projections.run_state import CallState, RunState
from .agent_config import AgentConfig
from .calls import approval_needed, callable_, denied, recorded_result
from .journal import DECISIONS_MAX, STALE_READ_S, restored
from .owed import WATCH
from .shared_history import History, Home, check, has_begun, take_over
from .submission import check_text
from .turn import Turn

POLICIES: tuple[ForkTools, ...] = ("replay", "ask", "run")
Fate = Literal["kept", "recorded", "asked", "run", "answered"]
"""What becomes of a call: its result is kept, a recorded one is given, people are asked, it runs, or the core knows."""
_TOGETHER = (ApprovalRequested, Status, Text, ToolCall, Usage)
"""Events that stand in one commit with the one before them."""


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the run made, and what becomes of it in the fork, or of one like it."""

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    step: int
    effect: Effect | None
    becomes: Fate


class ForkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork would do. `run` stands at `status` with `revisions` of them; the fork leaves it behind `revision`.

    `shared` events are taken over, with `steps` completed steps and the tokens of `usage`. `input` is what the fork is
    told: in the place of the run's own input if no step had begun (`replaces_input`), else with its next step. `first`
    is what happens first: the preparation, a model call (of step `step`), the `open` calls, or the end of the run.
    `open` are the calls of the round that is open there; `behind` those that the run made later, each with what becomes
    of the same call in the fork. `tools` is the policy.
    """

    run: str
    status: str
    revisions: int
    revision: int
    agent: str
    model: str
    model_was: str
    tools: ForkTools
    input: str | None
    replaces_input: bool
    shared: int
    steps: int
    usage: TokenUsage
    first: Literal["prepare", "model", "calls", "end"]
    step: int
    open: tuple[PlannedCall, ...]
    behind: tuple[PlannedCall, ...]


class Origin(msgspec.Struct, frozen=True):
    """The run that is forked: its events, and the digest of the commit that holds the revision."""

    subject: Subject
    state: RunState
    history: History
    at: int
    digest: str


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller wants otherwise."""

    model: str | None = None
    input: str | None = None
    tools: ForkTools = "ask"
    executor: str = "local"


async def read_origin(log: Log, subject: Subject, at: int) -> Origin:
    """The run as it is stored by now. Raises `ConfigError` for a revision that cannot be forked, `LogCorrupted`."""
    if not isinstance(at, int):
        raise ConfigError(f"a run is forked at a revision, a number from 1 on, not {at!r}")
    state = RunState(run=subject.id, root=subject.root)
    history: list[Any] = []
    digest = ""
    async for stored in log.events.read(subject):
        recorded: Recorded = await restored(verify(stored, state.head), log)
        fold_commit(state, recorded)
        history += recorded.commit.events
        digest = digest or (recorded.digest if recorded.last_rev >= at else "")
    check(history, at)
    return Origin(subject, state, history, at, digest)


def submission(origin: Origin, wish: Wish) -> Submitted:
    """The event that opens the fork: the run's own, with what is wished otherwise. Raises `ConfigError`.

    A fork stands outside of its run's session: it would tell the same turn twice there.
    """
    if wish.tools not in POLICIES:
        raise ConfigError(f"the policy for tools is {', '.join(POLICIES)}, not {wish.tools!r}")
    if wish.input is not None:
        check_text("the input of a fork", wish.input)
    if wish.input == "":
        raise ConfigError("the input of a fork is a text that is not empty")
    before = origin.history[0]
    assert isinstance(before, Submitted)  # noqa: S101 - checked when it was read
    config = dict(before.config) if wish.model is None else {**before.config, "model": wish.model}
    AgentConfig.from_config(config)
    link = ForkLink(
        run=origin.subject.id,
        root=origin.subject.root,
        revision=origin.at,
        digest=origin.digest,
        shared=0,
        tools=wish.tools,
    )
    replaced = wish.input is not None and not has_begun(origin.history, origin.at)
    text = wish.input if replaced and wish.input is not None else before.input
    what = {
        "config": config,
        "input": [text, wish.input],
        "messages": before.messages,
        "metadata": before.metadata,
        "fork": [link.run, link.revision, link.tools],
    }
    return msgspec.structs.replace(
        before,
        config=config,
        config_digest=sha256_hex(canonical_json(config)),
        input=text,
        input_digest=sha256_hex(canonical_json(what)),
        session=None,
        lane=None,
        executor=wish.executor,
        idempotency_key=None,
        parent=None,
        fork=link,
    )


def opening(origin: Origin, wish: Wish, submitted: Submitted, run: str, now: float) -> Turn:
    """The turn that opens the fork, under the id that it gets."""
    home = Home(run=run, path=origin.state.agent, path_was=origin.state.path)
    message = wish.input if has_begun(origin.history, origin.at) else None
    turn = take_over(origin.history, origin.at, submitted, home, now, message)
    assert submitted.fork is not None  # noqa: S101 - for the type checker
    link = msgspec.structs.replace(submitted.fork, shared=len(turn.events))
    turn.events[0] = turn.state.submitted = msgspec.structs.replace(submitted, fork=link)
    return turn


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_of(origin: Origin, wish: Wish, turn: Turn) -> ForkPlan:
    """What the fork that this turn opens would do."""
    state = turn.state
    first, step = _first(state)
    return ForkPlan(
        run=origin.subject.id,
        status=origin.state.status,
        revisions=len(origin.history),
        revision=origin.at,
        agent=state.agent,
        model=turn.rules.model,
        model_was=_model_of(origin.history[0]),
        tools=wish.tools,
        input=wish.input,
        replaces_input=wish.input is not None and not has_begun(origin.history, origin.at),
        shared=len(turn.events),
        steps=state.steps_completed,
        usage=state.usage,
        first=first,
        step=step,
        open=tuple(_planned_open(turn)) if first == "calls" else (),
        behind=tuple(_planned_behind(origin, turn)),
    )


def _model_of(submitted: object) -> str:
    return str(submitted.config.get("model", "")) if isinstance(submitted, Submitted) else ""


def _first(state: RunState) -> tuple[Literal["prepare", "model", "calls", "end"], int]:
    if not state.prepared:
        return "prepare", state.step
    if not state.step_open:
        return "model", state.step + 1
    if not state.model.replied:
        return "model", state.step
    if any(call.result is None for call in state.calls.values()):
        return "calls", state.step
    return ("model", state.step + 1) if state.calls or state.queue else ("end", state.step)


def _planned_open(turn: Turn) -> Iterator[PlannedCall]:
    for call in turn.state.calls.values():
        yield PlannedCall(
            tool_call_id=call.id,
            tool_name=call.name,
            arguments=call.arguments,
            step=turn.state.step,
            effect=_effect(turn.state, call.name),
            becomes=_fate(turn, call),
        )


def _effect(state: RunState, tool_name: str) -> Effect | None:
    spec = state.tools.get(tool_name)
    return spec.effect if spec is not None else None


def _fate(turn: Turn, call: CallState) -> Fate:
    if call.result is not None:
        return "kept"
    if not callable_(turn, call):
        return "answered"
    if recorded_result(turn.state, call) is not None:
        return "recorded"
    return "asked" if call.approval_id is not None else "run"


def _planned_behind(origin: Origin, turn: Turn) -> Iterator[PlannedCall]:
    """The calls that the run made behind the revision, if the fork were to make the same."""
    state = msgspec.structs.replace(turn.state, recorded={}, tools=turn.state.tools or origin.state.tools)
    known = {recorded.source for results in turn.state.recorded.values() for recorded in results}
    open_calls = turn.state.calls if turn.state.step_open else {}
    for event in origin.history[origin.at :]:
        if not isinstance(event, ToolCall) or event.agent_path or event.tool_call_id in open_calls:
            continue
        call = CallState(
            id=event.tool_call_id or "",
            index=0,
            name=event.tool_name,
            arguments=event.arguments,
            raw_arguments=event.raw_arguments,
        )
        yield PlannedCall(
            tool_call_id=call.id,
            tool_name=call.name,
            arguments=call.arguments,
            step=event.step or 0,
            effect=_effect(state, call.name),
            becomes="recorded" if call.id in known else _fate_of_new(turn, state, call),
        )


def _fate_of_new(turn: Turn, state: RunState, call: CallState) -> Fate:
    """Of a call that has no recorded result."""
    bare = Turn(state, turn.rules, turn.now)
    if not callable_(bare, call) or denied(bare.rules, call) is not None:
        return "answered"
    return "run" if approval_needed(bare, call) is None else "asked"


# --- storing ----------------------------------------------------------------------------------------------------------


async def store(log: Log, subject: Subject, turn: Turn, lease_s: float) -> bool:
    """Store the fork's history whole, and a wake-up for later; False: the run exists, and nothing was done.

    Raises `PayloadTooLarge`, `LogUnavailable`.
    """
    events = await spill(turn.events, log.artifacts)
    writes = tuple(_commits(log, subject, turn.state.path, list(_groups(events))))
    wakeup = Wakeup(
        shard=subject.shard, agent=turn.state.agent, root=subject.root, run=subject.id, cause=len(events)
    )
    watch = TimerWrite(Timer(id=WATCH, due_at=log.clock.now() + lease_s, wakeup=wakeup))
    for _ in range(DECISIONS_MAX):
        try:
            await log.events.append(*writes, watch)
        except (Conflict, AppendUnsure):
            found = await _first_of(log, subject)
            if found is not None:
                return found == writes[0].data
            await log.clock.sleep(STALE_READ_S)  # not there, or not to be seen yet
        else:
            return True
    raise LogUnavailable(f"whether the fork {subject.id} is stored is unknown; try again")


async def _first_of(log: Log, subject: Subject) -> bytes | None:
    async for stored in log.events.read(subject):
        return stored.data
    return None


def _commits(
    log: Log, subject: Subject, path: str, groups: Sequence[Sequence[StoredEvent]]
) -> Iterator[CommitWrite]:
    rev, prev = ORIGIN.rev + 1, ORIGIN.digest
    for group in groups:
        commit = Commit(
            run=subject.id,
            root=subject.root,
            rev=rev,
            append=log.clock.new_id(),
            prev=prev,
            epoch=0,
            at=log.clock.now(),
            path=path,
            events=tuple(group),
        )
        data = encode(commit)
        yield CommitWrite(subject, NEW, data)
        rev, prev = rev + len(group), digest_of_bytes(data)


def _groups(events: Sequence[StoredEvent]) -> Iterator[Sequence[StoredEvent]]:
    """Cut events into commits that fit; a model's reply stays in one. Raises `PayloadTooLarge`."""
    limit = COMMIT_BYTES_MAX - 2048
    group: list[StoredEvent] = []
    size = 0
    for piece in _pieces(events):
        weight = sum(len(msgspec.json.encode(event)) + 1 for event in piece)
        if weight > limit:
            raise PayloadTooLarge(
                f"a model's reply with its approvals ({piece[0].type!r}, ...)", weight, limit
            )
        if group and size + weight > limit:
            yield group
            group, size = [], 0
        group.extend(piece)
        size += weight
    yield group


def _pieces(events: Sequence[StoredEvent]) -> Iterator[list[StoredEvent]]:
    piece: list[StoredEvent] = []
    for event in events:
        if piece and not isinstance(event, _TOGETHER):
            yield piece
            piece = []
        piece.append(event)
    yield piece


def same_fork(existing: Submitted | None, asked: Submitted) -> bool:
    """Whether a run that exists was forked as this one is asked for."""
    if existing is None or existing.fork is None:
        return False
    return (existing.config_digest, existing.input_digest) == (asked.config_digest, asked.input_digest)


__all__ = [
    "POLICIES",
    "ForkPlan",
    "Origin",
    "PlannedCall",
    "Wish",
    "opening",
    "plan_of",
    "read_origin",
    "same_fork",
    "store",
    "submission",
]
