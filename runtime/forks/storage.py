"""Storing a fork: all its runs in one batch, with a timer that wakes a worker.

So a fork is stored as a whole or not at all, and is driven even if this process dies before it drives the fork itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from ...eventlog.commits import ORIGIN, Commit, Head, digest_of_bytes, encode
from ...eventlog.errors import AppendUnsure, ConfigError, Conflict, LogUnavailable, PayloadTooLarge
from ...eventlog.events import (
    ApprovalRequested,
    FileMade,
    ReplyState,
    Status,
    StoredEvent,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    is_by_provider,
)
from ...eventlog.names import run_subject
from ...eventlog.offload import outline_of, put_aside, spill
from ...eventlog.ports import NEW, CommitWrite, FamilyArtifacts, Log, Subject, Timer, TimerWrite, Wakeup
from ...eventlog.sealing.cipher import is_sealed
from ...eventlog.sealing.log import SealedFamily
from ...projections.content_files import files_in
from ..core import offloading
from ..journal.journal import EVENTS_BYTES_MAX
from ..journal.outages import Decisions
from ..journal.timers import WATCH
from .family import Opening, in_order

COMMITS_MAX = 900
"""The most commits that a fork may begin with: the server stores no more in one batch."""
_TOGETHER = (ApprovalRequested, FileMade, ReplyState, Status, Text, ToolCall, Usage)
"""Events that have to be in one commit with the one before them."""


async def store(
    log: Log, subject: Subject, opening: Opening, lease_s: float, artifacts: Mapping[str, bytes] | None = None
) -> bool:
    """Store the whole opening, and a wake-up for later; False: the run exists, and nothing was done.

    `artifacts`: large values that may not be in the log yet. Raises `PayloadTooLarge`, `ConfigError` for a family that
    is too large, `LogUnavailable`.
    """
    own = log.artifacts.of(subject.root)
    await _bring(log, own, opening, artifacts or {})
    events = list(in_order(opening))
    spilled = await spill([event for _, event in events], own)
    fitting = await _fitting([(run, event) for (run, _), event in zip(events, spilled, strict=True)], own)
    writes = tuple(_commits(log, subject, opening, fitting))
    if len(writes) > COMMITS_MAX:
        raise ConfigError(
            f"the fork would share {len(opening)} runs, more than one batch of the log holds; "
            "fork an earlier revision, or the run of a node"
        )
    state = opening[subject.id].turn.state
    wakeup = Wakeup(
        shard=subject.shard,
        agent=state.agent,
        root=subject.root,
        run=subject.id,
        cause=len(opening[subject.id].turn.events),
        priority=state.priority,
    )
    watch = TimerWrite(Timer(id=WATCH, due_at=log.clock.now() + lease_s, wakeup=wakeup))
    async for _ in Decisions(log.clock):
        try:
            await log.events.append(*writes, watch)
        except (Conflict, AppendUnsure):
            found = await _first_of(log, subject)
            if found is not None:  # else it is not stored, or not visible yet
                return found == writes[0].data
        else:
            return True
    raise LogUnavailable(f"the fork {subject.id} may or may not be stored; try again")


async def _bring(log: Log, own: FamilyArtifacts, opening: Opening, held: Mapping[str, bytes]) -> None:
    """Copy the artifacts that the shared events refer to, from an archive or the log: a fork owns what it shares."""
    for event in (event for shared in opening.values() for event in shared.turn.events):
        await offloading.store(event, own)
        for digest in dict.fromkeys(_named(event)):
            with contextlib.suppress(KeyError):
                await own.put(
                    await _held(held[digest], digest, own)
                    if digest in held
                    else await log.artifacts.find(digest)
                )


async def _held(data: bytes, digest: str, own: FamilyArtifacts) -> bytes:
    """Return an artifact of an archive, opened if it is sealed."""
    return await own.opened(data, digest) if isinstance(own, SealedFamily) and is_sealed(data) else data


def _named(event: StoredEvent) -> Iterator[str]:
    """Yield the digests of the files and the evidence of an event."""
    yield from (file.artifact for file in files_in(event) if file.artifact is not None)
    if isinstance(event, ToolResult):
        yield from (reference["id"] for reference in event.metadata.get("evidence", ()))


async def _fitting(
    events: Sequence[tuple[str, StoredEvent]], own: FamilyArtifacts
) -> list[tuple[str, StoredEvent]]:
    """Return the events with values offloaded where one commit could not hold what has to be in it."""
    return [
        (run, event)
        for run, group in groupby(events, key=lambda each: each[0])
        for piece in _pieces([event for _, event in group])
        for event in await put_aside(piece, EVENTS_BYTES_MAX, own)
    ]


async def _first_of(log: Log, subject: Subject) -> bytes | None:
    async for stored in log.events.read(subject):
        return stored.data
    return None


def _commits(
    log: Log, subject: Subject, opening: Opening, events: Sequence[tuple[str, StoredEvent]]
) -> Iterator[CommitWrite]:
    heads: dict[str, Head] = {}
    for run, own in groupby(events, key=lambda each: each[0]):
        for group in _groups([event for _, event in own]):
            head = heads.get(run, ORIGIN)
            commit = Commit(
                run=run,
                root=subject.root,
                rev=head.rev + 1,
                append=log.clock.new_id(),
                prev=head.digest,
                epoch=0,
                at=log.clock.now(),
                path=opening[run].turn.state.path,
                events=tuple(group),
            )
            data = encode(commit)
            yield CommitWrite(run_subject(subject.shard, subject.root, run), NEW, data)
            heads[run] = Head(rev=head.rev + len(group), digest=digest_of_bytes(data))


def _groups(events: Sequence[StoredEvent]) -> Iterator[Sequence[StoredEvent]]:
    """Split events into commits that fit; a model's reply stays in one. Raises `PayloadTooLarge`."""
    group: list[StoredEvent] = []
    size = 0
    for piece in _pieces(events):
        weight = sum(len(msgspec.json.encode(event)) + 1 for event in piece)
        if weight > EVENTS_BYTES_MAX:
            raise PayloadTooLarge(
                f"a model's reply with its approvals ({piece[0].type!r}, ...)", weight, EVENTS_BYTES_MAX
            )
        if group and size + weight > EVENTS_BYTES_MAX:
            yield group
            group, size = [], 0
        group.extend(piece)
        size += weight
    yield group


def _pieces(events: Sequence[StoredEvent]) -> Iterator[list[StoredEvent]]:
    piece: list[StoredEvent] = []
    for event in events:
        told = outline_of(event)
        if piece and not (isinstance(told, _TOGETHER) or is_by_provider(told)):
            yield piece
            piece = []
        piece.append(event)
    yield piece
