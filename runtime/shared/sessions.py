"""The history of a session: its lane names the runs, in order, and the runs hold the rest (ADR 0014).

A run leaves its lane in the batch that ends it. So a read that shows a run at the head of its lane is fresh enough to
show the end of every run before it; an older read is stale, and is repeated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from ...eventlog.commits import ORIGIN, Chain, Head, head_of
from ...eventlog.errors import (
    AppendUnsure,
    ConfigError,
    Conflict,
    LogCorrupted,
    LogUnavailable,
    RunGone,
    SessionBusy,
)
from ...eventlog.events import NOBODY, Actor, LaneEntry, LaneUpdated
from ...eventlog.names import lane_subject, run_subject
from ...eventlog.ports import CommitWrite, Log, Subject
from ...projections.history import History, PastTurn, TurnState, fold_turn
from ...projections.run_state import RunState
from ..core.submission import check_text, lane_of
from ..journal.journal import restored
from ..journal.lanes import drop_purged_head, lane_commits, purged, read_lane
from ..journal.outages import REFUSALS_MAX, STALE_READ_S, Decisions, try_append
from ..journal.register import register_write

logger = logging.getLogger("foldlog.sessions")


async def session_history(
    log: Log,
    session: str,
    lane_name: str | None = None,
    *,
    before: str | None = None,
    turns_max: int | None = None,
    wanted: Callable[[PastTurn], bool] = lambda _: True,
) -> History:
    """Return the last `turns_max` wanted turns of finished runs in a lane of the session, oldest first; null: all.

    `before` is a run of the session that may run now: reads are repeated until all runs before it are visible. Purged
    runs are listed, and noted in the lane; damaged ones are listed, and passed over with a warning, as one damaged run
    must not end its session. Raises `LogCorrupted` for the lane itself, `LogUnavailable`.
    """
    check_text("a session", session)
    subject = lane_subject(lane_of(session, lane_name), log.events.shards)
    for _ in range(REFUSALS_MAX):
        lane = await _read_lane(log, subject)
        if before is None or lane.shows(before):
            lane.damaged = {}
            turns = await _last_turns(log, lane, turns_max, wanted, but=before)
            return History(tuple(turns), tuple(lane.purged), tuple(lane.damaged))
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"run {before} is not visible at the head of its lane; try again")


async def read_turn(log: Log, run: Subject) -> PastTurn | None:
    """Return a finished run as a turn; null if it was erased, or ended before its first model call."""
    for _ in range(REFUSALS_MAX):
        try:
            state = await _read_run(log, run)
        except RunGone:
            return None
        if state.over:
            return state.turn()
        if not state.exists and await purged(log, [run]):
            return None
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the end of run {run.id} is not visible yet; try again")


async def runs_before(log: Log, state: RunState) -> tuple[str, ...]:
    """Return the runs before this one in its lane, head first; none once the run has been driven."""
    lane = state.submitted.lane if state.submitted is not None else None
    if lane is None or state.over or state.epoch:  # a run that was driven is at the head
        return ()
    _subject, _head, queue = await read_lane(log, lane)
    runs = [entry.run for entry in queue]
    return tuple(runs[: runs.index(state.run)]) if state.run in runs else ()


async def drop_last_turns(
    log: Log, session: str, turns: int, lane_name: str | None = None, actor: Actor = NOBODY
) -> int:
    """Remove the last turns from the session's history, in one event of its lane; return how many were removed.

    Runs and their logs stay unchanged. Raises `SessionBusy` while a run of the session is open, `ConfigError` for a
    negative number, `LogCorrupted`, `LogUnavailable`.
    """
    if type(turns) is not int or turns < 0:
        raise ConfigError(f"{turns!r} turns cannot be dropped: say 0 or more")
    check_text("a session", session)
    key, append = lane_of(session, lane_name), log.clock.new_id()
    subject = lane_subject(key, log.events.shards)
    if not turns:
        return 0
    async for _ in Decisions(log.clock):
        lane = await _read_lane(log, subject)
        if append in lane.drops:
            return lane.drops[append]
        if lane.queue and await drop_purged_head(log, key):
            continue
        if lane.queue:
            await _check_free(log, session, run_subject(subject.shard, lane.queue[0], lane.queue[0]))
            continue
        last = await _last_turns(log, lane, turns, lambda _: True)
        if not last:
            return 0
        event = LaneUpdated(queue=[], dropped=[turn.run for turn in last], **actor.fields)
        if await try_append(log, lane.write(log, event, append)):
            return len(last)
    raise LogUnavailable(f"the session {session!r} changes faster than its turns can be dropped; try again")


async def _check_free(log: Log, session: str, run: Subject) -> None:
    """Raise `SessionBusy` unless the run at the head of the lane is over, in which case that read was stale."""
    if not (await _read_run(log, run)).over:
        raise SessionBusy(
            f"the run {run.id} of the session {session!r} is open: wait for its end, or cancel it"
        )


async def restore_turns(log: Log, lane: str, runs: Sequence[str]) -> None:
    """Add runs that ended elsewhere to the end of a session's history, in this order."""
    subject = lane_subject(lane, log.events.shards)
    async for _ in Decisions(log.clock):
        known = await _read_lane(log, subject)
        new = [run for run in runs if run not in known.entered or run in known.purged]
        if not new:
            return
        event = LaneUpdated(queue=known.entries, imported=new)
        if await try_append(log, known.write(log, event, log.clock.new_id())):
            return
    raise LogUnavailable(f"the lane {lane!r} changes faster than runs can be put into it; try again")


