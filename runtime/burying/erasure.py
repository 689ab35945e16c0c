"""Erasing the families that a caller selects, with a receipt of what was erased and of the copies that are left."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import msgspec

from ...eventlog.clock import Clock
from ...eventlog.errors import ConfigError, LogCorrupted, RunGone, RunOpen
from ...eventlog.names import run_subject
from ...eventlog.ports import Log, Subject
from ...eventlog.sealing.keyring import owner_in_list
from ...eventlog.sealing.log import SealedLog
from ...projections.projector import RunIndex
from ...projections.run_list import RunRow
from ..journal.lanes import drop_purged_head
from ..ports.archives import ArchiveStore, ArchiveUnavailable
from ..ports.knowledge import KnowledgeStore
from .bury import Erased, Order, bury, check_buriable
from .copies import Copy, CopyFinder
from .family import FamilyFacts
from .lanes import trim_lane

_log = logging.getLogger("foldlog.erasure")
_RUNS = ("fork", "retry", "memory")
"""The kinds of copies that are runs."""
PURGES_PER_S = 20
"""The most families that are erased in a second."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that were erased, those refused because they are open, and the copies that are left, or were erased, too.

    `keys` are the owners of sealed runs whose keys are still there: whoever has those can read backups and exports from
    before. `not_begun` are those that were selected and not come to, because the erasure was to stop before its end,
    or not finished, because it failed.

    `asked` is the selection as it was given. A family that is erased but not `purged` is gone for every reader, and a
    worker erases its bytes, if this user of the server may not. `at` is in Unix seconds. With `dry_run` nothing was
    done: `erased` lists what would be, without digests.
    """

    namespace: str
    at: float
    by: str = ""
    reason: str = ""
    asked: dict[str, Any] = {}
    dry_run: bool = False
    erased: tuple[Erased, ...] = ()
    open: tuple[str, ...] = ()
    not_begun: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[Copy, ...]:
        """The copies that still exist."""
        return tuple(copy for copy in self.copies if not copy.erased)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The families to erase: roots by their ids, or all roots that match the other fields.

    `before` is the time in Unix seconds before which they ended.
    """

    run_ids: tuple[str, ...] = ()
    user: str | None = None
    session: str | None = None
    agent: str | None = None
    before: float | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """The fields that were given."""
        return {
            name: value for name, value in msgspec.structs.asdict(self).items() if value not in {None, ()}
        }


class Pace:
    """At most twenty in a second, and no more than half of the time: a slow server gets a pause as long as its work.

    `interval_s`: at least so long between the beginnings of two.
    """

    def __init__(self, clock: Clock, interval_s: float = 0.0) -> None:
        self._clock, self._began_at = clock, 0.0
        self._interval_s = max(interval_s, 1 / PURGES_PER_S)

    def begin(self) -> None:
        """Note the beginning of a purge."""
        self._began_at = self._clock.monotonic()

    async def rest(self) -> None:
        """Wait until the next one may begin."""
        took_s = self._clock.monotonic() - self._began_at
        await self._clock.sleep(max(took_s, self._interval_s - took_s))


