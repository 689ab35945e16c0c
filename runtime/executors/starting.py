"""Starting runs from within a process that drives runs: the same steps as of a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...eventlog.errors import NotRegistered
from ..core.submission import submitted_event
from ..driving.host import Host
from ..journal.keys import check_there, note_stored, place_of_run
from ..triggers.starting import Start
from .durable import DurableExecutor

if TYPE_CHECKING:
    from ...eventlog.events import Submitted
    from ..ports.executor import Executor
    from ..ports.runnable import Runnable


async def submit_once(host: Host, executor: Executor, submitted: Submitted, agent: Runnable[Any]) -> str:
    """Return the id of the run that has the submission's key; submit it on this executor if there is none (W26).

    Raises `RunPurged` for a key whose run is no longer there, `RunConflict`, `PayloadTooLarge`, `LogUnavailable`.
    """
    place = await place_of_run(host.log, submitted)
    if place.stored:
        await check_there(host.log, place)
        return place.subject.id
    if not await executor.submit(place.subject, place.submitted, agent):
        await executor.drive(place.subject, agent)  # its first submitter may be gone
    await note_stored(host.log, place)
    return place.subject.id


class WorkerStarter:
    """`Starter` with the agents of this process' registry, on the durable executor."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def start(self, wish: Start) -> str:
        """Return the id of the run that has this key, and start it if there is none."""
        host = self._host
        if wish.agent in host.removed:
            raise NotRegistered(f"the stored agent {wish.agent!r} was removed")
        agent = host.agent(wish.agent)
        host.registry.check(agent)
        submitted = submitted_event(
            agent,
            wish.input,
            executor=DurableExecutor.name,
            user=wish.user,
            metadata=wish.metadata,
            idempotency_key=wish.key,
            policy=await host.policy_of(agent),
            trigger=wish.trigger,
            priority=wish.priority,
        )
        submitted = msgspec.structs.replace(submitted, lane=wish.lane)
        return await submit_once(host, DurableExecutor(host), submitted, agent)
