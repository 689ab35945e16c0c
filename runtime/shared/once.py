"""One outcome for a key: of all calls with it in a namespace one runs, and the others get its outcome (W43).

The key is a register that names the call which owns it, recorded before that call starts. What came of the call is in
the log of the owner's run and nowhere else: a copy here could be missing after a crash. A twin reads it there. If the
owner's run is over, or its call has a result, and the call never started, then nothing was done, and the twin takes
the key over under the condition of the record that it read. `tests/model/once.py` is a model of this.
"""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec

from ...eventlog.commits import Chain, Head, gone, tombstone_in
from ...eventlog.errors import LogUnavailable
from ...eventlog.events import OnceUpdated, StoredEvent, ToolResult, ToolStarted, Unknown, is_terminal
from ...eventlog.names import once_subject, run_subject
from ...eventlog.ports import Log, Subject
from ...projections.content_files import files_in
from ..journal.journal import restored
from ..journal.outages import Decisions, try_append
from ..journal.register import read_register, register_write


class OnceCall(msgspec.Struct, frozen=True):
    """A call that wants a key: `digest` is that of its arguments, `unsafe` the effect of its tool."""

    run: Subject
    call: str
    scope: str
    key: str
    digest: str
    unsafe: bool


class Twin(msgspec.Struct, frozen=True):
    """The call that owns the key. `result` is its outcome; null if it has none yet, up to `position` of its log."""

    run: str
    call: str
    same: bool = True
    """The arguments are the same."""
    result: ToolResult | None = None
    lost: bool = False
    """Its run ended while it was under way, so it is unknown what it did."""
    position: int = 0


class _Owner(msgspec.Struct):
    """The owner's call, as its log has it."""

    started: bool = False
    result: ToolResult | None = None
    over: bool = False
    position: int = 0


async def take_once(log: Log, wanted: OnceCall) -> Twin | None:
    """Record the call as the owner of the key and return null; return the owner if there is one already.

    Raises `RunGone` for an owner whose run was erased, `LogUnavailable`.
    """
    subject = once_subject(wanted.scope, wanted.key, log.events.shards)
    async for _ in Decisions(log.clock):
        head, record = await _read(log, subject)
        if record is not None:
            if (record.run, record.call) == (wanted.run.id, wanted.call):
                return None
            twin = Twin(record.run, record.call, same=record.digest == wanted.digest)
            if not twin.same:
                return twin
            owner = await _owner(
                log, run_subject(record.shard, record.root or record.run, record.run), record.call
            )
            if (found := _outcome(owner, record)) is not None:
                return msgspec.structs.replace(twin, result=found)
            if not owner.over and owner.result is None:
                return msgspec.structs.replace(twin, position=owner.position)
            if owner.started and owner.result is None:
                return msgspec.structs.replace(twin, lost=True)
        if await _store(log, subject, head, _record(wanted, "running")):
            return None
    raise LogUnavailable("the owner of a key changes too quickly; try again")


async def note_over(log: Log, done: OnceCall) -> None:
    """Note that the owner has its outcome, for readers of the register. Nothing depends on it."""
    subject = once_subject(done.scope, done.key, log.events.shards)
    with contextlib.suppress(LogUnavailable):
        head, record = await _read(log, subject)
        if record is not None and (record.run, record.call, record.state) == (
            done.run.id,
            done.call,
            "running",
        ):
            await _store(log, subject, head, _record(done, "over"))


def _record(call: OnceCall, state: Literal["running", "over"]) -> OnceUpdated:
    return OnceUpdated(
        scope=call.scope,
        key=call.key,
        run=call.run.id,
        shard=call.run.shard,
        root="" if call.run.root == call.run.id else call.run.root,
        call=call.call,
        state=state,
        digest=call.digest,
        unsafe=call.unsafe,
    )


def _outcome(owner: _Owner, record: OnceUpdated) -> ToolResult | None:
    """Return the outcome that twins get; null for a call that has none, never ran, or may be run again.

    A call of a tool that is not unsafe leaves no start, and one that failed did nothing that a further one may not do.
    """
    result = owner.result
    if result is None:
        return None
    return result if (owner.started if record.unsafe else result.success) else None


async def _read(log: Log, subject: Subject) -> tuple[Head, OnceUpdated | None]:
    head, events = await read_register(log, subject)
    return head, next((event for event in events if isinstance(event, OnceUpdated)), None)


async def _store(log: Log, subject: Subject, head: Head, event: OnceUpdated) -> bool:
    """Store the record; false if the register moved, or that is not known: it is read again, and may be ours."""
    return await try_append(log, register_write(log, subject, head, event))


async def _owner(log: Log, run: Subject, call: str) -> _Owner:
    """Return what a run's log has of a call. A read that lags shows less, never more (W10)."""
    owner, chain = _Owner(), Chain()
    async for stored in log.events.read(run):
        recorded = chain.verify(stored)
        if (buried := tombstone_in(recorded.commit)) is not None:
            raise gone(recorded.commit, buried, run.id)
        owner.position = recorded.position
        if any(event.tool_call_id == call for event in recorded.commit.events):
            recorded = await restored(recorded, log)
        for event in recorded.commit.events:
            _fold(owner, event, call)
    return owner


def _fold(owner: _Owner, event: StoredEvent | Unknown, call: str) -> None:
    if isinstance(event, Unknown) or event.agent_path:  # an event that the call forwarded
        return
    owner.over = owner.over or is_terminal(event)
    if event.tool_call_id == call and isinstance(event, ToolStarted):
        owner.started = True
    elif event.tool_call_id == call and isinstance(event, ToolResult):
        owner.result = event


async def own_files(log: Log, root: str, result: ToolResult) -> None:
    """Copy the files of a result from another run's family: a family owns all that it refers to."""
    for digest in dict.fromkeys(file.artifact for file in files_in(result) if file.artifact):
        with contextlib.suppress(KeyError):
            await log.artifacts.of(root).put(await log.artifacts.find(digest))
