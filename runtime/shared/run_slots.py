"""The slots that a run needs before it is driven: that of its agent, and those of its lane and of the namespace.

They are taken in this order, each in the register of its own (`slots`). A run that has to wait in one line holds none
of the others meanwhile, and waits in no other line, so runs never wait for each other's; once it has its turn it takes
them all again. Only root runs count for lanes and the namespace: runs below them are driven by the same process, and
must not wait for the place of the run above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ...eventlog.ports import Log, Wakeup
from ...projections.pending import PendingSlot
from ...projections.run_state import RunState
from ..core.limits import limit_of_model, limits_of_run
from ..journal.family import family_of
from ..journal.journal import Journal
from .deadlocks import limit_name, slots_name
from .slots import Slots, SlotUser, Taking, read_slots


class RunUser(SlotUser, Protocol):
    """A process that drives runs. `Host` implements it."""

    @property
    def limits(self) -> Mapping[str, int]:
        """The sizes of the limits that it obeys, by their names."""
        ...


class RunSlots:
    """One run's access to all slots that it needs. Raises `LogUnavailable`."""

    def __init__(self, lines: Sequence[Slots]) -> None:
        """`lines`: at least one, in the order in which they are taken."""
        self._lines = lines
        self._waits = lines[0]
        """The line in which the run waits, if it does."""

    async def take(self, woken: Wakeup | None = None) -> Taking:
        """Take all slots, or a place in the first line that is full, and leave the others. A read must show `woken`."""
        for line in self._lines:
            is_cause = woken is not None and woken.slots in {"", line.name}
            taking = await line.take(seen=woken.slots_cause if woken is not None and is_cause else 0)
            if taking == "stale":
                return taking
            if taking != "taken":
                await self._wait_in(line)
                return taking
        return "taken"

    async def until_taken(self) -> bool:
        """Wait within this process until all slots are taken; false if the run is closed, or has an owner."""
        while True:
            for line in self._lines:
                if await line.take() != "taken":
                    await self._wait_in(line)
                    if not await line.until_taken():
                        return False
                    break
            else:
                return True

    async def _wait_in(self, line: Slots) -> None:
        self._waits = line
        for each in self._lines:
            if each is not line:
                await each.leave()

    async def look_later(self) -> None:
        """Set the timer that has some worker check the slots this run waits for."""
        await self._waits.look_later()

    async def look_after(self) -> None:
        """Free the slots of holders that no worker drives, in the line in which the run waits."""
        await self._waits.look_after()

    async def give_up(self) -> None:
        """Give up the slots and places in line of a run without an owner, and wake the runs that may go on."""
        for line in self._lines:
            await line.give_up()


def slots_of(host: RunUser, journal: Journal) -> RunSlots | None:
    """Return the slots that limit a run; null if it is not limited."""
    needed = list(_needed(host, journal))
    if not needed:
        return None
    shared = len(needed) > 1
    return RunSlots([Slots(host, journal, name, size, shared=shared) for name, size in needed])


def _needed(host: RunUser, journal: Journal) -> Iterator[tuple[str, int]]:
    """Yield the names and sizes of the slots of a run.

    A run below another run of the same agent shares the slot of that one, or it might wait for itself.
    """
    state, size = journal.state, journal.rules.runs_max
    if size is not None and state.agent not in state.path.split("/")[:-1]:
        yield slots_name(state.agent), size
    if journal.subject.id == journal.subject.root and host.limits:
        lane = state.submitted.lane if state.submitted is not None else None
        for limit in limits_of_run(lane):
            if limit in host.limits:
                yield limit_name(limit), host.limits[limit]


async def give_up(host: RunUser, journal: Journal, *, below: bool = False) -> None:
    """Give up the slots of a run that has no owner; with `below`, also those of finished runs of its family."""
    if (slots := slots_of(host, journal)) is not None:
        await slots.give_up()
    if below:
        for each in (await family_of(journal)).values():
            if each.state.over and each.subject != journal.subject:
                await give_up(host, each)


async def waiting_for(log: Log, state: RunState) -> PendingSlot | None:
    """Return the slot that a run or its model call waits for in line; null for none. Raises `LogUnavailable`."""
    for name in () if state.over else _lines_of(state):
        _head, now = await read_slots(log, name)
        for place, waiter in enumerate(now.waiting, 1):
            if waiter.run == state.run:
                limit = name.removeprefix("limit:") if name.startswith("limit:") else ""
                holders = tuple(each.run for each in now.holders)
                return PendingSlot(
                    agent=state.agent, limit=limit, place=place, runs_max=waiter.runs_max, holders=holders
                )
    return None


def _lines_of(state: RunState) -> Iterator[str]:
    submitted = state.submitted
    if state.owner is None:
        yield slots_name(state.agent)
        if state.run == state.root and submitted is not None:
            yield from map(limit_name, limits_of_run(submitted.lane))
    elif state.model.requested and state.model.model:
        yield limit_name(limit_of_model(state.model.model))
