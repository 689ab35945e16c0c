"""What was said in a session: its lane names the runs, in order, and the runs hold the rest (ADR 0014).

A run leaves its lane in the batch that ends it. So whoever sees a run at the head of the lane can see every run before
it to its end; a read that does not show that is stale, and is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..eventlog.commits import Chain
from ..eventlog.errors import LogUnavailable
from ..eventlog.events import LaneUpdated
from ..eventlog.names import lane_subject, run_subject
from ..eventlog.ports import Log, Subject
from ..projections.history import History, PastTurn, TurnState, fold_turn
from .journal import REFUSALS_MAX, STALE_READ_S, restored
from .submission import lane_of


async def session_history(
    log: Log,
    session: str,
    *,
    before: str | None = None,
    turns_max: int | None = None,
    wanted: Callable[[PastTurn], bool] = lambda _: True,
) -> History:
    """The last `turns_max` wanted turns of the session's runs that are over, oldest first; null: all.

    `before` is a run of the session that may run now: all runs before it are seen, however stale a read is. Raises
    `LogCorrupted`, `LogUnavailable`.
    """
    lane = lane_subject(lane_of(session), log.events.shards)
    turns: list[PastTurn] = []
    for run in reversed(await _ended(log, lane, before)):
        if turns_max is not None and len(turns) >= turns_max:
            break
        turn = await read_turn(log, run_subject(lane.shard, run, run))
        if turn is not None and wanted(turn):
            turns.append(turn)
    return History(tuple(reversed(turns)))


async def read_turn(log: Log, run: Subject) -> PastTurn | None:
    """A run that is known to be over as a turn; null for one that ended before its model was asked anything."""
    for _ in range(REFUSALS_MAX):
        state, chain = TurnState(), Chain()
        async for stored in log.events.read(run):
            fold_turn(state, await restored(chain.verify(stored), log))
        if state.over:
            return state.turn()
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the end of run {run.id} cannot be seen yet; the same call may be repeated")


async def _ended(log: Log, lane: Subject, before: str | None) -> Sequence[str]:
    """The runs that have left the lane, in the order in which they entered it."""
    for _ in range(REFUSALS_MAX):
        entered, queue = await _read_lane(log, lane)
        if before is None or queue[:1] == [before] or (before in entered and before not in queue):
            return [run for run in entered if run not in queue and run != before]
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"run {before} is not seen at the head of its lane; the same call may be repeated")


async def _read_lane(log: Log, lane: Subject) -> tuple[list[str], list[str]]:
    """Every run that ever stood in the lane, and those that do now, head first."""
    entered: dict[str, None] = {}
    queue: list[str] = []
    chain = Chain()
    async for stored in log.events.read(lane):
        for event in chain.verify(stored).commit.events:
            if isinstance(event, LaneUpdated):
                queue = [entry.run for entry in event.queue]
                entered.update(dict.fromkeys(queue))
    return list(entered), queue
