"""Slots of tools: of all calls whose tools name the same `slot`, one runs at a time, in any run and process.

A call that waits for its slot has not started: the start of an unsafe tool is stored after the slot was taken. The slot
is given back when the log has the call's result, or when the call waits for a person.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from ...eventlog.errors import FoldlogError
from ...projections.run_state import CallState, RunState
from ..core.commands import ToolReturned
from ..core.limits import limits_of
from ..core.planning import STEP as PLANNER_STEP
from ..journal.outages import through_outages
from ..shared.deadlocks import call_slots_name, limit_name
from ..shared.slots import Slots, WaitsForItself
from .children import ParentDriver
from .gate import Gate

GIVE_BACK_S = 5.0
"""The time that a leaving driver waits for its slots to be given back; other waiters take those that were not."""


class CallSlots(Gate[ParentDriver]):
    """The slots that the calls of one driver's run hold or wait for."""

    def __init__(self, driver: ParentDriver) -> None:
        super().__init__(driver)
        self._slots: dict[str, list[Slots]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._claimed_at = 0

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

    def _work_for(self, call_id: str) -> Coroutine[Any, Any, bool] | None:
        needed = self._needed(call_id)
        if not needed:
            return None
        host, journal, since = self._driver.host, self._driver.journal, self._claimed_at
        slots = self._slots[call_id] = [
            Slots(host, journal, name, size, call=call_id, claimed_at=since) for name, size in needed
        ]
        names = ", ".join(name.partition(":")[2] for name, _ in needed)
        return self._taken(slots, names, call_id)

    async def _taken(self, slots: list[Slots], slot: str, call_id: str) -> bool:
        """Wait in each line in turn; a call that gives way in a deadlock fails, and is not retried."""
        try:
            for each in slots:
                if not await through_outages(self._driver.clock, each.until_taken):
                    return False
        except WaitsForItself as error:
            await self._driver.children.settle(call_id)  # children of an unfinished attempt
            self._driver.post(self._without(call_id, slot, str(error)))
            return False
        return True

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

    def needs(self, call_id: str) -> bool:
        """Return whether the call needs any slot before it starts."""
        return bool(self._needed(call_id))

    def _needed(self, call_id: str) -> list[tuple[str, int]]:
        """Return the names and sizes of the slots that the call needs, in the order in which it takes them."""
        call = _call(self._driver.state, call_id)
        spec = self._driver.state.tools.get(call.name) if call is not None else None
        if spec is None:
            return []
        limits = self._driver.host.limits
        found = [(limit_name(each), limits[each]) for each in limits_of(spec) if each in limits]
        return [(call_slots_name(spec.slot), 1), *found] if spec.slot is not None else found

    def _give_back(self, call_id: str) -> None:
        task = asyncio.create_task(self._given_back(self._slots.pop(call_id), self._taking.pop(call_id)))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, slots: list[Slots], taking: asyncio.Task[bool]) -> None:
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError, FoldlogError):
            await taking
        for each in reversed(slots):
            with contextlib.suppress(FoldlogError):
                await through_outages(self._driver.clock, each.give_back)


def _call(state: RunState, call_id: str) -> CallState | None:
    return state.calls.get(call_id) or state.planning.calls.get(call_id)


def _goes_on(state: RunState, call_id: str) -> bool:
    call = _call(state, call_id)
    if call is None or call.result is not None:
        return False
    approval = state.approvals.get(call.approval_id or "")
    return approval is None or not approval.pending
