"""Starting runs from within a worker, for its triggers: the same steps as of a caller, on the durable executor."""

from __future__ import annotations

import msgspec

from ..core.submission import submitted_event
from ..driving.host import Host
from ..journal.keys import check_there, note_stored, place_of_run
from ..triggers.starting import Start
from .durable import DurableExecutor


class WorkerStarter:
    """`Starter` with the agents of this process' registry."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def start(self, wish: Start) -> str:
        """Return the id of the run that has this key, and start it if there is none."""
        host = self._host
        agent = host.agent(wish.agent)
        host.registry.check(agent)
        submitted = submitted_event(
            agent,
            wish.input,
            executor=DurableExecutor.name,
            user=wish.user,
            metadata=wish.metadata,
            idempotency_key=wish.key,
            policy={} if host.policy is None else await host.policy.of_run(host.registry.reachable(agent)),
            trigger=wish.trigger,
        )
        submitted = msgspec.structs.replace(submitted, lane=wish.lane)
        place = await place_of_run(host.log, submitted)
        if place.stored:
            await check_there(host.log, place)
            return place.subject.id
        executor = DurableExecutor(host)
        if not await executor.submit(place.subject, place.submitted, agent):
            await executor.drive(place.subject)  # its first submitter may be gone
        await note_stored(host.log, place)
        return place.subject.id
