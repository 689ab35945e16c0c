"""Idempotency keys: the first submitter records the run of a key, and all others find it (W26).

A key is recorded before its run is stored, with all that is needed to store the run, and again afterwards. So if the
log shows nothing of the run, it is stored by the next submitter that finds the key; or it was purged, if the key says
that it was stored, and is not started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from ...eventlog.commits import Head, buried_by, gone
from ...eventlog.errors import Conflict, LogUnavailable, RunConflict, RunPurged
from ...eventlog.events import KeyRecorded, StoredEvent, Submitted, Unknown
from ...eventlog.names import check_name, key_subject, new_run_id, run_subject, shard_in, shard_of
from ...eventlog.offload import restore, spill
from ...eventlog.ports import Log, Subject
from ...eventlog.sealing.log import check_not_sealed_since
from .lanes import purged
from .outages import Decisions, try_append
from .register import read_register, register_write


class RunPlace(msgspec.Struct, frozen=True):
    """The subject of a run, and its submission: that of the submitter who recorded its key first.

    `stored`: the run's first commit is, or was, in the log. `key` is recorded at `head`; empty for a run without one.
    """

    subject: Subject
    submitted: Submitted
    key: str = ""
    head: Head | None = None
    stored: bool = False


async def place_of_run(log: Log, submitted: Submitted, run_id: str | None = None) -> RunPlace:
    """Return the place of a run to submit. Raises `RunConflict` for a key that belongs to another agent or input.

    Raises `KeyMissing` in a process that could only store it unsealed in a namespace with sealed values.
    """
    await check_not_sealed_since(log)
    shards = log.events.shards
    if run_id is not None:
        check_name("the run id", run_id)
    carried = shard_in(run_id) if run_id is not None else None
    if submitted.lane is not None:  # a lane and its runs share a shard (W25)
        shard = shard_of(submitted.lane, shards)
    elif carried is not None:
        shard = carried % shards
    else:
        shard = shard_of(run_id or log.clock.new_id(), shards)
    name = run_id or new_run_id(shard, log.clock)
    run = run_subject(shard, name, name)
    key = key_of(submitted, name, shards, chosen=run_id is not None)
    return await take_key(log, key, run, submitted) if key else RunPlace(run, submitted)


def key_of(submitted: Submitted, run: str, shards: int, *, chosen: bool) -> str:
    """Return the name to record the run of a submission under; empty if it needs no record.

    An id chosen by the caller does not carry a shard, so with several shards it is recorded like a key.
    """
    if submitted.idempotency_key is not None:
        return f"key:{submitted.idempotency_key}"
    return f"run:{run}" if chosen and shards > 1 else ""


async def take_key(log: Log, key: str, run: Subject, submitted: Submitted) -> RunPlace:
    """Return the place of the run that owns the key: this run, if the key was free. Raises `RunConflict`, `RunGone`."""
    subject = key_subject(key, log.events.shards)
    async for _ in Decisions(log.clock):
        head, events = await read_register(log, subject)
        if (record := _record_in(events)) is not None:
            what = f"{key.partition(':')[2]!r} belongs to run {record.run}"
            found = run_subject(record.shard, record.run, record.run)
            try:
                refuse_other(record.agent_name, record.input_digest, submitted, record.run, what)
            except RunConflict:
                if (buried := buried_by(await log.events.head(found))) is not None:
                    raise gone(*buried) from None
                raise
            first = submitted if record.stored else await _submission(log, found, record)
            return RunPlace(found, first, key, head, record.stored)
        (kept,) = await spill([submitted], log.artifacts.of(run.root))
        event = _record(key, run, kept, stored=False)
        with contextlib.suppress(Conflict):
            await log.events.append(register_write(log, subject, head, event))
    raise LogUnavailable(f"the idempotency key {key!r} cannot be recorded")


async def run_of_key(log: Log, key: str) -> str | None:
    """Return the run that has this idempotency key; null if it is free. May be stale."""
    _head, events = await read_register(log, key_subject(f"key:{key}", log.events.shards))
    record = _record_in(events)
    return None if record is None else record.run


def key_of_retry(run: str, number: int) -> str:
    """Return the idempotency key of a run's `number`-th retry."""
    return f"retry:{run}:{number}"


