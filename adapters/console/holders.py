"""Workers, holders of slots and lanes, and waiting runs, as the routes answer them and the stream sends changes."""

from __future__ import annotations

import msgspec

from ...runtime.operating.operations import Operations
from ...runtime.operating.rows import AgentRow, BreakerRow, LaneRow, LostWorker, SlotRow, WorkerRow


class Workers(msgspec.Struct, frozen=True):
    """The present processes, and those that were lost within the last hour or have runs that are not taken over."""

    rows: list[WorkerRow]
    lost: list[LostWorker]


class Holders(msgspec.Struct, frozen=True):
    """Agents with open runs or workers, lanes with open runs, slots in use, and breakers that have counted failures."""

    agents: list[AgentRow]
    lanes: list[LaneRow]
    slots: list[SlotRow]
    breakers: list[BreakerRow]


async def workers_of(operations: Operations) -> Workers:
    """Look who drives."""
    return Workers(await operations.workers(), await operations.lost_workers())


async def holders_of(operations: Operations) -> Holders:
    """Look who holds and who waits."""
    return Holders(
        await operations.agents(),
        await operations.lanes(),
        await operations.slots(),
        await operations.breakers(),
    )
