"""The projector: keeps rows up to date with the log. Processes that share the rows fold each commit only once.

Commits after the checkpoint are read, verified against the stored head of their run, folded, and stored as rows, heads
and checkpoint in one transaction. If another process has moved the checkpoint meanwhile, only the commits after it are
folded. Damage is never skipped silently: the row of a run with a missing or altered commit says so, and stays as it was
before the damage, while other runs go on. A log that ends before what was folded, or is another one, raises
`LogCorrupted`, because nobody knows what the rows are worth then. To detect that, the last folded commit is read again
each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, get_args

import msgspec
from anyio.lowlevel import checkpoint
from typing_extensions import Unpack

from ..eventlog.commits import (
    Head,
    Recorded,
    decode,
    digest_of_bytes,
    head_of,
    is_intact,
    tombstone_in,
    verify,
)
from ..eventlog.errors import ConfigError, LogCorrupted, LogUnavailable, RunNotFound
from ..eventlog.ports import Log, Shard, Stored, Subject
from .approvals import ApprovalRow, Approvals, RunApprovals
from .family_totals import FamilyTotals, family_totals
from .jobs import Job, job_of
from .operating.costs import Costs, RunCosts
from .projection import Projection, Value, damage_of
from .run_list import BACKWARDS, DAMAGED, OPEN, WAITING_FOR, WORKER, RunList, RunListStatus, RunRow
from .sqlite import CacheDamaged, Checkpoint, RowStore, Where

CHUNK_COMMITS = 256
"""The number of commits that are folded in one transaction, which takes some ten milliseconds."""

TOGETHER_S = 0.05
"""Commits that come within this time after others are folded together: a transaction for each would cost far more."""

STALE_READS_MAX = 5
STALE_READ_WAIT_S = 0.05
"""A read may be stale: a missing tail counts as lost only after `STALE_READS_MAX` reads, with doubled waits."""

REBUILDS_MAX = 3
STANDSTILL_MAX_S = 600.0
"""The time for which a rebuild waits for a log that does not answer, in seconds."""
RETRY_S = 0.5
ROWS_MAX = 10**9
DAMAGED_MAX = 100
"""The most damaged runs that a list names."""

T = TypeVar("T")
_Rows = dict[tuple[int, str], msgspec.Struct | None]
"""Changed rows, by the number of their projection and their run."""


class Projector:
    """Feeds projections from a namespace's log. `path` None keeps the rows in memory."""

    def __init__(self, log: Log, projections: Sequence[Projection[Any]], path: Path | None = None) -> None:
        self.log, self.projections = log, tuple(projections)
        self._path = path
        self.rows = RowStore(path, log.namespace, self.projections)
        self._readers: set[_Changes] = set()
        self._places: dict[int, int] = {}
        self.following = asyncio.Event()
        """Set while `follow` has reached the end of every shard that it found."""

    async def catch_up(self) -> None:
        """Fold everything that is stored by now.

        Raises `LogCorrupted`, `LogUnavailable`; `ConfigError` for a file that cannot be used.
        """
        for shard in range(self.log.events.shards):
            await self._catch_up_shard(shard)

    async def follow(self) -> None:
        """Keep the rows up to date until cancelled. Raises the errors of `catch_up`."""
        tasks = [asyncio.ensure_future(self._follow_shard(shard)) for shard in range(self.log.events.shards)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._places.clear()
            self.following.clear()

    def reached(self) -> tuple[int, ...]:
        """Return positions in each shard that the last answer had reached; `changes` has told of nothing later."""
        if self.following.is_set():
            return self.places()
        return self._folded()

    def places(self) -> tuple[int, ...]:
        """Return the position in each shard up to which `changes` has told of everything, while `follow` runs."""
        return tuple(self._places.get(shard, 0) for shard in range(self.log.events.shards))

    def _reach(self, shard: int, position: int) -> None:
        self._places[shard] = position
        if len(self._places) == self.log.events.shards:
            self.following.set()

    async def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """Yield the runs whose rows may have changed since the last time; None if all may have: read the lists again.

        The first one is None. Rows change while `follow` runs in this process, or a query brings them up to date. A
        reader that is slow gets several changes as one.
        """
        reader = _Changes()
        self._readers.add(reader)
        try:
            while True:
                yield await reader.next()
        finally:
            self._readers.discard(reader)

    def _tell(self, runs: Iterable[str] | None) -> None:
        for reader in self._readers:
            reader.add(runs)

    async def rebuild(self) -> None:
        """Delete all rows, and fold the log from its beginning; one that was cut short goes on where it ended.

        A log that does not answer is asked again, for `STANDSTILL_MAX_S` without progress. Raises the errors of
        `catch_up`.
        """
        if not self.rows.is_cut_short():
            self.rows.clear([await self._end(shard) for shard in range(self.log.events.shards)])
            self._tell(None)
        reached, since = -1, self.log.clock.monotonic()
        while True:
            try:
                await self.catch_up()
            except LogUnavailable:
                before, reached = reached, sum(self._folded())
                if reached > before:
                    since = self.log.clock.monotonic()
                elif self.log.clock.monotonic() - since > STANDSTILL_MAX_S:
                    raise
                await self.log.clock.sleep(RETRY_S)
            else:
                return

    async def _end(self, shard: int) -> int:
        last = await self.log.events.head(Shard(shard))
        return last.position if last is not None else 0

    def _folded(self) -> tuple[int, ...]:
        """Return the position in each shard up to which the log is folded."""
        return tuple(self.rows.checkpoint(shard).head.position for shard in range(self.log.events.shards))

    async def lag(self) -> int:
        """Return the number of commits that are stored but not folded yet."""
        behind = 0
        for shard in range(self.log.events.shards):
            position = self.rows.checkpoint(shard).head.position
            behind += await self.log.events.count(Shard(shard), after=position)
        return behind

    async def progress(self) -> tuple[int, int]:
        """Return up to where the log is folded, and where it ends: sums of the positions in all shards."""
        done = whole = 0
        for shard in range(self.log.events.shards):
            end = await self._end(shard)
            whole += end
            done += min(self.rows.checkpoint(shard).head.position, end)
        return done, whole

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each projection, as they are."""
        return {each.name: self.rows.count(each, Where(), ROWS_MAX) for each in self.projections}

    async def ask(self, query: Callable[[], T]) -> T:
        """Bring the rows up to date, then run the query on them. Raises the errors of `catch_up`."""
        for _ in range(REBUILDS_MAX):
            try:
                await self.catch_up()
                return query()
            except CacheDamaged:
                self._tell(None)
        raise ConfigError("the projections' file is damaged repeatedly: move it to another disk")

    async def aclose(self) -> None:
        """Close the file; no query is possible after it."""
        self.rows.close()

    # --- reading the log ----------------------------------------------------------------------------------------------

    async def _catch_up_shard(self, shard: int) -> None:
        for attempt in range(STALE_READS_MAX):
            at = self.rows.checkpoint(shard)
            if await self._read_behind(shard, at):
                return
            await self.log.clock.sleep(STALE_READ_WAIT_S * 2**attempt)
        at = self.rows.checkpoint(shard)
        reset = f"; if the log was emptied on purpose, delete {self._path}" if self._path else ""
        ends = "the log ends before this event, which the projections have folded"
        raise LogCorrupted(at.run, at.head.rev, ends + reset)

    async def _read_behind(self, shard: int, at: Checkpoint) -> bool:
        """Fold the commits after the checkpoint; False if the checkpoint's own commit, also read, is missing."""
        chunk: list[Stored] = []
        found, position = at.head.position == 0, at.head.position
        try:
            async for stored in self.log.events.read(Shard(shard), after=max(0, at.head.position - 1)):
                if not found:
                    found = True
                    if stored.position == at.head.position:
                        self._check_last(stored, at)
                        continue
                    if not (await _was_erased(self.log, shard, at) or await self._was_removed(shard, at)):
                        return False
                chunk.append(stored)
                if len(chunk) == CHUNK_COMMITS:
                    if not self._fold(shard, position, chunk):
                        return False
                    position, chunk = stored.position, []
                    await checkpoint()
        except LogUnavailable:
            if chunk:  # what was read is not read again
                self._fold(shard, position, chunk)
            raise
        return found and self._fold(shard, position, chunk)

    def _check_last(self, stored: Stored, at: Checkpoint) -> None:
        """Check that this is the commit that was folded last. Raises `LogCorrupted` for another one."""
        if digest_of_bytes(stored.data) == at.head.digest:
            return
        error = LogCorrupted(
            at.run, at.head.rev, "the stored commit differs from the one that the projections have folded"
        )
        if stored.subject.id != at.run or is_intact(stored.data):
            raise error
        self._mark(stored.subject, error)

    async def _was_removed(self, shard: int, at: Checkpoint) -> bool:
        """Return whether only the checkpoint's commit is missing, of a run that is there; its row then says so."""
        subject = await self.log.events.find(shard, at.run)
        if subject is None:
            return False
        self._mark(
            subject,
            LogCorrupted(at.run, at.head.rev, "the commit that the projections have folded is missing"),
        )
        return True

    async def _follow_shard(self, shard: int) -> None:
        while True:
            await self.ask(lambda: None)
            with contextlib.suppress(CacheDamaged):
                await self._follow_behind(shard, self.rows.checkpoint(shard).head.position)

    async def _follow_behind(self, shard: int, position: int) -> None:
        """Fold new commits until another process rebuilds the rows."""
        self._reach(shard, position)
        arrived, some = deque[Stored](), asyncio.Event()

        async def take() -> None:
            async for stored in self.log.events.follow(Shard(shard), after=position):
                arrived.append(stored)
                some.set()

        taking = asyncio.create_task(take())
        taking.add_done_callback(lambda _: some.set())
        try:
            while await some.wait():
                some.clear()
                while arrived:
                    chunk = [arrived.popleft() for _ in range(min(len(arrived), CHUNK_COMMITS))]
                    if not self._fold(shard, position, chunk):
                        return
                    position = chunk[-1].position
                    self._reach(shard, position)
                if taking.done():
                    await taking
                    return
                await self.log.clock.sleep(TOGETHER_S)
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    # --- folding ------------------------------------------------------------------------------------------------------

    def _fold(self, shard: int, after: int, commits: Sequence[Stored]) -> bool:
        """Fold commits that were read after position `after`; False if the rows no longer reach up to there."""
        with self.rows.transaction():
            reached = self.rows.checkpoint(shard).head.position
            fresh = [stored for stored in commits if stored.position > reached]
            erases = reached >= after and bool(fresh) and self._fold_fresh(fresh)
        if erases:
            self.rows.forget()
        self._tell({stored.subject.id for stored in commits})  # other processes may have folded them
        return reached >= after

    def _fold_fresh(self, commits: Sequence[Stored]) -> bool:
        """Fold the commits; return whether rows were erased."""
        erased_any = False
        heads: dict[Subject, Head] = {}
        rows: _Rows = {}
        for stored in commits:
            head = heads.get(stored.subject) or self.rows.head(stored.subject)
            try:
                recorded = verify(stored, head, tombstones=True)
            except LogCorrupted as error:
                self._damage(rows, stored.subject, error)
                continue
            heads[stored.subject] = head_of(recorded)
            for number, projection in enumerate(self.projections):
                row = self._row(rows, number, recorded.commit.run)
                for erased in _erased_by(recorded):
                    erased_any = True
                    rows.pop((number, erased), None)
                    self.rows.remove(projection, erased)
                rows[number, recorded.commit.run] = projection.evolve(row, recorded)
        self._put(rows)
        for subject, head in heads.items():
            self.rows.put_head(subject, head)
        last = commits[-1]
        head = heads.get(last.subject) or self.rows.head(last.subject)
        if head.position != last.position:  # it is damaged
            head = Head(last.position, head.rev + 1, digest_of_bytes(last.data))
        self.rows.put_checkpoint(last.subject, head)
        return erased_any

    def _row(self, rows: _Rows, number: int, run: str) -> Any:
        """Return the row of a run as folded so far."""
        key = number, run
        return rows[key] if key in rows else self.rows.get(self.projections[number], run)

    def _put(self, rows: _Rows) -> None:
        for (number, run), row in rows.items():
            if row is not None:
                self.rows.put(self.projections[number], run, row)

    def _damage(self, rows: _Rows, subject: Subject, error: LogCorrupted) -> None:
        """Add the rows that the damage of a run changes."""
        damage = damage_of(error)
        for number, projection in enumerate(self.projections):
            row = self._row(rows, number, subject.id)
            after = projection.damaged(row, subject, damage)
            if after is not row:
                rows[number, subject.id] = after

    def _mark(self, subject: Subject, error: LogCorrupted) -> None:
        """Store the damage of a commit that was folded before it was damaged."""
        with self.rows.transaction():
            rows: _Rows = {}
            self._damage(rows, subject, error)
            self._put(rows)
        if rows:
            self._tell({subject.id})


async def _was_erased(log: Log, shard: int, at: Checkpoint) -> bool:
    """Return whether the checkpoint's commit is missing because its family was erased: a tombstone follows it."""
    async for stored in log.events.read(Shard(shard), after=at.head.position):
        if b'"buried"' not in stored.data:
            continue
        commit = decode(stored.data)
        tombstone = tombstone_in(commit)
        if tombstone is not None and at.run in {commit.run, *tombstone.members}:
            return True
    return False


def _erased_by(recorded: Recorded) -> tuple[str, ...]:
    """Return the runs of which the commit erases the rows, to be replaced for its own run."""
    tombstone = tombstone_in(recorded.commit)
    return () if tombstone is None else (recorded.commit.run, *tombstone.members)


class _Changes:
    """The runs that a reader of `Projector.changes` has not heard of yet."""

    def __init__(self) -> None:
        self._runs: set[str] | None = None
        self._some = asyncio.Event()
        self._some.set()

    def add(self, runs: Iterable[str] | None) -> None:
        if runs is None:
            self._runs = None
        elif self._runs is not None:
            self._runs |= set(runs)
        if self._runs is None or self._runs:
            self._some.set()

    async def next(self) -> frozenset[str] | None:
        await self._some.wait()
        found, self._runs = self._runs, set()
        self._some.clear()
        return None if found is None else frozenset(found)


def _has(metadata: Mapping[str, Any], name: str, wanted: str) -> bool:
    """Return whether a value of the metadata is this text, or has this text as its JSON."""
    found: Any = metadata
    for key in [name] if name in metadata else name.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return False
        found = found[key]
    return found == wanted if isinstance(found, str) else msgspec.json.encode(found).decode() == wanted


def _shared(a: str, b: str) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


class RunFilters(TypedDict, total=False):
    """A selection of runs by the columns of `RunRow`; a filter that is None selects nothing.

    - `text`: the input's first line, or the id, contains it.
    - `damaged`: True for those only whose logs are damaged.
    - `buried`: True for those that were deleted or archived only, False for the others only.
    - `children`, `forks`: False for runs only that have no parent, or are no forks.
    - `since`, `until`: Unix seconds of the submission; `until` is exclusive.
    - `metadata`: names of metadata, nested ones with dots (`memory.scope.user_id`), with their values; a value that is
      not text is given as JSON.
    """

    status: str | None
    agent: str | None
    kind: str | None
    session: str | None
    user: str | None
    executor: str | None
    worker: str | None
    waiting_for: str | None
    error_type: str | None
    model: str | None
    root_id: str | None
    job_id: str | None
    parent: str | None
    forked_from: str | None
    text: str | None
    children: bool
    forks: bool
    buried: bool
    damaged: bool
    since: float | None
    until: float | None
    metadata: Mapping[str, str] | None


def _where(filters: RunFilters) -> Where:
    """Return the condition for all filters but `metadata`. Raises `ConfigError` for an unknown status or wait."""
    given: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    text, since, until = given.pop("text", None), given.pop("since", None), given.pop("until", None)
    buried = given.pop("buried", None)
    if buried is False:
        given["buried"] = ""
    if given.pop("damaged", False):
        given[DAMAGED] = 1
    for name, column in (("children", "parent"), ("forks", "forked_from")):
        if not given.pop(name, True):
            given[column] = None
    if given.get("status", "queued") not in get_args(RunListStatus):
        known = ", ".join(get_args(RunListStatus))
        raise ConfigError(f"unknown status {given['status']!r}; known: {known}")
    if given.get("waiting_for", WORKER) not in WAITING_FOR:
        known = ", ".join(WAITING_FOR)
        raise ConfigError(f"no run waits for {given['waiting_for']!r:.40}; known: {known}")
    return Where(
        given,
        at_least=({} if since is None else {"submitted_at": since}) | ({"buried": "a"} if buried else {}),
        below={} if until is None else {"submitted_at": until},
        holding={} if text is None else {"input": text, "key": text},
    )


class RunIndex(Projector):
    """The runs and approvals of a namespace. Each query updates the rows first; it raises the errors of `catch_up`."""

    def __init__(self, log: Log, path: Path | None = None) -> None:
        self._runs, self._approvals, self._costs = RunList(), Approvals(), Costs()
        super().__init__(log, (self._runs, self._approvals, self._costs), path)

    @classmethod
    async def open(cls, log: Log, path: Path | None = None) -> Self:
        """Open the index of the log's namespace, in a file or in memory. Raises `ConfigError` for an unusable file."""
        return cls(log, path)

    async def runs(
        self,
        limit: int = 1000,
        *,
        before: tuple[float, str] | None = None,
        order: Literal["submitted_at", "updated_at"] = "submitted_at",
        **filters: Unpack[RunFilters],
    ) -> list[RunRow]:
        """Return the runs that meet all filters, newest first, at most `limit` (-1 for all).

        `before` is the `order` time and the id of the last row of the page before. Raises `ConfigError` for an unknown
        status.
        """
        metadata = filters.pop("metadata", None)
        where = _where(filters)
        found = await self.ask(
            lambda: self.rows.select(
                self._runs, where, newest_by=order, before=before, limit=-1 if metadata else limit
            )
        )
        kept = (row for row in found if all(_has(row.metadata, *each) for each in (metadata or {}).items()))
        return list(itertools.islice(kept, limit if limit >= 0 else None))

    async def damaged(self, limit: int = DAMAGED_MAX) -> list[RunRow]:
        """Return the runs whose logs are damaged, which no list can place: theirs are the rows from before that."""
        return await self.runs(limit, damaged=True)

    async def count_damaged(self) -> int:
        """Return the number of runs whose logs are damaged."""
        return sum((await self.count_runs(ROWS_MAX, damaged=True)).values())

    async def check_intact(self) -> None:
        """Raise `LogCorrupted` for the first run that is damaged: what is asked must not miss any."""
        for row in await self.damaged(1):
            if row.damage is not None:
                raise LogCorrupted(row.run_id, row.damage.revision, row.damage.expected)

    async def jobs(
        self, limit: int = -1, *, before: tuple[float, str] | None = None, **filters: Unpack[RunFilters]
    ) -> list[Job]:
        """Return the jobs whose newest run meets the filters, by that run, newest first; -1 for all jobs.

        `before` is the time of submission and the id of the newest run of the job that ended the page before. Raises
        `ConfigError` for an unknown status.
        """
        where = _where({**filters, "children": False})
        return await self.ask(
            lambda: list(itertools.islice(self._jobs(where, before), limit if limit >= 0 else None))
        )

    async def job(self, job_id: str) -> Job:
        """Return one job, by its first run. Raises `RunNotFound`."""
        job = await self.ask(lambda: self._job(job_id))
        if job is None:
            raise RunNotFound(f"there is no job {job_id!r} in the namespace {self.log.namespace!r}")
        return job

    def _job(self, job_id: str) -> Job | None:
        runs = self.rows.select(self._runs, Where({"job_id": job_id}))
        undoing = [self.rows.select(self._runs, Where({"rolls_back": run.run_id})) for run in runs]
        return job_of(runs, itertools.chain.from_iterable(undoing)) if runs else None

    def _jobs(self, where: Where, before: tuple[float, str] | None) -> Iterator[Job]:
        while True:
            rows = self.rows.select(
                self._runs, where, newest_by="submitted_at", before=before, limit=CHUNK_COMMITS
            )
            for row in rows:
                job = self._job(row.job_id)
                if job is not None and job.runs[-1].run_id == row.run_id:  # else a retry of it is newer
                    yield job
            if len(rows) < CHUNK_COMMITS:
                return
            before = rows[-1].submitted_at, rows[-1].run_id

    async def count_runs(self, limit: int = 10_000, **filters: Unpack[RunFilters]) -> dict[str, int]:
        """Return the number of runs of each status among those that meet the other filters.

        A number that reaches `limit` means at least so many. `metadata` cannot be counted: a `ConfigError`.
        """
        if filters.pop("metadata", None):
            raise ConfigError("runs cannot be counted by metadata: it is not a column of the list")
        where = _where(filters)
        wanted = [where.equal["status"]] if "status" in where.equal else get_args(RunListStatus)
        each = {str(status): where._replace(equal={**where.equal, "status": status}) for status in wanted}
        return await self.ask(
            lambda: {status: self.rows.count(self._runs, one, limit) for status, one in each.items()}
        )

    async def count_waits(self) -> dict[str, int]:
        """Return the number of open runs by what they wait for; runs that wait for nothing are not counted."""
        found: dict[str, int] = {}
        for status in OPEN:
            where = Where({"status": status})
            for waiting_for, count in (await self._tally("waiting_for", where)).items():
                if waiting_for is not None:
                    found[str(waiting_for)] = found.get(str(waiting_for), 0) + count
        return found

    async def _tally(self, column: str, where: Where) -> dict[Value, int]:
        return await self.ask(lambda: self.rows.tally(self._runs, column, where))

    async def count_sessions(self) -> dict[str, int]:
        """Return the number of root runs of each session."""
        found = await self._tally("session", Where({"parent": None}))
        return {str(session): count for session, count in found.items() if session is not None}

    async def idle_since(self) -> float | None:
        """Return when the run that waits for nothing and is idle for longest stored its last commit (Unix seconds)."""
        wheres = [Where({"status": status, "waiting_for": None}) for status in ("queued", "running")]
        found = await self.ask(lambda: [self.rows.least(self._runs, "updated_at", where) for where in wheres])
        return min((at for at in found if isinstance(at, float)), default=None)

    async def runs_named(self, text: str, limit: int = 10) -> list[RunRow]:
        """Return the run with this id, otherwise those whose ids begin or end with the text, at most `limit`."""
        return await self.ask(lambda: self._runs_named(text, limit))

    def _runs_named(self, text: str, limit: int) -> list[RunRow]:
        exact = self.rows.get(self._runs, text)
        if exact is not None:
            return [exact]
        found: dict[str, RunRow] = {}
        for column, start in (("key", text), (BACKWARDS, text[::-1])):
            for row in self._starting(column, start, limit):
                found[row.run_id] = row
        return list(found.values())[:limit]

    def _starting(self, column: str, start: str, limit: int) -> list[RunRow]:
        above = start[:-1] + chr(ord(start[-1]) + 1)
        where = Where(at_least={column: start}, below={column: above})
        return self.rows.select(self._runs, where, limit=limit)

    async def ends_of_ids(self, ids: Iterable[str], least: int = 6) -> dict[str, str]:
        """Return the shortest unique end of each run id, of at least `least` characters."""
        return await self.ask(lambda: {run_id: self._end_of_id(run_id, least) for run_id in ids})

    def _end_of_id(self, run_id: str, least: int) -> str:
        backwards = run_id[::-1]
        nearest = self.rows.beside(self._runs, BACKWARDS, backwards)
        shared = (_shared(backwards, str(each)) for each in nearest)
        for length in range(max(least, 1 + max(shared, default=0)), len(run_id)):
            others = self._starting("key", run_id[-length:], 2)
            if all(row.run_id == run_id for row in others):
                return run_id[-length:]
        return run_id

    async def costs(self) -> list[RunCosts]:
        """Return what each run spent."""
        return await self.ask(lambda: self.rows.select(self._costs, Where()))

    async def taken_since(self, at: float) -> list[RunRow]:
        """Return the runs that were last taken over at a time or later (Unix seconds)."""
        return await self.ask(lambda: self.rows.select(self._runs, Where(at_least={"taken_at": at})))

    async def families(self, roots: Iterable[str]) -> list[RunRow]:
        """Return all runs of these families, by their root runs."""
        wanted = set(roots)
        return await self.ask(
            lambda: [row for root in wanted for row in self.rows.select(self._runs, Where({"root_id": root}))]
        )

    async def totals(self, rows: Sequence[RunRow]) -> dict[str, FamilyTotals]:
        """Return the totals of each of these runs and its descendants, by run id."""
        children = [
            Where({"root_id": root}, at_least={"parent": ""}) for root in {row.root_id for row in rows}
        ]
        below = await self.ask(
            lambda: [row for where in children for row in self.rows.select(self._runs, where)]
        )
        totals = family_totals([*rows, *below])
        return {row.run_id: totals[row.run_id] for row in rows}

    async def run(self, run_id: str) -> RunRow:
        """Return one run. Raises `RunNotFound`."""
        row = await self.ask(lambda: self.rows.get(self._runs, run_id))
        if row is None:
            raise RunNotFound(f"there is no run {run_id!r} in the namespace {self.log.namespace!r}")
        return row

    async def rows_of(self, run_ids: Iterable[str]) -> tuple[list[RunRow], list[ApprovalRow]]:
        """Return the rows and the approvals of these runs; ids of other subjects are skipped."""
        ids = tuple(run_ids)

        def found() -> tuple[list[RunRow], list[ApprovalRow]]:
            rows = [row for each in ids if (row := self.rows.get(self._runs, each)) is not None]
            asked = [self.rows.get(self._approvals, row.run_id) for row in rows]
            return rows, [approval for each in asked if each is not None for approval in each.approvals]

        return await self.ask(found)

    async def rows_above(self, rows: Iterable[RunRow]) -> list[RunRow]:
        """Return the rows of all runs above these, without those that are among them."""
        known, parents = {row.run_id for row in rows}, {row.parent for row in rows}

        def found() -> list[RunRow]:
            above: dict[str, RunRow] = {}
            left = parents - known
            while left:
                parent = left.pop()
                row = self.rows.get(self._runs, parent) if parent else None
                if row is not None:
                    above[row.run_id] = row
                    left |= {row.parent} - known - above.keys()
            return list(above.values())

        return await self.ask(found) if parents - known - {None} else []

    async def approvals(self, pending: bool | None = True, run_id: str | None = None) -> list[ApprovalRow]:
        """Return approvals, oldest first: pending ones, decided ones (False) or both (None), of all runs or of one."""
        found = await self.ask(lambda: self._runs_with_approvals(pending, run_id))
        approvals = [approval for row in found for approval in row.approvals]
        wanted = [a for a in approvals if pending is None or (a.decision is None) == pending]
        return sorted(
            wanted, key=lambda a: (a.requested_at, a.run_id)
        )  # stable: then in the order of their requests

    async def approvals_named(self, text: str) -> list[ApprovalRow]:
        """Return the approval with this id, otherwise those whose ids begin or end with the text."""
        found = await self.ask(lambda: self.rows.select(self._approvals, Where(holding={"ids": text})))
        approvals = [approval for row in found for approval in row.approvals]
        exact = [approval for approval in approvals if approval.approval_id == text]
        return exact or [
            a for a in approvals if a.approval_id.startswith(text) or a.approval_id.endswith(text)
        ]

    def _runs_with_approvals(self, pending: bool | None, run_id: str | None) -> list[RunApprovals]:
        if run_id is not None:
            row = self.rows.get(self._approvals, run_id)
            return [] if row is None else [row]
        return self.rows.select(self._approvals, Where(at_least={"pending": 1} if pending else {}))