async def _last_turns(
    log: Log, lane: _Lane, turns_max: int | None, wanted: Callable[[PastTurn], bool], but: str | None = None
) -> list[PastTurn]:
    """Return the newest turns, oldest first. Runs found to be purged are noted in the lane, once."""
    while True:
        turns, missing = list[PastTurn](), list[Subject]()
        for run in reversed(lane.ended):
            if turns_max is not None and len(turns) >= turns_max:
                break
            subject = run_subject(lane.subject.shard, run, run)
            if run == but:
                continue
            if await log.events.head(subject) is None:
                missing.append(subject)
                continue
            turn = await _turn_in(log, lane, subject)
            if turn is not None and wanted(turn):
                turns.append(turn)
        missing_for_good = [run.id for run in await purged(log, missing)]
        lane.purged.update(dict.fromkeys(reversed(missing_for_good)))
        if missing_for_good:
            logger.warning("runs of a session were purged from the log: %s", ", ".join(missing_for_good))
            with contextlib.suppress(Conflict, AppendUnsure):  # the next reader notes it
                event = LaneUpdated(queue=lane.entries, purged=missing_for_good)
                await log.events.append(lane.write(log, event, log.clock.new_id()))
        if len(missing_for_good) == len(missing):
            return turns[::-1]


async def _turn_in(log: Log, lane: _Lane, run: Subject) -> PastTurn | None:
    """Return a finished run as a turn; null also for a damaged one, if the lane's reader collects those."""
    try:
        return await read_turn(log, run)
    except LogCorrupted as error:
        if lane.damaged is None:
            raise
        lane.damaged[run.id] = None
        logger.warning("a run is left out of the history of its session: %s", error)
        return None


async def _read_run(log: Log, run: Subject) -> TurnState:
    state, chain = TurnState(), Chain()
    async for stored in log.events.read(run):
        fold_turn(state, await restored(chain.verify(stored), log))
    return state


class _Lane(msgspec.Struct, kw_only=True):
    """The whole history of a lane: all runs that ever joined it, the queue (head first), and the drops by append id.

    `damaged` collects the runs that cannot be read; null: one is an error.
    """

    subject: Subject
    head: Head = ORIGIN
    entered: dict[str, None] = {}
    entries: list[LaneEntry] = []
    dropped: set[str] = set()
    purged: dict[str, None] = {}
    drops: dict[str, int] = {}
    damaged: dict[str, None] | None = None

    @property
    def queue(self) -> list[str]:
        """The runs in the queue, head first."""
        return [entry.run for entry in self.entries]

    @property
    def ended(self) -> list[str]:
        """The runs that have left, in the order they joined, without those that were dropped or purged."""
        left_out = {*self.queue, *self.dropped, *self.purged}
        return [run for run in self.entered if run not in left_out]

    def shows(self, run: str) -> bool:
        """Return whether the read is fresh enough to show this run at the head, or after it left."""
        return self.queue[:1] == [run] or (run in self.entered and run not in self.queue)

    def write(self, log: Log, event: LaneUpdated, append: str) -> CommitWrite:
        """Return the write that stores the event after what was read."""
        return register_write(log, self.subject, self.head, event, append)


async def _read_lane(log: Log, subject: Subject) -> _Lane:
    lane = _Lane(subject=subject)
    async for recorded in lane_commits(log, subject):
        lane.head = head_of(recorded)
        for event in recorded.commit.events:
            if isinstance(event, LaneUpdated):
                lane.entries = event.queue
                lane.entered.update(dict.fromkeys([*lane.queue, *event.imported]))
                lane.dropped.update(event.dropped)
                lane.purged.update(dict.fromkeys(event.purged))
                for run in event.imported:  # it was restored
                    lane.purged.pop(run, None)
                lane.drops[recorded.commit.append] = len(event.dropped)
    return lane