async def note_stored(log: Log, place: RunPlace) -> None:
    """Record that the run's first commit is stored. If that fails, the next submitter that finds the key does it."""
    if place.head is None or place.stored:
        return
    event = _record(place.key, place.subject, place.submitted, stored=True)
    with contextlib.suppress(Conflict, LogUnavailable):
        write = register_write(log, key_subject(place.key, log.events.shards), place.head, event)
        await log.events.append(write)


async def check_there(log: Log, place: RunPlace) -> None:
    """Raise `RunPurged` if the run was stored and is no longer in the log."""
    if await purged(log, [place.subject]):
        raise RunPurged(place.subject.id, place.key.partition(":")[2])


async def check_keys(log: Log, runs: Sequence[tuple[Subject, Submitted]]) -> None:
    """Raise `RunConflict` if the key of a run to import belongs to another run here."""
    for run, submitted in runs:
        for key in _keys_of(log, run, submitted):
            _head, events = await read_register(log, key_subject(key, log.events.shards))
            record = _record_in(events)
            if record is not None and record.run != run.id:
                name = key.partition(":")[2]
                raise RunConflict(
                    f"{name!r}, the key of run {run.id}, belongs to run {record.run} here", run_id=record.run
                )


async def restore_keys(log: Log, runs: Sequence[tuple[Subject, Submitted]]) -> None:
    """Record the keys of imported runs."""
    for run, submitted in runs:
        for key in _keys_of(log, run, submitted):
            place = await take_key(log, key, run, submitted)
            await note_stored(log, place)


def _keys_of(log: Log, run: Subject, submitted: Submitted) -> list[str]:
    key = key_of(submitted, run.id, log.events.shards, chosen=shard_in(run.id) is None)
    return [key] if key else []


def _record(key: str, run: Subject, submitted: Submitted, *, stored: bool) -> KeyRecorded:
    return KeyRecorded(
        key=key,
        run=run.id,
        shard=run.shard,
        agent_name=agent_of(submitted),
        input_digest=submitted.input_digest,
        submission=None if stored else msgspec.to_builtins(submitted),
        stored=stored,
    )


async def _submission(log: Log, run: Subject, record: KeyRecorded) -> Submitted:
    kept = msgspec.convert(record.submission, Submitted)
    (submitted,) = await restore([kept], log.artifacts.of(run.root), run=run.id, rev=1)
    return submitted


def _record_in(events: Sequence[StoredEvent | Unknown]) -> KeyRecorded | None:
    return next((event for event in events if isinstance(event, KeyRecorded)), None)


def agent_of(submitted: Submitted) -> str:
    """Return the name of the submission's agent."""
    return str(submitted.config.get("name", ""))


def refuse_other(agent: str, input_digest: str, given: Submitted, run_id: str, what: str) -> None:
    """Raise `RunConflict` unless agent and input are the same; the configuration may have changed meanwhile."""
    if agent != agent_of(given):
        raise RunConflict(f"{what} with another agent ({agent}); choose another id or key", run_id=run_id)
    if input_digest != given.input_digest:
        raise RunConflict(f"{what} with another input; choose another id or key", run_id=run_id)


async def settle_key(log: Log, subject: Subject, run: str) -> None:
    """Record that the run of a key is stored, if it is the key's run; so the last commit has no submission."""
    async for _ in Decisions(log.clock):
        head, events = await read_register(log, subject)
        record = _record_in(events)
        if record is None or record.run != run or record.stored:
            return
        stored = msgspec.structs.replace(record, submission=None, stored=True)
        await try_append(log, register_write(log, subject, head, stored))
    raise LogUnavailable(f"the key of run {run} cannot be recorded; try again")


async def drop_key(log: Log, subject: Subject, run: str) -> None:
    """Remove the record of a key, if it belongs to this run: from then on the key is new."""
    head, events = await read_register(log, subject)
    record = _record_in(events)
    if record is not None and record.run == run:
        await log.events.purge({subject: head.position + 1})
