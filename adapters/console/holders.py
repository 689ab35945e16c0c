"""Workers, holders of slots and lanes, and waiting runs, in the form that both the routes and the stream return."""

from __future__ import annotations

import msgspec

from ...runtime.operating.operations import Operations
from ...runtime.operating.rows import AgentRow, BreakerRow, LaneRow, LostWorker, SlotRow, WorkerRow


class Workers(msgspec.Struct, frozen=True):
    """The present processes, and those that were lost within the last hour or have runs that are not taken over."""

    rows: list[WorkerRow]
    lost: list[LostWorker]


class Holders(msgspec.Struct, frozen=True):
    """Agents with open runs or workers, lanes with open runs, slots in use, and breakers with failures."""

    agents: list[AgentRow]
    lanes: list[LaneRow]
    slots: list[SlotRow]
    breakers: list[BreakerRow]


async def workers_of(operations: Operations) -> Workers:
    """Return the processes that drive runs."""
    return Workers(await operations.workers(), await operations.lost_workers())


async def holders_of(operations: Operations) -> Holders:
    """Return the holders of lanes and slots, and the runs that wait for them."""
    return Holders(
        await operations.agents(),
        await operations.lanes(),
        await operations.slots(),
        await operations.breakers(),
    )