class Eraser:
    """Erases families of one namespace, one after the other."""

    def __init__(
        self,
        log: Log,
        index: RunIndex,
        order: Order,
        *,
        archive: ArchiveStore | None = None,
        knowledge: KnowledgeStore | None = None,
        interval_s: float = 0.0,
        stopping: asyncio.Event | None = None,
        told: Callable[[Erased], object] | None = None,
    ) -> None:
        self._stopping, self._told = stopping, told
        self._log, self._index, self._order = log, index, order
        self._archive, self._finder = archive, CopyFinder(log, index, knowledge)
        self._pace = Pace(log.clock, interval_s)

    async def erase(
        self, selection: Selection, *, with_copies: bool = False, dry_run: bool = False
    ) -> Receipt:
        """Erase the selected families and return the receipt; those that are open are left alone, and named.

        A run given by its id is erased also if its log is damaged, and if no list can be read because of that; any
        other selection is refused while a run is damaged, whose user, session or age nobody knows. Raises
        `RunOpen`, `RunNotFound` and `ConfigError` for runs given by their ids, before anything is erased;
        `LogUnavailable`, `LogCorrupted`. A copy that cannot be deleted is listed as left.
        """
        if not selection.asked:
            raise ConfigError(
                "select what to erase: runs by their ids, or a user, a session, an agent, or an age"
            )
        if self._archive is not None and not dry_run:
            await self._archive.check()
        damaged = await self._erase_damaged(selection.run_ids, dry_run=dry_run)
        if damaged and dry_run:  # there is no list while they are there
            return self._receipt(selection, damaged, dry_run=True)
        rows = await self._selected(selection)
        copies = await self._copies(rows, rows)
        if with_copies:
            rows, copies = await self._with_copies(rows, copies)
        is_named = bool(selection.run_ids)
        is_open = [row.run_id for row in rows.values() if not await self._is_over(row, damaged=is_named)]
        going = [row for row in rows.values() if row.run_id not in is_open]
        done = {each.run_id: each for each in damaged}
        if dry_run:
            done = {row.run_id: _would_be(row) for row in going}
        else:
            await self._erase_all(going, done, damaged=is_named)
        erased = [done[row.run_id] for row in going if row.run_id in done]
        not_begun = [row.run_id for row in going if row.run_id not in done]
        if not dry_run:
            for lane in dict.fromkeys(row.lane for row in going if row.lane is not None):
                while await drop_purged_head(self._log, lane):  # a damaged run was open
                    pass
                # Who may not purge leaves the entries, which have no words.
                with contextlib.suppress(ConfigError):
                    await trim_lane(self._log, lane)
            await self._index.catch_up()
        gone = {each.run_id for each in erased}
        told = [
            msgspec.structs.replace(copy, erased=await self._copy_erased(copy, gone, dry_run))
            for copy in copies
        ]
        keys = await self._keys_of([row for row in going if row.run_id in done])
        receipt = self._receipt(selection, erased, is_open, told, keys, dry_run=dry_run)
        return msgspec.structs.replace(receipt, not_begun=tuple(not_begun))

    def _receipt(
        self,
        selection: Selection,
        erased: Sequence[Erased],
        is_open: Sequence[str] = (),
        copies: Sequence[Copy] = (),
        keys: Sequence[str] = (),
        *,
        dry_run: bool,
    ) -> Receipt:
        return Receipt(
            namespace=self._log.namespace,
            at=self._log.clock.now(),
            by=self._order.by,
            reason=self._order.reason,
            asked=selection.asked,
            dry_run=dry_run,
            erased=tuple(erased),
            open=tuple(is_open),
            copies=tuple(copies),
            keys=tuple(keys),
        )

    async def _keys_of(self, rows: Sequence[RunRow]) -> list[str]:
        """Return the owners of the keys of these families that are not erased; a fork has that of its origin."""
        if not isinstance(self._log, SealedLog):
            return []
        owners = [owner_in_list(row.user, row.session, row.run_id) for row in rows if row.forked_from is None]
        records = [await self._log.ring.record(owner) for owner in dict.fromkeys(owners)]
        return [record.owner for record in records if record.key is not None]

    async def _erase_damaged(self, runs: Sequence[str], *, dry_run: bool) -> list[Erased]:
        """Erase those of these runs whose logs are damaged, if that is why there is no list; else nothing.

        Their copies are not looked for: what they said cannot be read. Raises `LogCorrupted` if others are damaged.
        """
        try:
            await self._index.catch_up()
        except LogCorrupted:
            erased: list[Erased] = []
            for run in runs:
                for shard in range(self._log.events.shards):
                    found = await self._log.events.find(shard, run)
                    family = await self._damaged_family(found) if found is not None else None
                    if family is not None and dry_run:
                        erased.append(_would_be(family.rows[run]))
                    elif family is not None:
                        erased.append(await self._erase(family.root, damaged=True))
                        if len(erased) < len(runs):  # the others follow
                            await self._rest()
            if not erased:
                raise
            return erased
        return []

    async def _damaged_family(self, run: Subject) -> FamilyFacts | None:
        """Return the family of a root, if it is not erased and its log is damaged."""
        try:
            family = await check_buriable(self._log, run, damaged=True)
        except RunGone:
            return None
        return family if family.damaged else None

    async def _selected(self, selection: Selection) -> dict[str, RunRow]:
        if selection.run_ids:
            named = [await self._index.run(run) for run in selection.run_ids]
            for row in named:
                if not row.buried:
                    await check_buriable(self._log, _subject(row), damaged=True)
        else:
            await self._index.check_intact()
            named = await self._index.runs(
                user=selection.user, session=selection.session, agent=selection.agent, limit=-1
            )
            named = [row for row in named if row.run_id == row.root_id and _is_old(row, selection.before)]
        return {row.run_id: row for row in sorted(named, key=lambda row: (row.submitted_at, row.run_id))}

    async def _copies(self, rows: dict[str, RunRow], but: Container[str]) -> list[Copy]:
        found: list[Copy] = []
        for row in rows.values():
            if row.buried:
                found += [Copy(kind="archive", of=row.run_id, at=row.url)] if row.url else []
            else:
                found += await self._finder.of(row, but)
        return found

    async def _with_copies(
        self, rows: dict[str, RunRow], copies: list[Copy]
    ) -> tuple[dict[str, RunRow], list[Copy]]:
        """Return the selection with the runs that are copies, and with the copies of those."""
        every, todo = dict(rows), copies
        while True:
            runs = {copy.at for copy in todo if copy.kind in _RUNS} - every.keys()
            if not runs:
                return every, list(dict.fromkeys(copies))
            more = {run: await self._index.run(run) for run in sorted(runs)}
            every |= more
            todo = await self._copies(more, every)
            copies = [*copies, *todo]

    async def _is_over(self, row: RunRow, *, damaged: bool) -> bool:
        if row.buried:
            return True
        try:
            await check_buriable(self._log, _subject(row), damaged=damaged)
        except RunOpen:
            return False
        except RunGone:
            return True
        return True

    async def _erase_all(self, rows: Iterable[RunRow], done: dict[str, Erased], *, damaged: bool) -> None:
        """Erase those that are not done, and note them as done, until the erasure is to stop; rest between two."""
        last: Erased | None = None
        for row in rows:
            if row.run_id in done:
                continue
            # Of one that was buried before, next to nothing was purged, and there may be many of those.
            if last is not None and not last.before:
                await self._rest()
            if self._stopping is not None and self._stopping.is_set():
                return
            last = done[row.run_id] = await self._erase(_subject(row), damaged=damaged)

    async def _erase(self, root: Subject, *, damaged: bool) -> Erased:
        self._pace.begin()
        keep = functools.partial(self._archive.keep, self._log) if self._archive is not None else None
        erased = await bury(self._log, root, self._order, keep, damaged=damaged, leave_purge=True)
        if self._told is not None:
            self._told(erased)
        return erased

    async def _rest(self) -> None:
        """Wait until the next erasure may begin, or none is to."""
        if self._stopping is None:
            await self._pace.rest()
            return
        ways = [asyncio.ensure_future(each) for each in (self._pace.rest(), self._stopping.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    async def _copy_erased(self, copy: Copy, gone: set[str], dry_run: bool) -> bool:
        if copy.kind != "archive":
            return copy.at in gone
        if dry_run or self._archive is None:
            return False
        try:
            return await self._archive.delete(copy.at)
        except (ArchiveUnavailable, ConfigError) as error:  # also of another archive; it is told as left
            _log.warning("the copy of run %s stays: %s", copy.of, error)
            return False


def _subject(row: RunRow) -> Subject:
    return run_subject(row.shard, row.root_id, row.run_id)


def _is_old(row: RunRow, before: float | None) -> bool:
    return before is None or (row.over and row.updated_at < before)


def _would_be(row: RunRow) -> Erased:
    return Erased(
        run_id=row.run_id,
        how=row.buried or "deleted",
        at=row.updated_at,
        url=row.url,
        digest="",
        user=row.user,
        session=row.session,
        before=bool(row.buried),
    )


def selection_of(
    run_ids: Sequence[str], user: str | None, session: str | None, agent: str | None, before: float | None
) -> Selection:
    """Return the selection. Raises `ConfigError` for both runs and filters."""
    selection = Selection(run_ids=tuple(run_ids), user=user, session=session, agent=agent, before=before)
    if run_ids and len(selection.asked) > 1:
        raise ConfigError("select runs by their ids, or by a user, a session, an agent and an age, not both")
    return selection
