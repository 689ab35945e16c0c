"""The copies of what a family said: forks of it, later runs that remember it, and pieces of knowledge (W51)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Container, Sequence
from typing import Literal

import msgspec

from ...eventlog.commits import decode
from ...eventlog.errors import FoldlogError, LogCorrupted, RunNotFound
from ...eventlog.events import MemoryHydrated
from ...eventlog.names import run_subject
from ...eventlog.offload import restore_what_opens
from ...eventlog.ports import Log
from ...projections.projector import RunFilters, RunIndex
from ...projections.run_list import RunRow
from ..journal.keys import key_of_retry, run_of_key
from ..ports.knowledge import KnowledgeStore
from ..shared.sessions import read_turn

WORDS_MIN = 24
"""The least length of a text that is taken for a copy where another text holds it, in characters."""
PIECES_MAX = 20


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a family's words. `at` is a run (fork, retry, memory), a URL (archive) or a source (knowledge).

    `erased`: it was erased, too.
    """

    kind: Literal["fork", "retry", "memory", "knowledge", "archive"]
    of: str
    at: str
    erased: bool = False


async def texts_of(log: Log, row: RunRow) -> frozenset[str]:
    """Return what was said in a run that is over: its messages but those of the system; nothing if it is damaged."""
    if not row.over:
        return frozenset()
    try:
        turn = await read_turn(log, run_subject(row.shard, row.root_id, row.run_id))
    except (RunNotFound, LogCorrupted):
        return frozenset()
    said = turn.messages if turn is not None else ()
    return frozenset(message.content for message in said if message.role != "system" and message.content)


class CopyFinder:
    """Finds the copies of families that are not erased yet; each run is read once, however many are asked about."""

    def __init__(self, log: Log, index: RunIndex, knowledge: KnowledgeStore | None) -> None:
        self._log, self._index, self._knowledge = log, index, knowledge
        self._recalled: dict[str, frozenset[str]] = {}

    async def of(self, row: RunRow, but: Container[str]) -> list[Copy]:
        """Return the copies of a root run, apart from the roots in `but`, which are erased with it."""
        log, index = self._log, self._index
        texts = await texts_of(log, row)
        found = [
            Copy(kind="fork", of=row.run_id, at=fork.root_id)
            for member in await index.runs(root_id=row.run_id, limit=-1)
            for fork in await index.runs(forked_from=member.run_id, buried=False, limit=-1)
        ]
        found += [Copy(kind="retry", of=row.run_id, at=run) async for run in _retries(log, row)]
        found += [
            Copy(kind="memory", of=row.run_id, at=run) async for run in self._remembering(row, texts, but)
        ]
        found = [copy for copy in found if copy.at not in but]
        if self._knowledge is not None:
            found += await _known(self._knowledge, row, texts)
        return list(dict.fromkeys(found))

    async def _remembering(
        self, row: RunRow, texts: frozenset[str], but: Container[str]
    ) -> AsyncIterator[str]:
        """Yield the roots of later runs of the session, or of the user, whose recalled messages hold a text of it."""
        since: RunFilters = {"since": row.submitted_at, "buried": False}
        asked: list[RunFilters] = []
        if row.session:
            asked.append({**since, "session": row.session})
        if row.user:
            asked.append({**since, "user": row.user})
        later: dict[str, RunRow] = {}
        for where in asked:
            rows = await self._index.runs(**where, limit=-1)
            later.update(
                {
                    each.run_id: each
                    for each in rows
                    if each.root_id != row.root_id and each.root_id not in but
                }
            )
        for each in later.values():
            if each.run_id not in self._recalled:
                self._recalled[each.run_id] = await recalled_by(self._log, each)
            if texts & self._recalled[each.run_id]:
                yield each.root_id


async def _retries(log: Log, row: RunRow) -> AsyncIterator[str]:
    """Yield the runs that repeat this one: each has its submission."""
    for number in itertools.count(1):
        run = await run_of_key(log, key_of_retry(row.run_id, number))
        if run is None:
            return
        yield run


async def recalled_by(log: Log, row: RunRow) -> frozenset[str]:
    """Return the texts that a run was given from earlier runs."""
    subject = run_subject(row.shard, row.root_id, row.run_id)
    found: set[str] = set()
    async for stored in log.events.read(subject):
        if b'"memory_hydrated"' not in stored.data:
            continue
        for event in await restore_what_opens(decode(stored.data).events, log.artifacts.of(row.root_id)):
            if isinstance(event, MemoryHydrated) and isinstance(event.messages, Sequence):
                found.update(str(message.get("content", "")) for message in event.messages)
    return frozenset(found - {""})


async def _known(knowledge: KnowledgeStore, row: RunRow, texts: frozenset[str]) -> list[Copy]:
    """Return the pieces of knowledge that hold a longer text of the run, or are a part of one."""
    found: list[Copy] = []
    for text in texts:
        if len(text) < WORDS_MIN:
            continue
        try:
            items = await knowledge.search(text, PIECES_MAX)
        except FoldlogError:  # a store that cannot be asked now is not a copy that can be told
            return found
        same = [
            item for item in items if text in item.text or (len(item.text) >= WORDS_MIN and item.text in text)
        ]
        found += [Copy(kind="knowledge", of=row.run_id, at=f"{item.source}#{item.id}") for item in same]
    return found
