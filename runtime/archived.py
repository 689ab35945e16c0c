"""Runs whose family is in an archive: their copy is read into a log in memory, which answers like the namespace."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..eventlog.commits import gone
from ..eventlog.names import run_subject
from ..eventlog.ports import Log, Subject
from ..eventlog.sealing.log import SealedLog
from .burying.family import Tombstone, tombstone_of
from .ports.archives import StoredRuns, archive_at

if TYPE_CHECKING:
    from .agents.registry import Registry
    from .handle import Namespace
    from .operating.surroundings import Executors
    from .ports.executor import Executor


class ArchivedNamespace:
    """A namespace with the runs of one archived family only (`Namespace`). Nothing drives them."""

    def __init__(self, namespace: Namespace, log: Log) -> None:
        self._namespace, self.log = namespace, log
        self.command_locks = weakref.WeakValueDictionary[str, asyncio.Lock]()

    @property
    def registry(self) -> Registry:
        """The agents and tools of the process."""
        return self._namespace.registry

    def known_executor(self, name: str) -> Executor | None:
        """Return None: the runs are over."""
        return None

    async def locate(self, run_id: str) -> Subject:
        """Return the subject of a run of the family."""
        found = await self.log.events.find(self.log.events.shards - 1, run_id)
        return found or await self._namespace.locate(run_id)

    async def place(self, run_id: str) -> tuple[Namespace, Subject]:
        """Return this namespace and the subject of a run of the family."""
        return self, await self.locate(run_id)

    def where_executors_run(self) -> Executors:
        """Return none: nothing is driven here."""
        return frozenset(), frozenset()

    async def watch(self, run_id: str, news: Coroutine[Any, Any, object]) -> None:
        """Await the news."""
        await news


async def archived(log: Log, run: Subject) -> Tombstone | None:
    """Return the tombstone of an archived family, for a run of it; null for any other run."""
    tombstone = await tombstone_of(log, run_subject(run.shard, run.root, run.root))
    return tombstone if tombstone is not None and tombstone.event.url else None


async def opened_copy(namespace: Namespace, tombstone: Tombstone, run: str) -> ArchivedNamespace:
    """Return the family in a log of its own. Raises `RunGone` if its copy is gone, too, `ArchiveUnavailable`."""
    from ..eventlog.memory import MemoryLog

    found, log = await read_copy(tombstone, run), namespace.log
    copy = MemoryLog(log.namespace, clock=log.clock, shards=tombstone.recorded.subject.shard + 1)
    copy.events.adopt(found.stored)
    for digest, data in found.artifacts.items():
        await copy.artifacts.of(tombstone.recorded.commit.root).put(data, digest)
    return ArchivedNamespace(namespace, log.over(copy) if isinstance(log, SealedLog) else copy)


async def read_copy(tombstone: Tombstone, run: str) -> StoredRuns:
    """Return the copy of an archived family. Raises what `opened_copy` raises."""
    url = tombstone.event.url
    try:
        return await archive_at(url.rpartition("/")[0]).read(url)
    except KeyError:
        raise gone(tombstone.recorded.commit, tombstone.event, run, missing=True) from None
