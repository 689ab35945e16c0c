"""Slots of tools: of those that name the same `slot` one call runs at a time, in whatever run and process.

A call that waits for its slot has not started: what must be stored before an unsafe tool is, behind it. The slot is
given back when the log has the call's result, or when it waits for people.
"""

from __future__ import annotations

import asyncio
import contextlib

from ...eventlog.errors import FoldlogError
from ...projections.run_state import CallState, RunState
from ..core.commands import ToolReturned
from ..core.planning import STEP as PLANNER_STEP
from ..journal.outages import through_outages
from ..shared.deadlocks import call_slots_name
from ..shared.slots import Slots, WaitsForItself
from .children import ParentDriver

GIVE_BACK_S = 5.0
"""How long leaving waits for slots to be given back; who waits for one looks after what was not."""


class CallSlots:
    """The slots that the calls of one driver's run hold, or wait for."""

    def __init__(self, driver: ParentDriver) -> None:
        self._driver = driver
        self._asked: dict[str, Slots] = {}
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._claimed_at = 0

    def admits(self, call_id: str) -> bool:
        """Whether the call may start; if it needs a slot that it has not, one is asked for, and the driver told."""
        asking = self._ask(call_id)
        return asking is None or (asking.done() and not asking.cancelled() and asking.result())

    async def wait(self, call_id: str) -> bool:
        """Wait until the call may start; false if it never will."""
        asking = self._ask(call_id)
        return asking is None or await asyncio.shield(asking)

    def sweep(self) -> None:
        """Give back what calls held that are over, or wait for people. Called while the run is the driver's."""
        self._claimed_at = self._driver.state.owner_revision
        for call_id in [call_id for call_id in self._asked if not _goes_on(self._driver.state, call_id)]:
            self._give_back(call_id)

    async def aclose(self) -> None:
        """Nobody here drives the run any more."""
        for call_id in [*self._asked]:
            self._give_back(call_id)
        if self._giving_back:
            await asyncio.wait(set(self._giving_back), timeout=GIVE_BACK_S)

    def _ask(self, call_id: str) -> asyncio.Task[bool] | None:
        slot = self._slot(call_id)
        if slot is None:
            return None
        if call_id not in self._asking:
            host, journal = self._driver.host, self._driver.journal
            name, since = call_slots_name(slot), self._claimed_at
            slots = self._asked[call_id] = Slots(host, journal, name, 1, call=call_id, claimed_at=since)
            asking = asyncio.create_task(self._asked_for(slots, slot, call_id))
            asking.add_done_callback(lambda _: self._driver.wake())
            self._asking[call_id] = asking
        return self._asking[call_id]

    async def _asked_for(self, slots: Slots, slot: str, call_id: str) -> bool:
        """Wait in line; a call that gives way has failed, and is not tried again."""
        try:
            return await through_outages(self._driver.clock, slots.until_taken)
        except WaitsForItself as error:
            await self._driver.children.settle(call_id)  # those of an attempt that was not finished
            self._driver.post(self._without(call_id, slot, str(error)))
            return False

    def _without(self, call_id: str, slot: str, why: str) -> ToolReturned:
        state, now = self._driver.state, self._driver.clock.now()
        call = _call(state, call_id)
        return ToolReturned(
            step=state.step if call_id in state.calls else PLANNER_STEP,
            call_id=call_id,
            attempt=call.attempt if call is not None else 0,
            status="error",
            error=f"not called: {why}",
            started_at=now,
            completed_at=now,
            slot_cycle=slot,
        )

    def _slot(self, call_id: str) -> str | None:
        call = _call(self._driver.state, call_id)
        spec = self._driver.state.tools.get(call.name) if call is not None else None
        return spec.slot if spec is not None else None

    def _give_back(self, call_id: str) -> None:
        task = asyncio.create_task(self._given_back(self._asked.pop(call_id), self._asking.pop(call_id)))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, slots: Slots, asking: asyncio.Task[bool]) -> None:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, FoldlogError):
            await asking
        with contextlib.suppress(FoldlogError):
            await through_outages(self._driver.clock, slots.give_back)


def _call(state: RunState, call_id: str) -> CallState | None:
    return state.calls.get(call_id) or state.planning.calls.get(call_id)


def _goes_on(state: RunState, call_id: str) -> bool:
    call = _call(state, call_id)
    if call is None or call.result is not None:
        return False
    approval = state.approvals.get(call.approval_id or "")
    return approval is None or not approval.pending
