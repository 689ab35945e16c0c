"""One key, one run: who comes first records the run of an idempotency key, and the others find it (W26).

A key is recorded before its run is stored, with all that is needed to store it, and once more behind that. So a run of
which the log shows nothing is stored by whoever finds its key, or was purged and is not started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from ...eventlog.commits import Head
from ...eventlog.errors import Conflict, LogUnavailable, RunConflict, RunPurged
from ...eventlog.events import KeyRecorded, StoredEvent, Submitted, Unknown
from ...eventlog.names import key_subject, run_subject, shard_in
from ...eventlog.ports import Log, Subject
from .journal import DECISIONS_MAX
from .lanes import purged
from .outages import STALE_READ_S
from .register import read_register, register_write


class Place(msgspec.Struct, frozen=True):
    """Where a run lies, and what is submitted there: that of whoever recorded its key first.

    `stored`: the run's first commit is in the log, or was. `key` is recorded at `head`, or empty for a run without one.
    """

    subject: Subject
    submitted: Submitted
    key: str = ""
    head: Head | None = None
    stored: bool = False


def key_of(submitted: Submitted, run: str, shards: int, *, chosen: bool) -> str:
    """The name under which the run of a submission is recorded; empty if it needs no record.

    An id that its caller has chosen carries no shard, so where there are several it is recorded like a key.
    """
    if submitted.idempotency_key is not None:
        return f"key:{submitted.idempotency_key}"
    return f"run:{run}" if chosen and shards > 1 else ""


async def take_key(log: Log, key: str, run: Subject, submitted: Submitted) -> Place:
    """The place of the run that the key belongs to: this one, if nobody was before. Raises `RunConflict`."""
    subject = key_subject(key, log.events.shards)
    for attempt in range(DECISIONS_MAX):
        if attempt > 1:  # a read may be stale: give it the time to be fresh
            await log.clock.sleep(STALE_READ_S)
        head, events = await read_register(log, subject)
        if (record := _record_in(events)) is not None:
            what = f"{key.partition(':')[2]!r} belongs to run {record.run}"
            refuse_other(record.agent_name, record.input_digest, submitted, record.run, what)
            found = run_subject(record.shard, record.run, record.run)
            first = submitted if record.stored else msgspec.convert(record.submission, Submitted)
            return Place(found, first, key, head, record.stored)
        event = _record(key, run, submitted, stored=False)
        with contextlib.suppress(Conflict):
            await log.events.append(register_write(log, subject, head, event))
    raise LogUnavailable(f"the idempotency key {key!r} cannot be recorded")


async def note_stored(log: Log, place: Place) -> None:
    """Record behind the run's first commit that it is stored. If that fails, who finds the key next does it."""
    if place.head is None or place.stored:
        return
    event = _record(place.key, place.subject, place.submitted, stored=True)
    with contextlib.suppress(Conflict, LogUnavailable):
        write = register_write(log, key_subject(place.key, log.events.shards), place.head, event)
        await log.events.append(write)


async def check_there(log: Log, place: Place) -> None:
    """Raises `RunPurged` for a run that was stored and is not in the log any more."""
    if await purged(log, [place.subject]):
        raise RunPurged(place.subject.id, place.key.partition(":")[2])


async def check_keys(log: Log, runs: Sequence[tuple[Subject, Submitted]]) -> None:
    """Raises `RunConflict` if the key of a run that is to be imported belongs to another run here."""
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
    """Record the keys of runs that were imported."""
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


def _record_in(events: Sequence[StoredEvent | Unknown]) -> KeyRecorded | None:
    return next((event for event in events if isinstance(event, KeyRecorded)), None)


def agent_of(submitted: Submitted) -> str:
    """The name of what a submission runs."""
    return str(submitted.config.get("name", ""))


def refuse_other(agent: str, input_digest: str, asked: Submitted, run_id: str, what: str) -> None:
    """Raises `RunConflict` unless the same is asked of the same agent, whatever its configuration is by now."""
    if agent != agent_of(asked):
        raise RunConflict(f"{what} with another agent ({agent}); choose another id or key", run_id=run_id)
    if input_digest != asked.input_digest:
        raise RunConflict(f"{what} with another input; choose another id or key", run_id=run_id)
