"""Stored agents on a worker: it follows their register, and serves those whose names it has, without a restart."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from ...eventlog.errors import LogCorrupted, LogUnavailable
from ...eventlog.ports import Announce, Deliveries, Presence
from ..catalog.checking import fits, offer_of
from ..catalog.records import Catalog
from ..driving.host import Host

if TYPE_CHECKING:
    from ...eventlog.ports import Offer

logger = logging.getLogger("foldlog.worker")

RETRY_S = 0.5


class StoredServing:
    """The stored agents of one worker. An agent is served if this process has all that one of its versions names.

    One that is removed is served further, for its open runs; nothing new is started of it.
    """

    def __init__(self, host: Host) -> None:
        self._host, self._catalog = host, Catalog(host.log)
        self._offer: Offer = offer_of(host.registry)
        self._served: set[str] = set()
        self._news = asyncio.Event()

    def announced(self, presence: Presence) -> Presence:
        """Return what the worker says of itself, with what it has for stored agents, and those that it serves."""
        serves = tuple(sorted({*presence.serves, *self._served}))
        return msgspec.structs.replace(presence, serves=serves, offer=self._offer)

    async def until_served(self, agent: str) -> None:
        """Wait until the agent is served here."""
        while agent not in self._served:
            await self._news.wait()

    async def follow(self, presence: Presence, deliveries: Deliveries, announce: Announce) -> None:
        """Serve the stored agents, and those that are saved later, until cancelled. Survives outages of the log."""
        log, catalog = self._host.log, self._catalog
        try:
            while True:
                try:
                    await catalog.read()
                    await self._serve(presence, deliveries, announce)
                    async for stored in log.events.follow(catalog.subject, catalog.position):
                        catalog.fold(stored)
                        await self._serve(presence, deliveries, announce)
                except LogUnavailable:
                    await log.clock.sleep(RETRY_S)
        except LogCorrupted as error:
            logger.error("stored agents that are saved from now on are not run here: %s", error)  # noqa: TRY400

    async def _serve(self, presence: Presence, deliveries: Deliveries, announce: Announce) -> None:
        """Know the agents as they are stored now, and take the wake-ups of new ones. Raises `LogUnavailable`."""
        registry = self._host.registry
        new: set[str] = set()
        for name, agent in self._catalog.agents.items():
            if name in registry.agents or not agent.versions:
                continue
            registry.adopt(agent.last.config)
            (self._host.removed.add if agent.removed else self._host.removed.discard)(name)
            if name not in self._served and any(fits(each.config, self._offer) for each in agent.versions):
                new.add(name)
        if new:
            await deliveries.serve(frozenset(new))
            self._served |= new
            self._news.set()
            self._news = asyncio.Event()
            await announce(self.announced(presence))
            logger.info("serves the stored agents %s, too", ", ".join(sorted(new)))
