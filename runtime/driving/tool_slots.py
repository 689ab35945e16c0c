"""Slots of tools: of all calls whose tools name the same `slot`, one runs at a time, in any run and process.

A call that waits for its slot has not started: the start of an unsafe tool is stored after the slot was taken. The slot
is given back when the log has the call's result, or when the call waits for a person.
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
"""The time that a leaving driver waits for its slots to be given back; other waiters take those that were not."""


class CallSlots:
    """The slots that the calls of one driver's run hold or wait for."""

    def __init__(self, driver: ParentDriver) -> None:
        self._driver = driver
        self._slots: dict[str, Slots] = {}
        self._taking: dict[str, asyncio.Task[bool]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._claimed_at = 0

    def admits(self, call_id: str) -> bool:
        """Return whether the call may start. If it lacks its slot, request it; the driver is woken once it is taken."""
        taking = self._take(call_id)
        return taking is None or (taking.done() and not taking.cancelled() and taking.result())

    async def wait(self, call_id: str) -> bool:
        """Wait until the call may start; false if it never will."""
        taking = self._take(call_id)
        return taking is None or await asyncio.shield(taking)

    def sweep(self) -> None:
        """Give back the slots of calls that are over or wait for a person. Called only while we own the run."""
        self._claimed_at = self._driver.state.owner_revision
        for call_id in [call_id for call_id in self._slots if not _goes_on(self._driver.state, call_id)]:
            self._give_back(call_id)

    async def aclose(self) -> None:
        """Give all slots back: the driver is leaving the run."""
        for call_id in [*self._slots]:
            self._give_back(call_id)
        if self._giving_back:
            await asyncio.wait(set(self._giving_back), timeout=GIVE_BACK_S)

    def _take(self, call_id: str) -> asyncio.Task[bool] | None:
        slot = self._slot(call_id)
        if slot is None:
            return None
        if call_id not in self._taking:
            host, journal = self._driver.host, self._driver.journal
            name, since = call_slots_name(slot), self._claimed_at
            slots = self._slots[call_id] = Slots(host, journal, name, 1, call=call_id, claimed_at=since)
            taking = asyncio.create_task(self._taken(slots, slot, call_id))
            taking.add_done_callback(lambda _: self._driver.wake())
            self._taking[call_id] = taking
        return self._taking[call_id]

    async def _taken(self, slots: Slots, slot: str, call_id: str) -> bool:
        """Wait in line; a call that gives way in a deadlock fails, and is not retried."""
        try:
            return await through_outages(self._driver.clock, slots.until_taken)
        except WaitsForItself as error:
            await self._driver.children.settle(call_id)  # children of an unfinished attempt
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
        task = asyncio.create_task(self._given_back(self._slots.pop(call_id), self._taking.pop(call_id)))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, slots: Slots, taking: asyncio.Task[bool]) -> None:
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError, FoldlogError):
            await taking
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
