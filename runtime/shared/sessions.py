"""What was said in a session: its lane names the runs, in order, and the runs hold the rest (ADR 0014).

A run leaves its lane in the batch that ends it. So whoever sees a run at the head of the lane can see every run before
it to its end; a read that does not show that is stale, and is repeated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from ...eventlog.commits import ORIGIN, Chain, Head, head_of
from ...eventlog.errors import AppendUnsure, ConfigError, Conflict, LogUnavailable, SessionBusy
from ...eventlog.events import LaneEntry, LaneUpdated
from ...eventlog.names import lane_subject, run_subject
from ...eventlog.ports import CommitWrite, Log, Subject
from ...projections.history import History, PastTurn, TurnState, fold_turn
from ...projections.run_state import RunState
from ..core.submission import check_text, lane_of
from ..journal.journal import DECISIONS_MAX, restored
from ..journal.lanes import drop_purged_head, purged, read_lane
from ..journal.outages import REFUSALS_MAX, STALE_READ_S
from ..journal.register import register_write

logger = logging.getLogger("foldlog.sessions")


async def session_history(
    log: Log,
    session: str,
    *,
    before: str | None = None,
    turns_max: int | None = None,
    wanted: Callable[[PastTurn], bool] = lambda _: True,
) -> History:
    """The last `turns_max` wanted turns of the session's runs that are over, oldest first; null: all.

    `before` is a run of the session that may run now: all runs before it are seen, however stale a read is. Runs that
    were purged from the log are named, and noted in the lane. Raises `LogCorrupted`, `LogUnavailable`.
    """
    check_text("a session", session)
    subject = lane_subject(lane_of(session), log.events.shards)
    for _ in range(REFUSALS_MAX):
        lane = await _read_lane(log, subject)
        if before is None or lane.shows(before):
            turns = await _last_turns(log, lane, turns_max, wanted, but=before)
            return History(tuple(turns), tuple(lane.purged))
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"run {before} is not seen at the head of its lane; the same call may be repeated")


async def read_turn(log: Log, run: Subject) -> PastTurn | None:
    """A run that is known to be over as a turn; null for one that was purged, or whose model was asked nothing."""
    for _ in range(REFUSALS_MAX):
        state = await _read_run(log, run)
        if state.over:
            return state.turn()
        if not state.exists and await purged(log, [run]):
            return None
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the end of run {run.id} cannot be seen yet; the same call may be repeated")


async def runs_before(log: Log, state: RunState) -> tuple[str, ...]:
    """The runs of its lane that come before a run which nobody has driven yet, head first."""
    lane = state.submitted.lane if state.submitted is not None else None
    if lane is None or state.over or state.epoch:  # who was driven is at the head
        return ()
    _subject, _head, queue = await read_lane(log, lane)
    runs = [entry.run for entry in queue]
    return tuple(runs[: runs.index(state.run)]) if state.run in runs else ()


async def drop_last_turns(log: Log, session: str, turns: int) -> int:
    """Take the last turns out of the session's history, in one event of its lane; how many there were to take.

    Runs and their logs stay as they are. Raises `SessionBusy` while a run of the session is open, `ConfigError` for a
    negative number, `LogCorrupted`, `LogUnavailable`.
    """
    if type(turns) is not int or turns < 0:
        raise ConfigError(f"{turns!r} turns cannot be dropped: say 0 or more")
    check_text("a session", session)
    subject, append = lane_subject(lane_of(session), log.events.shards), log.clock.new_id()
    for attempt in range(DECISIONS_MAX if turns else 0):
        if attempt:
            await log.clock.sleep(STALE_READ_S)
        lane = await _read_lane(log, subject)
        if append in lane.drops:
            return lane.drops[append]
        if lane.queue and await drop_purged_head(log, lane_of(session)):
            continue
        if lane.queue:
            await _check_free(log, session, run_subject(subject.shard, lane.queue[0], lane.queue[0]))
            continue
        last = await _last_turns(log, lane, turns, lambda _: True)
        if not last:
            return 0
        event = LaneUpdated(queue=[], dropped=[turn.run for turn in last])
        with contextlib.suppress(Conflict, AppendUnsure):
            await log.events.append(lane.write(log, event, append))
            return len(last)
    if turns:
        raise LogUnavailable(
            f"the session {session!r} changes faster than its turns can be dropped; try again"
        )
    return 0


async def _check_free(log: Log, session: str, run: Subject) -> None:
    """Raises `SessionBusy` unless the run, which is seen at the head of the lane, is over: then that read was stale."""
    if not (await _read_run(log, run)).over:
        raise SessionBusy(
            f"the run {run.id} of the session {session!r} is open: wait for its end, or cancel it"
        )


async def restore_turns(log: Log, lane: str, runs: Sequence[str]) -> None:
    """Have runs that ended elsewhere count among those of a session, in this order, behind the ones it has."""
    subject = lane_subject(lane, log.events.shards)
    for _ in range(DECISIONS_MAX):
        known = await _read_lane(log, subject)
        new = [run for run in runs if run not in known.entered or run in known.purged]
        if not new:
            return
        event = LaneUpdated(queue=known.entries, imported=new)
        with contextlib.suppress(Conflict, AppendUnsure):
            await log.events.append(known.write(log, event, log.clock.new_id()))
            return
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the lane {lane!r} changes faster than runs can be put into it; try again")


async def _last_turns(
    log: Log, lane: _Lane, turns_max: int | None, wanted: Callable[[PastTurn], bool], but: str | None = None
) -> list[PastTurn]:
    """The newest turns, oldest first. Runs that are found to be purged are noted in the lane, which is done once."""
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
            turn = await read_turn(log, subject)
            if turn is not None and wanted(turn):
                turns.append(turn)
        gone = [run.id for run in await purged(log, missing)]
        lane.purged.update(dict.fromkeys(reversed(gone)))
        if gone:
            logger.warning("runs of a session were purged from the log: %s", ", ".join(gone))
            with contextlib.suppress(Conflict, AppendUnsure):  # noted by who reads it next
                event = LaneUpdated(queue=lane.entries, purged=gone)
                await log.events.append(lane.write(log, event, log.clock.new_id()))
        if len(gone) == len(missing):
            return turns[::-1]


async def _read_run(log: Log, run: Subject) -> TurnState:
    state, chain = TurnState(), Chain()
    async for stored in log.events.read(run):
        fold_turn(state, await restored(chain.verify(stored), log))
    return state


class _Lane(msgspec.Struct, kw_only=True):
    """A lane's whole story: who ever stood in it, who does now (head first), and what was dropped by which append."""

    subject: Subject
    head: Head = ORIGIN
    entered: dict[str, None] = {}
    entries: list[LaneEntry] = []
    dropped: set[str] = set()
    purged: dict[str, None] = {}
    drops: dict[str, int] = {}

    @property
    def queue(self) -> list[str]:
        """The runs that stand in it now, head first."""
        return [entry.run for entry in self.entries]

    @property
    def ended(self) -> list[str]:
        """The runs that have left, in the order in which they entered, without those that were dropped or purged."""
        gone = {*self.queue, *self.dropped, *self.purged}
        return [run for run in self.entered if run not in gone]

    def shows(self, run: str) -> bool:
        """Return whether the read is fresh enough for a run that may run now or could once."""
        return self.queue[:1] == [run] or (run in self.entered and run not in self.queue)

    def write(self, log: Log, event: LaneUpdated, append: str) -> CommitWrite:
        """The write that stores the event behind what was read."""
        return register_write(log, self.subject, self.head, event, append)


async def _read_lane(log: Log, subject: Subject) -> _Lane:
    lane, chain = _Lane(subject=subject), Chain()
    async for stored in log.events.read(subject):
        recorded = chain.verify(stored)
        lane.head = head_of(recorded)
        for event in recorded.commit.events:
            if isinstance(event, LaneUpdated):
                lane.entries = event.queue
                lane.entered.update(dict.fromkeys([*lane.queue, *event.imported]))
                lane.dropped.update(event.dropped)
                lane.purged.update(dict.fromkeys(event.purged))
                for run in event.imported:  # it is back
                    lane.purged.pop(run, None)
                lane.drops[recorded.commit.append] = len(event.dropped)
    return lane
